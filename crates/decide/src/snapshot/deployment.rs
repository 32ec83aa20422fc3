//! Deployments, their ReplicaSets and the autoscalers over them, as far as surging decides by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use serde::{Deserialize, Serialize};
use usher_api::evict_policy::MaxUnavailable;
use usher_api::names::{
    INTERCEPTOR_FIELD_MANAGER, INTERCEPTOR_PRIORITY_ANNOTATION, POD_DELETION_COST_ANNOTATION,
    SURGE_ANNOTATION, SURGE_LABEL,
};
use usher_api::workloads::strategy_annotation;

use super::Key;
use super::pod::PreferredForDeletion;
use super::wire::{AutoscalerOnWire, DeploymentOnWire, ReplicaSetOnWire};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub key: Key,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub is_deleting: bool,
    /// Its annotation, as it stands there.
    pub strategy: Option<String>,
    /// As it stands in the spec: with the surge, if there is one.
    pub replicas: u32,
    /// `None`: all pods go before new ones come (Recreate).
    pub rolling_update: Option<DeploymentUpdate>,
    /// So long a pod is ready before it counts as available.
    pub min_ready_seconds: u32,
    pub is_paused: bool,
    pub surge: Option<Surge>,
    /// Its status is about the spec that it has.
    pub is_observed: bool,
    /// It has pods of older templates.
    pub has_old_pods: bool,
    /// Its template gives pods a deletion cost below which there is no room for marks.
    pub has_lowest_cost: bool,
    pub stale_record: Option<StaleRecord>,
    /// Why its ReplicaSet cannot make pods, in the server's words.
    pub replica_failure: Option<String>,
    /// So many of its pods are evicted at a time, by its annotation, which then stands for its `maxUnavailable` and opts in to it.
    pub at_a_time: Option<u32>,
    /// Which pods are its, where it may be content with fewer of them.
    pub selector: Option<Arc<Selector>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentUpdate {
    pub max_surge: Part,
    pub max_unavailable: Part,
}

/// A record of a surge on a Deployment that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleRecord {
    /// The annotation is there without the label, and somebody else has written it: it came back from a ReplicaSet, say. So many pods it
    /// would have too many if it counted.
    Annotation { surplus: Option<u32> },
    /// Somebody else has written the label: it cannot be read, or leaves no pod.
    Label,
}

/// A number, or a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Count(u32),
    Percent(u32),
}

impl Part {
    fn read(value: Option<&IntOrString>) -> Self {
        match value {
            // The API server writes this where nothing is given.
            None => Self::Percent(25),
            Some(IntOrString::Int(count)) => Self::Count(u32::try_from(*count).unwrap_or(0)),
            Some(IntOrString::String(text)) => {
                Self::Percent(text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or(0))
            }
        }
    }

    fn hundredths(self, of: u32) -> u64 {
        match self {
            Self::Count(count) => u64::from(count) * 100,
            Self::Percent(percent) => u64::from(of) * u64::from(percent),
        }
    }

    /// Rounded up, as the Deployment controller counts surges.
    pub fn up(self, of: u32) -> u32 {
        u32::try_from(self.hundredths(of).div_ceil(100)).unwrap_or(u32::MAX)
    }

    /// Rounded down, as it counts pods that may be unavailable.
    pub fn down(self, of: u32) -> u32 {
        u32::try_from(self.hundredths(of) / 100).unwrap_or(u32::MAX)
    }
}

/// By how much a Deployment is larger than its owner wants it. Only the difference is ever taken back; the number that was written is
/// there to see whether somebody else has written another one since, who is then right.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Surge {
    pub by: u32,
    /// The replicas that were written with it.
    pub replicas: u32,
    /// How often somebody has set it back.
    #[serde(skip_serializing_if = "is_zero")]
    pub reverted: u32,
}

impl Surge {
    /// As it is in the label of the Deployment.
    pub fn label(&self) -> String {
        format!("{}-{}-{}", self.by, self.replicas, self.reverted)
    }

    fn of_label(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').map(|number| number.parse().ok());
        let (by, replicas, reverted) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let read = Self { by, replicas, reverted };
        Some(read).filter(|read| numbers.next().is_none() && read.makes_sense())
    }

    fn of_annotation(text: &str) -> Option<Self> {
        let read: Option<Self> = serde_json::from_str(text).ok();
        read.filter(Self::makes_sense)
    }

    /// What cannot be read, or leaves nothing of what there was before, was not written here.
    fn makes_sense(&self) -> bool {
        self.by == 0 || self.by < self.replicas
    }
}

/// By how much the limits of an autoscaler are larger than its owner wants them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RaisedLimits {
    /// So many pods more than without them.
    pub by: u32,
    pub min_by: u32,
    pub min_replicas: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_by: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_replicas: u32,
    /// The Deployment for which they were raised; empty if a manager before this one has written it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
}

impl RaisedLimits {
    /// What cannot be read, or leaves nothing of what there was before, was not written here: it says nothing, and goes.
    fn read(text: &str) -> Self {
        let read: Option<Self> = serde_json::from_str(text).ok();
        read.filter(|it| it.by == 0 || it.by < it.min_replicas).unwrap_or_default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    pub key: Key,
    pub uid: Arc<str>,
    /// The Deployment that controls it: its name and UID.
    pub deployment: Option<(Arc<str>, Arc<str>)>,
    /// How its pods are evicted if it has no Deployment, by its annotation.
    pub evicts: Option<SomeAtATime>,
}

/// So many pods are evicted at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SomeAtATime {
    pub at_a_time: u32,
    pub replicas: u32,
    /// So long a pod is ready before it counts as available.
    pub min_ready_seconds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autoscaler {
    pub key: Key,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub is_deleting: bool,
    /// The name of the Deployment that it scales.
    pub deployment: Option<Arc<str>>,
    pub min_replicas: u32,
    pub max_replicas: u32,
    /// The priority that its owner gave to its interceptor, as it stands there.
    pub priority: Option<String>,
    pub raised: Option<RaisedLimits>,
    /// It has acted on the spec that it has.
    pub is_observed: bool,
}

impl Autoscaler {
    /// Of the autoscalers of a namespace the one that counts for this Deployment, should several scale it: the one whose limits are
    /// raised, which are to be lowered again, else the first by name.
    pub fn over<'a>(deployment: &str, autoscalers: impl IntoIterator<Item = &'a Self>) -> Option<&'a Self> {
        let scales = |it: &&Self| it.deployment.as_deref() == Some(deployment) && !it.is_deleting;
        autoscalers.into_iter().filter(scales).min_by_key(|it| (it.raised.is_none(), &it.key))
    }

    /// Its limits are raised for a Deployment that it does not scale any more: the name of that.
    pub fn raised_for_another(&self) -> Option<&str> {
        let of = self.raised.as_ref()?.of.as_str();
        let is_its = self.deployment.as_ref().is_some_and(|deployment| of.is_empty() || **deployment == *of);
        (!is_its).then_some(of)
    }
}

fn text(text: Option<String>) -> String {
    text.unwrap_or_default()
}

fn count(count: Option<i32>, or: u32) -> u32 {
    count.map_or(or, |count| u32::try_from(count).unwrap_or(0))
}

impl From<DeploymentOnWire> for Deployment {
    fn from(deployment: DeploymentOnWire) -> Self {
        let (meta, spec, status) = (deployment.metadata, deployment.spec, deployment.status);
        let strategy = spec.strategy.unwrap_or_default();
        let update = strategy.rolling_update.unwrap_or_default();
        let annotations = meta.annotations.as_ref();
        let label = meta.labels.as_ref().and_then(|all| all.get(SURGE_LABEL));
        let annotation = annotations.and_then(|all| all.get(SURGE_ANNOTATION));
        let failure = status.conditions.into_iter().flatten();
        let mut failure = failure.filter(|it| it.kind == "ReplicaFailure" && it.status == "True");
        let replicas = count(spec.replicas, 1);
        let annotated = annotation.and_then(|text| Surge::of_annotation(text));
        // Where somebody has removed the label, the annotation counts if it is the manager's own: ReplicaSets get a copy, and
        // `kubectl rollout undo` writes that back as its own.
        let mut writers = meta.managed_fields.iter().flatten();
        let is_own = writers.any(|entry| {
            let is_of_spec = entry.subresource.as_deref().unwrap_or_default().is_empty();
            is_of_spec && entry.manager.as_deref() == Some(INTERCEPTOR_FIELD_MANAGER)
        });
        let labelled = label.and_then(|text| Surge::of_label(text));
        let surge = labelled.or_else(|| annotated.clone().filter(|_| is_own));
        let annotated = annotated.filter(|it| it.by > 0 && it.replicas == replicas);
        let at_a_time = MaxUnavailable::of(annotations).map(|it| it.of_replicas(replicas));
        let cost = spec.template.metadata.annotations.as_ref();
        let cost = cost.and_then(|all| all.get(POD_DELETION_COST_ANNOTATION));
        let cost: Option<i32> = cost.and_then(|cost| cost.parse().ok());
        let recreates = strategy.type_.as_deref() == Some("Recreate");
        let own_strategy = strategy_with(annotations, at_a_time);
        let max_surge = if recreates { Part::Count(0) } else { Part::read(update.max_surge.as_ref()) };
        let may_have_fewer = own_strategy.is_some() || max_surge.up(replicas) == 0;
        let selector = may_have_fewer.then(|| Selector::try_from(spec.selector).ok()).flatten();
        Self {
            is_deleting: meta.deletion_timestamp.is_some(),
            strategy: own_strategy,
            selector: selector.map(Arc::new),
            at_a_time,
            has_lowest_cost: cost.is_some_and(|cost| cost < PreferredForDeletion::MARKS),
            stale_record: match (label, annotation) {
                _ if surge.is_some() => None,
                (Some(_), _) => Some(StaleRecord::Label),
                (None, Some(_)) => Some(StaleRecord::Annotation { surplus: annotated.map(|it| it.by) }),
                (None, None) => None,
            },
            surge,
            replicas,
            // Who says how many go at a time need not say how it is updated.
            rolling_update: (!recreates || at_a_time.is_some()).then(|| DeploymentUpdate {
                max_surge,
                max_unavailable: at_a_time
                    .map_or_else(|| Part::read(update.max_unavailable.as_ref()), Part::Count),
            }),
            min_ready_seconds: count(spec.min_ready_seconds, 0),
            is_paused: spec.paused,
            is_observed: status.observed_generation.unwrap_or(0) >= meta.generation.unwrap_or(0),
            has_old_pods: status.replicas.unwrap_or(0) > status.updated_replicas.unwrap_or(0),
            replica_failure: failure.next().map(|it| it.message),
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
            resource_version: text(meta.resource_version),
        }
    }
}

/// The annotation of a workload that says how it goes about it: one that says how many go at a time has said that.
pub(super) fn strategy_with(
    annotations: Option<&BTreeMap<String, String>>,
    at_a_time: Option<u32>,
) -> Option<String> {
    strategy_annotation(annotations).or(at_a_time.map(|_| "MaxUnavailable")).map(str::to_owned)
}

impl From<ReplicaSetOnWire> for ReplicaSet {
    fn from(set: ReplicaSetOnWire) -> Self {
        let (meta, spec) = (set.metadata, set.spec);
        let evicts = MaxUnavailable::of(meta.annotations.as_ref()).map(|max| {
            let replicas = count(spec.replicas, 1);
            let min_ready_seconds = count(spec.min_ready_seconds, 0);
            SomeAtATime { at_a_time: max.of_replicas(replicas), replicas, min_ready_seconds }
        });
        let mut owners = meta.owner_references.into_iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true));
        let deployment =
            owner.filter(|owner| owner.kind == "Deployment" && owner.api_version.starts_with("apps/"));
        Self {
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
            deployment: deployment.map(|owner| (owner.name.into(), owner.uid.into())),
            evicts,
        }
    }
}

impl From<AutoscalerOnWire> for Autoscaler {
    fn from(autoscaler: AutoscalerOnWire) -> Self {
        let (meta, spec, status) = (autoscaler.metadata, autoscaler.spec, autoscaler.status);
        let target = spec.scale_target_ref;
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name));
        let is_deployment = target.kind == "Deployment"
            && target.api_version.as_deref().is_none_or(|version| version.starts_with("apps/"));
        Self {
            deployment: is_deployment.then(|| target.name.into()),
            min_replicas: count(spec.min_replicas, 1),
            max_replicas: u32::try_from(spec.max_replicas).unwrap_or(0),
            priority: annotation(INTERCEPTOR_PRIORITY_ANNOTATION).cloned(),
            raised: annotation(SURGE_ANNOTATION).map(|text| RaisedLimits::read(text)),
            is_deleting: meta.deletion_timestamp.is_some(),
            is_observed: status.observed_generation.unwrap_or(0) >= meta.generation.unwrap_or(0),
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
            resource_version: text(meta.resource_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(spec: Value, status: Value, label: &str) -> Deployment {
        let object = json!({
            "metadata": {
                "name": "web", "namespace": "ns", "uid": "u", "generation": 3, "resourceVersion": "5",
                "labels": {SURGE_LABEL: label},
            },
            "spec": spec, "status": status,
        });
        serde_json::from_value::<DeploymentOnWire>(object).unwrap().into()
    }

    #[test]
    fn surges_are_rounded_up_and_unavailable_pods_down() {
        for (given, of, up, down) in [
            (json!(null), 3, 1, 0),
            (json!("25%"), 10, 3, 2),
            (json!("100%"), 4, 4, 4),
            (json!(2), 10, 2, 2),
            (json!(0), 10, 0, 0),
            (json!("0%"), 10, 0, 0),
            (json!("nonsense"), 10, 0, 0),
            (json!("4294967295%"), 2_000_000_000, u32::MAX, u32::MAX),
        ] {
            let part = Part::read(serde_json::from_value(given.clone()).ok().as_ref());
            assert_eq!((part.up(of), part.down(of)), (up, down), "{given} of {of}");
        }
    }

    #[test]
    fn a_deployment_is_read_with_what_decisions_need() {
        let status = json!({
            "observedGeneration": 3, "replicas": 4, "updatedReplicas": 3,
            "conditions": [
                {"type": "Progressing", "status": "True"},
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"},
            ],
        });
        let found =
            deployment(json!({"replicas": 3, "minReadySeconds": 10, "paused": true}), status, "1-3-0");
        assert_eq!((found.replicas, found.min_ready_seconds, found.is_paused), (3, 10, true));
        assert!(found.is_observed && found.has_old_pods);
        assert_eq!(found.replica_failure.as_deref(), Some("exceeded quota"));
        assert_eq!(found.surge, Some(Surge { by: 1, replicas: 3, reverted: 0 }));
        let plain = deployment(json!({"strategy": {"type": "Recreate"}}), json!({}), "1-3-0-9");
        assert_eq!((plain.replicas, plain.rolling_update, plain.surge), (1, None, None));
        assert!(!plain.is_observed && !plain.has_old_pods);
    }

    #[test]
    fn a_surge_is_what_the_label_says_and_not_an_annotation_that_came_back_from_a_replica_set() {
        let object = json!({
            "metadata": {"name": "web", "annotations": {SURGE_ANNOTATION: r#"{"by":1,"replicas":3}"#}},
            "spec": {"replicas": 3},
        });
        let copied: Deployment = serde_json::from_value::<DeploymentOnWire>(object).unwrap().into();
        assert_eq!(copied.surge, None);
        for surge in [
            Surge { by: 2, replicas: 7, reverted: 1 },
            Surge { by: u32::MAX - 1, replicas: u32::MAX, reverted: u32::MAX },
            Surge { by: 0, replicas: 0, reverted: 2 },
        ] {
            assert!(surge.label().len() <= 63);
            assert_eq!(Surge::of_label(&surge.label()), Some(surge));
        }
        for nonsense in
            ["", "1", "1-2", "1--2", "-1-2-3", "a-b-c", "99999999999-1-1", "2-2-0", "3-2-0", "1-0-0"]
        {
            assert_eq!(Surge::of_label(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn an_annotation_counts_without_the_label_if_it_is_the_managers_own() {
        let of = |text: &str, manager: &str| -> Deployment {
            let fields =
                json!({"f:metadata": {"f:annotations": {"f:evictionrequest.coordination.k8s.io/surge": {}}}});
            let others =
                json!({"f:metadata": {"f:annotations": {"f:other": {}}}, "f:spec": {"f:replicas": {}}});
            let object = json!({
                "metadata": {
                    "name": "web", "annotations": {SURGE_ANNOTATION: text}, "managedFields": [
                        {"manager": manager, "fieldsV1": fields}, {"manager": INTERCEPTOR_FIELD_MANAGER, "fieldsV1": others}, {"manager": "x"},
                    ],
                },
                "spec": {"replicas": 3},
            });
            serde_json::from_value::<DeploymentOnWire>(object).unwrap().into()
        };
        let surge = Surge { by: 1, replicas: 3, reverted: 0 };
        let text = serde_json::to_string(&surge).unwrap();
        assert_eq!(text, r#"{"by":1,"replicas":3}"#);
        let own = of(&text, INTERCEPTOR_FIELD_MANAGER);
        assert_eq!((own.surge, own.stale_record), (Some(surge), None));
        // Somebody has scaled since, which is looked at as with a label.
        let scaled = of(r#"{"by":1,"replicas":4}"#, INTERCEPTOR_FIELD_MANAGER);
        assert_eq!(scaled.surge, Some(Surge { by: 1, replicas: 4, reverted: 0 }));
        for (text, manager, surplus) in [
            (text.as_str(), "kubectl-rollout", Some(1)),
            (r#"{"by":1,"replicas":4}"#, "kubectl-rollout", None),
            (r#"{"by":3,"replicas":3}"#, INTERCEPTOR_FIELD_MANAGER, None),
            ("nonsense", INTERCEPTOR_FIELD_MANAGER, None),
        ] {
            let found = of(text, manager);
            assert_eq!(found.surge, None, "{text}");
            assert_eq!(found.stale_record, Some(StaleRecord::Annotation { surplus }), "{text}");
        }
    }

    #[test]
    fn an_autoscaler_is_read_if_it_scales_a_deployment() {
        let read = |spec: Value| -> Autoscaler {
            let object = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}, "spec": spec});
            serde_json::from_value::<AutoscalerOnWire>(object).unwrap().into()
        };
        let of = |kind: &str, version: &str| json!({"maxReplicas": 5, "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "web"}});
        let found = read(of("Deployment", "apps/v1"));
        assert_eq!(
            (found.deployment.as_deref(), found.min_replicas, found.max_replicas),
            (Some("web"), 1, 5)
        );
        assert_eq!(read(of("StatefulSet", "apps/v1")).deployment, None);
        assert_eq!(read(of("Deployment", "example.com/v1")).deployment, None);
    }

    #[test]
    fn of_two_autoscalers_the_raised_one_counts_and_else_the_first_by_name() {
        let named = |name: &str, of: &str, more: Value| -> Autoscaler {
            let mut metadata = json!({"name": name, "namespace": "ns"});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": of});
            let object = json!({"metadata": metadata, "spec": {"maxReplicas": 5, "scaleTargetRef": target}});
            serde_json::from_value::<AutoscalerOnWire>(object).unwrap().into()
        };
        let raised = || json!({"annotations": {SURGE_ANNOTATION: r#"{"by":1,"minReplicas":3}"#}});
        let deleted = || json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let over = |all: &[Autoscaler]| Autoscaler::over("web", all).map(|it| it.key.name.to_string());
        for (all, counts) in [
            ([named("b", "web", json!({})), named("a", "web", json!({}))], Some("a")),
            ([named("a", "web", json!({})), named("b", "web", raised())], Some("b")),
            ([named("b", "web", raised()), named("a", "web", raised())], Some("a")),
            ([named("a", "web", deleted()), named("b", "web", json!({}))], Some("b")),
            ([named("a", "db", raised()), named("b", "web", deleted())], None),
        ] {
            assert_eq!(over(&all).as_deref(), counts, "{all:?}");
        }
    }
}
