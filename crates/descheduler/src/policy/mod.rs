//! The policy: `descheduler/v1alpha2 DeschedulerPolicy`, as the Go descheduler knows it, read strictly.

pub mod args;
mod duration;
mod errors;
mod numbers;
mod read;
mod read_args;
mod schema;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod words_tests;

use std::fmt;

pub use errors::{PolicyError, PolicyErrors};
pub use read_args::METRIC_RESOURCE;

use crate::selector::Selector;
use args::{Balance, DefaultEvictorArgs, Deschedule, MetricsSource};

/// A policy with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The nodes that plugins look at; all of them if there is none.
    pub node_selector: Option<Selector>,
    pub limits: Limits,
    pub eviction_failure_event_notification: bool,
    pub metrics_providers: Vec<MetricsProvider>,
    /// A refusal (429) that starts so says that the pod leaves in the background.
    pub eviction_message_prefixes: Vec<String>,
    pub profiles: Vec<Profile>,
    /// What is not wrong, and hardly meant.
    pub remarks: Vec<PolicyError>,
}

/// How many pods may be leaving at once. Nothing is unlimited but what has no number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub per_node: Option<u64>,
    pub per_namespace: Option<u64>,
    pub total: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsProvider {
    pub source: MetricsSource,
    pub prometheus: Option<PrometheusProvider>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusProvider {
    pub url: String,
    /// The Secret with the token, as namespace and name.
    pub auth_token: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: String,
    pub evictor: DefaultEvictorArgs,
    /// The enabled plugins, in their order.
    pub deschedule: Vec<Deschedule>,
    pub balance: Vec<Balance>,
}

/// The names of the ten plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PluginName {
    PodLifeTime,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingInterPodAntiAffinity,
    RemoveDuplicates,
    RemovePodsViolatingTopologySpreadConstraint,
    LowNodeUtilization,
    HighNodeUtilization,
}

impl PluginName {
    pub const ALL: [Self; 10] = [
        Self::PodLifeTime,
        Self::RemoveFailedPods,
        Self::RemovePodsHavingTooManyRestarts,
        Self::RemovePodsViolatingNodeTaints,
        Self::RemovePodsViolatingNodeAffinity,
        Self::RemovePodsViolatingInterPodAntiAffinity,
        Self::RemoveDuplicates,
        Self::RemovePodsViolatingTopologySpreadConstraint,
        Self::LowNodeUtilization,
        Self::HighNodeUtilization,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodLifeTime => "PodLifeTime",
            Self::RemoveFailedPods => "RemoveFailedPods",
            Self::RemovePodsHavingTooManyRestarts => "RemovePodsHavingTooManyRestarts",
            Self::RemovePodsViolatingNodeTaints => "RemovePodsViolatingNodeTaints",
            Self::RemovePodsViolatingNodeAffinity => "RemovePodsViolatingNodeAffinity",
            Self::RemovePodsViolatingInterPodAntiAffinity => "RemovePodsViolatingInterPodAntiAffinity",
            Self::RemoveDuplicates => "RemoveDuplicates",
            Self::RemovePodsViolatingTopologySpreadConstraint => {
                "RemovePodsViolatingTopologySpreadConstraint"
            }
            Self::LowNodeUtilization => "LowNodeUtilization",
            Self::HighNodeUtilization => "HighNodeUtilization",
        }
    }

    pub fn is_balance(self) -> bool {
        matches!(
            self,
            Self::RemoveDuplicates
                | Self::RemovePodsViolatingTopologySpreadConstraint
                | Self::LowNodeUtilization
                | Self::HighNodeUtilization
        )
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Policy {
    /// Reads a policy file. All errors are found at once, each with its line and what was probably meant.
    pub fn read(text: &str) -> Result<Self, PolicyErrors> {
        read::policy(text)
    }
}
