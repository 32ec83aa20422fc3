//! Where all maintenances that drain and their nodes stand, kept up with every pod that comes or goes.
//!
//! A change of a pod costs what its node and the zones cost, not what the cluster does: positions are moved by counts
//! per zone, and only nodes whose pods, targets or messages changed are looked at again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::drain_state::DrainState;
use super::nodes::{MaintenanceState, Node, NodeState, Pods};
use super::plan::PodClass;
use super::progress::{Draining, FastForward, Number, Steps, Waits, World, Zone, advance, waits};
use super::targets::{EntryList, Targets, reached};
use super::words;

/// What a resolution changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// Maintenances that were pushed on by an older one.
    pub pushed: Vec<FastForward>,
    /// Targets or positions have changed somewhere.
    pub moved: bool,
    /// Nodes whose state is another one than before.
    pub nodes: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct Board {
    world: World,
    steps: Steps,
    waits: Waits,
    zoned_nodes: Vec<ZonedNode>,
    by_name: HashMap<Arc<str>, usize>,
    limits: Vec<ZoneLimits>,
    sums: Vec<Sum>,
    /// What each maintenance has reached for itself.
    lists: Vec<Arc<EntryList>>,
    /// What is targeted on all nodes of each maintenance.
    reached: Vec<Arc<Targets>>,
    dirty: BTreeSet<usize>,
    /// The last pods of a class have left a zone, or the first have come: only then can anybody go on or wait.
    may_move: bool,
    /// A node that came while others were drained has its first pods.
    has_joined: bool,
    fresh: bool,
}

/// A node in its zone.
#[derive(Debug)]
struct ZonedNode {
    node: Node,
    zone: usize,
    targets: Arc<Targets>,
    state: NodeState,
}

/// What all maintenances of a zone have reached, and who holds the oldest of them up.
#[derive(Debug, Default)]
struct ZoneLimits {
    in_common: Arc<Targets>,
    behind: BTreeSet<Number>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    pending: u32,
    evicting: u32,
    drained: u32,
    nodes: u32,
}

impl Board {
    /// From scratch. `nodes` are those that at least one of the maintenances covers.
    pub fn new(draining: Vec<Draining>, classes: Vec<PodClass>, nodes: Vec<Node>) -> Self {
        let mut world = World { draining, classes, zones: Vec::new() };
        let steps = Steps::of(&world);
        let mut zone_of: HashMap<Vec<Number>, usize> = HashMap::new();
        // Nodes with the same targets share them.
        let mut known: Vec<Arc<Targets>> = vec![Arc::default()];
        let mut zoned_nodes = Vec::with_capacity(nodes.len());
        let mut by_name = HashMap::with_capacity(nodes.len());
        for node in nodes {
            let zone = *zone_of.entry(node.covered_by.clone()).or_insert_with(|| {
                world.zones.push(Zone { covered_by: node.covered_by.clone(), ..Zone::default() });
                world.zones.len() - 1
            });
            let targets = match known.iter().rev().find(|targets| **targets == node.targets) {
                Some(known) => known.clone(),
                None => {
                    known.push(node.targets.clone());
                    node.targets.clone()
                }
            };
            let counts = &mut world.zones[zone];
            for (class, pods) in &node.pods {
                *counts.pods.entry(*class).or_default() += u64::from(pods.there);
                if targets.selects(&world.classes[*class]) {
                    *counts.targeted.entry(*class).or_default() += u64::from(pods.there);
                } else if pods.there > 0 {
                    // It would leave together with those before it: the plan begins anew.
                    for number in &node.joins {
                        let position = &mut world.draining[*number].position;
                        if steps.of_class(*number, *class) <= *position {
                            *position = 0;
                        }
                    }
                }
            }
            by_name.insert(node.name.clone(), zoned_nodes.len());
            let mut node = node;
            node.awaits_pods &= targets.is_empty() && node.pods.values().all(|pods| pods.there == 0);
            zoned_nodes.push(ZonedNode { node, zone, targets, state: NodeState::default() });
        }
        let (count, zones) = (world.draining.len(), world.zones.len());
        Self {
            world,
            steps,
            waits: Waits::default(),
            zoned_nodes,
            by_name,
            limits: (0..zones).map(|_| ZoneLimits::default()).collect(),
            sums: vec![Sum::default(); count],
            lists: Vec::new(),
            reached: vec![Arc::default(); count],
            dirty: BTreeSet::new(),
            may_move: true,
            has_joined: false,
            fresh: true,
        }
    }

    /// So many pods of a class came to a node, or left it.
    pub fn count(&mut self, node: &str, class: usize, there: i64, evicting: i64) {
        let Some(at) = self.by_name.get(node).copied() else { return };
        let zoned = &mut self.zoned_nodes[at];
        let pods = zoned.node.pods.entry(class).or_default();
        let changed = |count: u32, by: i64| u32::try_from((i64::from(count) + by).max(0)).unwrap_or(u32::MAX);
        *pods = Pods { there: changed(pods.there, there), evicting: changed(pods.evicting, evicting) };
        if there > 0 && std::mem::take(&mut zoned.node.awaits_pods) {
            for number in &zoned.node.covered_by {
                let position = &mut self.world.draining[*number].position;
                if self.steps.of_class(*number, class) <= *position {
                    *position = 0;
                }
            }
            (self.may_move, self.has_joined) = (true, true);
        }
        let zone = &mut self.world.zones[zoned.zone];
        let before = kind_of(zone, class);
        let add = |count: &mut u64| *count = count.saturating_add_signed(there);
        add(zone.pods.entry(class).or_default());
        if zoned.targets.selects(&self.world.classes[class]) {
            add(zone.targeted.entry(class).or_default());
        }
        self.may_move |= before != kind_of(zone, class);
        self.dirty.insert(at);
    }

    /// A class of pods that was not there before gets its number: the next one.
    pub fn enter(&mut self, class: PodClass) {
        self.steps.enter(&self.world.draining, &class);
        self.world.classes.push(class);
    }

    /// Moves all maintenances as far as they go.
    pub fn resolve(&mut self) -> Changes {
        let dirty = std::mem::take(&mut self.dirty);
        let mut nodes = Vec::new();
        if !std::mem::take(&mut self.may_move) {
            dirty.into_iter().for_each(|at| self.refresh(at, &mut nodes));
            return Changes { nodes, ..Changes::default() };
        }
        let before: Vec<usize> = self.world.draining.iter().map(|draining| draining.position).collect();
        let pushed = advance(&mut self.world, &self.steps);
        let positions = self.world.draining.iter().map(|draining| draining.position);
        let joined = std::mem::take(&mut self.has_joined);
        let moved = self.fresh || joined || !positions.eq(before.iter().copied());
        if moved {
            self.limit_zones();
            self.retarget();
        }
        let waits = waits(&self.world, &self.steps);
        let refresh_all = moved || waits != self.waits;
        self.waits = waits;
        if refresh_all {
            (0..self.zoned_nodes.len()).for_each(|at| self.refresh(at, &mut nodes));
        } else {
            dirty.into_iter().for_each(|at| self.refresh(at, &mut nodes));
        }
        self.fresh = false;
        Changes { pushed, moved, nodes }
    }

    /// What the maintenances of each zone have reached together.
    fn limit_zones(&mut self) {
        let list = |draining: &Draining| EntryList::new(reached(&draining.plan, draining.position));
        self.lists = self.world.draining.iter().map(list).collect();
        let lists = &self.lists;
        for (zone, limits) in self.world.zones.iter().zip(&mut self.limits) {
            let all: Vec<_> = zone.covered_by.iter().map(|number| lists[*number].clone()).collect();
            limits.in_common = Targets::in_common(&all);
            // A node speaks for the oldest of its maintenances: those that have not reached what it has, hold it up.
            let oldest = words::oldest(&self.world, &zone.covered_by);
            limits.behind = oldest.map_or_else(BTreeSet::new, |oldest| {
                let others = zone.covered_by.iter().copied().filter(|other| *other != oldest);
                others.filter(|other| !lists[*other].covers(&lists[oldest])).collect()
            });
        }
    }

    /// Targets grow to what is reached in the zone, and never go back.
    fn retarget(&mut self) {
        // By the targets before and those of the zone, which few nodes have for themselves.
        // What was before is kept as long, so that its address is not given to another.
        let mut made: HashMap<(*const Targets, usize), [Arc<Targets>; 2]> = HashMap::new();
        for zoned in self.zoned_nodes.iter_mut().filter(|zoned| !zoned.node.awaits_pods) {
            let in_common = &self.limits[zoned.zone].in_common;
            let before = zoned.targets.clone();
            let key = (Arc::as_ptr(&before), zoned.zone);
            let [_, grown] = made.entry(key).or_insert_with(|| [before.clone(), before.grown_by(in_common)]);
            zoned.targets = grown.clone();
            if Arc::ptr_eq(&before, &zoned.targets) {
                continue;
            }
            let zone = &mut self.world.zones[zoned.zone];
            for (class, pods) in &zoned.node.pods {
                let of = &self.world.classes[*class];
                if zoned.targets.selects(of) && !before.selects(of) {
                    *zone.targeted.entry(*class).or_default() += u64::from(pods.there);
                }
            }
        }
        self.reached = self.targeted_on_all_nodes();
    }

    /// What is targeted on all nodes of each maintenance.
    fn targeted_on_all_nodes(&self) -> Vec<Arc<Targets>> {
        let mut targeted: Vec<Option<Arc<Targets>>> = vec![None; self.world.draining.len()];
        // What is kept here keeps the addresses that it is found by.
        let mut lowest: HashMap<(Number, [*const Targets; 2]), [Arc<Targets>; 3]> = HashMap::new();
        for zoned in self.zoned_nodes.iter().filter(|zoned| !zoned.node.awaits_pods) {
            for number in &zoned.node.covered_by {
                let so_far = &mut targeted[*number];
                *so_far = Some(match so_far.take() {
                    Some(before) if Arc::ptr_eq(&before, &zoned.targets) => before,
                    Some(before) => {
                        let key = (*number, [Arc::as_ptr(&before), Arc::as_ptr(&zoned.targets)]);
                        let [.., both] = lowest.entry(key).or_insert_with(|| {
                            let both = before.lowest(&zoned.targets, &self.neighbours(*number));
                            [before.clone(), zoned.targets.clone(), both]
                        });
                        both.clone()
                    }
                    None => zoned.targets.clone(),
                });
            }
        }
        targeted.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// What the maintenance and all that share nodes with it have reached for themselves: so much is targeted on all of its nodes.
    fn neighbours(&self, number: Number) -> Vec<Arc<EntryList>> {
        let zones = self.world.zones.iter().filter(|zone| zone.covered_by.contains(&number));
        let numbers: BTreeSet<Number> = zones.flat_map(|zone| zone.covered_by.iter().copied()).collect();
        numbers.into_iter().map(|number| self.lists[number].clone()).collect()
    }

    fn refresh(&mut self, at: usize, changed: &mut Vec<Arc<str>>) {
        let zoned = &self.zoned_nodes[at];
        let state = self.state_of(zoned);
        if state == zoned.state && !self.fresh {
            return;
        }
        let before = (!self.fresh).then_some(&zoned.state);
        for number in &zoned.node.covered_by {
            let sum = &mut self.sums[*number];
            if let Some(before) = before {
                sum.pending -= before.pending;
                sum.evicting -= before.evicting;
                sum.drained -= u32::from(before.is_empty());
                sum.nodes -= 1;
            }
            sum.pending += state.pending;
            sum.evicting += state.evicting;
            sum.drained += u32::from(state.is_empty());
            sum.nodes += 1;
        }
        changed.push(zoned.node.name.clone());
        self.zoned_nodes[at].state = state;
    }

    fn state_of(&self, zoned: &ZonedNode) -> NodeState {
        let node = &zoned.node;
        let (mut there, mut evicting, mut leaving) = (0, 0, false);
        for (class, pods) in &node.pods {
            there += pods.there;
            evicting += pods.evicting.min(pods.there);
            leaving |= pods.there > 0 && zoned.targets.selects(&self.world.classes[*class]);
        }
        let drain = if there == 0 {
            DrainState::Drained
        } else if leaving {
            words::evicting(&self.world, &self.limits[zoned.zone].behind)
        } else {
            let others = words::node_waits_for(&self.world, &self.steps, &self.waits, node);
            words::waiting(&self.world, &others)
        };
        NodeState { targets: zoned.targets.clone(), drain, pending: there - evicting, evicting }
    }

    /// The node is gone: another one by its name has nothing to do with it.
    pub fn forget(&mut self, node: &str) {
        self.by_name.remove(node);
    }

    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.by_name.get(name).map(|at| &self.zoned_nodes[*at].state)
    }

    /// The state of a node, if this maintenance drains it.
    pub fn node_of(&self, number: Number, name: &str) -> Option<&NodeState> {
        let zoned = &self.zoned_nodes[*self.by_name.get(name)?];
        zoned.node.covered_by.contains(&number).then_some(&zoned.state)
    }

    /// Whether pods of a class are targeted on a node that this maintenance drains.
    pub fn targets(&self, number: Number, node: &str, class: &PodClass) -> bool {
        let zoned = self.by_name.get(node).map(|at| &self.zoned_nodes[*at]);
        zoned.is_some_and(|zoned| zoned.node.covered_by.contains(&number) && zoned.targets.selects(class))
    }

    /// The maintenances that drain a node.
    pub fn covered_by(&self, name: &str) -> &[Number] {
        self.by_name.get(name).map_or(&[], |at| &self.zoned_nodes[*at].node.covered_by)
    }

    pub fn maintenance(&self, number: Number) -> MaintenanceState {
        let sum = self.sums[number];
        let drain = if sum.pending + sum.evicting == 0 {
            DrainState::Drained
        } else if sum.evicting > 0 {
            words::evicting(&self.world, &words::older_limits(&self.world, &self.waits, number))
        } else {
            words::waiting(&self.world, &self.waits.of(number))
        };
        let draining = &self.world.draining[number];
        MaintenanceState {
            position: draining.position,
            is_at_the_end: draining.position >= draining.plan.last(),
            reached: self.reached[number].clone(),
            drain,
            pending: sum.pending,
            evicting: sum.evicting,
            nodes_drained: sum.drained,
            waits_for: self.waits.of(number).iter().map(|n| self.world.draining[*n].name.clone()).collect(),
        }
    }

    pub fn draining(&self) -> &[Draining] {
        &self.world.draining
    }

    pub fn classes(&self) -> &[PodClass] {
        &self.world.classes
    }
}

/// Whether there are pods of the class, and some that have not been asked to leave.
fn kind_of(zone: &Zone, class: usize) -> (bool, bool) {
    let pods = zone.pods.get(&class).copied().unwrap_or(0);
    (pods > 0, zone.targeted.get(&class).copied().unwrap_or(0) < pods)
}
