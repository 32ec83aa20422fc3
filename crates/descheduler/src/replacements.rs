//! Replacements of pods that are leaving: surge pods, and the targets of migrations.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Map};

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
        // The pods that are leaving, and those that came since, with their times. Names decide where times do not.
        let mut owners: BTreeMap<&str, (Vec<Timed<'_>>, Vec<Timed<'_>>)> = BTreeMap::new();
        for (slot, since) in since {
            if let Some(owner) = owner(*slot) {
                owners.entry(owner).or_default().0.push((*since, name(*slot), *slot));
            }
        }
        for (slot, pod) in cluster.created_since(earliest) {
            if pod.is_active()
                && !pod.terminating
                && !leaving(slot)
                && let Some((_, young)) = owner(slot).and_then(|owner| owners.get_mut(owner))
            {
                young.push((pod.created, name(slot), slot));
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
