//! RemovePodsViolatingNodeAffinity: pods whose node does not match any more, or that would rather be elsewhere.

use super::candidates::{Candidates, Want, propose_by_node};
use super::{Plugin, PodInfo, Run};
use crate::cluster::Map;
use crate::cycle::Cycle;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::{NodeAffinityArgs, NodeAffinityType};

#[derive(Debug)]
pub struct NodeAffinity {
    args: NodeAffinityArgs,
    /// Those whose node does not match what they require.
    required: Candidates,
    /// Those that prefer some nodes.
    preferring: Candidates,
    /// The best weight of all nodes by shape, until nodes change.
    best: Map<u64, i32>,
    best_at: u64,
}

impl NodeAffinity {
    pub fn new(args: NodeAffinityArgs) -> Self {
        Self {
            args,
            required: Candidates::default(),
            preferring: Candidates::default(),
            best: Map::default(),
            best_at: 0,
        }
    }

    /// The weight of the pod's node, and the best weight of all, if that is higher.
    fn better(&mut self, cycle: &Cycle<'_>, slot: u32) -> Option<(i32, i32)> {
        if self.best_at != cycle.cluster.nodes_version() {
            self.best.clear();
            self.best_at = cycle.cluster.nodes_version();
        }
        let (pod, shape) = cycle.pod(slot)?;
        let weight_of = |index: u32| {
            let node = cycle.node(index);
            let object = node.and_then(|node| Some((node, node.object.as_ref()?)));
            object.map_or(0, |(node, object)| shape.weight(&node.name, &object.labels))
        };
        let generation = cycle.cluster.shape_generation(pod.shape);
        let best = self.best.entry(generation);
        let best =
            *best.or_insert_with(|| cycle.nodes.nodes.iter().map(|node| weight_of(*node)).fold(0, i32::max));
        let own = weight_of(pod.node);
        (best > own).then_some((own, best))
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> PluginName {
        PluginName::RemovePodsViolatingNodeAffinity
    }

    fn observe(&mut self, info: &PodInfo<'_>, wakes: &mut Vec<i64>) {
        let counts = info.pod.is_active() && self.args.scope.admits(info.shape);
        let placement = info.cluster.placement(info.shape.placement);
        let mismatch = placement.zip(info.node.object.as_ref()).is_some_and(|(placement, object)| {
            placement.nodes.has_affinity() && !placement.nodes.matches(&info.node.name, &object.labels)
        });
        let want = |wanted: bool| if counts && wanted { Want::Now } else { Want::No };
        self.required.observe(info.slot, want(mismatch), wakes);
        self.preferring.observe(info.slot, want(!info.shape.preferred_nodes.is_empty()), wakes);
    }

    fn forget(&mut self, slot: u32) {
        self.required.forget(slot);
        self.preferring.forget(slot);
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        for kind in self.args.types.clone() {
            let goes_on = match kind {
                NodeAffinityType::Required => {
                    let mut nodes = self.required.by_node(cycle, |_| 0);
                    for pods in &mut nodes {
                        pods.retain(|slot| cycle.is_leaving(*slot) || run.fit.any_node(cycle, *slot));
                    }
                    propose_by_node(cycle, run, nodes, |_, _| Reason::RequiredNodeAffinity)
                }
                NodeAffinityType::Preferred => {
                    let mut nodes = self.preferring.by_node(cycle, |_| 0);
                    let mut weights = Map::default();
                    for pods in &mut nodes {
                        pods.retain(|slot| match self.better(cycle, *slot) {
                            Some(better) => {
                                weights.insert(*slot, better);
                                cycle.is_leaving(*slot) || run.fit.any_node(cycle, *slot)
                            }
                            None => false,
                        });
                    }
                    propose_by_node(cycle, run, nodes, |_, slot| {
                        let (weight, best) = weights.get(&slot).copied().unwrap_or_default();
                        Reason::PreferredNodeAffinity { weight, best }
                    })
                }
            };
            if !goes_on {
                return;
            }
        }
    }
}
