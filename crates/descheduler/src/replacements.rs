//! Replacements of pods that are leaving: surge pods, and the targets of migrations.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Map};
use crate::evictor::kept::Kept;
use crate::memory::Moved;
use crate::policy::PluginName;

type Timed<'a> = (i64, Option<&'a str>, u32);

/// Pods that came after a pod of their owner was asked to leave, one for each at most.
#[derive(Debug, Default)]
pub struct Replacements {
    pub slots: Vec<u32>,
    /// The pods that have one.
    pub replaced: Vec<u32>,
    on_node: Map<u32, Vec<u32>>,
}

impl Replacements {
    /// Of pods that are leaving since that second of 1970. The youngest pods are taken, and none that was there before.
    pub fn of(cluster: &Cluster, since: &[(u32, i64)], leaving: impl Fn(u32) -> bool) -> Self {
        let mut found = Self::default();
        let Some(earliest) = since.iter().map(|(_, since)| *since).min() else {
            return found;
        };
        let owner = |slot: u32| cluster.shape(cluster.pod(slot)?.shape)?.owners.first().map(|it| &*it.uid);
        let name = |slot: u32| cluster.pod(slot).map(|pod| &*pod.name);
        // The pods that came since, and those of the same owners that are leaving, with their times. Names decide where times do not.
        let mut owners: BTreeMap<&str, (Vec<Timed<'_>>, Vec<Timed<'_>>)> = BTreeMap::new();
        for (slot, pod) in cluster.created_since(earliest) {
            if pod.is_active()
                && !pod.terminating
                && !leaving(slot)
                && let Some(owner) = owner(slot)
            {
                owners.entry(owner).or_default().1.push((pod.created, name(slot), slot));
            }
        }
        if owners.is_empty() {
            return found;
        }
        for (slot, since) in since {
            if let Some((left, _)) = owner(*slot).and_then(|owner| owners.get_mut(owner)) {
                left.push((*since, name(*slot), *slot));
            }
        }
        for (mut left, mut young) in owners.into_values() {
            left.sort_unstable();
            young.sort_unstable();
            while let (Some((since, _, slot)), Some((created, _, replacement))) = (left.pop(), young.last()) {
                if *created >= since {
                    found.replaced.push(slot);
                    found.slots.push(*replacement);
                    young.pop();
                }
            }
        }
        for slot in &found.slots {
            if let Some(pod) = cluster.pod(*slot) {
                found.on_node.entry(pod.node).or_default().push(*slot);
            }
        }
        found
    }

    pub fn on(&self, node: u32) -> &[u32] {
        self.on_node.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// A pod that was asked to leave.
#[derive(Debug, Clone, Copy)]
pub struct MovedPod<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub moved: &'a Moved,
    /// It is still there.
    pub is_leaving: bool,
}

/// Pods that took the place of pods that have left, or are leaving, and that the same plugin leaves alone for a while.
#[derive(Debug, Default)]
pub struct Replacing(Map<(u32, PluginName), Kept>);

impl Replacing {
    /// For each of these pods at most one that its owner made after it was asked, the first that came. What was there before is nobody's
    /// replacement.
    pub fn of(cluster: &Cluster, moved: &[MovedPod<'_>], leaving: impl Fn(u32) -> bool) -> Self {
        let mut found = Map::default();
        let Some(earliest) = moved.iter().map(MovedPod::asked).min() else {
            return Self(found);
        };
        let mut asked: BTreeMap<(&str, PluginName), Vec<&MovedPod<'_>>> = BTreeMap::new();
        for pod in moved {
            asked.entry((&*pod.moved.owner, pod.moved.plugin)).or_default().push(pod);
        }
        let mut young: BTreeMap<&str, Vec<Timed<'_>>> = BTreeMap::new();
        for (slot, pod) in cluster.created_since(earliest) {
            let owners = cluster.shape(pod.shape).map_or(&[][..], |shape| &shape.owners);
            let owner = owners.iter().find(|owner| owner.is_controller);
            if let Some(owner) = owner.filter(|_| !leaving(slot) && pod.is_active() && !pod.terminating) {
                young.entry(&*owner.uid).or_default().push((pod.created, Some(&*pod.name), slot));
            }
        }
        young.values_mut().for_each(|pods| pods.sort_unstable());
        for ((owner, plugin), mut asked) in asked {
            asked.sort_unstable_by_key(|pod| (pod.asked(), pod.namespace, pod.name));
            let mut pods = young.get(owner).into_iter().flatten();
            for pod in asked {
                match pods.find(|(created, ..)| *created >= pod.asked()) {
                    Some((_, _, slot)) => drop(found.insert((*slot, plugin), pod.keeps_replacement())),
                    None => break,
                }
            }
        }
        Self(found)
    }

    pub fn keeps(&self, slot: u32, plugin: PluginName) -> Option<Kept> {
        self.0.get(&(slot, plugin)).cloned()
    }
}

impl MovedPod<'_> {
    /// In seconds since 1970.
    fn asked(&self) -> i64 {
        self.moved.asked.as_second()
    }

    fn keeps_replacement(&self) -> Kept {
        let replaced = format!("{}/{}", self.namespace, self.name);
        match self.is_leaving {
            true => Kept::ReplacementOfLeaving { replaced },
            false => Kept::ReplacementCoolDown { replaced, until: self.moved.until },
        }
    }
}
