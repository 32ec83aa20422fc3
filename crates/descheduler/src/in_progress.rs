//! Pods that are leaving already, and pods that are to be left alone for a while.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::memory::Moved;
use crate::{Cluster, PodRef};

/// What was asked before the cycle. Pods that are leaving count against the limits from the start, come first where pods are sorted, and
/// are not proposed again. Pods in cool-down are not proposed before their time.
#[derive(Debug, Clone, Default)]
pub struct InProgress {
    /// By namespace, name and UID: another pod of that name is another pod.
    pods: BTreeMap<(String, String, String), LeavingPod>,
    /// Pods that were asked in the same cycle before it went on with others.
    asked_in_cycle: Vec<PodRef>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LeavingPod {
    pub by: Vec<String>,
    /// Since when it is leaving: what came later may be its replacement.
    pub since: Option<Timestamp>,
    pub cools_until: Option<Timestamp>,
    /// The cool-down begins with this cycle: its end is counted from now, whenever now is.
    pub cools_from_now: bool,
    pub moved: Option<Moved>,
}

impl InProgress {
    /// The pod is leaving, or was asked to, by this requester since that time.
    pub fn set_leaving(&mut self, namespace: &str, name: &str, uid: &str, by: &str, since: Timestamp) {
        let asked = self.entry(namespace, name, uid);
        asked.since = Some(asked.since.map_or(since, |before| before.min(since)));
        if !asked.by.iter().any(|one| one == by) {
            asked.by.push(by.to_owned());
        }
    }

    /// The pod is not to be asked before that time.
    pub fn set_cool_down(&mut self, namespace: &str, name: &str, uid: &str, until: Timestamp) {
        self.entry(namespace, name, uid).cools_until = Some(until);
    }

    /// The cool-down of the pod begins with this cycle, as nobody knows when its request was withdrawn.
    pub(crate) fn set_cools_from_now(&mut self, namespace: &str, name: &str, uid: &str) {
        self.entry(namespace, name, uid).cools_from_now = true;
    }

    /// The pod was asked to leave: its replacement is left alone for a while.
    pub(crate) fn set_moved(&mut self, namespace: &str, name: &str, uid: &str, moved: Moved) {
        self.entry(namespace, name, uid).moved = Some(moved);
    }

    /// The pod was asked before in the cycle that goes on: it counts against the limits also when it has gone.
    pub(crate) fn set_asked_in_cycle(&mut self, pod: PodRef) {
        self.asked_in_cycle.push(pod);
    }

    pub(crate) fn asked_in_cycle(&self) -> &[PodRef] {
        &self.asked_in_cycle
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Namespace, name and UID of each pod, and what is known of it.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&str, &str, &str, &LeavingPod)> {
        self.pods.iter().map(|((namespace, name, uid), asked)| (&**namespace, &**name, &**uid, asked))
    }

    fn entry(&mut self, namespace: &str, name: &str, uid: &str) -> &mut LeavingPod {
        self.pods.entry((namespace.to_owned(), name.to_owned(), uid.to_owned())).or_default()
    }
}

/// Where the pods of the last cycle were, by name: mostly they are there again, and names need not be looked up.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    before: Vec<u32>,
    next: usize,
    now: Vec<u32>,
}

impl Slots {
    /// So many pods that are gone since are passed over.
    const AHEAD: usize = 8;

    /// Another cycle begins.
    pub fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
        self.next = 0;
    }

    /// The slot of this pod, if it is there.
    pub fn find(&mut self, cluster: &Cluster, namespace: &str, name: &str, uid: &str) -> Option<u32> {
        let is = |slot: u32| {
            let pod = cluster.pod(slot).filter(|pod| pod.uid.is(uid) && *pod.name == *name);
            let shape = pod.and_then(|pod| cluster.shape(pod.shape));
            shape.is_some_and(|shape| *shape.namespace == *namespace)
        };
        let ahead = self.before.iter().skip(self.next).take(Self::AHEAD);
        let slot = match ahead.enumerate().find(|(_, slot)| is(**slot)) {
            Some((passed, slot)) => {
                self.next += passed + 1;
                *slot
            }
            None => cluster.find(namespace, name).filter(|slot| is(*slot))?,
        };
        self.now.push(slot);
        Some(slot)
    }
}

#[cfg(test)]
#[path = "in_progress_tests.rs"]
mod tests;
