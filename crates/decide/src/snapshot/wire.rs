//! Pods, requests and budgets as the server sends them, read without what nobody decides by: a full pod takes several times as
//! long to read, and as much room.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentStrategy, StatefulSetOrdinals, StatefulSetUpdateStrategy};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use usher_api::names::{
    ASK_ANNOTATION_PREFIX, DELETION_COST_BEFORE_ANNOTATION, DESCHEDULER_INSTANCE_ANNOTATION,
    EVICT_MAX_UNAVAILABLE_ANNOTATION, EVICT_POLICY_ANNOTATION, EVICT_WANTED_ANNOTATION,
    EVICTION_REQUEST_STRATEGY_ANNOTATION, HAND_OVER_ANNOTATION, INTERCEPTOR_ANNOTATION_PREFIX,
    INTERCEPTOR_PRIORITY_ANNOTATION, INTERCEPTORS_RESOLVED_ANNOTATION, MIRROR_ANNOTATION,
    NODE_HELD_BY_ANNOTATION, NODE_PHASE_ANNOTATION, NODE_WAS_UNSCHEDULABLE_ANNOTATION,
    POD_DELETION_COST_ANNOTATION, POD_EVICT_WANTED_ANNOTATION, SKIP_INTERCEPTORS_ANNOTATION,
    SURGE_ANNOTATION,
};
use usher_api::{EvictionRequest, EvictionRequestSpec, EvictionRequestStatus, stands_for};

use super::taints::Toleration;

#[derive(Debug, Clone, Deserialize)]
pub struct PodOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

impl PodOnWire {
    /// A pod from parts that a caller has read itself. All other fields of the spec keep their defaults.
    pub fn new(metadata: ObjectMeta, node_name: String, priority: i32, status: PodStatus) -> Self {
        Self { metadata, spec: PodSpec { node_name, priority, ..PodSpec::default() }, status }
    }

    /// The phase as the server wrote it. A pod that was only just created has none.
    pub fn phase(&self) -> &str {
        &self.status.phase
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub priority: i32,
    pub termination_grace_period_seconds: i64,
    pub scheduling_gates: Option<Vec<Gate>>,
    /// Only that of pods which have no node yet is looked at.
    pub affinity: Option<Affinity>,
    /// Only that of pods which are wanted gone is looked at.
    pub tolerations: Option<Vec<Toleration>>,
}

impl Default for PodSpec {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            priority: 0,
            // The server writes it; what has none gets that.
            termination_grace_period_seconds: 30,
            scheduling_gates: None,
            affinity: None,
            tolerations: None,
        }
    }
}

impl PodSpec {
    /// The node that a DaemonSet made the pod for, as its controller writes it: the one value of a field selector.
    pub fn only_node(&self) -> &str {
        let required = self.affinity.as_ref().and_then(|it| it.node_affinity.as_ref()?.required.as_ref());
        let terms = required.map(|it| &it.node_selector_terms[..]).unwrap_or_default();
        let fields =
            terms.first().and_then(|term| term.match_fields.as_ref()).and_then(|fields| fields.first());
        fields.and_then(|field| field.values.as_ref()?.first()).map_or("", String::as_str)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gate {
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelectorTerm {
    match_fields: Option<Vec<NodeField>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeField {
    values: Option<Vec<String>>,
}

/// The status of a pod as the server sends it, to be handed to [`PodOnWire::new`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub(crate) phase: String,
    pub(crate) conditions: Option<Vec<PodCondition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

impl PodStatus {
    /// Every container waits for a moment while its pod is made; the others wait for something.
    pub fn not_started(&self) -> Option<&str> {
        let all = [&self.init_container_statuses, &self.container_statuses];
        let waiting = all.into_iter().flatten().flatten().filter_map(|it| it.state.waiting.as_ref());
        let mut reasons = waiting.map(|waiting| waiting.reason.as_str());
        reasons.find(|reason| !matches!(*reason, "" | "ContainerCreating" | "PodInitializing"))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerWaiting>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerWaiting {
    reason: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default, rename = "lastTransitionTime")]
    pub since: Option<Time>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RequestOnWire {
    #[serde(deserialize_with = "slim_with_reporters")]
    pub metadata: ObjectMeta,
    pub spec: EvictionRequestSpec,
    #[serde(default)]
    pub status: Option<EvictionRequestStatus>,
}

/// Who it is, how it opts in or out, and the scheduling gates that it gives to its pods.
#[derive(Debug, Clone, Deserialize)]
pub struct DaemonSetOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: DaemonSetSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSetSpec {
    pub template: DaemonTemplate,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonTemplate {
    pub spec: Option<DaemonTemplateSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonTemplateSpec {
    pub scheduling_gates: Option<Vec<core::PodSchedulingGate>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NamespaceOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

#[derive(Debug, Clone, Deserialize)]
pub struct StatefulSetOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: StatefulSetSpec,
    #[serde(default)]
    pub(crate) status: StatefulSetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub min_ready_seconds: Option<i32>,
    pub ordinals: Option<StatefulSetOrdinals>,
    pub update_strategy: Option<StatefulSetUpdateStrategy>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    pub update_revision: Option<String>,
    pub observed_generation: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct DeploymentOnWire {
    #[serde(deserialize_with = "slim_with_surgers")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: DeploymentSpec,
    #[serde(default)]
    pub(crate) status: DeploymentStatus,
}

impl DeploymentOnWire {
    /// The labels of its pods, as the server sent them.
    pub fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub strategy: Option<DeploymentStrategy>,
    pub min_ready_seconds: Option<i32>,
    pub paused: bool,
    pub template: DeploymentTemplate,
}

/// What its pods begin with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeploymentTemplate {
    pub metadata: TemplateMeta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateMeta {
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    pub observed_generation: Option<i64>,
    pub replicas: Option<i32>,
    pub updated_replicas: Option<i32>,
    pub conditions: Option<Vec<PodCondition>>,
}

/// Whose it is, and nothing else.
#[derive(Debug, Clone, Deserialize)]
pub struct ReplicaSetOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: ReplicaSetSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetSpec {
    pub replicas: Option<i32>,
    pub min_ready_seconds: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AutoscalerOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: AutoscalerSpec,
    #[serde(default)]
    pub(crate) status: AutoscalerStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerSpec {
    pub scale_target_ref: CrossVersionObjectReference,
    pub min_replicas: Option<i32>,
    pub max_replicas: i32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerStatus {
    pub observed_generation: Option<i64>,
}

/// A budget changes with each pod that leaves, and half of it is about who wrote which field.
#[derive(Debug, Clone, Deserialize)]
pub struct BudgetOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Option<PodDisruptionBudgetSpec>,
    #[serde(default, deserialize_with = "counts")]
    pub(crate) status: Option<PodDisruptionBudgetStatus>,
}

/// The status of a budget without its conditions, and without the times at which pods were disrupted.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BudgetCounts {
    disruptions_allowed: Option<i32>,
    current_healthy: Option<i32>,
    desired_healthy: Option<i32>,
    expected_pods: Option<i32>,
    disrupted_pods: Option<BTreeMap<String, IgnoredAny>>,
}

fn counts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PodDisruptionBudgetStatus>, D::Error> {
    let counts = Option::<BudgetCounts>::deserialize(from)?;
    Ok(counts.map(|counts| PodDisruptionBudgetStatus {
        disruptions_allowed: counts.disruptions_allowed,
        current_healthy: counts.current_healthy,
        desired_healthy: counts.desired_healthy,
        expected_pods: counts.expected_pods,
        disrupted_pods: counts
            .disrupted_pods
            .map(|pods| pods.into_keys().map(|pod| (pod, Time(Timestamp::UNIX_EPOCH))).collect()),
        ..PodDisruptionBudgetStatus::default()
    }))
}

stands_for!(PodOnWire, core::Pod);
stands_for!(RequestOnWire, EvictionRequest);
stands_for!(BudgetOnWire, PodDisruptionBudget);
stands_for!(DaemonSetOnWire, k8s_openapi::api::apps::v1::DaemonSet);
stands_for!(StatefulSetOnWire, k8s_openapi::api::apps::v1::StatefulSet);
stands_for!(NamespaceOnWire, core::Namespace);
stands_for!(DeploymentOnWire, k8s_openapi::api::apps::v1::Deployment);
stands_for!(ReplicaSetOnWire, k8s_openapi::api::apps::v1::ReplicaSet);
stands_for!(AutoscalerOnWire, k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "W: Deserialize<'de>")]
struct Slim<W> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    generation: Option<i64>,
    annotations: Option<Annotations>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
    managed_fields: Option<Vec<W>>,
}

impl<W> Default for Slim<W> {
    fn default() -> Self {
        Self {
            name: None,
            namespace: None,
            uid: None,
            resource_version: None,
            creation_timestamp: None,
            deletion_timestamp: None,
            deletion_grace_period_seconds: None,
            labels: None,
            generation: None,
            annotations: None,
            finalizers: None,
            owner_references: None,
            managed_fields: None,
        }
    }
}

/// An entry of `managedFields`: only whether it has what somebody decides by, and whose it is.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound = "F: Deserialize<'de> + Default")]
struct Write<F> {
    manager: Option<String>,
    subresource: Option<String>,
    fields_v1: F,
}

/// The time of the last progress.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Progress {
    #[serde(rename = "f:status")]
    status: StatusFields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusFields {
    #[serde(rename = "f:progressTimestamp")]
    progress: Option<IgnoredAny>,
}

/// The record of a surge.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SurgeRecord {
    #[serde(rename = "f:metadata")]
    metadata: MetadataFields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MetadataFields {
    #[serde(rename = "f:annotations")]
    annotations: AnnotationFields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AnnotationFields {
    #[serde(rename = "f:evictionrequest.coordination.k8s.io/surge")]
    surge: Option<IgnoredAny>,
}

/// Only those that somebody decides by: whether it is a mirror pod, which interceptors a pod names, whether a request knows them, what
/// surging left on it, whether it is wanted gone, and who holds a node. An object may carry 256 KiB of others.
#[derive(Default)]
struct Annotations(BTreeMap<String, String>);

impl Annotations {
    const MATTER: [&str; 17] = [
        MIRROR_ANNOTATION,
        INTERCEPTORS_RESOLVED_ANNOTATION,
        SKIP_INTERCEPTORS_ANNOTATION,
        DESCHEDULER_INSTANCE_ANNOTATION,
        EVICTION_REQUEST_STRATEGY_ANNOTATION,
        SURGE_ANNOTATION,
        HAND_OVER_ANNOTATION,
        INTERCEPTOR_PRIORITY_ANNOTATION,
        POD_DELETION_COST_ANNOTATION,
        DELETION_COST_BEFORE_ANNOTATION,
        NODE_HELD_BY_ANNOTATION,
        NODE_WAS_UNSCHEDULABLE_ANNOTATION,
        NODE_PHASE_ANNOTATION,
        EVICT_POLICY_ANNOTATION,
        EVICT_MAX_UNAVAILABLE_ANNOTATION,
        POD_EVICT_WANTED_ANNOTATION,
        EVICT_WANTED_ANNOTATION,
    ];

    fn matter(key: &str) -> bool {
        Self::MATTER.contains(&key)
            || [INTERCEPTOR_ANNOTATION_PREFIX, ASK_ANNOTATION_PREFIX]
                .iter()
                .any(|start| key.starts_with(start))
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Kept;

        impl<'de> Visitor<'de> for Kept {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if Annotations::matter(&key) {
                        kept.insert(key.into_owned(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Annotations(kept))
            }
        }

        from.deserialize_map(Kept)
    }
}

pub(crate) fn slim<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Slim::<IgnoredAny>::deserialize(from).map(meta)
}

/// Of `managedFields` only those who wrote the time of the last progress are kept.
fn slim_with_reporters<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let slim = Slim::<Write<Progress>>::deserialize(from)?;
    Ok(with_writers(slim, |fields| fields.status.progress.is_some()))
}

/// Of `managedFields` only those who wrote the record of a surge are kept.
fn slim_with_surgers<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let slim = Slim::<Write<SurgeRecord>>::deserialize(from)?;
    Ok(with_writers(slim, |fields| fields.metadata.annotations.surge.is_some()))
}

fn with_writers<F>(mut slim: Slim<Write<F>>, has: impl Fn(&F) -> bool) -> ObjectMeta {
    let writes = slim.managed_fields.take().map(|writes| {
        let writes = writes.into_iter().filter(|write| has(&write.fields_v1));
        writes
            .map(|write| ManagedFieldsEntry {
                manager: write.manager,
                subresource: write.subresource,
                ..ManagedFieldsEntry::default()
            })
            .collect()
    });
    ObjectMeta { managed_fields: writes, ..meta(slim) }
}

fn meta<W>(slim: Slim<W>) -> ObjectMeta {
    ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        generation: slim.generation,
        annotations: slim.annotations.map(|annotations| annotations.0).filter(|kept| !kept.is_empty()),
        finalizers: slim.finalizers,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Budget, Phase, Pod, Request};
    use serde_json::json;
    use usher_api::PodType;

    #[test]
    fn a_pod_is_read_with_what_decisions_need() {
        let pod: PodOnWire = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "default", "uid": "u", "labels": {"app": "web"}, "managedFields": [{"manager": "x"}],
                "annotations": {
                    "kubernetes.io/config.mirror": "h", "other": "x",
                    "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com": "7",
                },
                "finalizers": ["f/f"],
                "deletionTimestamp": "2026-01-01T00:00:30Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"},
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1", "containers": [], "priority": 7},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        assert_eq!(pod.metadata.annotations.as_ref().map(BTreeMap::len), Some(2), "others are not kept");
        let pod = Pod::from(pod);
        assert!(pod.names_interceptors);
        assert_eq!((pod.key.to_string().as_str(), &*pod.uid, &*pod.node), ("default/p", "u", "n1"));
        assert_eq!(
            (pod.phase, pod.is_ready(), pod.is_mirror, pod.is_daemon()),
            (Phase::Running, true, false, true)
        );
        assert_eq!(pod.labels["app"], "web");
        assert_eq!((pod.priority, pod.kind()), (7, PodType::DaemonSet));
        assert_eq!(pod.deletion().unwrap().to_string(), "2026-01-01T00:00:30Z");
    }

    #[test]
    fn an_annotation_alone_makes_no_mirror_pod() {
        let kind = |annotations: serde_json::Value, owner: serde_json::Value| {
            let pod = json!({
                "metadata": {"name": "p", "annotations": annotations, "ownerReferences": [owner]}, "spec": {"nodeName": "n1"},
            });
            Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap()).kind()
        };
        let owner = |group: &str, kind: &str, name: &str, controls: bool| json!({"apiVersion": group, "kind": kind, "name": name, "uid": "o", "controller": controls});
        let mirror = json!({MIRROR_ANNOTATION: "h"});
        assert_eq!(kind(mirror.clone(), owner("v1", "Node", "n1", true)), PodType::Static);
        for (owner, kind_of) in [
            (owner("v1", "Node", "n2", true), PodType::Default),
            (owner("v1", "Node", "n1", false), PodType::Default),
            (owner("example.com/v1", "Node", "n1", true), PodType::Default),
            (owner("apps/v1", "ReplicaSet", "n1", true), PodType::Default),
            (owner("apps/v1", "DaemonSet", "n1", true), PodType::DaemonSet),
        ] {
            assert_eq!(kind(mirror.clone(), owner.clone()), kind_of, "{owner}");
        }
        assert_eq!(kind(json!({}), owner("v1", "Node", "n1", true)), PodType::Default);
    }

    #[test]
    fn a_pod_that_was_only_just_created_is_pending() {
        let pod: PodOnWire =
            serde_json::from_value(json!({"metadata": {"name": "p", "labels": null}})).unwrap();
        let pod = Pod::from(pod);
        assert_eq!((pod.phase, pod.is_ready(), &*pod.node), (Phase::Pending, false, ""));
    }

    #[test]
    fn annotations_that_break_the_rules_name_no_interceptor() {
        let named = |value: &str| {
            let key = format!("{INTERCEPTOR_ANNOTATION_PREFIX}a.example.com");
            let pod = json!({"metadata": {"name": "p", "annotations": {key: value}}});
            Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap()).names_interceptors
        };
        assert!(named("7") && !named("high"));
    }

    #[test]
    fn a_budget_is_read_as_from_the_full_object() {
        let budget = json!({
            "metadata": {"name": "web", "namespace": "shop", "managedFields": [{"manager": "x"}]},
            "spec": {
                "maxUnavailable": "10%", "selector": {"matchLabels": {"app": "web"}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
            "status": {
                "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 4,
                "disruptedPods": {"web-1": "2026-01-01T00:00:00Z"},
            },
        });
        let full: PodDisruptionBudget = serde_json::from_value(budget.clone()).unwrap();
        let slim: BudgetOnWire = serde_json::from_value(budget).unwrap();
        assert!(slim.metadata.managed_fields.is_none());
        assert_eq!(Budget::from(slim), Budget::from(&full));
        let new: BudgetOnWire = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        assert_eq!(Budget::from(new).selector, None);
    }

    #[test]
    fn progress_that_only_the_manager_wrote_was_never_reported() {
        let reported = |writes: serde_json::Value| {
            let request: RequestOnWire = serde_json::from_value(json!({
                "metadata": {"name": "u", "managedFields": writes}, "spec": {"podRef": {"name": "p", "uid": "u"}},
            }))
            .unwrap();
            Request::from(request).is_progress_reported
        };
        let write = |manager: &str, field: &str| json!({"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {field: {}}}});
        let given = || write("usher", "f:progressTimestamp");
        assert!(!reported(json!([given()])));
        assert!(!reported(json!([given(), write("db", "f:message")])));
        assert!(reported(json!([given(), write("db", "f:progressTimestamp")])));
        assert!(reported(json!(null)), "nobody knows");
    }

    #[test]
    fn interceptors_are_in_the_order_of_their_turns() {
        let request: RequestOnWire = serde_json::from_value(json!({
            "metadata": {"name": "u", "namespace": "default", "uid": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"podRef": {"name": "p", "uid": "u"}, "interceptors": [
                {"interceptorClass": "b.com", "priority": 1}, {"interceptorClass": "a.com", "priority": 1},
                {"interceptorClass": "c.com", "priority": 9},
            ]},
        }))
        .unwrap();
        let request = Request::from(request);
        let classes: Vec<&str> = request.interceptors.iter().map(|i| i.interceptor_class.as_str()).collect();
        assert_eq!(classes, ["c.com", "a.com", "b.com"]);
        assert_eq!(request.deadline.as_secs(), 1800);
    }

    #[test]
    fn a_cost_from_before_that_the_server_would_not_take_was_none() {
        let before = |text: &str| {
            let annotations = serde_json::json!({
                "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
                "evictionrequest.coordination.k8s.io/deletion-cost-before": text,
            });
            let pod = serde_json::json!({"metadata": {"name": "p", "annotations": annotations}});
            let pod = Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap());
            pod.preferred().unwrap().before.clone()
        };
        assert_eq!(before("-7").as_deref(), Some("-7"));
        for text in ["", "junk", "+7", "07", "2147483648"] {
            assert_eq!(before(text), None, "{text:?}");
        }
    }
}
