//! Workloads and disruption budgets. Their pod templates are kept whole, because pods are made from them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::wire::{Amount, Condition, Followed, Meta, Object, or_default};

pub(crate) type ReplicaSet = Object<ReplicaSetSpec>;
pub(crate) type Deployment = Object<DeploymentSpec>;
pub(crate) type StatefulSet = Object<StatefulSetSpec>;
pub(crate) type DaemonSet = Object<DaemonSetSpec>;
pub(crate) type Job = Object<JobSpec>;
pub(crate) type Budget = Object<BudgetSpec, BudgetStatus>;
pub(crate) type ReplicationController = Object<OnlyReplicas>;
pub(crate) type Autoscaler = Object<AutoscalerSpec>;
pub(crate) type Claim = Object<ClaimSpec, ClaimStatus>;

/// A template that a workload has or had, under a name and in an order.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Revision {
    pub metadata: Meta,
    pub revision: i64,
    pub data: Value,
}

impl Followed for Revision {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OnlyReplicas {
    pub replicas: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerSpec {
    pub scale_target_ref: ScaleTarget,
    pub min_replicas: Option<i64>,
    pub max_replicas: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ScaleTarget {
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    pub volume_name: String,
    pub storage_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub access_modes: Value,
    pub resources: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimStatus {
    pub phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetSpec {
    pub replicas: Option<i64>,
    pub selector: Value,
    pub min_ready_seconds: i64,
    pub template: Value,
}

impl ReplicaSet {
    pub(crate) fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub replicas: Option<i64>,
    pub selector: Value,
    pub template: Value,
    pub strategy: Strategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub progress_deadline_seconds: Option<i64>,
    pub paused: bool,
}

/// How a workload takes on a new template; the kinds use different parts of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Strategy {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub rolling_update: RollingUpdate,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub max_surge: Option<Amount>,
    pub max_unavailable: Option<Amount>,
    pub partition: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub replicas: Option<i64>,
    pub service_name: String,
    pub template: Value,
    pub pod_management_policy: String,
    pub update_strategy: Strategy,
    pub min_ready_seconds: i64,
    #[serde(deserialize_with = "or_default")]
    pub volume_claim_templates: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub ordinals: Ordinals,
    pub selector: Value,
    pub revision_history_limit: Option<i64>,
    #[serde(rename = "persistentVolumeClaimRetentionPolicy", deserialize_with = "or_default")]
    pub claim_retention: ClaimRetention,
}

/// What becomes of claims when their set, or their place in it, goes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimRetention {
    pub when_deleted: String,
    pub when_scaled: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ordinals {
    pub start: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    pub selector: Value,
    pub template: Value,
    pub revision_history_limit: Option<i64>,
    pub update_strategy: Strategy,
    pub min_ready_seconds: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub parallelism: Option<i64>,
    pub completions: Option<i64>,
    pub backoff_limit: Option<i64>,
    pub completion_mode: String,
    pub suspend: bool,
    pub active_deadline_seconds: Option<i64>,
    #[serde(rename = "ttlSecondsAfterFinished")]
    pub ttl: Option<i64>,
    pub pod_failure_policy: Value,
    pub selector: Value,
    pub template: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetSpec {
    pub min_available: Option<Amount>,
    pub max_unavailable: Option<Amount>,
    pub selector: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetStatus {
    pub observed_generation: i64,
    pub disruptions_allowed: i64,
    pub current_healthy: i64,
    pub desired_healthy: i64,
    pub expected_pods: i64,
    /// When pods were evicted that have not been seen to go.
    #[serde(deserialize_with = "times")]
    pub disrupted_pods: BTreeMap<String, Timestamp>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

impl PartialEq for Condition {
    /// Times are when it became so, not what it says.
    fn eq(&self, other: &Self) -> bool {
        (&self.kind, &self.status, &self.reason, &self.message)
            == (&other.kind, &other.status, &other.reason, &other.message)
    }
}

impl Eq for Condition {}

fn times<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Timestamp>, D::Error> {
    let texts = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
    let parse = |(name, text): (String, String)| Ok((name, text.parse().map_err(serde::de::Error::custom)?));
    texts.into_iter().map(parse).collect()
}
