//! Where each node of a maintenance stands, in numbers and words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use usher_api::DrainPlanEntry;

use super::plan::{PodClass, Step};
use super::progress::{FastForward, Number, Steps, World, Zone, advance, waits};
use super::targets::{common, covers, either, reached, selects};

/// A node that at least one maintenance drains.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: Arc<str>,
    /// The maintenances that drain it, sorted.
    pub covered_by: Vec<Number>,
    /// What was targeted before. It stays targeted.
    pub targets: Vec<DrainPlanEntry>,
    /// The pods that are there, by the number of their class: all of them, and those with an eviction request.
    pub pods: BTreeMap<usize, Pods>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pods {
    pub there: u32,
    pub evicting: u32,
}

/// Where a node stands now.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    pub targets: Vec<DrainPlanEntry>,
    pub message: String,
    pub pending: u32,
    pub evicting: u32,
}

/// Where a maintenance stands now.
#[derive(Debug, Clone, PartialEq)]
pub struct MaintenanceState {
    pub position: usize,
    /// What is targeted on all of its nodes.
    pub reached: Vec<DrainPlanEntry>,
    pub message: String,
    pub pending: u32,
    pub evicting: u32,
    pub nodes_drained: u32,
}

#[derive(Debug)]
pub struct State {
    pub nodes: Vec<NodeState>,
    pub maintenances: Vec<MaintenanceState>,
    pub pushed: Vec<FastForward>,
}

const EVICTING: &str = "Evicting";

/// Moves all maintenances as far as they go, and tells where they and their nodes stand. `world.zones` is made here.
pub fn resolve(world: &mut World, nodes: &[Node]) -> State {
    world.zones = zones(world, nodes);
    let pushed = advance(world);
    let steps = Steps::of(world);
    let waits = waits(world, &steps);
    // Nodes that the same maintenances cover have the same in common.
    let mut shared: BTreeMap<&[Number], Vec<DrainPlanEntry>> = BTreeMap::new();
    let mut states = Vec::with_capacity(nodes.len());
    for node in nodes {
        let in_common = shared.entry(&node.covered_by).or_insert_with(|| {
            let all = node.covered_by.iter().map(|number| {
                let draining = &world.draining[*number];
                reached(&draining.plan, draining.position)
            });
            all.reduce(|a, b| common(&a, &b)).unwrap_or_default()
        });
        let targets = either(&node.targets, in_common);
        states.push(node_state(world, &steps, &waits, node, targets));
    }
    let maintenances =
        (0..world.draining.len()).map(|number| state(world, &waits, number, nodes, &states)).collect();
    State { nodes: states, maintenances, pushed }
}

fn zones(world: &World, nodes: &[Node]) -> Vec<Zone> {
    let mut zones: BTreeMap<&[Number], Zone> = BTreeMap::new();
    for node in nodes {
        let zone = zones
            .entry(&node.covered_by)
            .or_insert_with(|| Zone { covered_by: node.covered_by.clone(), ..Zone::default() });
        let before: Vec<Step> = node.targets.iter().cloned().map(Step::new).collect();
        for (class, pods) in &node.pods {
            *zone.pods.entry(*class).or_default() += u64::from(pods.there);
            if selects(&before, &world.classes[*class]) {
                *zone.targeted.entry(*class).or_default() += u64::from(pods.there);
            }
        }
    }
    zones.into_values().collect()
}

type Waits = BTreeMap<(Number, Number), BTreeSet<usize>>;

fn node_state(
    world: &World,
    steps: &Steps,
    waits: &Waits,
    node: &Node,
    targets: Vec<DrainPlanEntry>,
) -> NodeState {
    let targeted: Vec<Step> = targets.iter().cloned().map(Step::new).collect();
    let is_targeted = |class: usize| selects(&targeted, &world.classes[class]);
    let evicting: u32 = node.pods.values().map(|pods| pods.evicting).sum();
    let there: u32 = node.pods.values().map(|pods| pods.there).sum();
    let leaving = node.pods.iter().any(|(class, pods)| pods.there > 0 && is_targeted(*class));
    let message = if there == 0 {
        "Drained".to_string()
    } else if leaving {
        let oldest = oldest(world, &node.covered_by);
        let limited = oldest.map(|oldest| held_up_by(world, steps, node, oldest)).unwrap_or_default();
        with_limits(world, &limited)
    } else {
        waiting(world, &node_waits_for(world, steps, waits, node))
    };
    NodeState { targets, message, pending: there - evicting, evicting }
}

fn oldest(world: &World, numbers: &[Number]) -> Option<Number> {
    numbers.iter().copied().min_by_key(|number| age(world, *number))
}

fn age(world: &World, number: Number) -> (jiff::Timestamp, &str) {
    (world.draining[number].created, world.draining[number].name.as_str())
}

/// A node speaks for the oldest of its maintenances: those that have not reached what the oldest has, hold it up.
fn held_up_by(world: &World, steps: &Steps, node: &Node, oldest: Number) -> BTreeSet<Number> {
    let of = |number: Number| reached(&world.draining[number].plan, world.draining[number].position);
    let wanted = of(oldest);
    let has_pods = node.pods.values().any(|pods| pods.there > 0);
    let _ = steps;
    node.covered_by
        .iter()
        .copied()
        .filter(|other| has_pods && *other != oldest && !covers(&of(*other), &wanted))
        .collect()
}

/// Those that have not reached the pods that would be next there, or what these wait for themselves.
fn node_waits_for(world: &World, steps: &Steps, waits: &Waits, node: &Node) -> BTreeSet<Number> {
    let behind = |class: usize| -> BTreeSet<Number> {
        let not_reached =
            |number: &&Number| steps.of_class(**number, class) > world.draining[**number].position;
        node.covered_by.iter().filter(not_reached).copied().collect()
    };
    let classes = node.pods.iter().filter(|(_, pods)| pods.there > 0).map(|(class, _)| behind(*class));
    let next = classes.filter(|behind| !behind.is_empty()).min_by_key(BTreeSet::len).unwrap_or_default();
    next.into_iter()
        .flat_map(|number| {
            let limits = older_limits(world, waits, number);
            if limits.is_empty() { BTreeSet::from([number]) } else { limits }
        })
        .collect()
}

/// The older maintenances for which this one waits.
fn older_limits(world: &World, waits: &Waits, number: Number) -> BTreeSet<Number> {
    let of_this = waits.keys().filter(|(waiting, _)| *waiting == number).map(|(_, behind)| *behind);
    of_this.filter(|behind| age(world, *behind) < age(world, number)).collect()
}

fn with_limits(world: &World, limits: &BTreeSet<Number>) -> String {
    if limits.is_empty() {
        return EVICTING.to_string();
    }
    format!("{EVICTING} (limited by {})", names(world, limits))
}

fn waiting(world: &World, others: &BTreeSet<Number>) -> String {
    if others.is_empty() { EVICTING.to_string() } else { format!("Waiting for {}.", names(world, others)) }
}

fn names(world: &World, numbers: &BTreeSet<Number>) -> String {
    let mut names: Vec<&str> = numbers.iter().map(|number| world.draining[*number].name.as_str()).collect();
    names.sort_unstable();
    names.join(", ")
}

fn state(
    world: &World,
    waits: &Waits,
    number: Number,
    nodes: &[Node],
    states: &[NodeState],
) -> MaintenanceState {
    let mine = || nodes.iter().zip(states).filter(|(node, _)| node.covered_by.contains(&number));
    let (mut pending, mut evicting, mut nodes_drained) = (0, 0, 0);
    let mut everywhere: Option<Vec<DrainPlanEntry>> = None;
    for (_, state) in mine() {
        pending += state.pending;
        evicting += state.evicting;
        nodes_drained += u32::from(state.pending + state.evicting == 0);
        everywhere = Some(match everywhere {
            Some(before) if before == state.targets => before,
            Some(before) => common(&before, &state.targets),
            None => state.targets.clone(),
        });
    }
    let limits = older_limits(world, waits, number);
    let message = if pending + evicting == 0 {
        "Drained".to_string()
    } else if evicting > 0 {
        with_limits(world, &limits)
    } else {
        let all = waits.keys().filter(|(waiting, _)| *waiting == number).map(|(_, behind)| *behind).collect();
        waiting(world, &all)
    };
    MaintenanceState {
        position: world.draining[number].position,
        reached: everywhere.unwrap_or_default(),
        message,
        pending,
        evicting,
        nodes_drained,
    }
}

/// The number of a class in a world, entered if it is new.
pub fn class_of(world: &mut World, index: &mut BTreeMap<PodClass, usize>, class: PodClass) -> usize {
    *index.entry(class.clone()).or_insert_with(|| {
        world.classes.push(class);
        world.classes.len() - 1
    })
}
