//! Where pods that leave could go: the largest first, each to the first node with room for it.
//!
//! Pods that are alike are one group. A node that had no room for one of a group has none for the next, so that each
//! group looks at each node once, however many pods it has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use usher_decide::snapshot::Key;

use super::objects::{Node, Pod};
use super::placement::{Hindrance, Rules};
use super::resources::Resources;

/// A node that stays, with what is left on it.
#[derive(Debug)]
pub struct NodeInfo<'a> {
    pub node: &'a Node,
    pub is_cordoned: bool,
    pub free: Resources,
    pub free_pods: i64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fit {
    pub places: Vec<(Key, Arc<str>)>,
    pub misfits: Vec<Misfit>,
}

/// Pods that find no place for the same reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    pub pods: Vec<Key>,
    /// How many nodes stay.
    pub nodes: usize,
    pub why: BTreeMap<Hindrance, usize>,
}

struct PodGroup<'a> {
    rules: usize,
    wants: &'a Resources,
    pods: Vec<&'a Pod>,
}

pub fn fit<'a>(leaving: impl Iterator<Item = &'a Pod>, nodes: &mut [NodeInfo<'_>]) -> Fit {
    let mut numbers: HashMap<&Rules, usize> = HashMap::new();
    let mut groups: HashMap<(usize, &Resources), PodGroup<'_>> = HashMap::new();
    for pod in leaving {
        let next = numbers.len();
        let rules = *numbers.entry(&pod.rules).or_insert(next);
        let group = groups.entry((rules, &pod.wants));
        group.or_insert_with(|| PodGroup { rules, wants: &pod.wants, pods: Vec::new() }).pods.push(pod);
    }
    let against = hindrances(&numbers, nodes);
    let mut groups: Vec<PodGroup<'_>> = groups.into_values().collect();
    sort(&mut groups, nodes);
    let mut fit = Fit::default();
    for group in groups {
        place(&group, &against[group.rules], nodes, &mut fit);
    }
    fit
}

/// For each set of rules and each node: what speaks against it whatever the room.
fn hindrances(rules: &HashMap<&Rules, usize>, nodes: &[NodeInfo<'_>]) -> Vec<Vec<Option<Hindrance>>> {
    let mut against = vec![Vec::new(); rules.len()];
    for (rules, number) in rules {
        against[*number] =
            nodes.iter().map(|node_info| rules.against(node_info.node, node_info.is_cordoned)).collect();
    }
    against
}

/// Those that take the largest share of what is free come first, for they are the hardest to place.
fn sort(groups: &mut [PodGroup<'_>], nodes: &[NodeInfo<'_>]) {
    let mut free = Resources::default();
    nodes.iter().for_each(|node_info| free.add(&node_info.free));
    #[allow(clippy::cast_precision_loss, reason = "a share decides an order, not a place")]
    let share = |wants: &Resources| {
        let of = |wanted: i64, free: i64| wanted as f64 / free.max(1) as f64;
        let others = wants
            .others
            .iter()
            .map(|(name, wanted)| of(*wanted, free.others.get(name).copied().unwrap_or(0)));
        others.fold(of(wants.cpu, free.cpu).max(of(wants.memory, free.memory)), f64::max)
    };
    for group in &mut *groups {
        group.pods.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
    }
    let first = |group: &PodGroup<'_>| group.pods.first().map(|pod| pod.pod.key.clone());
    groups.sort_by(|a, b| share(b.wants).total_cmp(&share(a.wants)).then_with(|| first(a).cmp(&first(b))));
}

fn place(group: &PodGroup<'_>, against: &[Option<Hindrance>], nodes: &mut [NodeInfo<'_>], fit: &mut Fit) {
    let mut at = 0;
    for (number, pod) in group.pods.iter().enumerate() {
        while let Some(node_info) = nodes.get(at) {
            if against[at].is_none() && node_info.free_pods > 0 && node_info.free.is_room_for(group.wants) {
                break;
            }
            at += 1;
        }
        let Some(node_info) = nodes.get_mut(at) else {
            let pods = group.pods[number..].iter().map(|pod| pod.pod.key.clone());
            let why = reasons(group.wants, against, nodes);
            match fit.misfits.iter_mut().find(|misfit| misfit.why == why) {
                Some(misfit) => misfit.pods.extend(pods),
                None => fit.misfits.push(Misfit { pods: pods.collect(), nodes: nodes.len(), why }),
            }
            return;
        };
        node_info.free.subtract(group.wants);
        node_info.free_pods -= 1;
        fit.places.push((pod.pod.key.clone(), node_info.node.node.name.clone()));
    }
}

/// A node that lacks several things is counted for each of them, as the scheduler does.
fn reasons(
    wants: &Resources,
    against: &[Option<Hindrance>],
    nodes: &[NodeInfo<'_>],
) -> BTreeMap<Hindrance, usize> {
    let mut why = BTreeMap::new();
    let mut count = |hindrance: Hindrance| *why.entry(hindrance).or_insert(0) += 1;
    for (against, node_info) in against.iter().zip(nodes) {
        if let Some(hindrance) = against {
            count(hindrance.clone());
            continue;
        }
        if node_info.free_pods <= 0 {
            count(Hindrance::Full);
        }
        node_info.free.lacking(wants).for_each(|what| count(Hindrance::Lacks(what.to_string())));
    }
    why
}
