//! An hour in which everything goes wrong that can: 10 nodes and 200 pods under faults of all kinds, crashes, a lost
//! node, two leaders, skewed clocks, a drain and rollouts. Then it stops, and the cluster must find its way back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cluster_simulator::{self as life, Component, Life, Times};
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::faults::{Fault, Matcher, NoAnswer, Outage, Refusal, Rule, When};
use embedded_apiserver::in_process;
use embedded_apiserver::{Cluster, Options};
use http::{Method, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::budget_watch::{BudgetWatch, Watched};
use crate::living::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, NODES, PODS, STATEFUL_SETS};
use crate::seeds::Trace;

const NODE_COUNT: usize = 10;
/// From when on things go wrong, and for how long.
const CALM: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);
/// Until all is well again.
const RECOVERY: Duration = Duration::from_secs(3600);
/// Losses that the budget's controller may not have heard of: longer than any of its outages here.
const FORGIVEN: SignedDuration = SignedDuration::from_mins(5);
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

const TIMES: Times =
    Times { start: Duration::from_secs(2), run: Duration::from_secs(10), terminate: Duration::from_secs(3) };

/// The workloads: path, kind, name, replicas. A daemon set has one for each node.
const WORKLOADS: [(&str, &str, &str, usize); 5] = [
    (DEPLOYMENTS, "Deployment", "web", 70),
    (DEPLOYMENTS, "Deployment", "api", 60),
    (DEPLOYMENTS, "Deployment", "worker", 50),
    (STATEFUL_SETS, "StatefulSet", "db", 10),
    (DAEMON_SETS, "DaemonSet", "agent", NODE_COUNT),
];

/// Budgets, and how many pods they want to be healthy.
fn watched() -> [Watched; 2] {
    [Watched { app: "web", least: 63 }, Watched { app: "api", least: 57 }]
}

/// The scenario for one seed.
///
/// # Errors
/// The cluster did not find its way back, or a budget was overdrawn.
pub async fn an_hour_of_faults(seed: u64, trace: Trace) -> Result<()> {
    let cluster = Cluster::new(Options {
        clock: Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000)?)),
        seed: Some(seed),
        ..Options::default()
    });
    if let Some(trace) = &trace {
        cluster.faults().trace_to(trace.clone());
    }
    let options = life::Options {
        times: TIMES,
        trace,
        without_events: true,
        node_heartbeats: true,
        ..life::Options::default()
    };
    let life = life::start(&cluster, options.clone());
    let budgets = BudgetWatch::start(&cluster, &watched(), FORGIVEN);
    let scene = Scene { cluster, life, options };
    scene.fill().await?;
    scene.converge(CALM).await.context("before anything went wrong")?;

    let start = scene.cluster.now();
    scene.cluster.faults().set(rules(&scene.cluster, start));
    let end = Instant::now() + HOUR;
    let troubles =
        async { tokio::join!(scene.crashes(end), scene.node_loss(), scene.second_leader(&budgets)) };
    let (_, drained, changed, deleted) =
        tokio::join!(troubles, scene.drain("n3"), scene.changes(), scene.deletions(end));
    drained.and(changed).and(deleted)?;
    tokio::time::sleep_until(end).await;

    scene.calm_down().await?;
    scene.converge(RECOVERY).await.context("after all that went wrong")?;
    let verdict = budgets.verdict();
    ensure!(verdict.overdrawn.is_empty(), "{}", verdict.overdrawn.join("\n"));
    ensure!(verdict.evictions > 0, "nothing was evicted, so no budget was tried");
    Ok(())
}

struct Scene {
    cluster: Cluster,
    life: Life,
    options: life::Options,
}

/// All kinds of faults, each likely enough to happen in the hour from `start` on.
fn rules(cluster: &Cluster, start: Timestamp) -> Vec<Rule> {
    let end = start + SignedDuration::from_secs(3600);
    let secs = Duration::from_secs;
    let mut rules = Vec::new();
    let mut rule = |on: Matcher, when: When, fault: Fault| rules.push(Rule { on, when, fault });
    let window = |seconds: i64| {
        let from = start + SignedDuration::from_secs(cluster.faults().random(3000).try_into().unwrap_or(0));
        When::always().during(from, from + SignedDuration::from_secs(seconds))
    };
    // The whole server, for a moment.
    rule(Matcher::any(), window(60), Fault::Refuse(Refusal::Unavailable));
    rule(Matcher::webhook("fails.usher.dev"), window(60), Fault::Webhook(Outage::Refused));
    rule(Matcher::webhook("ignored.usher.dev"), window(60), Fault::Webhook(Outage::Silent));
    for _ in 0..3 {
        rule(Matcher::any(), window(1), Fault::DropWatch { after: Duration::ZERO });
        let time = Some(secs(10 + cluster.faults().random(50)));
        rule(Matcher::any().resource("pods"), window(1), Fault::StallWatch { time });
    }
    let chances = [
        (0.2, Fault::DropWatch { after: secs(90) }),
        (0.05, Fault::StallWatch { time: Some(secs(40)) }),
        (0.3, Fault::Stale { revisions: 40 }),
        (0.02, Fault::Refuse(Refusal::Conflict)),
        (0.01, Fault::Refuse(Refusal::TooManyRequests { retry_after: 1 })),
        (0.01, Fault::Refuse(Refusal::Internal)),
        (0.005, Fault::Timeout { applied: true, answered: false, after: secs(10) }),
        (0.005, Fault::Timeout { applied: false, answered: false, after: secs(10) }),
        (0.005, Fault::Timeout { applied: true, answered: true, after: secs(30) }),
        (0.02, Fault::Latency(Duration::from_millis(200))),
        (0.005, Fault::Latency(secs(5))),
    ];
    for (chance, fault) in chances {
        rule(Matcher::any(), When::chance(chance).during(start, end), fault);
    }
    rules
}

impl Scene {
    fn random(&self, bound: u64) -> u64 {
        self.cluster.faults().random(bound)
    }

    async fn random_sleep(&self, least: u64, most: u64) {
        sleep(Duration::from_millis(least * 1000 + self.random((most - least) * 1000))).await;
    }

    /// As a client that faults do not spare.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let client = self.cluster.client("kubectl");
        match client.oneshot(request(method, path, body)?).await {
            Ok(response) => {
                let code = response.status().as_u16();
                let Ok(body) = response.into_body().collect().await;
                Ok((code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
            }
            Err(NoAnswer) => Ok((0, Value::Null)),
        }
    }

    /// Asks until it is done.
    async fn insist(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        for _ in 0..200 {
            let (code, answer) = self.ask(method.clone(), path, body).await?;
            if (200..300).contains(&code) || (code == 409 && method == Method::POST) {
                return Ok(answer);
            }
            sleep(Duration::from_secs(1)).await;
        }
        bail!("{method} {path} is refused again and again")
    }

    /// As it really is.
    async fn truth(&self, path: &str) -> Result<Value> {
        let Ok(response) = self.cluster.service().oneshot(request(Method::GET, path, &Value::Null)?).await;
        let Ok(body) = response.into_body().collect().await;
        Ok(serde_json::from_slice(&body.to_bytes())?)
    }

    async fn fill(&self) -> Result<()> {
        for number in 1..=NODE_COUNT {
            self.insist(Method::POST, NODES, &node(&format!("n{number}"))).await?;
        }
        for (path, kind, app, replicas) in WORKLOADS {
            self.insist(Method::POST, path, &workload(kind, app, replicas)).await?;
        }
        let budgets = [("web", json!({"maxUnavailable": "10%"})), ("api", json!({"minAvailable": 57}))];
        for (app, mut spec) in budgets {
            spec["selector"] = json!({"matchLabels": {"app": app}});
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec,
            });
            self.insist(Method::POST, BUDGETS, &budget).await?;
        }
        let allow = |review: Value| async move {
            Ok(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true},
            }))
        };
        self.cluster.endpoints().register_service("default", "hooks", in_process(allow));
        let webhooks: Vec<Value> = [("fails", "Fail"), ("ignored", "Ignore")].map(webhook).into();
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hooks"}, "webhooks": webhooks,
        });
        self.insist(Method::POST, HOOKS, &configuration).await?;
        Ok(())
    }

    /// One component after another crashes and comes back, or has a wrong clock for a while.
    async fn crashes(&self, end: Instant) {
        while Instant::now() < end {
            self.random_sleep(30, 300).await;
            let index = usize::try_from(self.random(Component::ALL.len() as u64)).unwrap_or_default();
            let component = Component::ALL[index];
            if self.random(3) == 0 {
                let seconds = i64::try_from(self.random(41)).unwrap_or_default() - 20;
                self.life.skew(component, SignedDuration::from_secs(seconds));
                continue;
            }
            self.life.crash(component);
            self.random_sleep(1, 90).await;
            self.life.restart(component);
        }
    }

    async fn node_loss(&self) {
        self.random_sleep(300, 2400).await;
        self.life.kubelet_down("n7");
        self.random_sleep(60, 600).await;
        self.life.kubelet_up("n7");
    }

    /// For a moment, everything is there twice.
    async fn second_leader(&self, budgets: &BudgetWatch) {
        self.random_sleep(300, 3000).await;
        budgets.be_lenient(true);
        let second = life::start(&self.cluster, self.options.clone());
        // Kubelets are not elected: each node has its one, and only the first life knows which of them are silent.
        second.crash(Component::NodeLifecycle);
        second.crash(Component::Kubelet);
        second.crash(Component::Node);
        self.random_sleep(10, 90).await;
        drop(second);
        // The one that stays writes over what the other has left as soon as it hears of it.
        self.random_sleep(60, 61).await;
        budgets.be_lenient(false);
    }

    /// As `kubectl drain` does; after half an hour it gives up.
    async fn drain(&self, name: &str) -> Result<()> {
        self.random_sleep(60, 1200).await;
        let node = format!("{NODES}/{name}");
        self.insist(Method::PATCH, &node, &json!({"spec": {"unschedulable": true}})).await?;
        let deadline = Instant::now() + Duration::from_secs(1800);
        while Instant::now() < deadline {
            let path = format!("{PODS}?fieldSelector=spec.nodeName%3D{name}");
            let list = self.insist(Method::GET, &path, &Value::Null).await?;
            let pods: Vec<&Value> = list["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet")
                .collect();
            if pods.is_empty() {
                break;
            }
            for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let eviction =
                    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
                self.ask(Method::POST, &format!("{PODS}/{name}/eviction"), &eviction).await?;
            }
            sleep(Duration::from_secs(5)).await;
        }
        self.insist(Method::PATCH, &node, &json!({"spec": {"unschedulable": false}})).await?;
        Ok(())
    }

    /// Now and then somebody deletes a pod.
    async fn deletions(&self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            self.random_sleep(30, 300).await;
            let pods = self.cluster.store().list("pods", Some("default")).objects;
            let index = usize::try_from(self.random(pods.len() as u64))?;
            let Some(pod) = pods.get(index) else { continue };
            let name = &pod.key.name;
            // Whether that works is chance.
            self.ask(Method::DELETE, &format!("{PODS}/{name}"), &Value::Null).await?;
        }
        Ok(())
    }

    /// Rollouts, and a scaling there and back.
    async fn changes(&self) -> Result<()> {
        for (version, path, app) in
            [(2, DEPLOYMENTS, "web"), (2, STATEFUL_SETS, "db"), (3, DEPLOYMENTS, "worker")]
        {
            self.random_sleep(60, 900).await;
            let image = json!({"spec": {"template": {"metadata": {"annotations": {"version": version.to_string()}}}}});
            self.insist(Method::PATCH, &format!("{path}/{app}"), &image).await?;
        }
        for replicas in [40, 60] {
            self.random_sleep(30, 400).await;
            let patch = json!({"spec": {"replicas": replicas}});
            self.insist(Method::PATCH, &format!("{DEPLOYMENTS}/api"), &patch).await?;
        }
        Ok(())
    }

    /// Everybody is back, with the right time, and nothing goes wrong any more.
    async fn calm_down(&self) -> Result<()> {
        self.cluster.faults().stop();
        for component in Component::ALL {
            self.life.skew(component, SignedDuration::ZERO);
            self.life.restart(component);
        }
        for number in 1..=NODE_COUNT {
            self.life.kubelet_up(&format!("n{number}"));
        }
        self.insist(Method::PATCH, &format!("{NODES}/n3"), &json!({"spec": {"unschedulable": false}}))
            .await?;
        self.insist(Method::PATCH, &format!("{DEPLOYMENTS}/api"), &json!({"spec": {"replicas": 60}})).await?;
        Ok(())
    }

    /// Waits until all is as it should be, and stays so.
    async fn converge(&self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            sleep(Duration::from_secs(15)).await;
            match self.is_well().await {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() > deadline => return Err(why),
                Err(_) => {}
            }
        }
    }

    /// All workloads are available with exactly their pods, none of which is on its way out.
    async fn is_well(&self) -> Result<()> {
        for (path, kind, name, replicas) in WORKLOADS {
            let object = self.truth(&format!("{path}/{name}")).await?;
            let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
            let fields: &[&str] = match kind {
                "Deployment" => &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
                "StatefulSet" => &["replicas", "readyReplicas", "availableReplicas"],
                _ => &["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable"],
            };
            let there = fields.iter().all(|field| status[*field] == replicas);
            ensure!(there && &status["observedGeneration"] == generation, "{kind} {name} stays {status}");
            ensure!(
                kind != "StatefulSet" || status["currentRevision"] == status["updateRevision"],
                "{name} is not updated: {status}"
            );
        }
        let pods = self.cluster.store().list("pods", Some("default")).objects;
        let wanted: usize = WORKLOADS.iter().map(|(.., replicas)| replicas).sum();
        ensure!(pods.len() == wanted, "{} pods where {wanted} should be", pods.len());
        for pod in pods.iter() {
            ensure!(!pod.text().contains("\"deletionTimestamp\":"), "{} stays, and should go", pod.key.name);
        }
        for Watched { app, least } in watched() {
            let status = self.truth(&format!("{BUDGETS}/{app}")).await?["status"].clone();
            let left = usize::try_from(status["currentHealthy"].as_i64().unwrap_or_default())? - least;
            ensure!(status["disruptionsAllowed"] == left, "the budget of {app} stays {status}");
        }
        Ok(())
    }
}

fn request(method: Method, path: &str, body: &Value) -> Result<http::Request<Full<Bytes>>> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = http::Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
    Ok(request.body(Full::new(Bytes::from(body)))?)
}

fn node(name: &str) -> Value {
    let size = json!({"cpu": "16", "memory": "64Gi", "pods": "40"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": size, "allocatable": size},
    })
}

fn workload(kind: &str, app: &str, replicas: usize) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "500m"}}}]},
    });
    let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template});
    if kind != "DaemonSet" {
        spec["replicas"] = replicas.into();
    }
    if kind == "StatefulSet" {
        spec["serviceName"] = app.into();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": spec})
}

fn webhook((name, policy): (&str, &str)) -> Value {
    json!({
        "name": format!("{name}.usher.dev"), "failurePolicy": policy, "sideEffects": "None", "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "hooks"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    })
}
