//! When a drain is expected to be done, learned from how long pods of the same owner took.
//!
//! Two things are learned of each owner: how long its first pod takes from the request until it is gone, and how long it is
//! from one pod that goes to the next. The second shows how many leave at a time, whatever holds the others back: a budget,
//! an interceptor or nothing. An owner that nothing is known of takes as long as the others did. It is all in memory and in
//! bounds; a controller that starts again has forgotten it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::PodType;

use crate::snapshot::Pod;

/// So many owners are remembered; the one that was longest without a pod that left is forgotten first.
pub const MOST_OWNERS: usize = 4096;
/// What people read is in steps of this.
const STEP: SignedDuration = SignedDuration::from_secs(10);
/// An expectation alone is written no more often than this.
pub const PAUSE: SignedDuration = SignedDuration::from_secs(30);
const HASH_LABEL: &str = "pod-template-hash";

/// Who owns pods that are expected to behave alike. Pods without an owner are alike within their namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub namespace: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Workload {
    /// The ReplicaSets of a Deployment are one: their names are its name and a hash that their pods show.
    pub fn of(pod: &Pod) -> Self {
        let namespace = pod.key.namespace.clone();
        let Some(owner) = &pod.owner else { return Self { namespace, kind: "".into(), name: "".into() } };
        let hash = pod.labels.get(HASH_LABEL).filter(|_| &*owner.kind == "ReplicaSet");
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
        match deployment.filter(|name| !name.is_empty()) {
            Some(name) => Self { namespace, kind: "Deployment".into(), name: name.into() },
            None => Self { namespace, kind: owner.kind.clone(), name: owner.name.clone() },
        }
    }
}

/// A mean over the last times, in which older ones count less and less.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    milliseconds: i64,
    times: i64,
}

impl Mean {
    fn add(&mut self, milliseconds: i64, window: i64) {
        self.times = (self.times + 1).min(window);
        self.milliseconds += (milliseconds - self.milliseconds) / self.times;
    }

    fn get(self) -> Option<i64> {
        (self.times > 0).then_some(self.milliseconds)
    }
}

/// Over how many times the means go. Pods that leave together are followed by a pause: the window is wider there, so that it
/// has both.
const FIRST_OF_ONE: i64 = 4;
const NEXT_OF_ONE: i64 = 32;
const FIRST_OF_ALL: i64 = 16;
const NEXT_OF_ALL: i64 = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// From the request of a pod until it is gone, with nobody before it.
    first: Mean,
    /// From one that goes to the next.
    next: Mean,
}

#[derive(Debug, Default)]
struct Learned {
    pace: Pace,
    last: Option<Timestamp>,
    turn: u64,
}

/// What was learned from the pods that left.
#[derive(Debug, Default)]
pub struct Experience {
    owners: BTreeMap<Arc<Workload>, Learned>,
    all: Pace,
    /// Owners by when they were last learned of.
    turns: BTreeMap<u64, Arc<Workload>>,
    turn: u64,
}

/// Pods that are still there, of one owner and one step of the plan.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub workload: &'a Workload,
    pub step: usize,
    pub pods: u32,
    /// Since when the first of them is asked to leave; `None` if none is.
    pub asked: Option<Timestamp>,
    pub kind: PodType,
}

fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_millisecond().saturating_sub(from.as_millisecond()).max(0)
}

impl Experience {
    /// A pod that was asked to leave at a time is gone.
    pub fn left(&mut self, workload: &Arc<Workload>, asked: Timestamp, now: Timestamp) {
        let learned = self.owners.entry(workload.clone()).or_default();
        match learned.last.filter(|last| asked <= *last) {
            Some(last) => {
                learned.pace.next.add(milliseconds(last, now), NEXT_OF_ONE);
                self.all.next.add(milliseconds(last, now), NEXT_OF_ALL);
            }
            None => {
                learned.pace.first.add(milliseconds(asked, now), FIRST_OF_ONE);
                self.all.first.add(milliseconds(asked, now), FIRST_OF_ALL);
            }
        }
        learned.last = Some(now);
        self.turn += 1;
        self.turns.remove(&std::mem::replace(&mut learned.turn, self.turn));
        self.turns.insert(self.turn, workload.clone());
        if self.owners.len() > MOST_OWNERS
            && let Some((_, oldest)) = self.turns.pop_first()
        {
            self.owners.remove(&oldest);
        }
    }

    /// How long until all of them are gone: the steps one after the other, in each the slowest owner, and so many waves of
    /// nodes. `None` while nobody has left yet, or if there is nothing left. Pods of DaemonSets and static pods are not
    /// evicted and may stay for ever: they are left out, unless some of their owner have left before.
    pub fn remaining<'a>(
        &self,
        groups: impl Iterator<Item = Group<'a>>,
        waves: usize,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        self.all.first.get()?;
        let mut steps: BTreeMap<usize, i64> = BTreeMap::new();
        let leaves =
            |group: &Group<'_>| group.kind == PodType::Default || self.owners.contains_key(group.workload);
        for group in groups.filter(|group| group.pods > 0 && leaves(group)) {
            let slowest = steps.entry(group.step).or_default();
            *slowest = (*slowest).max(self.of(&group, waves, now));
        }
        let sum = steps.values().fold(0_i64, |sum, step| sum.saturating_add(*step));
        (!steps.is_empty()).then(|| SignedDuration::from_millis(sum))
    }

    fn of(&self, group: &Group<'_>, waves: usize, now: Timestamp) -> i64 {
        let learned = self.owners.get(group.workload);
        let own = learned.map(|learned| learned.pace).unwrap_or_default();
        let first = own.first.get().or(self.all.first.get()).unwrap_or(0);
        // As long as only one was seen to go, they are taken to go one by one.
        let next = own.next.get().or(self.all.next.get()).unwrap_or(first);
        let last = learned.and_then(|learned| learned.last);
        let soonest = match (group.asked, last) {
            (None, _) => first,
            (Some(asked), Some(last)) if asked <= last => until(milliseconds(last, now), next),
            (Some(asked), _) => until(milliseconds(asked, now), first),
        };
        let pods = i64::from(group.pods);
        let waves = i64::try_from(waves.max(1)).unwrap_or(i64::MAX).min(pods);
        let one_by_one = next.saturating_mul(pods - waves);
        soonest.saturating_add(first.saturating_mul(waves - 1)).saturating_add(one_by_one)
    }
}

/// What takes longer than expected is expected to take as long again as it is late.
fn until(passed: i64, expected: i64) -> i64 {
    (expected - passed).abs()
}

/// What the status says. It changes only if that matters to people: by ten seconds and a tenth of what is left. While nothing
/// is known, what was written before is good until its time has come.
pub fn shown(before: Option<Timestamp>, expected: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let before = before.filter(|before| now < *before);
    let Some(expected) = expected.map(|expected| in_steps(expected.max(now))) else { return before };
    let is_near = |before: &Timestamp| {
        let tenth = expected.duration_since(now) / 10;
        before.duration_since(expected).abs() <= tenth.max(STEP)
    };
    Some(before.filter(is_near).unwrap_or(expected))
}

/// The next full step.
fn in_steps(at: Timestamp) -> Timestamp {
    let step = STEP.as_secs();
    let second = at.as_second().saturating_add(i64::from(at.subsec_nanosecond() > 0));
    let full = second.saturating_add((step - second.rem_euclid(step)) % step);
    Timestamp::from_second(full).unwrap_or(at)
}
