//! What a cycle came to: proposals with their reasons, what stopped them, and counts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;

use crate::policy::{PluginName, PolicyError};

/// The outcome of a cycle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The pods that should be asked to leave, in the order in which they were decided.
    pub proposals: Vec<Proposal>,
    /// The pods that are leaving already and that a plugin would propose if they were not and if there were no limits, by their UID; and
    /// those of nodes that are not ready, of which nobody knows.
    pub still_wanted: Vec<String>,
    /// Where the cycle or a plugin came to an end early.
    pub stops: Vec<Stopped>,
    /// What each plugin of each profile did, in the order in which they ran.
    pub counts: Vec<PluginCount>,
    /// What kept a plugin from working at all.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub pod: PodRef,
    pub profile: String,
    pub plugin: PluginName,
    pub reason: Reason,
    /// A node on which it would fit now, beside all that was decided before it, and that the plan does not empty.
    pub fits_on: Option<String>,
    /// Who makes it again.
    pub owner: Option<OwnerRef>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Why a plugin wants a pod to leave.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// It is older than the policy allows, or matches the states that the policy lists.
    LifeTime {
        age: SignedDuration,
        limit_seconds: Option<u64>,
    },
    Failed {
        reason: Option<String>,
    },
    TooManyRestarts {
        restarts: i32,
        threshold: i32,
    },
    /// A taint of its node that it does not tolerate, as `key=value:effect`.
    Taint {
        taint: String,
    },
    RequiredNodeAffinity,
    PreferredNodeAffinity {
        weight: i32,
        best: i32,
    },
    /// Another pod in the same topology domain, which it does not want to be with.
    AntiAffinity {
        other: String,
        topology_key: String,
    },
    /// Pods of its owner on its node, and how many there should be at most.
    Duplicate {
        on_node: usize,
        at_most: usize,
    },
    TopologySpread {
        topology_key: String,
        domain: String,
        pods: usize,
        max_skew: i32,
    },
    /// Its node is above the target, with the resource that is the most above it, in percent.
    Overutilized {
        resource: String,
        percent: f64,
    },
    /// Its node is below the thresholds, and is to be emptied.
    Underutilized {
        resource: String,
        percent: f64,
    },
}

impl Reason {
    /// Nothing keeps the scheduler from putting a replacement where the same plugin wants it to leave again. What the scheduler heeds itself,
    /// and what takes its time with every pod, does not recur so.
    pub fn may_recur(&self) -> bool {
        match self {
            Self::PreferredNodeAffinity { .. }
            | Self::Duplicate { .. }
            | Self::TopologySpread { .. }
            | Self::Overutilized { .. }
            | Self::Underutilized { .. } => true,
            Self::Taint { taint } => taint.ends_with(":PreferNoSchedule"),
            Self::LifeTime { .. }
            | Self::Failed { .. }
            | Self::TooManyRestarts { .. }
            | Self::RequiredNodeAffinity
            | Self::AntiAffinity { .. } => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LifeTime { age, limit_seconds: Some(limit) } => {
                write!(f, "is {} seconds old, more than {limit}", age.as_secs())
            }
            Self::LifeTime { age, limit_seconds: None } => {
                write!(f, "is in a state that the policy lists, {} seconds old", age.as_secs())
            }
            Self::Failed { reason: Some(reason) } => write!(f, "failed: {reason}"),
            Self::Failed { reason: None } => write!(f, "failed"),
            Self::TooManyRestarts { restarts, threshold } => {
                write!(f, "restarted {restarts} times, {threshold} or more are too many")
            }
            Self::Taint { taint } => write!(f, "does not tolerate the taint {taint} of its node"),
            Self::RequiredNodeAffinity => write!(f, "its node does not match its required node affinity"),
            Self::PreferredNodeAffinity { weight, best } => {
                write!(f, "prefers other nodes: its node weighs {weight}, the best one {best}")
            }
            Self::AntiAffinity { other, topology_key } => {
                write!(f, "its anti-affinity keeps it away from {other}, which is in the same {topology_key}")
            }
            Self::Duplicate { on_node, at_most } => {
                write!(f, "is one of {on_node} pods of its owner on the node, {at_most} would do")
            }
            Self::TopologySpread { topology_key, domain, pods, max_skew } => {
                write!(
                    f,
                    "{topology_key} {domain} has {pods} of the pods, more than a skew of {max_skew} allows"
                )
            }
            Self::Overutilized { resource, percent } => {
                write!(f, "its node is above the target: {resource} at {percent:.0} %")
            }
            Self::Underutilized { resource, percent } => {
                write!(f, "its node is used little, and is to be emptied: {resource} at {percent:.0} %")
            }
        }
    }
}

/// What ended a cycle, or what a plugin did, early.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    FewerThanTwoReadyNodes { ready: usize },
    TotalLimit { limit: u64 },
    NodeLimit { node: String, limit: u64 },
    NamespaceLimit { namespace: String, limit: u64 },
}

impl Stop {
    pub fn is_limit(&self) -> bool {
        !matches!(self, Self::FewerThanTwoReadyNodes { .. })
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerThanTwoReadyNodes { ready } => {
                write!(f, "nothing is descheduled with fewer than two ready nodes, and there are {ready}")
            }
            Self::TotalLimit { limit } => write!(f, "the limit of {limit} pods in total is reached"),
            Self::NodeLimit { node, limit } => {
                write!(f, "the limit of {limit} pods of node {node} is reached")
            }
            Self::NamespaceLimit { namespace, limit } => {
                write!(f, "the limit of {limit} pods of namespace {namespace} is reached")
            }
        }
    }
}

/// A stop, and whom it stopped. The whole cycle if there is no plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub by: Stop,
    pub plugin: Option<(String, PluginName)>,
    /// How many pods it kept from being proposed, where that is known.
    pub pods: usize,
    /// The same, by their namespaces and nodes.
    pub places: BTreeMap<(String, String), usize>,
}

/// What a plugin of a profile did in the cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginCount {
    pub profile: String,
    pub plugin: PluginName,
    /// The pods that it wants to leave and that may leave, with those that are leaving already.
    pub wanted: usize,
    pub proposed: usize,
    /// Those of them that are leaving already, and are not proposed again.
    pub leaving: usize,
}

/// What kept a plugin from working, or from finding anything to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The priority class by which the policy names its threshold does not exist.
    UnknownPriorityClass { profile: String, class: String },
    /// The priority class of the threshold is above those of the system.
    PriorityClassTooHigh { profile: String, class: String, value: i32 },
    /// The plugin goes by real usage, and that of a node is not known.
    NoUsageOfNode { profile: String, plugin: PluginName, node: String },
    /// The plugin has a threshold of a resource that is nowhere, so that it finds room nowhere.
    UnknownResource { profile: String, plugin: PluginName, resource: String },
    /// What is hardly meant in the policy.
    Remark(PolicyError),
}

impl Problem {
    /// It keeps this plugin of this profile from working.
    pub fn is_of(&self, of_profile: &str, of_plugin: PluginName) -> bool {
        match self {
            Self::UnknownPriorityClass { profile, .. } | Self::PriorityClassTooHigh { profile, .. } => {
                profile == of_profile
            }
            Self::NoUsageOfNode { profile, plugin, .. } => profile == of_profile && *plugin == of_plugin,
            Self::UnknownResource { .. } | Self::Remark(_) => false,
        }
    }

    /// It keeps a plugin from saying whom it wants. Who has nothing to do says that it wants nobody.
    pub fn silences(&self) -> bool {
        !matches!(self, Self::UnknownResource { .. } | Self::Remark(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPriorityClass { profile, class } => {
                write!(
                    f,
                    "profile {profile} is not run: there is no priority class {class}, which its priorityThreshold names"
                )
            }
            Self::PriorityClassTooHigh { profile, class, value } => write!(
                f,
                "profile {profile} is not run: the priority class {class} of its priorityThreshold has {value}, more than 2000000000"
            ),
            Self::NoUsageOfNode { profile, plugin, node } => {
                write!(f, "{plugin} of profile {profile} is not run: the usage of node {node} is not known")
            }
            Self::UnknownResource { profile, plugin, resource } => write!(
                f,
                "{plugin} of profile {profile} does nothing: its thresholds name {resource}, which no node has"
            ),
            Self::Remark(remark) => write!(f, "the policy, {remark}"),
        }
    }
}
