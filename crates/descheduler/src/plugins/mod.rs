//! One file for each plugin. Each keeps what it needs to know of pods as they come and go, so that running it looks only at those that
//! may have to leave.

pub mod anti_affinity;
pub mod candidates;
pub mod duplicates;
pub mod failed_pods;
pub mod high_node_utilization;
pub mod low_node_utilization;
pub mod node_affinity;
pub mod node_taints;
pub mod pod_life_time;
#[cfg(test)]
mod tests;
pub mod too_many_restarts;
pub mod topology_spread;
pub mod utilization;
mod values;

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::cluster::pod::Pod;
use crate::cluster::shape::Shape;
use crate::cycle::Cycle;
use crate::evictor::Evictor;
use crate::evictor::fit::Fit;
use crate::policy::PluginName;
use crate::policy::args::{Balance, Deschedule, PodScope};

/// A plugin of a profile.
pub trait Plugin: Debug + Send {
    fn name(&self) -> PluginName;
    /// A pod on a node that the policy looks at, which is new, has changed or was forgotten. Where nothing has changed that the plugin
    /// looks at, nothing is done.
    fn observe(&mut self, pod: &PodInfo<'_>, wakes: &mut Vec<i64>);
    /// The pod is gone, or does not count.
    fn forget(&mut self, slot: u32);
    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>);
    /// Whether it counts pods as it observes them. Others look at what there is when they run.
    fn counts_pods(&self) -> bool {
        true
    }
    /// How much it remembers that may be gone.
    fn remembered(&self) -> usize {
        0
    }
}

/// A pod, with all that is known of it.
pub struct PodInfo<'a> {
    pub cluster: &'a Cluster,
    pub slot: u32,
    pub pod: &'a Pod,
    pub shape: &'a Arc<Shape>,
    pub generation: u64,
    pub node: &'a Node,
    pub now: Timestamp,
    /// It passes the filters of the profile but those just before an eviction.
    pub passes: bool,
}

/// What plugins of a profile share.
pub struct Run<'a> {
    pub profile: &'a str,
    pub evictor: &'a mut Evictor,
    /// Room on the nodes that the policy looks at, where the evictor may look at others.
    pub fit: &'a mut Fit,
}

impl PodScope {
    pub fn admits(&self, shape: &Shape) -> bool {
        self.namespaces.admit(&shape.namespace)
            && self.label_selector.as_ref().is_none_or(|selector| selector.matches(&shape.labels))
    }
}

pub fn deschedule(plugin: &Deschedule) -> Box<dyn Plugin> {
    match plugin {
        Deschedule::PodLifeTime(args) => Box::new(pod_life_time::PodLifeTime::new(args.clone())),
        Deschedule::RemoveFailedPods(args) => {
            Box::new(candidates::ByNode::new(failed_pods::FailedPods { args: args.clone() }))
        }
        Deschedule::TooManyRestarts(args) => {
            Box::new(candidates::ByNode::new(too_many_restarts::TooManyRestarts { args: args.clone() }))
        }
        Deschedule::NodeTaints(args) => {
            Box::new(candidates::ByNode::new(node_taints::NodeTaints { args: args.clone() }))
        }
        Deschedule::NodeAffinity(args) => Box::new(node_affinity::NodeAffinity::new(args.clone())),
        Deschedule::InterPodAntiAffinity(args) => Box::new(anti_affinity::AntiAffinity::new(args.clone())),
    }
}

pub fn balance(plugin: &Balance) -> Box<dyn Plugin> {
    match plugin {
        Balance::RemoveDuplicates(args) => Box::new(duplicates::Duplicates::new(args.clone())),
        Balance::TopologySpread(args) => Box::new(topology_spread::TopologySpread::new(args.clone())),
        Balance::LowNodeUtilization(args) => {
            Box::new(low_node_utilization::LowNodeUtilization { args: args.clone() })
        }
        Balance::HighNodeUtilization(args) => {
            Box::new(high_node_utilization::HighNodeUtilization { args: args.clone() })
        }
    }
}
