//! Replacements of pods that are leaving: surge pods, and the targets of migrations.

use std::collections::BTreeMap;

use jiff::Timestamp;

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

/// When a pod was asked, its namespace and name, and until when its replacement is left alone.
type AskedPod<'a> = (i64, &'a str, &'a str, Timestamp);

/// Pods that took the place of pods that have left, or are leaving, and that the same plugin leaves alone for a while.
#[derive(Debug, Default)]
pub struct Replacing(Map<(u32, PluginName), (String, Timestamp)>);

impl Replacing {
    /// For each of these pods at most one that its owner made after it was asked, the first that came. What was there before is nobody's
    /// replacement.
    pub fn of(cluster: &Cluster, moved: &[(&str, &str, &Moved)], leaving: impl Fn(u32) -> bool) -> Self {
        let mut found = Map::default();
        let Some(earliest) = moved.iter().map(|(_, _, moved)| moved.asked.as_second()).min() else {
            return Self(found);
        };
        let mut asked: BTreeMap<(&str, PluginName), Vec<AskedPod<'_>>> = BTreeMap::new();
        for (namespace, name, moved) in moved {
            let of_owner = asked.entry((&*moved.owner, moved.plugin)).or_default();
            of_owner.push((moved.asked.as_second(), namespace, name, moved.until));
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
            asked.sort_unstable();
            let mut pods = young.get(owner).into_iter().flatten();
            for (since, namespace, name, until) in asked {
                match pods.find(|(created, ..)| *created >= since) {
                    Some((_, _, slot)) => {
                        found.insert((*slot, plugin), (format!("{namespace}/{name}"), until));
                    }
                    None => break,
                }
            }
        }
        Self(found)
    }

    pub fn keeps(&self, slot: u32, plugin: PluginName) -> Option<Kept> {
        let (replaced, until) = self.0.get(&(slot, plugin))?;
        Some(Kept::ReplacementCoolDown { replaced: replaced.clone(), until: *until })
    }
}
