//! The arguments of each plugin, with their defaults filled in.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::PluginName;
use crate::selector::Selector;

/// A plugin that proposes pods one by one.
#[derive(Debug, Clone, PartialEq)]
pub enum Deschedule {
    PodLifeTime(PodLifeTimeArgs),
    RemoveFailedPods(RemoveFailedPodsArgs),
    TooManyRestarts(TooManyRestartsArgs),
    NodeTaints(NodeTaintsArgs),
    NodeAffinity(NodeAffinityArgs),
    InterPodAntiAffinity(InterPodAntiAffinityArgs),
}

/// A plugin that proposes pods by what it sees of all of them. They run after all deschedule plugins of all profiles.
#[derive(Debug, Clone, PartialEq)]
pub enum Balance {
    RemoveDuplicates(RemoveDuplicatesArgs),
    TopologySpread(TopologySpreadArgs),
    LowNodeUtilization(LowNodeUtilizationArgs),
    HighNodeUtilization(HighNodeUtilizationArgs),
}

impl Deschedule {
    pub fn name(&self) -> PluginName {
        match self {
            Self::PodLifeTime(_) => PluginName::PodLifeTime,
            Self::RemoveFailedPods(_) => PluginName::RemoveFailedPods,
            Self::TooManyRestarts(_) => PluginName::RemovePodsHavingTooManyRestarts,
            Self::NodeTaints(_) => PluginName::RemovePodsViolatingNodeTaints,
            Self::NodeAffinity(_) => PluginName::RemovePodsViolatingNodeAffinity,
            Self::InterPodAntiAffinity(_) => PluginName::RemovePodsViolatingInterPodAntiAffinity,
        }
    }
}

impl Balance {
    pub fn name(&self) -> PluginName {
        match self {
            Self::RemoveDuplicates(_) => PluginName::RemoveDuplicates,
            Self::TopologySpread(_) => PluginName::RemovePodsViolatingTopologySpreadConstraint,
            Self::LowNodeUtilization(_) => PluginName::LowNodeUtilization,
            Self::HighNodeUtilization(_) => PluginName::HighNodeUtilization,
        }
    }
}

/// Which pods a plugin looks at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodScope {
    pub namespaces: Namespaces,
    pub label_selector: Option<Selector>,
}

/// At most one of the two lists has entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

impl Namespaces {
    pub fn admit(&self, namespace: &str) -> bool {
        let included = self.include.is_empty() || self.include.iter().any(|one| one == namespace);
        included && !self.exclude.iter().any(|one| one == namespace)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodLifeTimeArgs {
    pub scope: PodScope,
    pub owner_kinds: Namespaces,
    pub max_pod_life_time_seconds: Option<u64>,
    pub states: Vec<String>,
    pub conditions: Vec<PodConditionFilter>,
    pub exit_codes: Vec<i32>,
    pub including_init_containers: bool,
    pub including_ephemeral_containers: bool,
}

/// What is empty is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodConditionFilter {
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub min_time_since_last_transition_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RemoveFailedPodsArgs {
    pub scope: PodScope,
    pub exclude_owner_kinds: Vec<String>,
    pub min_pod_lifetime_seconds: u64,
    pub reasons: Vec<String>,
    pub exit_codes: Vec<i32>,
    pub including_init_containers: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TooManyRestartsArgs {
    pub scope: PodScope,
    pub pod_restart_threshold: i32,
    pub including_init_containers: bool,
    pub states: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeTaintsArgs {
    pub scope: PodScope,
    pub include_prefer_no_schedule: bool,
    /// Each is a key, or `key=value`.
    pub excluded_taints: Vec<String>,
    /// Only these, if there is a list at all.
    pub included_taints: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeAffinityArgs {
    pub scope: PodScope,
    /// In the order of the policy.
    pub types: Vec<NodeAffinityType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeAffinityType {
    Required,
    Preferred,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct InterPodAntiAffinityArgs {
    pub scope: PodScope,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RemoveDuplicatesArgs {
    pub namespaces: Namespaces,
    pub exclude_owner_kinds: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TopologySpreadArgs {
    pub scope: PodScope,
    pub do_not_schedule: bool,
    pub schedule_anyway: bool,
    pub topology_balance_node_fit: bool,
}

/// Percentages by resource.
pub type Thresholds = BTreeMap<String, f64>;

#[derive(Debug, Clone, PartialEq)]
pub struct LowNodeUtilizationArgs {
    pub use_deviation_thresholds: bool,
    pub thresholds: Thresholds,
    pub target_thresholds: Thresholds,
    pub number_of_nodes: i64,
    pub usage: UsageSource,
    pub excluded_namespaces: Vec<String>,
    pub eviction_limit_per_node: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HighNodeUtilizationArgs {
    pub thresholds: Thresholds,
    pub number_of_nodes: i64,
    pub only_thresholding_resources: bool,
    pub excluded_namespaces: Vec<String>,
}

/// Where real usage comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricsSource {
    KubernetesMetrics,
    Prometheus,
}

/// What utilization is measured by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum UsageSource {
    /// What pods request.
    #[default]
    Requests,
    /// What nodes and pods use, by metrics.k8s.io.
    KubernetesMetrics,
    /// What a query says of each node, between 0 and 1.
    Prometheus { query: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct DefaultEvictorArgs {
    /// The nodes that `nodeFit` looks at; all of them if there is none.
    pub node_selector: Option<Selector>,
    pub label_selector: Option<Selector>,
    pub namespace_label_selector: Option<Selector>,
    pub priority_threshold: PriorityThreshold,
    pub node_fit: bool,
    pub min_replicas: u64,
    pub min_pod_age: Option<SignedDuration>,
    /// The `prefer-no-eviction` annotation keeps pods, and is more than a preference.
    pub no_eviction_is_mandatory: bool,
    pub protections: PodProtections,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriorityThreshold {
    Value(i32),
    Class(String),
}

/// Which pods are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProtections {
    pub local_storage: bool,
    pub daemon_sets: bool,
    pub system_critical: bool,
    pub failed_bare: bool,
    pub pvc: bool,
    /// If there are some, only claims of these classes count.
    pub protected_storage_classes: Vec<String>,
    pub without_pdb: bool,
    pub resource_claims: bool,
}

/// Pods of this priority and above belong to the system.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

impl Default for DefaultEvictorArgs {
    fn default() -> Self {
        Self {
            node_selector: None,
            label_selector: None,
            namespace_label_selector: None,
            priority_threshold: PriorityThreshold::Value(SYSTEM_CRITICAL_PRIORITY),
            node_fit: false,
            min_replicas: 0,
            min_pod_age: None,
            no_eviction_is_mandatory: false,
            protections: PodProtections::default(),
        }
    }
}

impl Default for PodProtections {
    fn default() -> Self {
        Self {
            local_storage: true,
            daemon_sets: true,
            system_critical: true,
            failed_bare: true,
            pvc: false,
            protected_storage_classes: Vec::new(),
            without_pdb: false,
            resource_claims: false,
        }
    }
}
