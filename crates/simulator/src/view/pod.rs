//! Pods, and the parts of them that the scheduler and kubelets look at.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::affinity_terms::AffinityTerms;
use super::wire::{Condition, Object, condition, or_default, time};
use embedded_apiserver::toolkit::Quantity;

pub(crate) type Pod = Object<PodSpec, PodStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "or_default")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub affinity: Affinity,
    pub termination_grace_period_seconds: Option<i64>,
    pub restart_policy: String,
    pub scheduler_name: String,
    #[serde(deserialize_with = "or_default")]
    pub scheduling_gates: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub readiness_gates: Vec<ReadinessGate>,
    pub host_network: bool,
    #[serde(deserialize_with = "or_default")]
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    /// What [`Pod::affinity_terms`] found, once somebody asked.
    #[serde(skip)]
    pub(super) affinity_terms: std::sync::OnceLock<Option<Box<AffinityTerms>>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpreadConstraint {
    pub max_skew: i64,
    pub min_domains: Option<i64>,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    pub label_selector: Value,
    #[serde(deserialize_with = "or_default")]
    pub match_label_keys: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub node_affinity_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub node_taints_policy: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    /// Read once: they are asked for with every change of the pod.
    #[serde(deserialize_with = "requests")]
    pub requests: Requests,
}

fn requests<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Requests, D::Error> {
    let given = Option::<Requested>::deserialize(from)?.unwrap_or_default();
    Ok(Requests { cpu: millis(given.cpu.as_ref()), memory: whole(given.memory.as_ref()) })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requested {
    cpu: Option<String>,
    memory: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReadinessGate {
    pub condition_type: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    #[serde(rename = "tolerationSeconds")]
    pub seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    #[serde(deserialize_with = "or_default")]
    pub node_affinity: NodeAffinity,
    #[serde(deserialize_with = "or_default")]
    pub pod_affinity: PodAffinity,
    #[serde(deserialize_with = "or_default")]
    pub pod_anti_affinity: PodAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "or_default")]
    pub preferred: Vec<PreferredNodeTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PreferredNodeTerm {
    pub weight: i64,
    pub preference: NodeTerm,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelector {
    pub node_selector_terms: Vec<NodeTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeTerm {
    #[serde(deserialize_with = "or_default")]
    pub match_expressions: Vec<NodeRequirement>,
    #[serde(deserialize_with = "or_default")]
    pub match_fields: Vec<NodeRequirement>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeRequirement {
    pub key: String,
    pub operator: String,
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "or_default")]
    pub required: Vec<PodTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "or_default")]
    pub preferred: Vec<PreferredPodTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PreferredPodTerm {
    pub weight: i64,
    pub pod_affinity_term: PodTerm,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodTerm {
    pub label_selector: Value,
    #[serde(deserialize_with = "or_default")]
    pub namespaces: Vec<String>,
    pub namespace_selector: Value,
    pub topology_key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub phase: String,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "time")]
    pub start_time: Option<Timestamp>,
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub restart_count: i64,
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
    #[serde(deserialize_with = "or_default")]
    pub last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub waiting: Option<Waiting>,
    pub running: Option<Ran>,
    pub terminated: Option<Ran>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    pub reason: String,
}

/// When a container ran, and what it ended with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ran {
    #[serde(deserialize_with = "time")]
    pub started_at: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    pub finished_at: Option<Timestamp>,
    pub exit_code: i64,
}

impl ContainerStatus {
    pub(crate) fn started_at(&self) -> Option<Timestamp> {
        self.state.running.as_ref()?.started_at
    }
}

impl Pod {
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Counts as one of its set: neither ended nor on its way out.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_deleting()
    }

    pub(crate) fn is_ready(&self) -> bool {
        condition(&self.status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    }

    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        condition(&self.status.conditions, "Ready").filter(|r| r.status == "True")?.last_transition_time
    }

    /// When a ready pod counts as available, after `seconds` of being ready.
    pub(crate) fn available_from(&self, seconds: i64) -> Option<Timestamp> {
        Some(self.ready_since()? + jiff::SignedDuration::from_secs(seconds.max(0)))
    }

    pub(crate) fn restarts(&self) -> i64 {
        self.status.container_statuses.iter().map(|status| status.restart_count).sum()
    }

    pub(crate) fn restarts_of_first(&self) -> i64 {
        self.status.container_statuses.first().map_or(0, |status| status.restart_count)
    }

    pub(crate) fn started_at(&self) -> Option<Timestamp> {
        self.status.container_statuses.first()?.started_at()
    }

    /// When a container that waits to be restarted has ended.
    pub(crate) fn crashed_at(&self) -> Option<Timestamp> {
        let status = self.status.container_statuses.first()?;
        let waits = status.state.waiting.as_ref().is_some_and(|waiting| waiting.reason == "CrashLoopBackOff");
        status.last_state.terminated.as_ref().filter(|_| waits)?.finished_at
    }

    pub(crate) fn is_crashing(&self) -> bool {
        self.crashed_at().is_some()
    }

    /// What the containers that have ended ended with.
    pub(crate) fn exit_codes(&self) -> impl Iterator<Item = i64> {
        self.status
            .container_statuses
            .iter()
            .filter_map(|status| Some(status.state.terminated.as_ref()?.exit_code))
    }

    pub(crate) fn is_unscheduled(&self) -> bool {
        self.spec.node_name.is_empty() && !self.is_terminal() && !self.is_deleting()
    }

    /// The scheduler has said that there is no node for it.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_unscheduled()
            && condition(&self.status.conditions, "PodScheduled").is_some_and(|told| told.status == "False")
    }

    /// What the pod asks of its node: containers and sidecars together, or the largest single init container.
    pub(crate) fn requests(&self) -> Requests {
        let mut sum = Requests::default();
        for container in self.spec.containers.iter().chain(self.sidecars()) {
            sum.add(container.resources.requests);
        }
        for container in self.spec.init_containers.iter().filter(|c| c.restart_policy != "Always") {
            let first = container.resources.requests;
            sum.cpu = sum.cpu.max(first.cpu);
            sum.memory = sum.memory.max(first.memory);
        }
        sum
    }

    fn sidecars(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().filter(|container| container.restart_policy == "Always")
    }
}

/// Thousandths of a CPU, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub cpu: i64,
    pub memory: i64,
}

impl Requests {
    pub(crate) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
    }
}

pub(super) fn millis(quantity: Option<&String>) -> i64 {
    scaled(quantity, 1_000_000)
}

pub(super) fn whole(quantity: Option<&String>) -> i64 {
    scaled(quantity, 1_000_000_000)
}

/// In units of so many billionths, rounded up.
fn scaled(quantity: Option<&String>, unit: i128) -> i64 {
    let billionths = quantity.and_then(|text| Quantity::parse(text)).map_or(0, |quantity| quantity.0);
    i64::try_from((billionths + unit - 1).div_euclid(unit)).unwrap_or(i64::MAX)
}
