//! What people are told of a drain: who evicts, and who waits for whom.

use std::collections::BTreeSet;
use std::fmt;

use super::drain_state::DrainState;
use super::nodes::Node;
use super::progress::{Number, Steps, Waits, World};

/// So many are named where a sentence tells of some.
const NAMED: usize = 3;

/// The first of some names, as many as a sentence tells, and how many more there are. There is one at least.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirstNames {
    first: String,
    named: Vec<String>,
    more: usize,
}

impl FirstNames {
    /// `None` of no names.
    pub fn of<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut names = names.into_iter();
        let first = names.next()?.as_ref().to_owned();
        let named = names.by_ref().take(NAMED - 1).map(|name| name.as_ref().to_owned()).collect();
        Some(Self { first, named, more: names.count() })
    }

    pub fn first(&self) -> &str {
        &self.first
    }
}

impl fmt::Display for FirstNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        self.named.iter().try_for_each(|name| write!(f, ", {name}"))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Of a maintenance, with how many pods stay because their workloads say so.
pub fn drained(kept: u32) -> String {
    match kept {
        0 => "all pods have left all nodes".to_owned(),
        1 => "all pods have left all nodes but one of a DaemonSet that opted out, which stays".to_owned(),
        kept => format!("all pods have left all nodes but {kept} of DaemonSets that opted out, which stay"),
    }
}

pub fn oldest(world: &World, numbers: &[Number]) -> Option<Number> {
    numbers.iter().copied().min_by_key(|number| age(world, *number))
}

fn age(world: &World, number: Number) -> (jiff::Timestamp, &str) {
    (world.draining[number].created, world.draining[number].name.as_str())
}

/// Those that have not reached the pods that would be next there, or what these wait for themselves.
pub fn node_waits_for(world: &World, steps: &Steps, waits: &Waits, node: &Node) -> BTreeSet<Number> {
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
pub fn older_limits(world: &World, waits: &Waits, number: Number) -> BTreeSet<Number> {
    waits.of(number).into_iter().filter(|behind| age(world, *behind) < age(world, number)).collect()
}

pub fn evicting(world: &World, limits: &BTreeSet<Number>) -> DrainState {
    DrainState::Evicting { limited_by: names(world, limits) }
}

pub fn waiting(world: &World, others: &BTreeSet<Number>) -> DrainState {
    if others.is_empty() { evicting(world, others) } else { DrainState::Waiting { on: names(world, others) } }
}

fn names(world: &World, numbers: &BTreeSet<Number>) -> Vec<String> {
    let mut names: Vec<String> = numbers.iter().map(|number| world.draining[*number].name.clone()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_three_are_told_and_how_many_more_there_are() {
        assert_eq!(FirstNames::of::<&str>([]), None);
        for (names, said) in [
            (&["a"][..], "a"),
            (&["a", "b", "c"], "a, b, c"),
            (&["a", "b", "c", "d"], "a, b, c and 1 more"),
            (&["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        ] {
            assert_eq!(FirstNames::of(names).unwrap().to_string(), said);
        }
    }
}
