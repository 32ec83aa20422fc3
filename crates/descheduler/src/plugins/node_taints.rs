//! RemovePodsViolatingNodeTaints: pods that do not tolerate a taint of their node.

use super::PodInfo;
use super::candidates::{Rule, Want};
use crate::cluster::node::Taint;
use crate::cluster::node_affinity::tolerate;
use crate::cluster::shape::Shape;
use crate::cluster::{Cluster, node::Node};
use crate::cycle::Cycle;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::NodeTaintsArgs;

#[derive(Debug)]
pub struct NodeTaints {
    pub args: NodeTaintsArgs,
}

impl NodeTaints {
    fn looks_at(&self, taint: &Taint) -> bool {
        let effect = taint.effect.as_str();
        let listed = |list: &[String]| {
            list.iter().any(|one| {
                let pair = one.split_once('=').filter(|_| !taint.value.is_empty());
                *one == taint.key || pair == Some((taint.key.as_str(), taint.value.as_str()))
            })
        };
        (effect == "NoSchedule" || effect == "PreferNoSchedule" && self.args.include_prefer_no_schedule)
            && !listed(&self.args.excluded_taints)
            && self.args.included_taints.as_deref().is_none_or(listed)
    }

    /// The first taint of the node that a pod does not tolerate.
    fn violated<'a>(&self, cluster: &Cluster, shape: &Shape, node: &'a Node) -> Option<&'a Taint> {
        let taints = &node.object.as_ref()?.taints;
        let placement = cluster.placement(shape.placement)?;
        taints.iter().find(|taint| self.looks_at(taint) && !tolerate(&placement.tolerations, taint))
    }
}

impl Rule for NodeTaints {
    fn name(&self) -> PluginName {
        PluginName::RemovePodsViolatingNodeTaints
    }

    fn wants(&self, info: &PodInfo<'_>) -> Want {
        let wanted = info.pod.is_active()
            && self.violated(info.cluster, info.shape, info.node).is_some()
            && self.args.scope.admits(info.shape);
        if wanted { Want::Now } else { Want::No }
    }

    fn reason(&self, cycle: &Cycle<'_>, slot: u32) -> Reason {
        let violated = cycle.pod(slot).and_then(|(pod, shape)| {
            let node = cycle.node(pod.node)?;
            self.violated(cycle.cluster, shape, node)
        });
        Reason::Taint { taint: violated.map(ToString::to_string).unwrap_or_default() }
    }
}
