//! Whether a pod would fit on another node: selectors, affinity, taints, anti-affinity, and room.
//!
//! Nodes on which a placement may be are remembered until nodes change. In a cycle nodes only fill up, but for those that a proposed pod
//! leaves; so for each kind of pod the search goes on where it stopped, and looks back only at nodes that were left.

use crate::cluster::pod::UNBOUND;
use crate::cluster::resources::{Amounts, CPU, MEMORY, PODS};
use crate::cluster::shape::Shape;
use crate::cluster::{Cluster, Map};
use crate::cycle::Cycle;
use crate::nodes::NodeList;
use crate::selector::Selector;

/// A search for room among the ready nodes that a selector admits.
#[derive(Debug, Default)]
pub struct Fit {
    list: NodeList,
    built_at: u64,
    /// The nodes that a placement admits, in the order of their names, by its number and generation.
    admitted: Map<(u32, u64), Vec<u32>>,
    searches: Vec<Search>,
    /// The number of the search of each kind of pod, and of each shape.
    of_kind: Map<Kind, usize>,
    of_shape: Map<u32, usize>,
    cycle: u64,
}

/// Pods of a kind fit on the same nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    Requests(u32, Amounts),
    /// Anti-affinity looks at labels and names too.
    Shape(u32),
}

#[derive(Debug, Clone, Copy, Default)]
struct Search {
    /// Nodes before this one have no room.
    position: usize,
    /// Nodes before this one have no room, or are emptied.
    position_of_staying: usize,
    /// How many of the nodes that were left were looked at.
    left_seen: usize,
}

impl Fit {
    /// Makes it ready for a cycle.
    pub fn begin(&mut self, cluster: &Cluster, selector: Option<&Selector>, cycle: u64) {
        self.list.refresh(cluster, selector);
        if self.built_at != cluster.nodes_version() {
            self.admitted.clear();
            self.built_at = cluster.nodes_version();
        }
        if self.cycle != cycle {
            self.searches.clear();
            self.of_kind.clear();
            self.of_shape.clear();
            self.cycle = cycle;
        }
    }

    /// A node other than its own on which the pod fits now.
    pub fn other_node(&mut self, cycle: &Cycle<'_>, slot: u32) -> Option<u32> {
        let own = cycle.cluster.pod(slot)?.node;
        self.node_other_than(cycle, slot, own)
    }

    /// Whether all pods of its shape fit on another node than their own, wherever they are: two nodes have room for one. False if that
    /// cannot be told of all of them at once.
    pub fn any_of_shape(&mut self, cycle: &Cycle<'_>, slot: u32) -> bool {
        if cycle.pod(slot).is_none_or(|(_, shape)| !shape.anti_affinity.is_empty()) {
            return false;
        }
        let first = self.node_other_than(cycle, slot, UNBOUND);
        first.is_some_and(|first| self.node_other_than(cycle, slot, first).is_some())
    }

    /// A node other than its own that is not emptied, and on which the pod fits when all is decided: no pod leaves a node after that.
    pub fn node_that_stays(&mut self, cycle: &Cycle<'_>, slot: u32) -> Option<u32> {
        let own = cycle.cluster.pod(slot)?.node;
        self.search(cycle, slot, own, true)
    }

    fn node_other_than(&mut self, cycle: &Cycle<'_>, slot: u32, own: u32) -> Option<u32> {
        self.search(cycle, slot, own, false)
    }

    fn search(&mut self, cycle: &Cycle<'_>, slot: u32, own: u32, is_to_stay: bool) -> Option<u32> {
        let (pod, shape) = cycle.pod(slot)?;
        let admitted = admitted(&mut self.admitted, &self.list, cycle.cluster, shape)?;
        let number = *self.of_shape.entry(pod.shape).or_insert_with(|| {
            let kind = match shape.anti_affinity.is_empty() {
                true => Kind::Requests(shape.placement, shape.requests.clone()),
                false => Kind::Shape(pod.shape),
            };
            *self.of_kind.entry(kind).or_insert_with(|| {
                self.searches.push(Search::default());
                self.searches.len() - 1
            })
        });
        let search = &mut self.searches[number];
        let has_room = |node: u32| has_room(cycle, shape, node) && !conflicts(cycle, slot, shape, node);
        if is_to_stay {
            let takes = |node: u32| !cycle.emptied.contains(&node) && has_room(node);
            return first(admitted, &mut search.position_of_staying, own, takes);
        }
        for left in &cycle.left()[search.left_seen..] {
            let place = self.list.rank(*left).and_then(|rank| {
                admitted.binary_search_by_key(&Some(rank), |node| self.list.rank(*node)).ok()
            });
            if let Some(place) = place.filter(|place| *place < search.position && has_room(admitted[*place]))
            {
                search.position = place;
            }
        }
        search.left_seen = cycle.left().len();
        first(admitted, &mut search.position, own, has_room)
    }

    /// Whether the pod fits on any of the nodes. Its own counts, and there it needs no room.
    pub fn any_node(&mut self, cycle: &Cycle<'_>, slot: u32) -> bool {
        let Some((pod, shape)) = cycle.pod(slot) else {
            return false;
        };
        let own = pod.node;
        let Some(admitted) = admitted(&mut self.admitted, &self.list, cycle.cluster, shape) else {
            return false;
        };
        if admitted.contains(&own) && !conflicts(cycle, slot, shape, own) {
            return true;
        }
        self.other_node(cycle, slot).is_some()
    }

    /// Whether the pod fits on one of these nodes, which do not include its own.
    pub fn any_of(&mut self, cycle: &Cycle<'_>, slot: u32, among: impl Fn(u32) -> bool) -> bool {
        let Some((pod, shape)) = cycle.pod(slot) else {
            return false;
        };
        let Some(admitted) = admitted(&mut self.admitted, &self.list, cycle.cluster, shape) else {
            return false;
        };
        let mut nodes = admitted.iter().filter(|node| **node != pod.node && among(**node));
        nodes.any(|node| has_room(cycle, shape, *node) && !conflicts(cycle, slot, shape, *node))
    }
}

/// The first node from the position on that takes the pod and is not its own. The position moves past those that take no pod of the kind.
fn first(nodes: &[u32], position: &mut usize, own: u32, takes: impl Fn(u32) -> bool) -> Option<u32> {
    while let Some(node) = nodes.get(*position) {
        if *node != own && takes(*node) {
            return Some(*node);
        }
        if *node == own {
            break;
        }
        *position += 1;
    }
    nodes.iter().skip(*position).find(|node| **node != own && takes(**node)).copied()
}

/// The schedulable nodes of the list that labels and taints let pods of the shape on.
fn admitted<'a>(
    known: &'a mut Map<(u32, u64), Vec<u32>>,
    list: &NodeList,
    cluster: &Cluster,
    shape: &Shape,
) -> Option<&'a Vec<u32>> {
    let placement = cluster.placement(shape.placement)?;
    let key = (shape.placement, cluster.placement_generation(shape.placement));
    Some(known.entry(key).or_insert_with(|| {
        let admits = |node: &&u32| {
            let node = cluster.node(**node);
            let object = node.and_then(|node| Some((node, node.object.as_ref()?)));
            object.is_some_and(|(node, object)| {
                !object.unschedulable && placement.admits(&node.name, &object.labels, &object.taints)
            })
        };
        list.nodes.iter().filter(admits).copied().collect()
    }))
}

fn has_room(cycle: &Cycle<'_>, shape: &Shape, node: u32) -> bool {
    let Some(object) = cycle.cluster.node(node).and_then(|node| node.object.as_ref()) else {
        return false;
    };
    let allocatable = |resource| object.allocatable.get(resource);
    if allocatable(PODS).unwrap_or(0) - cycle.requested(node, PODS) <= 0 {
        return false;
    }
    shape.requests.iter().all(|(resource, amount)| {
        let available = match allocatable(resource) {
            Some(all) => all.saturating_sub(cycle.requested(node, resource)),
            None if matches!(resource, CPU | MEMORY | PODS) => {
                0_i64.saturating_sub(cycle.requested(node, resource))
            }
            None => 0,
        };
        amount <= available
    })
}

/// A pod on the node is one that the pod's required anti-affinity keeps it away from. Pods elsewhere in the domain are not looked at.
fn conflicts(cycle: &Cycle<'_>, slot: u32, shape: &Shape, node: u32) -> bool {
    let Some(entry) = cycle.cluster.node(node) else {
        return false;
    };
    let Some((own, _)) = cycle.pod(slot) else {
        return false;
    };
    let on_node =
        entry.pods.iter().copied().filter(|one| !cycle.is_gone(*one)).chain(cycle.expected_on(node));
    let mut terms =
        shape.anti_affinity.iter().filter(|term| entry.label(&term.topology_key).is_some()).peekable();
    if terms.peek().is_none() {
        return false;
    }
    let terms: Vec<_> = terms.collect();
    on_node.filter_map(|one| cycle.pod(one)).filter(|(pod, _)| pod.is_active() && pod.name != own.name).any(
        |(_, other)| {
            terms.iter().any(|term| {
                term.namespaces.iter().any(|one| **one == *other.namespace)
                    && term.selector.as_ref().is_some_and(|selector| selector.matches(&other.labels))
            })
        },
    )
}
