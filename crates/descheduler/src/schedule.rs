//! When cycles begin, what each of them begins with, and when what is to be remembered is saved.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use crate::requester::later;

/// Changes of nodes that call for a cycle are gathered for so long, and so is what has to be remembered.
const GATHERED_FOR: SignedDuration = SignedDuration::from_secs(5);
/// What could not be saved is tried again after this.
const SAVED_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Where pods cannot be asked others have their places in the same cycle: so often it is planned again.
const ROUNDS: usize = 256;

#[derive(Debug)]
pub struct Schedule {
    /// How long after the beginning of a cycle the next one begins. Nothing: there is one cycle.
    interval: Option<SignedDuration>,
    /// A cycle also begins soon after a taint of a node has changed.
    on_change: bool,
    /// When the last cycle began.
    last: Option<Timestamp>,
    /// A cycle is wanted at this time, before the interval is over.
    wanted: Option<Timestamp>,
    /// What is to be remembered is saved at this time, if no cycle does it before.
    save_at: Option<Timestamp>,
    /// When real usage was last read.
    usage_at: Option<Timestamp>,
    /// How often the cycle that is under way has gone on with others. 0: it has not, or none is.
    round: usize,
}

/// The taints of a node, as far as one can tell whether they change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taints(u64);

impl Taints {
    pub fn of(node: &Node) -> Self {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let taints: Vec<_> =
            taints.into_iter().flatten().map(|it| (&it.key, &it.value, &it.effect)).collect();
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one(taints))
    }
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until then.
    Wait(Option<Timestamp>),
    /// What is to be remembered is saved, and looked at again then.
    Save { again: Option<Timestamp> },
    /// Real usage, by which the plan goes.
    ReadUsage,
    /// The plan of a cycle.
    Plan {
        /// No cycle was planned before.
        is_first: bool,
    },
}

impl Schedule {
    pub fn new(interval: Option<SignedDuration>, on_change: bool) -> Self {
        Self { interval, on_change, last: None, wanted: None, save_at: None, usage_at: None, round: 0 }
    }

    /// There is one cycle and no other.
    pub fn is_single(&self) -> bool {
        self.interval.is_none()
    }

    /// How often the cycle that is under way has gone on with others.
    pub fn round(&self) -> usize {
        self.round
    }

    /// Another policy may go by other usage, and the first one begins the first cycle.
    pub fn policy_read(&mut self, is_first: bool) {
        self.usage_at = None;
        if is_first {
            self.wanted = Some(Timestamp::MIN);
        }
    }

    /// A node has come, changed or gone. One that is gone or has other taints calls for a cycle soon, unless there is only one; one that is
    /// new has no pods yet.
    pub fn node_changed(&mut self, before: Option<Taints>, after: Option<Taints>, now: Timestamp) {
        let matters = before.is_some() && before != after;
        if matters && self.on_change && !self.is_single() {
            self.wanted.get_or_insert(later(now, GATHERED_FOR));
        }
    }

    /// There is something that has to be remembered.
    pub fn has_unsaved(&mut self, now: Timestamp) {
        self.save_at.get_or_insert(later(now, GATHERED_FOR));
    }

    /// When there is something to do that came up since the last step.
    pub fn due(&self) -> Option<Timestamp> {
        let at = self.wanted.into_iter().chain(self.save_at).min()?;
        Some(self.last.and(self.next()).map_or(at, |next| next.min(at)))
    }

    /// When the next cycle begins.
    pub fn next(&self) -> Option<Timestamp> {
        let by_interval = match (self.last, self.interval) {
            (None, _) => Some(Timestamp::MIN),
            (Some(last), Some(interval)) => Some(later(last, interval)),
            (Some(_), None) => None,
        };
        by_interval.into_iter().chain(self.wanted).min()
    }

    /// What is to be done. A step that is planned or saved has begun with that.
    pub fn step(&mut self, goes_by_usage: bool, now: Timestamp) -> Step {
        let next = self.next();
        if next.is_some_and(|next| next > now) || (next.is_none() && self.save_at.is_some()) {
            return match self.save_at.take_if(|at| *at <= now) {
                Some(_) => Step::Save { again: next },
                None => Step::Wait(next.into_iter().chain(self.save_at).min()),
            };
        }
        let is_fresh =
            self.round > 0 || self.usage_at.is_some_and(|at| self.last.is_none_or(|last| at > last));
        if goes_by_usage && !is_fresh {
            return Step::ReadUsage;
        }
        let is_first = self.last.is_none();
        if self.round == 0 {
            self.last = Some(now);
        }
        self.wanted = None;
        Step::Plan { is_first }
    }

    /// Usage was read; of the policy that counts, or of one before it.
    pub fn usage_read(&mut self, is_current: bool, now: Timestamp) {
        if is_current {
            self.usage_at = Some(now);
        }
        self.wanted = Some(now);
    }

    /// What was planned was carried out, and some of the pods could not be asked or all of them were. Whether the cycle has ended.
    pub fn carried_out(&mut self, is_refused: bool, is_unsaved: bool, now: Timestamp) -> bool {
        if is_refused && self.round < ROUNDS {
            self.round += 1;
            self.wanted = Some(now);
            return false;
        }
        self.round = 0;
        if self.is_single() || is_unsaved {
            // What came of it is for the next process to know.
            self.save_at = Some(now);
        }
        true
    }

    pub fn not_saved(&mut self, now: Timestamp) {
        self.save_at = Some(later(now, SAVED_AGAIN_AFTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const FREE: Option<Taints> = Some(Taints(0));
    const TAINTED: Option<Taints> = Some(Taints(1));

    const PLAN: Step = Step::Plan { is_first: false };

    fn begun(interval: Option<i64>) -> Schedule {
        let mut schedule = Schedule::new(interval.map(SignedDuration::from_secs), true);
        schedule.policy_read(true);
        assert!(schedule.due().is_some_and(|due| due <= at(0)));
        assert_eq!(schedule.step(false, at(0)), Step::Plan { is_first: true });
        assert!(schedule.carried_out(false, false, at(1)));
        schedule
    }

    #[test]
    fn cycles_begin_an_interval_after_each_other() {
        let mut schedule = begun(Some(60));
        assert_eq!(schedule.step(false, at(59)), Step::Wait(Some(at(60))));
        assert_eq!(schedule.step(false, at(61)), PLAN);
        assert_eq!(schedule.next(), Some(at(121)));
    }

    #[test]
    fn changes_of_nodes_begin_a_cycle_after_they_were_gathered() {
        let mut schedule = begun(Some(60));
        schedule.node_changed(TAINTED, FREE, at(10));
        schedule.node_changed(FREE, TAINTED, at(14));
        assert_eq!(schedule.due(), Some(at(15)));
        assert_eq!(schedule.step(false, at(14)), Step::Wait(Some(at(15))));
        assert_eq!(schedule.step(false, at(15)), PLAN);
        assert_eq!(schedule.due(), None);
        // Where there is only one cycle, there is no other.
        let mut single = begun(None);
        single.node_changed(TAINTED, FREE, at(10));
        assert_eq!(single.step(false, at(20)), Step::Save { again: None });
    }

    #[test]
    fn a_node_that_is_new_and_one_whose_taints_are_the_same_begin_no_cycle() {
        for (before, after, on_change, wanted) in [
            (FREE, TAINTED, true, true),
            (TAINTED, FREE, true, true),
            (FREE, None, true, true),
            (FREE, FREE, true, false),
            (None, TAINTED, true, false),
            (FREE, TAINTED, false, false),
        ] {
            let mut schedule = Schedule { on_change, ..begun(Some(60)) };
            schedule.node_changed(before, after, at(10));
            assert_eq!(schedule.due().is_some(), wanted, "{before:?} to {after:?}, {on_change}");
        }
    }

    #[test]
    fn taints_change_with_their_keys_values_and_effects() {
        let taints = |taints: serde_json::Value, labels: serde_json::Value| {
            let node = serde_json::json!({"metadata": {"labels": labels}, "spec": {"taints": taints}});
            Taints::of(&serde_json::from_value(node).unwrap())
        };
        let none = serde_json::json!({});
        let one =
            taints(serde_json::json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]), none.clone());
        let same = serde_json::json!([{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]);
        assert_eq!(taints(same, serde_json::json!({"a": "b"})), one);
        for other in [
            serde_json::json!([]),
            serde_json::json!([{"key": "l", "value": "v", "effect": "NoSchedule"}]),
            serde_json::json!([{"key": "k", "value": "w", "effect": "NoSchedule"}]),
            serde_json::json!([{"key": "k", "value": "v", "effect": "NoExecute"}]),
        ] {
            assert_ne!(taints(other.clone(), none.clone()), one, "{other}");
        }
    }

    #[test]
    fn a_single_cycle_ends_with_what_is_remembered() {
        let mut schedule = begun(None);
        assert_eq!(schedule.due(), Some(at(1)));
        assert_eq!(schedule.step(false, at(1)), Step::Save { again: None });
        schedule.not_saved(at(2));
        assert_eq!(schedule.step(false, at(3)), Step::Wait(Some(at(62))));
        assert_eq!(schedule.step(false, at(62)), Step::Save { again: None });
    }

    #[test]
    fn what_is_to_be_remembered_is_saved_between_cycles() {
        let mut schedule = begun(Some(60));
        schedule.has_unsaved(at(10));
        schedule.has_unsaved(at(12));
        assert_eq!(schedule.due(), Some(at(15)));
        assert_eq!(schedule.step(false, at(15)), Step::Save { again: Some(at(60)) });
        assert_eq!(schedule.step(false, at(16)), Step::Wait(Some(at(60))));
    }

    #[test]
    fn usage_is_read_once_for_each_cycle_and_again_for_another_policy() {
        let mut schedule = Schedule::new(Some(SignedDuration::from_secs(60)), true);
        schedule.policy_read(true);
        assert_eq!(schedule.step(true, at(0)), Step::ReadUsage);
        schedule.usage_read(false, at(1));
        assert_eq!(schedule.step(true, at(1)), Step::ReadUsage);
        schedule.usage_read(true, at(2));
        assert_eq!(schedule.step(true, at(2)), Step::Plan { is_first: true });
        assert!(schedule.carried_out(false, false, at(3)));
        assert_eq!(schedule.step(true, at(62)), Step::ReadUsage);
        schedule.usage_read(true, at(63));
        schedule.policy_read(false);
        assert_eq!(schedule.step(true, at(63)), Step::ReadUsage);
    }

    #[test]
    fn a_cycle_goes_on_with_others_where_pods_cannot_be_asked_and_not_for_ever() {
        let mut schedule = begun(Some(60));
        assert_eq!(schedule.step(true, at(60)), Step::ReadUsage);
        schedule.usage_read(true, at(61));
        let mut rounds = 0;
        loop {
            // Of the same cycle, which has read its usage.
            assert_eq!(schedule.step(true, at(61)), PLAN);
            if schedule.carried_out(true, false, at(61)) {
                break;
            }
            rounds += 1;
            assert_eq!((schedule.round(), schedule.due()), (rounds, Some(at(61))));
        }
        assert_eq!((rounds, schedule.next()), (ROUNDS, Some(at(121))));
    }
}
