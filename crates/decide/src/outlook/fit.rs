//! Where pods that leave could go: the largest first, each to the first node with room for it.
//!
//! Pods that are alike are one crowd. A node that had no room for one of a crowd has none for the next, so that each
//! crowd looks at each node once, however many pods it has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::objects::{Node, Pod};
use super::placement::{Hindrance, Rules};
use super::resources::Resources;
use crate::snapshot::Key;

/// A node that stays, with what is left on it.
#[derive(Debug)]
pub struct Berth<'a> {
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

struct Crowd<'a> {
    rules: usize,
    wants: &'a Resources,
    pods: Vec<&'a Pod>,
}

pub fn fit<'a>(leaving: impl Iterator<Item = &'a Pod>, berths: &mut [Berth<'_>]) -> Fit {
    let mut numbers: HashMap<&Rules, usize> = HashMap::new();
    let mut crowds: HashMap<(usize, &Resources), Crowd<'_>> = HashMap::new();
    for pod in leaving {
        let next = numbers.len();
        let rules = *numbers.entry(&pod.rules).or_insert(next);
        let crowd = crowds.entry((rules, &pod.wants));
        crowd.or_insert_with(|| Crowd { rules, wants: &pod.wants, pods: Vec::new() }).pods.push(pod);
    }
    let against = hindrances(&numbers, berths);
    let mut crowds: Vec<Crowd<'_>> = crowds.into_values().collect();
    sort(&mut crowds, berths);
    let mut fit = Fit::default();
    for crowd in crowds {
        place(&crowd, &against[crowd.rules], berths, &mut fit);
    }
    fit
}

/// For each set of rules and each node: what speaks against it whatever the room.
fn hindrances(rules: &HashMap<&Rules, usize>, berths: &[Berth<'_>]) -> Vec<Vec<Option<Hindrance>>> {
    let mut against = vec![Vec::new(); rules.len()];
    for (rules, number) in rules {
        against[*number] = berths.iter().map(|berth| rules.against(berth.node, berth.is_cordoned)).collect();
    }
    against
}

/// Those that take the largest share of what is free come first, for they are the hardest to place.
fn sort(crowds: &mut [Crowd<'_>], berths: &[Berth<'_>]) {
    let mut free = Resources::default();
    berths.iter().for_each(|berth| free.add(&berth.free));
    #[allow(clippy::cast_precision_loss, reason = "a share decides an order, not a place")]
    let share = |wants: &Resources| {
        let of = |wanted: i64, free: i64| wanted as f64 / free.max(1) as f64;
        let others = wants
            .others
            .iter()
            .map(|(name, wanted)| of(*wanted, free.others.get(name).copied().unwrap_or(0)));
        others.fold(of(wants.cpu, free.cpu).max(of(wants.memory, free.memory)), f64::max)
    };
    for crowd in &mut *crowds {
        crowd.pods.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
    }
    let first = |crowd: &Crowd<'_>| crowd.pods.first().map(|pod| pod.pod.key.clone());
    crowds.sort_by(|a, b| share(b.wants).total_cmp(&share(a.wants)).then_with(|| first(a).cmp(&first(b))));
}

fn place(crowd: &Crowd<'_>, against: &[Option<Hindrance>], berths: &mut [Berth<'_>], fit: &mut Fit) {
    let mut at = 0;
    for (number, pod) in crowd.pods.iter().enumerate() {
        while let Some(berth) = berths.get(at) {
            if against[at].is_none() && berth.free_pods > 0 && berth.free.is_room_for(crowd.wants) {
                break;
            }
            at += 1;
        }
        let Some(berth) = berths.get_mut(at) else {
            let pods = crowd.pods[number..].iter().map(|pod| pod.pod.key.clone());
            let why = reasons(crowd.wants, against, berths);
            match fit.misfits.iter_mut().find(|misfit| misfit.why == why) {
                Some(misfit) => misfit.pods.extend(pods),
                None => fit.misfits.push(Misfit { pods: pods.collect(), nodes: berths.len(), why }),
            }
            return;
        };
        berth.free.subtract(crowd.wants);
        berth.free_pods -= 1;
        fit.places.push((pod.pod.key.clone(), berth.node.node.name.clone()));
    }
}

/// A node that lacks several things is counted for each of them, as the scheduler does.
fn reasons(
    wants: &Resources,
    against: &[Option<Hindrance>],
    berths: &[Berth<'_>],
) -> BTreeMap<Hindrance, usize> {
    let mut why = BTreeMap::new();
    let mut count = |hindrance: Hindrance| *why.entry(hindrance).or_insert(0) += 1;
    for (against, berth) in against.iter().zip(berths) {
        if let Some(hindrance) = against {
            count(hindrance.clone());
            continue;
        }
        if berth.free_pods <= 0 {
            count(Hindrance::Full);
        }
        berth.free.lacking(wants).for_each(|what| count(Hindrance::Lacks(what.to_string())));
    }
    why
}
