//! How overlapping maintenances move through their plans together.
//!
//! A pod is asked to leave once every maintenance that covers its node has reached it. A maintenance goes on to its
//! next entry when no pod that it has reached is left on any of its nodes. So maintenances wait for each other; where
//! their plans contradict each other, each would wait for the other for ever. Then the older one wins, and the newer
//! ones go forward to where the older one is.
//!
//! Nodes with the same maintenances are alike, and pods of the same class are: both are counted, not listed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::plan::{Plan, PodClass};

/// The number of a maintenance in a [`World`].
pub type Number = usize;

/// A maintenance that drains.
#[derive(Debug)]
pub struct Draining {
    pub name: String,
    pub created: Timestamp,
    pub plan: Plan,
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
pub fn advance(world: &mut World) -> Vec<FastForward> {
    let steps = Steps::of(world);
    let mut pushed = Vec::new();
    loop {
        let moved = go_on(world, &steps);
        match push_one(world, &steps) {
            Some(push) => pushed.push(push),
            None if moved => {}
            None => return pushed,
        }
    }
}

/// The step at which each maintenance reaches each class, looked up once.
#[derive(Debug)]
pub struct Steps(Vec<Vec<usize>>);

impl Steps {
    pub fn of(world: &World) -> Self {
        let of =
            |draining: &Draining| world.classes.iter().map(|class| draining.plan.step_of(class)).collect();
        Self(world.draining.iter().map(of).collect())
    }

    pub fn of_class(&self, maintenance: Number, class: usize) -> usize {
        self.0[maintenance][class]
    }
}

/// Every maintenance whose reached pods are all gone goes to the next entry that has any.
fn go_on(world: &mut World, steps: &Steps) -> bool {
    let mut lowest: Vec<usize> = world.draining.iter().map(|_| usize::MAX).collect();
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

/// Who has reached pods that somebody else has not: the waiting one, the one waited for, and the class.
pub fn waits(world: &World, steps: &Steps) -> BTreeMap<(Number, Number), BTreeSet<usize>> {
    let mut waits: BTreeMap<(Number, Number), BTreeSet<usize>> = BTreeMap::new();
    for zone in &world.zones {
        for (class, count) in &zone.pods {
            if zone.targeted.get(class).copied().unwrap_or(0) >= *count {
                continue;
            }
            let has_reached =
                |number: &&Number| steps.of_class(**number, *class) <= world.draining[**number].position;
            for waiting in zone.covered_by.iter().filter(has_reached) {
                for behind in zone.covered_by.iter().filter(|number| !has_reached(number)) {
                    waits.entry((*waiting, *behind)).or_default().insert(*class);
                }
            }
        }
    }
    waits
}

/// Where maintenances wait for each other in a circle, the oldest of them wins: one that stands in its way is moved to
/// where it has reached what the oldest waits for.
fn push_one(world: &mut World, steps: &Steps) -> Option<FastForward> {
    let waits = waits(world, steps);
    let circle = circle(world.draining.len(), &waits)?;
    let age = |number: &Number| (world.draining[*number].created, world.draining[*number].name.clone());
    let oldest = circle.iter().copied().min_by_key(age)?;
    let in_the_way =
        waits.iter().filter(|((waiting, behind), _)| *waiting == oldest && circle.contains(behind));
    let ((_, behind), classes) = in_the_way.max_by_key(|((_, behind), _)| age(behind))?;
    let behind = *behind;
    let to = classes.iter().map(|class| steps.of_class(behind, *class)).min()?;
    world.draining[behind].position = to;
    Some(FastForward { maintenance: behind, after: oldest, to })
}

/// Maintenances that wait for each other in a circle, if there are such: those that can reach themselves.
fn circle(count: usize, waits: &BTreeMap<(Number, Number), BTreeSet<usize>>) -> Option<BTreeSet<Number>> {
    let mut after: Vec<Vec<Number>> = vec![Vec::new(); count];
    for (waiting, behind) in waits.keys() {
        after[*waiting].push(*behind);
    }
    let reachable = |from: Number| {
        let mut seen = BTreeSet::new();
        let mut left = after[from].clone();
        while let Some(next) = left.pop() {
            if seen.insert(next) {
                left.extend(&after[next]);
            }
        }
        seen
    };
    let from: Vec<BTreeSet<Number>> = (0..count).map(reachable).collect();
    let start = (0..count).find(|number| from[*number].contains(number))?;
    Some((0..count).filter(|other| from[start].contains(other) && from[*other].contains(&start)).collect())
}
