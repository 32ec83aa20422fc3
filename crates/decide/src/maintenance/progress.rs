//! How overlapping maintenances move through their plans together.
//!
//! A pod is asked to leave once every maintenance that covers its node has reached it. A maintenance goes on to its
//! next entry when no pod that it has reached is left on any of its nodes. So maintenances wait for each other; where
//! their plans contradict each other, each would wait for the other for ever. Then the older one wins, and the newer
//! ones go forward to where the older one is.
//!
//! Nodes with the same maintenances are alike, and pods of the same class are: both are counted, not listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::plan::{Plan, PodClass};

/// The number of a maintenance in a [`World`].
pub type Number = usize;

/// A maintenance that drains.
#[derive(Debug)]
pub struct Draining {
    pub name: String,
    pub created: Timestamp,
    pub plan: Arc<Plan>,
    /// The entry that it is at: all up to this one are reached.
    pub position: usize,
}

/// Nodes that the same maintenances cover, with their pods.
#[derive(Debug, Default, Clone)]
pub struct Zone {
    /// Sorted.
    pub covered_by: Vec<Number>,
    /// How many pods of a class are there, by the number of the class. Those that were targeted before are not
    /// counted as waiting for anybody: see `targeted`.
    pub pods: BTreeMap<usize, u64>,
    /// Those of them that have been asked to leave already, on the nodes where they are.
    pub targeted: BTreeMap<usize, u64>,
}

/// All maintenances that drain, and the pods on their nodes.
#[derive(Debug, Default)]
pub struct World {
    pub draining: Vec<Draining>,
    pub classes: Vec<PodClass>,
    pub zones: Vec<Zone>,
}

/// A newer maintenance that did not get its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastForward {
    pub maintenance: Number,
    /// The older one that it had to follow.
    pub after: Number,
    pub to: usize,
}

/// Moves all positions as far as they go, and returns those that were pushed.
pub fn advance(world: &mut World, steps: &Steps) -> Vec<FastForward> {
    let mut pushed = Vec::new();
    loop {
        let moved = go_on(world, steps);
        match push_one(world, steps) {
            Some(push) => pushed.push(push),
            None if moved => {}
            None => return pushed,
        }
    }
}

/// The step at which each maintenance reaches each class, looked up once.
#[derive(Debug, Default)]
pub struct Steps(Vec<Vec<usize>>);

impl Steps {
    pub fn of(world: &World) -> Self {
        let of =
            |draining: &Draining| world.classes.iter().map(|class| draining.plan.step_of(class)).collect();
        Self(world.draining.iter().map(of).collect())
    }

    /// The next class.
    pub fn enter(&mut self, draining: &[Draining], class: &PodClass) {
        for (steps, draining) in self.0.iter_mut().zip(draining) {
            steps.push(draining.plan.step_of(class));
        }
    }

    pub fn of_class(&self, maintenance: Number, class: usize) -> usize {
        self.0[maintenance][class]
    }
}

/// Every maintenance whose reached pods are all gone goes to the next entry that has any. One without nodes stays where it is.
fn go_on(world: &mut World, steps: &Steps) -> bool {
    let mut lowest: Vec<usize> = vec![0; world.draining.len()];
    for zone in &world.zones {
        zone.covered_by.iter().for_each(|number| lowest[*number] = usize::MAX);
    }
    for zone in &world.zones {
        for class in zone.pods.iter().filter(|(_, count)| **count > 0).map(|(class, _)| *class) {
            for number in &zone.covered_by {
                lowest[*number] = lowest[*number].min(steps.of_class(*number, class));
            }
        }
    }
    let mut moved = false;
    for (draining, lowest) in world.draining.iter_mut().zip(lowest) {
        let next = lowest.min(draining.plan.last());
        if next > draining.position {
            draining.position = next;
            moved = true;
        }
    }
    moved
}

/// Who has reached pods that somebody else has not, and so waits for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Waits(Vec<Members>);

impl Waits {
    /// Those that this one waits for.
    pub fn of(&self, number: Number) -> BTreeSet<Number> {
        self.0.get(number).map(|behind| behind.iter().collect()).unwrap_or_default()
    }
}

/// A set of maintenances, as bits: there are few of them, and they are looked at for every zone and class.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Members(Vec<u64>);

impl Members {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, number: Number) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn contains(&self, number: Number) -> bool {
        self.0[number / 64] & (1 << (number % 64)) != 0
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }

    fn iter(&self) -> impl Iterator<Item = Number> {
        (0..self.0.len() * 64).filter(|number| self.contains(*number))
    }
}

/// Pods of this class wait on these nodes: not all have been asked to leave already.
fn is_waiting(zone: &Zone, class: usize, count: u64) -> bool {
    zone.targeted.get(&class).copied().unwrap_or(0) < count
}

pub fn waits(world: &World, steps: &Steps) -> Waits {
    let count = world.draining.len();
    let mut waits = vec![Members::none(count); count];
    let mut behind = Members::none(count);
    for zone in world.zones.iter().filter(|zone| zone.covered_by.len() > 1) {
        for (class, pods) in &zone.pods {
            if !is_waiting(zone, *class, *pods) {
                continue;
            }
            behind.0.fill(0);
            let has_reached =
                |number: Number| steps.of_class(number, *class) <= world.draining[number].position;
            zone.covered_by
                .iter()
                .filter(|number| !has_reached(**number))
                .for_each(|number| behind.insert(*number));
            if !behind.is_empty() {
                let reached = zone.covered_by.iter().filter(|number| has_reached(**number));
                reached.for_each(|number| waits[*number].add(&behind));
            }
        }
    }
    Waits(waits)
}

/// Where maintenances wait for each other in a circle, the oldest of them wins: one that stands in its way is moved to
/// where it has reached what the oldest waits for.
fn push_one(world: &mut World, steps: &Steps) -> Option<FastForward> {
    let waits = waits(world, steps);
    let circle = circle(&waits)?;
    let age = |number: &Number| (world.draining[*number].created, world.draining[*number].name.as_str());
    let oldest = circle.iter().copied().min_by_key(age)?;
    let in_the_way = waits.of(oldest).into_iter().filter(|behind| circle.contains(behind));
    let behind = in_the_way.max_by_key(|behind| age(behind))?;
    let both = |zone: &&Zone| zone.covered_by.contains(&oldest) && zone.covered_by.contains(&behind);
    let classes = world.zones.iter().filter(both).flat_map(|zone| {
        zone.pods.iter().filter(|(class, count)| is_waiting(zone, **class, **count)).map(|(class, _)| *class)
    });
    let has_reached =
        |number: Number, class: usize| steps.of_class(number, class) <= world.draining[number].position;
    let waited_for = classes.filter(|class| has_reached(oldest, *class) && !has_reached(behind, *class));
    let to = waited_for.map(|class| steps.of_class(behind, class)).min()?;
    world.draining[behind].position = to;
    Some(FastForward { maintenance: behind, after: oldest, to })
}

/// Maintenances that wait for each other in a circle, if there are such: those that can reach themselves.
fn circle(waits: &Waits) -> Option<BTreeSet<Number>> {
    let count = waits.0.len();
    let mut from = waits.0.clone();
    // What can be reached through each one in turn.
    for through in 0..count {
        let further = from[through].clone();
        from.iter_mut().filter(|set| set.contains(through)).for_each(|set| set.add(&further));
    }
    let start = (0..count).find(|number| from[*number].contains(*number))?;
    Some((0..count).filter(|other| from[start].contains(*other) && from[*other].contains(start)).collect())
}
