//! How far a drain has come: the pods of each node, and what stands in their way.
//!
//! What a pod waits on is asked of `usher-decide`, and what a node waits on is read from the status of the maintenance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::{NodeMaintenance, NodeMaintenanceStatus, NodeStatus, PodType};
use usher_decide::maintenance::status::is_drained;
use usher_decide::maintenance::written;
use usher_decide::snapshot::{Key, Pod};

use crate::standing::{Standing, Waits};
use crate::world::World;
use crate::{Ending, span};

/// Pods that wait on the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Of the first of them.
    pub waits: Waits,
    pub pods: Vec<Key>,
}

/// The pods of a node, and where its drain stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeProgress {
    pub name: String,
    /// Pods that were there at some time since this began.
    pub seen: usize,
    /// On their way, or asked and not blocked.
    pub evicting: usize,
    pub blocked: usize,
    /// Not asked yet.
    pub pending: usize,
    /// Pods that are left and are neither of DaemonSets nor static.
    pub ordinary: usize,
    /// The worst first.
    pub causes: Vec<Cause>,
    pub status: NodeStatus,
}

impl NodeProgress {
    pub fn left(&self) -> usize {
        self.evicting + self.blocked + self.pending
    }

    pub fn gone(&self) -> usize {
        self.seen.saturating_sub(self.left())
    }
}

/// All nodes together.
pub fn total(nodes: &[NodeProgress]) -> NodeProgress {
    let mut total = NodeProgress::default();
    let mut causes = Causes::default();
    for node in nodes {
        total.seen += node.seen;
        total.evicting += node.evicting;
        total.blocked += node.blocked;
        total.pending += node.pending;
        total.ordinary += node.ordinary;
        for cause in &node.causes {
            causes.add(&cause.waits, cause.pods.iter().cloned());
        }
    }
    total.causes = causes.worst_first();
    total
}

/// What was seen of a drain since somebody looks.
#[derive(Debug, Clone)]
pub struct Progress {
    pub started: Timestamp,
    seen: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Progress {
    pub fn new(started: Timestamp) -> Self {
        Self { started, seen: BTreeMap::new() }
    }

    /// The nodes as they are now, by name.
    pub fn look(
        &mut self,
        maintenance: &NodeMaintenance,
        world: &World,
        now: Timestamp,
    ) -> Vec<NodeProgress> {
        let statuses = maintenance.status.as_ref().map(|status| &status.node_statuses[..]);
        let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in world.pods.values().filter(|pod| !pod.phase.is_terminal()) {
            pods.entry(&pod.node).or_default().push(pod);
        }
        let of_node = |status: &NodeStatus| {
            let name = &status.node_ref.name;
            let pods = pods.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let seen = self.seen.entry(name.clone()).or_default();
            seen.extend(pods.iter().map(|pod| pod.uid.clone()));
            node(status, seen.len(), pods, world, now)
        };
        let mut nodes: Vec<NodeProgress> = statuses.unwrap_or_default().iter().map(of_node).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    pub fn age(&self, now: Timestamp) -> String {
        span::age(self.started, now)
    }
}

fn node(status: &NodeStatus, seen: usize, pods: &[&Pod], world: &World, now: Timestamp) -> NodeProgress {
    let mut node = NodeProgress {
        name: status.node_ref.name.clone(),
        seen,
        status: status.clone(),
        ordinary: pods.iter().filter(|pod| pod.kind() == PodType::Default).count(),
        ..NodeProgress::default()
    };
    let mut causes = Causes::default();
    for pod in pods {
        let Some(waits) = Standing::of_pod(world, pod, now) else {
            node.pending += 1;
            continue;
        };
        match waits.is_blocked() {
            true => node.blocked += 1,
            false => node.evicting += 1,
        }
        causes.add(&waits, [pod.key.clone()]);
    }
    node.causes = causes.worst_first();
    node
}

/// Pods by what they wait on.
#[derive(Default)]
struct Causes(BTreeMap<(Arc<str>, String), Cause>);

impl Causes {
    fn add(&mut self, waits: &Waits, pods: impl IntoIterator<Item = Key>) {
        for pod in pods {
            // What blocks is an object of the pod's namespace; budgets of the same name are many.
            let namespace = if waits.is_blocked() { pod.namespace.clone() } else { Arc::default() };
            let same = self.0.entry((namespace, waits.sentence()));
            same.or_insert_with(|| Cause { waits: waits.clone(), pods: Vec::new() }).pods.push(pod);
        }
    }

    /// What blocks comes first, then what most pods wait on.
    fn worst_first(self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = self.0.into_values().collect();
        causes.sort_by_key(|cause| (!cause.waits.is_blocked(), std::cmp::Reverse(cause.pods.len())));
        causes
    }
}

/// How the drain ended, if it did. `None` instead of a maintenance: it is gone.
pub fn ending(maintenance: Option<&NodeMaintenance>, ignores_daemons: bool) -> Option<Ending> {
    let Some(maintenance) = maintenance else { return Some(Ending::Withdrawn) };
    let is_done = |status: &NodeMaintenanceStatus| {
        is_drained(status) || (ignores_daemons && is_down_to_daemons(status))
    };
    if maintenance.status.as_ref().is_some_and(is_done) {
        Some(Ending::Done)
    } else if super::create::is_active(maintenance) {
        None
    } else {
        Some(Ending::Withdrawn)
    }
}

/// Entries of DaemonSets and static pods are reached once all other pods are gone from all nodes.
fn is_down_to_daemons(status: &NodeMaintenanceStatus) -> bool {
    let reached = written::reached(status);
    [PodType::DaemonSet, PodType::Static].into_iter().any(|kind| reached.reach(kind))
}
