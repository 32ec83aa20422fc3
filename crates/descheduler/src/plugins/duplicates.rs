//! RemoveDuplicates: pods of the same owner and images on one node, above an even share of the nodes on which they may be.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plugin, PodInfo, Run};
use crate::cluster::shape::Shape;
use crate::cluster::{Map, Set};
use crate::cycle::{Cycle, ProposalOutcome};
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::RemoveDuplicatesArgs;
use crate::slots::Slots;

#[derive(Debug)]
pub struct Duplicates {
    args: RemoveDuplicatesArgs,
    /// Pods are duplicates of each other if their owners and images are the same.
    groups: Map<GroupKey, u32>,
    /// The owners of each group, with its pods.
    of_group: Vec<Group>,
    owners: Map<OwnerKey, u32>,
    owner_keys: Vec<OwnerKey>,
    /// The groups of each owner.
    of_owner: Vec<Vec<u32>>,
    /// How many pods of a group are on a node.
    on_node: Map<(u32, u32), u32>,
    /// Where there are two or more of a group.
    with_duplicates: Set<(u32, u32)>,
    known: Slots<(u32, u32)>,
    group_of_shape: Map<u64, Option<u32>>,
    /// The nodes that a placement admits, by its number and generation, until nodes change.
    admitted: Map<(u32, u64), Vec<u32>>,
    admitted_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    namespace: Box<str>,
    /// Kinds and names, sorted.
    owners: Box<[(Box<str>, Box<str>)]>,
    images: Box<[Box<str>]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OwnerKey {
    namespace: Box<str>,
    kind: Box<str>,
    name: Box<str>,
    images: Box<[Box<str>]>,
}

#[derive(Debug)]
struct Group {
    owners: Vec<u32>,
    pods: Set<u32>,
}

impl Duplicates {
    pub fn new(args: RemoveDuplicatesArgs) -> Self {
        Self {
            args,
            groups: Map::default(),
            of_group: Vec::new(),
            owners: Map::default(),
            owner_keys: Vec::new(),
            of_owner: Vec::new(),
            on_node: Map::default(),
            with_duplicates: Set::default(),
            known: Slots::default(),
            group_of_shape: Map::default(),
            admitted: Map::default(),
            admitted_at: 0,
        }
    }

    fn group(&mut self, generation: u64, shape: &Shape) -> Option<u32> {
        if let Some(group) = self.group_of_shape.get(&generation) {
            return *group;
        }
        let group = self.make_group(shape);
        self.group_of_shape.insert(generation, group);
        group
    }

    /// None if the plugin does not look at pods of the shape.
    fn make_group(&mut self, shape: &Shape) -> Option<u32> {
        let excluded = |kind: &str| self.args.exclude_owner_kinds.iter().any(|one| one == kind);
        let is_excluded = shape.owners.is_empty() || shape.owners.iter().any(|owner| excluded(&owner.kind));
        if is_excluded || shape.images.is_empty() || !self.args.namespaces.admit(&shape.namespace) {
            return None;
        }
        let namespace: Box<str> = shape.namespace.as_ref().into();
        let mut owners: Vec<_> =
            shape.owners.iter().map(|one| (one.kind.clone(), one.name.clone())).collect();
        owners.sort();
        let key = GroupKey {
            namespace: namespace.clone(),
            owners: owners.clone().into(),
            images: shape.images.clone(),
        };
        if let Some(group) = self.groups.get(&key) {
            return Some(*group);
        }
        let group = u32::try_from(self.of_group.len()).ok()?;
        owners.dedup();
        let mut numbers = Vec::new();
        for (kind, name) in owners {
            let owner = OwnerKey { namespace: namespace.clone(), kind, name, images: shape.images.clone() };
            let next = u32::try_from(self.of_owner.len()).ok()?;
            let number = *self.owners.entry(owner.clone()).or_insert(next);
            if number == next {
                self.owner_keys.push(owner);
                self.of_owner.push(Vec::new());
            }
            self.of_owner[number as usize].push(group);
            numbers.push(number);
        }
        self.of_group.push(Group { owners: numbers, pods: Set::default() });
        self.groups.insert(key, group);
        Some(group)
    }

    /// The pods of each group on each node where it has two or more.
    fn duplicates_by_node(&self) -> BTreeMap<(u32, u32), Vec<u32>> {
        let mut duplicates: BTreeMap<_, _> =
            self.with_duplicates.iter().map(|place| (*place, Vec::new())).collect();
        let groups: BTreeSet<u32> = self.with_duplicates.iter().map(|(group, _)| *group).collect();
        for slot in groups.iter().flat_map(|group| &self.of_group[*group as usize].pods) {
            if let Some(pods) = self.known.get(*slot).and_then(|place| duplicates.get_mut(place)) {
                pods.push(*slot);
            }
        }
        duplicates
    }

    /// How many nodes there are on which any of the duplicates may be. What may only be on one node does not count.
    fn feasible_nodes(&mut self, cycle: &Cycle<'_>, duplicates: &BTreeMap<u32, Vec<u32>>) -> usize {
        if self.admitted_at != cycle.cluster.nodes_version() {
            self.admitted.clear();
            self.admitted_at = cycle.cluster.nodes_version();
        }
        let pods = duplicates.values().flatten().filter_map(|slot| cycle.pod(*slot));
        let placements: Set<u32> = pods.map(|(_, shape)| shape.placement).collect();
        let mut lists = Vec::new();
        for number in placements {
            let key = (number, cycle.cluster.placement_generation(number));
            if let Some(placement) = cycle.cluster.placement(number) {
                self.admitted.entry(key).or_insert_with(|| {
                    let admits = |node: &&u32| {
                        let node = cycle.node(**node);
                        let object = node.and_then(|node| Some((node, node.object.as_ref()?)));
                        object.is_some_and(|(node, object)| {
                            placement.admits(&node.name, &object.labels, &object.taints)
                        })
                    };
                    cycle.nodes.nodes.iter().filter(admits).copied().collect()
                });
                lists.push(key);
            }
        }
        let mut lists = lists.iter().filter_map(|key| self.admitted.get(key)).filter(|nodes| nodes.len() > 1);
        match (lists.next(), lists.next()) {
            (None, _) => 0,
            (Some(only), None) => only.len(),
            (Some(one), Some(other)) => {
                let union: Set<u32> = one.iter().chain(other).chain(lists.flatten()).copied().collect();
                union.len()
            }
        }
    }
}

/// Who passes the last filters, as long as nothing is proposed.
#[derive(Default)]
struct Passes {
    /// The shapes of which all pods pass.
    shapes: Map<u32, bool>,
    /// The groups of which a pod is leaving. Room was looked at when it was asked, and may be taken by its replacement or kept for it now:
    /// the others count whether they fit elsewhere or not. None is proposed that does not.
    leaving: Set<u32>,
}

impl Passes {
    fn of(&mut self, cycle: &Cycle<'_>, run: &mut Run<'_>, group: u32, slot: u32) -> bool {
        let Some(pod) = cycle.cluster.pod(slot) else {
            return false;
        };
        if self.leaving.contains(&group) {
            return run.evictor.pre_eviction_but_room(cycle, slot).is_ok();
        }
        let all =
            *self.shapes.entry(pod.shape).or_insert_with(|| run.evictor.pre_eviction_of_shape(cycle, slot));
        match all {
            true => cycle.cool_down(slot).is_none(),
            false => run.evictor.pre_eviction(cycle, slot).is_ok(),
        }
    }
}

impl Plugin for Duplicates {
    fn name(&self) -> PluginName {
        PluginName::RemoveDuplicates
    }

    fn observe(&mut self, info: &PodInfo<'_>, _: &mut Vec<i64>) {
        let counts = info.passes && info.pod.is_active();
        let group = if counts { self.group(info.generation, info.shape) } else { None };
        let place = group.map(|group| (group, info.pod.node));
        if self.known.get(info.slot) == place.as_ref() {
            return;
        }
        self.forget(info.slot);
        let Some(place) = place else {
            return;
        };
        let pods = self.on_node.entry(place).or_default();
        *pods += 1;
        if *pods > 1 {
            self.with_duplicates.insert(place);
        }
        self.of_group[place.0 as usize].pods.insert(info.slot);
        self.known.insert(info.slot, place);
    }

    fn forget(&mut self, slot: u32) {
        let Some(place) = self.known.remove(slot) else {
            return;
        };
        self.of_group[place.0 as usize].pods.remove(&slot);
        if let Some(pods) = self.on_node.get_mut(&place) {
            *pods -= 1;
            if *pods < 2 {
                self.with_duplicates.remove(&place);
            }
            if *pods == 0 {
                self.on_node.remove(&place);
            }
        }
    }

    fn remembered(&self) -> usize {
        self.group_of_shape.len()
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        cycle.note_kept(run.evictor);
        // Where nobody fits elsewhere nothing is a duplicate: the last filters count too.
        let mut duplicates: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        let leaving = cycle.leaving().iter().filter_map(|slot| self.known.get(*slot));
        let mut passes = Passes { leaving: leaving.map(|place| place.0).collect(), ..Passes::default() };
        for (place, mut pods) in self.duplicates_by_node() {
            pods.retain(|slot| passes.of(cycle, run, place.0, *slot));
            // The first one stays. Those that are leaving go first, which is from the end.
            pods.sort_by_cached_key(|slot| (cycle.is_leaving(*slot), cycle.by_name(*slot)));
            let Some(rank) = cycle.nodes.rank(place.1).filter(|_| pods.len() > 1) else {
                continue;
            };
            for owner in &self.of_group[place.0 as usize].owners {
                let on_nodes = duplicates.entry(*owner).or_default();
                on_nodes.entry(rank).or_default().extend(&pods[1..]);
            }
        }
        let mut in_order: Vec<(u32, BTreeMap<u32, Vec<u32>>)> = duplicates.into_iter().collect();
        in_order.sort_by(|a, b| self.owner_keys[a.0 as usize].cmp(&self.owner_keys[b.0 as usize]));
        // What fits elsewhere is looked at before the first one goes.
        let mut shares = Vec::new();
        for (owner, on_nodes) in in_order {
            let feasible = self.feasible_nodes(cycle, &on_nodes);
            if feasible < 2 {
                continue;
            }
            let groups = self.of_owner[owner as usize].iter();
            let pods = groups
                .flat_map(|group| self.of_group[*group as usize].pods.iter().map(|slot| (*group, *slot)));
            let total = pods.filter(|(group, slot)| passes.of(cycle, run, *group, *slot)).count();
            shares.push((total.div_ceil(feasible).max(1), on_nodes));
        }
        for (at_most, on_nodes) in shares {
            for pods in on_nodes.values() {
                let on_node = pods.len() + 1;
                for slot in pods.iter().skip(at_most - 1) {
                    match cycle.propose(run.evictor, *slot, Reason::Duplicate { on_node, at_most }) {
                        ProposalOutcome::Leaves | ProposalOutcome::Refused => {}
                        ProposalOutcome::NodeLimit => break,
                        ProposalOutcome::TotalLimit => return,
                    }
                }
            }
        }
    }
}
