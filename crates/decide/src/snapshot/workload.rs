//! Workloads and namespaces, as far as the bundled interceptors decide by them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSetUpdateStrategy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use usher_api::evict_policy::{EvictPolicy, MaxUnavailable, policy_annotation};
use usher_api::names::MAINTENANCE_SCHEDULING_GATE;
use usher_api::workloads::strategy_annotation;

use super::Key;
use super::deployment::strategy_with;
use super::wire::{DaemonSetOnWire, NamespaceOnWire, StatefulSetOnWire};

/// With this finalizer the garbage collector lets go of an object's dependents before it is deleted.
const ORPHAN_FINALIZER: &str = "orphan";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    pub key: Key,
    pub uid: Arc<str>,
    /// It makes no pods any more.
    pub is_deleting: bool,
    /// Its annotation, as it stands there.
    pub strategy: Option<String>,
    /// Its own template puts pods behind the gate of node maintenance.
    pub has_gate: bool,
}

/// A namespace that may opt in or out for all its workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub name: Arc<str>,
    pub strategy: Option<String>,
    /// Who ends pods in it that say nothing, when Kubernetes wants to evict them.
    pub evict_policy: Option<EvictPolicy>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSet {
    pub key: Key,
    pub uid: Arc<str>,
    pub is_deleting: bool,
    /// It is being deleted, and its pods stay (`--cascade=orphan`).
    pub orphans_pods: bool,
    pub strategy: Option<String>,
    pub replicas: u32,
    /// The labels of its pods. `None`: it cannot be read.
    pub selector: Option<Arc<Selector>>,
    /// The number of its first pod.
    pub first_ordinal: u32,
    /// `None`: it waits for somebody to delete pods (OnDelete).
    pub rolling_update: Option<RollingUpdate>,
    /// So many of its pods are evicted at a time, by its annotation, which then stands for its `maxUnavailable` and opts in to it.
    pub at_a_time: Option<u32>,
    /// So long a pod is ready before it counts as available.
    pub min_ready_seconds: u32,
    /// The revision that its pods are to have.
    pub update_revision: String,
    /// Its status is about the spec that it has.
    pub is_observed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingUpdate {
    /// So many pods may be unavailable at a time. At least one.
    pub max_unavailable: u32,
    /// Pods of lower numbers keep their revision.
    pub partition: u32,
}

impl From<DaemonSetOnWire> for DaemonSet {
    fn from(set: DaemonSetOnWire) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default();
        let meta = set.metadata;
        let gates = set.spec.template.spec.and_then(|pod| pod.scheduling_gates);
        Self {
            is_deleting: meta.deletion_timestamp.is_some(),
            strategy: strategy_annotation(meta.annotations.as_ref()).map(str::to_owned),
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
            has_gate: gates.into_iter().flatten().any(|gate| gate.name == MAINTENANCE_SCHEDULING_GATE),
        }
    }
}

impl From<NamespaceOnWire> for Namespace {
    fn from(namespace: NamespaceOnWire) -> Self {
        let meta = namespace.metadata;
        Self {
            strategy: strategy_annotation(meta.annotations.as_ref()).map(str::to_owned),
            evict_policy: policy_annotation(meta.annotations.as_ref()).and_then(|text| text.parse().ok()),
            name: meta.name.unwrap_or_default().into(),
        }
    }
}

impl From<StatefulSetOnWire> for StatefulSet {
    fn from(set: StatefulSetOnWire) -> Self {
        let (meta, spec, status) = (set.metadata, set.spec, set.status);
        let text = |text: Option<String>| text.unwrap_or_default();
        let count = |count: Option<i32>| u32::try_from(count.unwrap_or(0)).unwrap_or(0);
        let replicas = u32::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let is_deleting = meta.deletion_timestamp.is_some();
        let at_a_time = MaxUnavailable::of(meta.annotations.as_ref()).map(|it| it.of_replicas(replicas));
        let mut update = rolling_update(spec.update_strategy, replicas);
        if let Some(max_unavailable) = at_a_time {
            // One that waits for somebody to delete pods (OnDelete) is never in the middle of an update.
            let partition = update.map_or(u32::MAX, |update| update.partition);
            update = Some(RollingUpdate { max_unavailable, partition });
        }
        Self {
            is_deleting,
            orphans_pods: is_deleting && meta.finalizers.iter().flatten().any(|it| it == ORPHAN_FINALIZER),
            strategy: strategy_with(meta.annotations.as_ref(), at_a_time),
            at_a_time,
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
            replicas,
            selector: Selector::try_from(spec.selector).ok().map(Arc::new),
            first_ordinal: count(spec.ordinals.and_then(|ordinals| ordinals.start)),
            rolling_update: update,
            min_ready_seconds: count(spec.min_ready_seconds),
            update_revision: text(status.update_revision),
            is_observed: status.observed_generation.unwrap_or(0) >= meta.generation.unwrap_or(0),
        }
    }
}

fn rolling_update(strategy: Option<StatefulSetUpdateStrategy>, replicas: u32) -> Option<RollingUpdate> {
    let strategy = strategy.unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return None;
    }
    let given = strategy.rolling_update.unwrap_or_default();
    Some(RollingUpdate {
        max_unavailable: given.max_unavailable.as_ref().map_or(1, |it| part_of(it, replicas)).max(1),
        partition: u32::try_from(given.partition.unwrap_or(0)).unwrap_or(0),
    })
}

/// A number, or a percentage rounded down, as the StatefulSet controller counts it.
fn part_of(value: &IntOrString, of: u32) -> u32 {
    match value {
        IntOrString::Int(count) => u32::try_from(*count).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: u64 = text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or(0);
            u32::try_from(u64::from(of).saturating_mul(percent) / 100).unwrap_or(u32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value) -> StatefulSet {
        let object = json!({
            "metadata": {"name": "db", "namespace": "ns", "uid": "u", "generation": 3},
            "spec": spec, "status": {"updateRevision": "db-2", "observedGeneration": 3},
        });
        serde_json::from_value::<StatefulSetOnWire>(object).unwrap().into()
    }

    #[test]
    fn max_unavailable_is_one_where_absent_and_never_none() {
        for (max, wanted) in [
            (json!(null), 1),
            (json!(3), 3),
            (json!(0), 1),
            (json!("50%"), 5),
            (json!("5%"), 1),
            (json!("29%"), 2),
            (json!("x"), 1),
        ] {
            let update =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max, "partition": 2}});
            let found = set(json!({"replicas": 10, "updateStrategy": update})).rolling_update.unwrap();
            assert_eq!((found.max_unavailable, found.partition), (wanted, 2), "{max}");
        }
        assert_eq!(set(json!({})).rolling_update.map(|it| it.max_unavailable), Some(1));
        assert_eq!(set(json!({"updateStrategy": {"type": "OnDelete"}})).rolling_update, None);
    }

    #[test]
    fn a_set_is_read_with_what_decisions_need() {
        let found = set(json!({"replicas": 3, "minReadySeconds": 10, "ordinals": {"start": 5}}));
        assert_eq!((found.replicas, found.first_ordinal, found.min_ready_seconds), (3, 5, 10));
        assert!(found.is_observed && found.update_revision == "db-2");
        assert_eq!(set(json!({})).replicas, 1);
    }
}
