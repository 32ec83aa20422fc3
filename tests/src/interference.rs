//! Maintenances that are interfered with: nodes join, leave, are replaced and relabelled, limits come and go, hands take marks,
//! finalizers and parts of the status away, and the manager and its webhook are gone at times. Then it stops: every drain has kept
//! its order on each node, ends, and leaves nothing behind.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cluster_simulator as life;
use embedded_apiserver::faults::{Fault, Matcher, Outage, Refusal, Rule, When};
use futures::future::join;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::EVICTION_REQUEST_STRATEGY_ANNOTATION;
use usher_apply::Clock;
use usher_controllers::run_all;

use crate::chaos::Process;
use crate::living::{DAEMON_SETS, Living, NODES, PODS, TIMES, bare_pod, node, template};
use crate::maintenances::{MAINTENANCES, is_drained, of_label};
use crate::requests::REQUESTS;
use crate::scenario::beside::{WITHOUT_SURGES, answer_inside};
use crate::seeds::Trace;
use crate::witness::Witness;

const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
/// How long it goes wrong, and how long a drain may take when nothing does any more.
const TROUBLE: Duration = Duration::from_secs(900);
const BOUND: Duration = Duration::from_secs(1200);
/// Longer than a watch of the manager is silent: it knows by then what is on a node.
const KNOWN: Duration = Duration::from_secs(30);

const POOLS: [&str; 3] = ["blue", "green", "red"];
/// Maintenances, and the pools that they select. Nothing is red in the beginning.
const MAINTAINED: [(&str, &[&str]); 3] = [("a", &["blue"]), ("b", &["blue", "green"]), ("c", &["red"])];
const NODE_COUNT: u64 = 6;
/// Somebody has cordoned it before, and it is to stay so.
const CORDONED: &str = "n6";
const HELD_NODES: &str = "/api/v1/namespaces/usher-system/configmaps/usher-held-nodes";
const MARKS: [&str; 3] = [
    "nodemaintenance.k8s.io/held-by",
    "nodemaintenance.k8s.io/was-unschedulable",
    "nodemaintenance.k8s.io/phase",
];

/// The scenario for one seed.
///
/// # Errors
/// A rule was broken, or something does not end.
pub async fn hands_everywhere(seed: u64, trace: Trace) -> Result<()> {
    let options = life::Options {
        times: TIMES,
        trace: trace.clone(),
        without_events: true,
        ..life::Options::default()
    };
    let living = Living::start_with(seed, usize::try_from(NODE_COUNT)?, options).await?;
    if let Some(trace) = trace {
        living.cluster.faults().trace_to(trace);
    }
    let daemons = [Daemons::None, Daemons::Leave, Daemons::Stay][usize::try_from(seed % 3)?];
    let scene = Scene { daemons, living };
    scene.fill().await?;
    let witness = Witness::of(&scene.living.cluster);
    let judge = witness.clone();
    let mut manager = Process::new(&scene.living.cluster, "manager", move |run| {
        let clock = run.clock.clone();
        run_all(judge.manager(&run.name), Clock::from_fn(move || clock.now()), &WITHOUT_SURGES)
    });
    let start = scene.living.cluster.now();
    scene.living.cluster.faults().set(scene.rules(start));
    let end = Instant::now() + TROUBLE;
    let (hands, ()) = join(scene.interfere(end), manager.upheaval(end, Duration::from_secs(40))).await;
    hands?;
    scene.living.cluster.faults().set(Vec::new());
    let ended = scene.within(BOUND, || scene.is_emptied()).await.context("a drain does not end");
    let breaches = witness.seen().lock().breaches.clone();
    ensure!(breaches.is_empty(), "{}", breaches.join("\n"));
    ended?;
    scene.living.set_stage("a", "Complete").await?;
    for name in ["b", "c"] {
        scene.living.delete(&format!("{MAINTENANCES}/{name}")).await?;
    }
    scene.within(BOUND, || scene.is_left_as_it_was()).await.context("something is left behind")
}

/// The daemons on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemons {
    None,
    Leave,
    /// Their DaemonSet opts out.
    Stay,
}

struct Scene {
    living: Living,
    daemons: Daemons,
}

impl Scene {
    fn random(&self, bound: u64) -> u64 {
        self.living.cluster.faults().random(bound)
    }

    fn some_node(&self) -> String {
        format!("n{}", 1 + self.random(NODE_COUNT))
    }

    fn some_maintenance(&self) -> String {
        let at = usize::try_from(self.random(MAINTAINED.len() as u64)).unwrap_or(0);
        format!("{MAINTENANCES}/{}", MAINTAINED[at].0)
    }

    async fn fill(&self) -> Result<()> {
        let living = &self.living;
        living.install_crds().await?;
        living.install_policies(&["policies.yaml"]).await?;
        let webhook = kube::Client::new(living.cluster.service(), "default");
        for (path, configuration) in answer_inside(&living.cluster, webhook, &WITHOUT_SURGES) {
            living.create(&path, &configuration).await?;
        }
        for (name, value) in [("low", 100), ("high", 5000)] {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            });
            living.create(PRIORITY_CLASSES, &class).await?;
        }
        if self.daemons != Daemons::None {
            let spec = json!({
                "selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", "100m"),
            });
            let strategy = (self.daemons == Daemons::Stay).then_some("Off");
            let agent = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": spec,
                "metadata": {"name": "agent", "annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: strategy}},
            });
            living.create(DAEMON_SETS, &agent).await?;
        }
        living.patch(&format!("{NODES}/{CORDONED}"), &json!({"spec": {"unschedulable": true}})).await?;
        for number in 1..=NODE_COUNT {
            self.put_pods(&format!("n{number}")).await?;
        }
        for (name, pool) in [("n1", "blue"), ("n2", "blue"), ("n3", "green"), (CORDONED, "green")] {
            self.label(name, Some(pool)).await?;
        }
        sleep(KNOWN).await;
        for (name, pools) in MAINTAINED {
            let mut maintenance = of_label(name, "Drain", "pool", pools);
            maintenance["spec"]["drainPlan"] = json!([{"podPriority": 1000, "podType": "Default"}]);
            if self.random(2) == 0 {
                maintenance["spec"]["drainLimit"] = json!({"maxNodes": 1});
            }
            living.create(MAINTENANCES, &maintenance).await?;
        }
        Ok(())
    }

    /// Two pods of the plan's first entry, and two of a later one.
    async fn put_pods(&self, node: &str) -> Result<()> {
        for class in ["low", "low", "high", "high"] {
            let mut pod = bare_pod(&format!("{node}-{class}-{}", self.random(1 << 40)), node);
            pod["spec"]["priorityClassName"] = class.into();
            self.try_to(Method::POST, PODS, &pod).await?;
        }
        Ok(())
    }

    async fn label(&self, node: &str, pool: Option<&str>) -> Result<()> {
        let label = json!({"metadata": {"labels": {"pool": pool}}});
        self.try_to(Method::PATCH, &format!("{NODES}/{node}"), &label).await
    }

    /// As somebody to whom it does not matter whether it works: what is not there, was changed meanwhile or cannot be admitted now
    /// is left alone.
    async fn try_to(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        let (code, answer) = self.living.send(method, path, body).await?;
        ensure!(matches!(code, 200..=299 | 404 | 409 | 422 | 500 | 504), "{path}: {code} {answer}");
        Ok(())
    }

    /// What goes wrong for the manager, for a second one that believes to lead, and for the webhook.
    fn rules(&self, start: Timestamp) -> Vec<Rule> {
        let secs = Duration::from_secs;
        let chances = [
            (0.04, Fault::Refuse(Refusal::Conflict)),
            (0.03, Fault::Refuse(Refusal::Internal)),
            (0.02, Fault::Timeout { applied: true, answered: false, after: secs(3) }),
            (0.02, Fault::Timeout { applied: false, answered: true, after: secs(3) }),
            (0.2, Fault::DropWatch { after: secs(20) }),
            (0.05, Fault::StallWatch { time: Some(secs(15)) }),
        ];
        let mut rules = Vec::new();
        for client in ["manager-1", "manager-2"] {
            let on = Matcher::any().client(client);
            rules.extend(chances.map(|(chance, fault)| Rule {
                on: on.clone(),
                when: When::chance(chance),
                fault,
            }));
            // Not of pods and requests: who has not heard of one cannot wait for it.
            for resource in ["nodes", "nodemaintenances"] {
                rules.push(Rule {
                    on: on.clone().resource(resource),
                    when: When::chance(0.2),
                    fault: Fault::Stale { revisions: 20 },
                });
            }
        }
        for name in ["fill", "check", "fill-pods"] {
            for group in ["evictionrequest.coordination.k8s.io", "nodemaintenance.k8s.io"] {
                for _ in 0..3 {
                    let seconds =
                        |bound| SignedDuration::from_secs(i64::try_from(self.random(bound)).unwrap_or(0));
                    let from = start + seconds(TROUBLE.as_secs());
                    rules.push(Rule {
                        on: Matcher::webhook(&format!("{name}.{group}")),
                        when: When::always().during(from, from + seconds(90)),
                        fault: Fault::Webhook(Outage::Refused),
                    });
                }
            }
        }
        rules
    }

    async fn interfere(&self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            sleep(Duration::from_millis(500 + self.random(20_000))).await;
            match self.random(15) {
                0..=2 => {
                    let pool = POOLS.get(usize::try_from(self.random(4))?).copied();
                    self.label(&self.some_node(), pool).await?;
                }
                3 => self.replace_node().await?,
                4 | 5 => self.change_limit().await?,
                6 | 7 => self.take_marks().await?,
                8 => {
                    let none = json!({"metadata": {"finalizers": null}});
                    self.try_to(Method::PATCH, &self.some_maintenance(), &none).await?;
                }
                9 | 10 => self.write_status().await?,
                11 => self.take_requesters().await?,
                12 => self.try_to(Method::DELETE, HELD_NODES, &Value::Null).await?,
                13 => self.open_gates().await?,
                _ => self.put_pods_on_a_free_node().await?,
            }
        }
        Ok(())
    }

    /// A node goes, and another one comes by its name: empty, or with pods and a pool only later. Who has not heard that the node
    /// is another one takes its pods for those of the old one.
    async fn replace_node(&self) -> Result<()> {
        let name = format!("n{}", 1 + self.random(NODE_COUNT - 1));
        self.try_to(Method::DELETE, &format!("{NODES}/{name}"), &Value::Null).await?;
        sleep(Duration::from_secs(self.random(60))).await;
        let mut new = node(&name);
        let pool = POOLS[usize::try_from(self.random(3))?];
        let comes_with_pool = self.random(2) == 0;
        if comes_with_pool {
            new["metadata"]["labels"]["pool"] = pool.into();
        }
        self.try_to(Method::POST, NODES, &new).await?;
        if !comes_with_pool {
            sleep(KNOWN).await;
            self.put_pods(&name).await?;
            sleep(KNOWN).await;
            self.label(&name, Some(pool)).await?;
        }
        Ok(())
    }

    async fn change_limit(&self) -> Result<()> {
        let limit = (self.random(2) == 0).then(|| json!({"maxNodes": 1 + self.random(2)}));
        let patch = json!({"spec": {"drainLimit": limit}});
        self.try_to(Method::PATCH, &self.some_maintenance(), &patch).await
    }

    async fn take_marks(&self) -> Result<()> {
        let name = self.some_node();
        let mut patch = json!({"metadata": {"annotations": {MARKS[0]: null}}});
        // Where all is gone that says so, nobody knows that a node was cordoned before.
        if name != CORDONED {
            if self.random(2) == 0 {
                MARKS.iter().for_each(|mark| patch["metadata"]["annotations"][mark] = Value::Null);
            }
            if self.random(3) == 0 {
                patch["spec"]["unschedulable"] = Value::Null;
            }
        }
        self.try_to(Method::PATCH, &format!("{NODES}/{name}"), &patch).await
    }

    async fn write_status(&self) -> Result<()> {
        let status = match self.random(4) {
            0 => json!({"drainStatus": {"planPosition": 11 * self.random(2)}}),
            1 => json!({"nodeStatuses": null}),
            2 => json!({"conditions": null}),
            _ => json!({"conditions": [{
                "type": "Drained", "status": "True", "reason": "Drained", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}),
        };
        let path = format!("{}/status", self.some_maintenance());
        self.try_to(Method::PATCH, &path, &json!({"status": status})).await
    }

    async fn take_requesters(&self) -> Result<()> {
        let requests = self.living.get(REQUESTS).await?;
        let names: Vec<&str> = requests["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|request| request["metadata"]["name"].as_str())
            .collect();
        let Some(name) = names.get(usize::try_from(self.random(names.len().max(1) as u64))?) else {
            return Ok(());
        };
        let none = json!({"metadata": {"finalizers": null}});
        self.try_to(Method::PATCH, &format!("{REQUESTS}/{name}"), &none).await
    }

    async fn gated(&self) -> Result<Vec<String>> {
        let pods = self.living.get(PODS).await?;
        let gated =
            |pod: &&Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let names = pods["items"].as_array().into_iter().flatten().filter(gated);
        Ok(names.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect())
    }

    /// Somebody lets a pod through to a node that is held.
    async fn open_gates(&self) -> Result<()> {
        for name in self.gated().await?.iter().take(1) {
            let open = json!({"spec": {"schedulingGates": null}});
            self.try_to(Method::PATCH, &format!("{PODS}/{name}"), &open).await?;
        }
        Ok(())
    }

    async fn put_pods_on_a_free_node(&self) -> Result<()> {
        let name = self.some_node();
        let (code, found) = self.living.send(Method::GET, &format!("{NODES}/{name}"), &Value::Null).await?;
        let meta = &found["metadata"];
        if code == 200 && meta["labels"]["pool"].is_null() && meta["annotations"][MARKS[0]].is_null() {
            self.put_pods(&name).await?;
            sleep(KNOWN).await;
        }
        Ok(())
    }

    async fn within(&self, bound: Duration, is_so: impl AsyncFn() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + bound;
        loop {
            match is_so().await {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() > deadline => return Err(why),
                Err(_) => sleep(Duration::from_secs(5)).await,
            }
        }
    }

    async fn nodes(&self) -> Result<Vec<Value>> {
        Ok(self.living.get(NODES).await?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Pods that somebody ends are gone from all nodes of maintenances, and these say so.
    async fn is_emptied(&self) -> Result<()> {
        let nodes = self.nodes().await?;
        for (name, pools) in MAINTAINED {
            let is_selected =
                |node: &&Value| pools.iter().any(|pool| node["metadata"]["labels"]["pool"] == *pool);
            let selected: Vec<&Value> = nodes.iter().filter(is_selected).collect();
            for node in &selected {
                let node = node["metadata"]["name"].as_str().unwrap_or_default();
                let pods = self.living.pods_on(node).await?;
                let stays = |pod: &Value| {
                    self.daemons == Daemons::Stay && pod["metadata"]["labels"]["app"] == "agent"
                };
                let left = pods.iter().find(|pod| !stays(pod));
                ensure!(
                    left.is_none(),
                    "{name}: {} stays on {node}",
                    left.map_or(&Value::Null, |pod| &pod["metadata"]["name"])
                );
            }
            let maintenance = self.living.maintenance(name).await?;
            let status = &maintenance["status"];
            let condition = &status["conditions"][0];
            // Who took its labels off was not drained.
            let left = status["leftNodes"].as_array().cloned().unwrap_or_default();
            let is_wrong = |left: &&Value| {
                selected.iter().any(|node| node["metadata"]["name"] == left["name"])
                    || !nodes.iter().any(|node| node["metadata"]["name"] == left["name"])
            };
            ensure!(left.iter().find(is_wrong).is_none(), "{name}: {left:?} have not left");
            ensure!(
                is_drained(&maintenance) == (!selected.is_empty() && left.is_empty()),
                "{name}: {} nodes, and {condition}",
                selected.len(),
            );
            ensure!(!selected.is_empty() || condition["reason"] == "NoNodes", "{name}: {condition}");
        }
        Ok(())
    }

    async fn is_left_as_it_was(&self) -> Result<()> {
        let all = self.living.get(MAINTENANCES).await?;
        let [a] = &all["items"].as_array().cloned().unwrap_or_default()[..] else { bail!("{all:#}") };
        ensure!(a["metadata"]["finalizers"].is_null(), "{:#}", a["metadata"]);
        for condition in a["status"]["conditions"].as_array().into_iter().flatten() {
            ensure!(condition["observedGeneration"] == a["metadata"]["generation"], "{condition}");
        }
        let requests = self.living.get(REQUESTS).await?;
        ensure!(requests["items"].as_array().is_none_or(Vec::is_empty), "{requests:#}");
        let gated = self.gated().await?;
        ensure!(gated.is_empty(), "{gated:?} are behind a gate");
        if self.daemons != Daemons::None {
            let agent = self.living.get(&format!("{DAEMON_SETS}/agent")).await?["status"].clone();
            ensure!(agent["numberReady"] == self.nodes().await?.len(), "{agent}");
        }
        for node in self.nodes().await? {
            let (meta, cordoned) = (&node["metadata"], node["spec"]["unschedulable"] == true);
            let is_as_before = cordoned == (meta["name"] == CORDONED);
            let marked = MARKS.iter().any(|mark| !meta["annotations"][mark].is_null());
            ensure!(
                is_as_before && !marked,
                "{}: cordoned {cordoned}, {}",
                meta["name"],
                meta["annotations"]
            );
        }
        Ok(())
    }
}
