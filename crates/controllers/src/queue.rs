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

/// What is rare is kept apart from what all have: most keys only have a time.
#[derive(Debug)]
pub struct Queue<K> {
    order: VecDeque<K>,
    active: HashMap<K, Active>,
    due: HashMap<K, Timestamp>,
    /// The same, by time.
    times: BTreeSet<(Timestamp, K)>,
    failing: HashMap<K, Failing>,
    busy: usize,
}

#[derive(Debug, Clone, Copy)]
enum Active {
    /// It waits in the order.
    Queued { since: Timestamp },
    /// It is worked on, and maybe to be looked at again afterwards.
    Busy { since: Timestamp, again: bool },
}

#[derive(Debug)]
struct Failing {
    /// In a row.
    times: u32,
    last: Timestamp,
}

impl Failing {
    /// What fails again and again is not looked at at once, whoever asks for it: else two that wake each other would never rest.
    fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.last + REST;
        (self.times >= REPEATED && now < until).then_some(until)
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            active: HashMap::new(),
            due: HashMap::new(),
            times: BTreeSet::new(),
            failing: HashMap::new(),
            busy: 0,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Look at it soon. Returns whether it was not waiting already.
    pub fn add(&mut self, key: K, now: Timestamp) -> bool {
        match self.active.get_mut(&key) {
            Some(Active::Busy { again, .. }) => return !std::mem::replace(again, true),
            Some(Active::Queued { .. }) => return false,
            None => {}
        }
        if let Some(until) = self.failing.get(&key).and_then(|failing| failing.rests_until(now)) {
            let at = self.due.get(&key).map_or(until, |time| until.min(*time));
            self.set_time(&key, Some(at));
            return false;
        }
        self.active.insert(key.clone(), Active::Queued { since: now });
        self.order.push_back(key);
        true
    }

    /// Look at it at that time, in place of any time set before.
    pub fn set_time(&mut self, key: &K, at: Option<Timestamp>) {
        let before = match at {
            Some(at) => self.due.insert(key.clone(), at),
            None => self.due.remove(key),
        };
        if before != at {
            if let Some(before) = before {
                self.times.remove(&(before, key.clone()));
            }
            self.times.extend(at.map(|at| (at, key.clone())));
        }
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
            self.due.remove(&key);
            self.add(key, now);
        }
    }

    /// The next one, and how long it has waited; it is busy until [`Queue::done`].
    pub fn take(&mut self, now: Timestamp) -> Option<(K, SignedDuration)> {
        let key = self.order.pop_front()?;
        let waited = match self.active.insert(key.clone(), Active::Busy { since: now, again: false }) {
            Some(Active::Queued { since }) => now.duration_since(since),
            Some(Active::Busy { .. }) | None => SignedDuration::ZERO,
        };
        self.busy += 1;
        if self.order.is_empty() {
            // The room of a rush is given back.
            self.order.shrink_to(USUAL_RUSH);
            self.active.shrink_to(USUAL_RUSH);
        }
        Some((key, waited))
    }

    /// Its work is over; returns how long it took.
    pub fn done(&mut self, key: &K, now: Timestamp) -> SignedDuration {
        let Some(&Active::Busy { since, again }) = self.active.get(key) else { return SignedDuration::ZERO };
        self.active.remove(key);
        self.busy -= 1;
        if again {
            self.add(key.clone(), now);
        }
        now.duration_since(since)
    }

    /// After a failure: later and later.
    pub fn retry(&mut self, key: &K, now: Timestamp) {
        let failing = self.failing.entry(key.clone()).or_insert(Failing { times: 0, last: now });
        let pause = SignedDuration::from_millis(100_i64 << failing.times.min(20)).min(LONGEST_PAUSE);
        *failing = Failing { times: failing.times.saturating_add(1), last: now };
        self.set_time(key, Some(now + pause));
    }

    /// It worked: the next failure is the first one again.
    pub fn succeeded(&mut self, key: &K) {
        self.failing.remove(key);
    }

    /// How many wait, and how many are worked on.
    pub fn depth(&self) -> (usize, usize) {
        (self.order.len(), self.busy)
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
        assert!(queue.active.is_empty() && queue.due.is_empty(), "nothing is remembered of what is idle");
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
