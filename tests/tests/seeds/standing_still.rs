//! Drains that stand still: refusals of others at budgets with room, budgets without room, silent interceptors, surges that cannot help,
//! rollouts that hang, Deployments that nobody has observed, waves over empty nodes. While nothing moves, nothing is written again and
//! again, and what is told does not change back. When nothing is in the way any more, everybody leaves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cluster_simulator::Component;
use embedded_apiserver::in_process;
use http::{Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::ServiceBuilder;
use usher_api::NodeMaintenance;
use usher_api::names::{EVICTION_REQUEST_STRATEGY_ANNOTATION, FIELD_MANAGER, INTERCEPTOR_ANNOTATION_PREFIX};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_forecast::followed_drain::drained_nodes;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, NODES, node, template, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_label};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::{self, answer_inside};
use usher_tests::seeds::{self, Named, Trace};

/// By then everybody has said what they wait for, and who can leave has left.
const SETTLED: Duration = Duration::from_secs(600);
/// Longer than the deadline of a silent interceptor and the longest pause between two attempts.
const STILL: Duration = Duration::from_secs(2400);
/// Whoever waits leaves within this time once nothing is in the way: the deadline of a silent interceptor and the longest pause between
/// two attempts, for each of three nodes in turn.
const BOUND: Duration = Duration::from_secs(3 * (1800 + 900));
/// So often an object may be written meanwhile: an interceptor that waits gives a sign of life every five minutes or so.
const WRITES: usize = 16;
/// So often an event may be recorded again meanwhile.
const EVENTS: u64 = 3;
/// Of each application; some of them are on nodes that are drained.
const REPLICAS: u64 = 6;
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const REQUEST_RESOURCE: &str = "evictionrequest.coordination.k8s.io/evictionrequests";
const EVENTS_PATH: &str = "/api/v1/namespaces/default/events";
const READY_DELAY: &str = "cluster-simulator.dev/ready-delay";

/// What is in the way of the pods of an application of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Nothing is.
    Nothing,
    /// A policy refuses their evictions, whatever room their budget has.
    Policy,
    /// A webhook does, with some code.
    Webhook,
    NoRoom,
    TwoBudgets,
    /// Somebody has a turn and says nothing.
    Silence,
    /// Nobody may create the pods of a surge.
    NoNewPods,
    /// New pods of a rollout never get ready.
    Rollout,
    /// There was a change, and its rollout is paused.
    Pause,
    /// Nobody looks at Deployments, and this one was scaled.
    Unobserved,
}

const OBSTACLES: [Obstacle; 9] = [
    Obstacle::Policy,
    Obstacle::Webhook,
    Obstacle::NoRoom,
    Obstacle::TwoBudgets,
    Obstacle::Silence,
    Obstacle::NoNewPods,
    Obstacle::Rollout,
    Obstacle::Pause,
    Obstacle::Unobserved,
];

impl Obstacle {
    fn app(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn path(self) -> String {
        format!("{DEPLOYMENTS}/{}", self.app())
    }

    fn surges(self) -> bool {
        matches!(self, Self::Nothing | Self::NoNewPods | Self::Rollout | Self::Pause | Self::Unobserved)
    }

    /// Its application, with nothing in the way yet.
    async fn prepare(self, living: &Living, random: &mut fastrand::Rng) -> Result<()> {
        let app = self.app();
        let mut deployment = workload("Deployment", &app, json!({"replicas": REPLICAS}));
        deployment["spec"]["template"] = template(&app, "100m");
        if !self.surges() {
            let off = json!({"annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: "Off"}});
            deployment["metadata"]["annotations"] = off["annotations"].clone();
        }
        if self == Self::Silence {
            let class = format!("{INTERCEPTOR_ANNOTATION_PREFIX}silent.example.com");
            deployment["spec"]["template"]["metadata"]["annotations"] = json!({class: "10500"});
        }
        living.create(DEPLOYMENTS, &deployment).await?;
        if self == Self::TwoBudgets {
            living.budget(&app, &app, json!({"maxUnavailable": 1})).await?;
        }
        // What is refused has a budget with room, or another reason to stay.
        if matches!(self, Self::Policy | Self::Webhook) {
            living.budget(&app, &app, json!({"maxUnavailable": random.u64(..4).min(2)})).await?;
        }
        living.rolled_out(&app).await.map(drop)
    }

    async fn rise(self, living: &Living, random: &mut fastrand::Rng) -> Result<()> {
        let app = self.app();
        let change =
            |annotations: Value| json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        match self {
            Self::Nothing | Self::Silence => {}
            Self::Policy => {
                let rule = json!({
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
                });
                living
                    .refuse_unless(&app, rule, &format!("!object.metadata.name.startsWith('{app}-')"))
                    .await?;
            }
            Self::Webhook => {
                let code = random.choice([None, Some(403), Some(409), Some(429), Some(500)]).flatten();
                let prefix = format!("{app}-");
                let refuse = move |review: Value| {
                    let name = review["request"]["name"].as_str().unwrap_or_default();
                    let status = json!({"code": code, "message": "not now"});
                    let answer = json!({
                        "uid": review["request"]["uid"], "allowed": !name.starts_with(&prefix), "status": status,
                    });
                    async move {
                        Ok(
                            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}),
                        )
                    }
                };
                living.cluster.endpoints().register_service("default", "refuses", in_process(refuse));
                let configuration = json!({
                    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": app},
                    "webhooks": [{
                        "name": "refuses.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                        "clientConfig": {"service": {"namespace": "default", "name": "refuses"}},
                        "rules": [{
                            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
                        }],
                    }],
                });
                living.create(HOOKS, &configuration).await?;
            }
            Self::NoRoom => drop(living.budget(&app, &app, json!({"maxUnavailable": 0})).await?),
            Self::TwoBudgets => {
                living.budget(&format!("{app}-too"), &app, json!({"maxUnavailable": 1})).await?;
            }
            Self::NoNewPods => {
                let rule = json!({
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                });
                let other = format!("object.metadata.?labels['app'].orValue('') != '{app}'");
                living.refuse_unless(&app, rule, &other).await?;
            }
            Self::Rollout => drop(living.patch(&self.path(), &change(json!({READY_DELAY: "240h"}))).await?),
            Self::Pause => {
                let mut paused = change(json!({"version": "2"}));
                paused["spec"]["paused"] = true.into();
                living.patch(&self.path(), &paused).await?;
            }
            Self::Unobserved => {
                living.life.crash(Component::Deployment);
                living
                    .patch(
                        &self.path(),
                        &json!({"spec": {"replicas": random.u64(REPLICAS - 2..=REPLICAS + 2)}}),
                    )
                    .await?;
            }
        }
        Ok(())
    }

    async fn fall(self, living: &Living) -> Result<()> {
        let app = self.app();
        match self {
            Self::Nothing | Self::Silence => {}
            Self::NoNewPods => living.refuse_no_more(&app).await?,
            Self::Policy => {
                living.refuse_no_more(&app).await?;
                living.delete(&format!("{BUDGETS}/{app}")).await?;
            }
            Self::Webhook => {
                living.delete(&format!("{HOOKS}/{app}")).await?;
                living.delete(&format!("{BUDGETS}/{app}")).await?;
            }
            Self::NoRoom => drop(living.delete(&format!("{BUDGETS}/{app}")).await?),
            Self::TwoBudgets => drop(living.delete(&format!("{BUDGETS}/{app}-too")).await?),
            Self::Rollout => {
                let ready = json!({"spec": {"template": {"metadata": {"annotations": {READY_DELAY: null}}}}});
                living.patch(&self.path(), &ready).await?;
            }
            Self::Pause => drop(living.patch(&self.path(), &json!({"spec": {"paused": null}})).await?),
            Self::Unobserved => living.life.restart(Component::Deployment),
        }
        Ok(())
    }
}

/// What the manager has written, by path; events and leases aside, which are looked at by themselves or not at all.
type Writes = Arc<Mutex<Vec<String>>>;

fn start_manager(living: &Living) -> (JoinSet<()>, Writes) {
    let writes = Writes::default();
    let noted = writes.clone();
    let note = move |request: Request<Body>| {
        let path = request.uri().path();
        if request.method() != Method::GET && !path.contains("/events") {
            noted.lock().push(path.trim_end_matches("/status").to_owned());
        }
        request
    };
    let service =
        ServiceBuilder::new().map_request(note).service(living.cluster.service_as(beside::manager()));
    let server = living.cluster.clone();
    let clock = Clock::from_fn(move || server.now());
    let mut manager = JoinSet::new();
    let client = kube::Client::new(service, "default");
    manager.spawn(async move { run_all(client, clock, &BundledInterceptor::ALL).await });
    (manager, writes)
}

async fn drains_stand_still(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start(seed, 6).await?;
    if let Some(trace) = trace {
        living.cluster.faults().trace_to(trace);
    }
    living.install_crds().await?;
    living.install_policies(&["policies.yaml", "workloads/deployment-limits.yaml"]).await?;
    let webhook = kube::Client::new(living.cluster.service_as(beside::manager()), "default");
    for (path, configuration) in answer_inside(&living.cluster, webhook, &BundledInterceptor::ALL) {
        living.create(&path, &configuration).await?;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let obstacles: Vec<Obstacle> = OBSTACLES.into_iter().filter(|_| random.u8(..3) == 0).collect();
    for obstacle in obstacles.iter().chain([&Obstacle::Nothing]) {
        obstacle.prepare(&living, &mut random).await?;
    }
    // No pod is on these two, and none comes.
    let pool = |name: &str| {
        let mut node = node(name);
        node["metadata"]["labels"]["pool"] = "blue".into();
        node
    };
    let empty = ["n7", "n8"];
    for name in empty {
        let mut node = pool(name);
        node["spec"] = json!({"unschedulable": true});
        living.create(NODES, &node).await?;
    }
    for name in ["n1", "n2", "n3"] {
        living.patch(&format!("{NODES}/{name}"), &json!({"metadata": {"labels": {"pool": "blue"}}})).await?;
    }
    for obstacle in &obstacles {
        obstacle.rise(&living, &mut random).await?;
    }
    let (_manager, writes) = start_manager(&living);
    let mut maintenance = of_label("m", "Drain", "pool", &["blue"]);
    let limit = random.choice([None, Some(json!(1)), Some(json!(3)), Some(json!("60%"))]).flatten();
    maintenance["spec"]["drainLimit"] = limit.clone().map_or(Value::Null, |most| json!({"maxNodes": most}));
    living.create(MAINTENANCES, &maintenance).await?;
    sleep(SETTLED).await;
    // One that comes late.
    living.create(NODES, &pool("n9")).await?;
    living.patch(&format!("{NODES}/n9"), &json!({"spec": {"unschedulable": true}})).await?;
    sleep(SETTLED).await;

    let before = events(&living).await?;
    let revision = living.cluster.store().revision();
    writes.lock().clear();
    let end = Instant::now() + STILL;
    while Instant::now() < end {
        empty_nodes_are_drained(&living).await?;
        sleep(Duration::from_secs(60)).await;
    }
    let case = format!("{obstacles:?} with the limit {limit:?}");
    written_once(&writes.lock()).with_context(|| case.clone())?;
    told_once(&living, revision).with_context(|| case.clone())?;
    only_rollouts_are_called_so(&living, &obstacles).with_context(|| case.clone())?;
    for (event, count) in events(&living).await? {
        let again = count - before.get(&event).copied().unwrap_or(0);
        ensure!(again <= EVENTS, "{event} was recorded {again} times while nothing moved, {case}");
    }

    for obstacle in &obstacles {
        obstacle.fall(&living).await?;
    }
    let bound = Instant::now() + BOUND;
    while !is_drained(&living.maintenance("m").await?) {
        if Instant::now() > bound {
            let requests = living.get(REQUESTS).await?;
            bail!("nothing is in the way any more of {case}: {requests:#}");
        }
        sleep(Duration::from_secs(10)).await;
    }
    living.delete(&format!("{MAINTENANCES}/m")).await?;
    living.until(MAINTENANCES, |list| list["items"].as_array().is_none_or(Vec::is_empty)).await?;
    living.until(REQUESTS, |list| list["items"].as_array().is_none_or(Vec::is_empty)).await.map(drop)
}

/// A node that the drain has come to and that has no pod is told to be drained.
async fn empty_nodes_are_drained(living: &Living) -> Result<()> {
    let found = living.maintenance("m").await?;
    let maintenance: NodeMaintenance = serde_json::from_value(found.clone())?;
    let is_shown = drained_nodes(&maintenance);
    for status in maintenance.status.iter().flat_map(|status| &status.node_statuses) {
        let name = &status.node_ref.name;
        let is_empty = living.pods_on(name).await?.is_empty();
        let has_come = !status.drain_targets.is_empty() || status.drain_message == "Drained";
        ensure!(!(has_come && is_empty) || is_shown(status), "{name} is empty, and not drained: {found:#}");
        ensure!(is_empty || !is_shown(status), "{name} is drained, and not empty: {found:#}");
    }
    Ok(())
}

/// Nothing was written again and again.
fn written_once(writes: &[String]) -> Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in writes {
        *counts.entry(path).or_default() += 1;
    }
    let attempts: usize =
        counts.iter().filter(|(path, _)| path.ends_with("/eviction")).map(|(_, count)| count).sum();
    for (path, count) in &counts {
        ensure!(*count <= WRITES, "{path} was written {count} times: {counts:#?} with {attempts} attempts");
    }
    Ok(())
}

/// What a condition said, and does not say any more, it does not say again.
fn told_once(living: &Living, since: u64) -> Result<()> {
    let mut told: HashMap<(String, String), Vec<String>> = HashMap::new();
    for resource in
        ["evictionrequest.coordination.k8s.io/evictionrequests", "nodemaintenance.k8s.io/nodemaintenances"]
    {
        let (changes, _) = living.cluster.store().events_after(resource, since, usize::MAX).unwrap();
        for change in changes {
            let object: Value = serde_json::from_str(change.object.text())?;
            for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
                let key = (object["metadata"]["name"].to_string(), condition["type"].to_string());
                let says = format!("{} {}", condition["status"], condition["reason"]);
                let before = told.entry(key).or_default();
                if before.last() != Some(&says) {
                    before.push(says);
                }
            }
        }
    }
    for (condition, said) in told {
        let different: BTreeSet<&String> = said.iter().collect();
        ensure!(different.len() == said.len(), "{condition:?} changed back: {said:#?}");
    }
    Ok(())
}

/// Whoever waits for a rollout says so, and nobody else.
fn only_rollouts_are_called_so(living: &Living, obstacles: &[Obstacle]) -> Result<()> {
    let (changes, _) = living.cluster.store().events_after(REQUEST_RESOURCE, 0, usize::MAX).unwrap();
    for change in changes {
        let request: Value = serde_json::from_str(change.object.text())?;
        let says = request["status"]["message"].as_str().unwrap_or_default();
        let of = request["spec"]["podRef"]["name"].as_str().unwrap_or_default();
        let rolls_out = [Obstacle::Rollout, Obstacle::Pause].iter().any(|it| of.starts_with(&it.app()));
        ensure!(rolls_out || !says.contains("rollout"), "{of}: {says}, and {obstacles:?}");
    }
    Ok(())
}

/// How often each event was recorded.
async fn events(living: &Living) -> Result<HashMap<String, u64>> {
    let list = living.get(EVENTS_PATH).await?;
    let mut counts = HashMap::new();
    for event in list["items"].as_array().into_iter().flatten() {
        let component = &event["reportingComponent"];
        if component != FIELD_MANAGER {
            continue;
        }
        let of = &event["involvedObject"];
        let count = event["series"]["count"].as_u64().or(event["count"].as_u64()).unwrap_or(1);
        *counts.entry(format!("{} of {} {}", event["reason"], of["kind"], of["name"])).or_default() += count;
    }
    Ok(counts)
}

#[test]
fn while_nothing_moves_nothing_is_told_twice_and_then_everybody_leaves() {
    let test = "while_nothing_moves_nothing_is_told_twice_and_then_everybody_leaves";
    let seeds = seeds::wanted(seeds::FEW).unwrap();
    if let Err(failure) = seeds::run(Named { module: module_path!(), test }, seeds, drains_stand_still) {
        panic!("{failure}");
    }
}
