//! How a scenario ended, without what differs from run to run: the state of what is there, and what became of each
//! object, step by step. Objects that are as good as each other are counted, not told apart.

use super::observe::is_ready;
use super::stage::Stage;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Kinds whose status is part of the end, besides those the scenario watches.
const KINDS: [&str; 6] =
    ["deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "poddisruptionbudgets"];
/// The end is reached when nothing has changed for this long.
const STILL: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(15);
/// Of a status, what counts or names things anew in each run.
const OWN_TO_A_RUN: [&str; 6] = [
    "observedGeneration",
    "collisionCount",
    "uncountedTerminatedPods",
    "currentRevision",
    "updateRevision",
    "disruptedPods",
];

/// How often something was so.
type Counts = BTreeMap<String, usize>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The pods that are there, by family.
    pub pods: BTreeMap<String, Counts>,
    /// Pods on each node, where the scenario compares that.
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    pub placement: Counts,
    /// Whether it is ready, and its taints.
    pub nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// What the status of each says, by `plural/name`.
    pub status: BTreeMap<String, Value>,
    /// The lives of the objects, by family.
    pub lives: BTreeMap<String, Counts>,
}

impl Outcome {
    /// Waits until all is still.
    ///
    /// # Errors
    /// Something cannot be read, or never becomes still.
    pub async fn of(stage: &Stage, placement: bool) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut since) = (Self::now(stage, placement).await?, Instant::now());
        while since.elapsed() < STILL {
            anyhow::ensure!(Instant::now() < deadline, "nothing comes to rest within {PATIENCE:?}");
            sleep(STILL / 5).await;
            let now = Self::now(stage, placement).await?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }

    async fn now(stage: &Stage, placement: bool) -> Result<Self> {
        let mut outcome = Self { lives: lives(stage), ..Self::default() };
        for pod in stage.items("pods").await? {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            let family = stage.observer.family(uid).unwrap_or_else(|| "not yet seen".to_owned());
            *outcome.pods.entry(family).or_default().entry(pod_state(&pod)).or_default() += 1;
            if let (true, Some(node)) = (placement, pod["spec"]["nodeName"].as_str()) {
                *outcome.placement.entry(node.to_owned()).or_default() += 1;
            }
        }
        for node in stage.items("nodes").await? {
            outcome.nodes.insert(name(&node), node_state(&node));
        }
        let watched = stage.watched.iter().map(|kind| kind.plural.as_str());
        for kind in KINDS.into_iter().chain(watched.filter(|kind| !matches!(*kind, "pods" | "nodes"))) {
            for object in stage.items(kind).await? {
                if kind == "replicasets" && !object["metadata"]["ownerReferences"].is_null() {
                    continue;
                }
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                let name = stage.observer.short_name(uid).unwrap_or_else(|| name(&object));
                outcome.status.insert(format!("{kind}/{name}"), status(&object["status"]));
            }
        }
        Ok(outcome)
    }

    /// Where `other` differs.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let lines = |outcome: &Self| {
            let mut lines = BTreeMap::new();
            flatten("", &serde_json::to_value(outcome).unwrap_or_default(), &mut lines);
            lines
        };
        let (mine, others) = (lines(self), lines(other));
        let places: BTreeSet<&String> = mine.keys().chain(others.keys()).collect();
        let differing = places.into_iter().filter(|at| mine.get(*at) != others.get(*at));
        let told = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), Clone::clone);
        let difference = |at: &String| Difference {
            at: at.clone(),
            what: format!("should be {}, but is {}", told(mine.get(at)), told(others.get(at))),
        };
        differing.map(difference).collect()
    }
}

/// One place in which two outcomes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `/status/deployments/web/replicas`
    pub at: String,
    what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.at, self.what)
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// `created scheduled ready`: what became of each object, in order.
fn lives(stage: &Stage) -> BTreeMap<String, Counts> {
    let mut each: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for effect in &stage.observer.seen.lock().effects {
        let key = (effect.object.family.clone(), effect.object.short.clone());
        each.entry(key).or_default().push(effect.what.clone());
    }
    let mut families: BTreeMap<String, Counts> = BTreeMap::new();
    for ((family, _), life) in each {
        *families.entry(family).or_default().entry(life.join(" ")).or_default() += 1;
    }
    families
}

fn pod_state(pod: &Value) -> String {
    let mut state = pod["status"]["phase"].as_str().unwrap_or("no phase").to_owned();
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    if is_ready(pod) {
        state.push_str(" ready");
    }
    if conditions.any(|c| c["type"] == "PodScheduled" && c["reason"] == "Unschedulable") {
        state.push_str(" unschedulable");
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        state.push_str(" terminating");
    }
    state
}

fn node_state(node: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ready = if is_ready(node) { "ready" } else { "not ready" };
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taints = taints
        .map(|taint| (format!("{}:{}", text(&taint["key"]), text(&taint["effect"])), "taint".to_owned()));
    taints.chain([("kubelet".to_owned(), ready.to_owned())]).collect()
}

fn status(status: &Value) -> Value {
    let fields = match status {
        Value::Object(fields) => fields,
        Value::Array(items) => return Value::Array(items.iter().map(self::status).collect()),
        other => return other.clone(),
    };
    let mut kept: Map<String, Value> = Map::new();
    for (key, value) in fields {
        if OWN_TO_A_RUN.contains(&key.as_str()) || key.ends_with("Time") || key.ends_with("Timestamp") {
            continue;
        }
        let value = if key == "conditions" { conditions(value) } else { self::status(value) };
        kept.insert(key.clone(), value);
    }
    if let (Some(current), Some(update)) = (fields.get("currentRevision"), fields.get("updateRevision")) {
        kept.insert("revisions".to_owned(), if current == update { 1 } else { 2 }.into());
    }
    if let Some(Value::Object(pods)) = fields.get("disruptedPods") {
        kept.insert("disruptedPods".to_owned(), pods.len().into());
    }
    Value::Object(kept)
}

fn conditions(list: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |c: &Value| {
        (text(&c["type"]), Value::String(format!("{} {}", text(&c["status"]), text(&c["reason"]))))
    };
    Value::Object(list.as_array().into_iter().flatten().map(entry).collect())
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(&format!("{path}/{key}"), value, into);
            }
        }
        other => {
            into.insert(path.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_keeps_what_is_the_same_in_every_run() {
        let told = status(&json!({
            "replicas": 2, "observedGeneration": 3, "startTime": "x", "currentRevision": "a", "updateRevision": "b",
            "conditions": [{"type": "Available", "status": "True", "reason": "Enough", "message": "m"}],
        }));
        assert_eq!(told, json!({"replicas": 2, "revisions": 2, "conditions": {"Available": "True Enough"}}));
    }

    #[test]
    fn differences_are_told_with_their_place() {
        let with = |count| {
            let counts = Counts::from([("Running".to_owned(), count)]);
            Outcome { pods: BTreeMap::from([("web-a*".to_owned(), counts)]), ..Outcome::default() }
        };
        let told: Vec<String> = with(2).differences(&with(3)).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["/pods/web-a*/Running should be 2, but is 3"]);
        assert!(with(2).differences(&with(2)).is_empty());
    }
}
