//! What is to be looked at: now in order of arrival, or at a time. A key is in it once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// The longest pause after failures.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// So many failures in a row are no accident.
const REPEATED: u32 = 3;
/// What failed so often rests for so long, also if something changes.
const REST: SignedDuration = SignedDuration::from_secs(1);
/// There is always room for so many at once.
const USUAL_RUSH: usize = 1024;

/// What asks to be looked at again at once waits so long, so that the others come to their turn.
const LEAST_PAUSE: SignedDuration = SignedDuration::from_millis(20);

/// A time at which something may be looked at again that was looked at just now.
pub fn not_at_once(at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    at.map(|at| at.max(now + LEAST_PAUSE))
}

#[derive(Debug)]
pub struct Queue<K> {
    order: VecDeque<K>,
    entries: HashMap<K, Entry>,
    times: BTreeSet<(Timestamp, K)>,
    busy: usize,
}

#[derive(Debug, Default)]
struct Entry {
    state: State,
    time: Option<Timestamp>,
    failures: u32,
    /// When it last failed.
    failed: Option<Timestamp>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Idle,
    /// It waits in the order.
    Queued { since: Timestamp },
    /// It is worked on, and maybe to be looked at again afterwards.
    Busy { since: Timestamp, again: bool },
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.state == State::Idle && self.time.is_none() && self.failures == 0
    }

    /// What fails again and again is not looked at at once, whoever asks for it: else two that wake each other would never rest.
    fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.failed.filter(|_| self.failures >= REPEATED)? + REST;
        (now < until).then_some(until)
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), entries: HashMap::new(), times: BTreeSet::new(), busy: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Look at it soon. Returns whether it was not waiting already.
    pub fn add(&mut self, key: K, now: Timestamp) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.state == State::Idle
            && let Some(until) = entry.rests_until(now)
        {
            let at = entry.time.map_or(until, |time| time.min(until));
            self.set_time(&key, Some(at));
            return false;
        }
        match &mut entry.state {
            State::Busy { again, .. } => !std::mem::replace(again, true),
            State::Queued { .. } => false,
            state @ State::Idle => {
                *state = State::Queued { since: now };
                self.order.push_back(key);
                true
            }
        }
    }

    /// Look at it at that time, in place of any time set before.
    pub fn set_time(&mut self, key: &K, at: Option<Timestamp>) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.time != at {
            if let Some(before) = entry.time {
                self.times.remove(&(before, key.clone()));
            }
            entry.time = at;
            if let Some(at) = at {
                self.times.insert((at, key.clone()));
            }
        }
        self.tidy(key);
    }

    pub fn next_time(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Moves what is due into the order.
    pub fn wake(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.times.first()
            && *at <= now
            && let Some((_, key)) = self.times.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.time = None;
            }
            self.add(key, now);
        }
    }

    /// The next one, and how long it has waited; it is busy until [`Queue::done`].
    pub fn take(&mut self, now: Timestamp) -> Option<(K, SignedDuration)> {
        let key = self.order.pop_front()?;
        if self.order.is_empty() {
            // The room of a rush is given back.
            self.order.shrink_to(USUAL_RUSH);
        }
        let entry = self.entries.entry(key.clone()).or_default();
        let waited = match entry.state {
            State::Queued { since } => now.duration_since(since),
            State::Idle | State::Busy { .. } => SignedDuration::ZERO,
        };
        entry.state = State::Busy { since: now, again: false };
        self.busy += 1;
        Some((key, waited))
    }

    /// Its work is over; returns how long it took.
    pub fn done(&mut self, key: &K, now: Timestamp) -> SignedDuration {
        let Some(entry) = self.entries.get_mut(key) else { return SignedDuration::ZERO };
        let State::Busy { since, again } = entry.state else { return SignedDuration::ZERO };
        entry.state = State::Idle;
        self.busy -= 1;
        if again {
            self.add(key.clone(), now);
        }
        self.tidy(key);
        now.duration_since(since)
    }

    /// After a failure: later and later.
    pub fn retry(&mut self, key: &K, now: Timestamp) {
        let entry = self.entries.entry(key.clone()).or_default();
        let pause = SignedDuration::from_millis(100_i64 << entry.failures.min(20)).min(LONGEST_PAUSE);
        entry.failures = entry.failures.saturating_add(1);
        entry.failed = Some(now);
        self.set_time(key, Some(now + pause));
    }

    /// It worked: the next failure is the first one again.
    pub fn succeeded(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
        self.tidy(key);
    }

    /// How many wait, and how many are worked on.
    pub fn depth(&self) -> (usize, usize) {
        (self.order.len(), self.busy)
    }

    fn tidy(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milli: i64) -> Timestamp {
        Timestamp::from_millisecond(milli).unwrap()
    }

    #[test]
    fn a_key_waits_once_and_is_looked_at_again_if_it_changed_while_busy() {
        let mut queue = Queue::default();
        assert!(queue.add("a", at(0)));
        assert!(!queue.add("a", at(1)));
        assert_eq!(queue.take(at(5)), Some(("a", SignedDuration::from_millis(5))));
        assert!(queue.add("a", at(6)));
        assert_eq!((queue.take(at(6)), queue.depth()), (None, (0, 1)));
        assert_eq!(queue.done(&"a", at(9)).as_millis(), 4);
        assert_eq!(queue.take(at(9)).map(|(key, _)| key), Some("a"));
        queue.done(&"a", at(9));
        assert!(queue.entries.is_empty(), "nothing is remembered of what is idle");
    }

    #[test]
    fn a_new_time_replaces_the_old_one() {
        let mut queue = Queue::default();
        queue.set_time(&"a", Some(at(10)));
        queue.set_time(&"a", Some(at(20)));
        assert_eq!(queue.next_time(), Some(at(20)));
        queue.wake(at(19));
        assert_eq!(queue.take(at(19)), None);
        queue.wake(at(20));
        assert!(queue.take(at(20)).is_some() && queue.next_time().is_none());
    }

    #[test]
    fn what_asks_for_the_past_does_not_keep_the_others_waiting() {
        assert_eq!(not_at_once(Some(at(0)), at(1000)), Some(at(1020)));
        assert_eq!(not_at_once(Some(at(5000)), at(1000)), Some(at(5000)));
        assert_eq!(not_at_once(None, at(1000)), None);
    }

    #[test]
    fn what_fails_again_and_again_rests_whoever_asks_for_it() {
        let mut queue = Queue::default();
        let mut looks = 0;
        queue.add("a", at(0));
        // Somebody asks for it while it is worked on, each time, and no time passes.
        while let Some((key, _)) = queue.take(at(0)) {
            looks += 1;
            assert!(looks < 10, "it never rests");
            queue.add(key, at(0));
            queue.retry(&key, at(0));
            queue.done(&key, at(0));
        }
        assert_eq!(looks, 3);
        assert_eq!(queue.next_time(), Some(at(400)), "its own pause is shorter still");
        for _ in 0..9 {
            queue.retry(&"a", at(0));
        }
        assert!(!queue.add("a", at(500)));
        assert_eq!(queue.next_time(), Some(at(1000)), "a change is not waited for until the pause ends");
        queue.wake(at(1000));
        assert!(queue.take(at(1000)).is_some());
    }

    #[test]
    fn failures_wait_longer_each_time_until_one_succeeds() {
        let mut queue = Queue::default();
        let mut pauses = Vec::new();
        for _ in 0..14 {
            queue.retry(&"a", at(0));
            pauses.push(queue.next_time().unwrap().as_millisecond());
        }
        assert_eq!((pauses[0], pauses[1], pauses[13]), (100, 200, 300_000));
        queue.succeeded(&"a");
        queue.retry(&"a", at(0));
        assert_eq!(queue.next_time(), Some(at(100)));
    }
}
