//! How long requests or maintenances have waited, by what for, summed over all of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use jiff::Timestamp;

#[derive(Debug)]
pub struct Waits<K> {
    by_key: HashMap<K, &'static str>,
    by_reason: BTreeMap<&'static str, Waiting>,
}

impl<K> Default for Waits<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), by_reason: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    objects: u32,
    seconds: f64,
    /// Up to when `seconds` has been counted.
    counted: Timestamp,
}

impl Waiting {
    fn count_up_to(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.counted).as_secs_f64();
        // A clock that was set back takes nothing away: counters only rise.
        self.seconds += f64::from(self.objects) * passed.max(0.0);
        self.counted = now;
    }
}

impl<K: Clone + Eq + Hash> Waits<K> {
    /// With reasons that are there before anybody waits for them, so that rates begin at nothing.
    pub fn for_reasons(reasons: impl IntoIterator<Item = &'static str>) -> Self {
        let by_reason = reasons.into_iter().map(|reason| (reason, Waiting::default())).collect();
        Self { by_reason, ..Self::default() }
    }

    /// What one of them waits for from now on.
    pub fn set(&mut self, key: &K, reason: Option<&'static str>, now: Timestamp) {
        let before = self.by_key.get(key).copied();
        if before == reason {
            return;
        }
        if let Some(waiting) = before.and_then(|before| self.by_reason.get_mut(before)) {
            waiting.count_up_to(now);
            waiting.objects -= 1;
        }
        match reason {
            Some(reason) => {
                self.by_key.insert(key.clone(), reason);
                let waiting = self.by_reason.entry(reason).or_default();
                waiting.count_up_to(now);
                waiting.objects += 1;
            }
            None => {
                self.by_key.remove(key);
            }
        }
    }

    /// Nobody waits any more, as far as this process can tell. What was counted stays.
    pub fn end(&mut self, now: Timestamp) {
        self.by_key.clear();
        for waiting in self.by_reason.values_mut() {
            waiting.count_up_to(now);
            waiting.objects = 0;
        }
    }

    /// By reason: how many wait now, and the seconds waited so far.
    pub fn read(&mut self, now: Timestamp) -> impl Iterator<Item = (&'static str, u32, f64)> {
        self.by_reason.iter_mut().map(move |(reason, waiting)| {
            waiting.count_up_to(now);
            (*reason, waiting.objects, waiting.seconds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_decide::snapshot::Key;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn seconds_add_up_over_requests_and_go_on_between_changes() {
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let mut waits = Waits::default();
        waits.set(&a, Some("DisruptionBudget"), at(100));
        waits.set(&b, Some("DisruptionBudget"), at(110));
        waits.set(&a, Some("DisruptionBudget"), at(111));
        assert_eq!(waits.read(at(115)).collect::<Vec<_>>(), [("DisruptionBudget", 2, 20.0)]);
        waits.set(&a, Some("Interceptor"), at(120));
        waits.set(&b, None, at(120));
        let read: Vec<_> = waits.read(at(130)).collect();
        assert_eq!(read, [("DisruptionBudget", 0, 30.0), ("Interceptor", 1, 10.0)]);
        waits.end(at(140));
        assert_eq!(waits.read(at(900)).map(|(_, _, seconds)| seconds).sum::<f64>(), 50.0);
    }

    #[test]
    fn a_clock_set_back_takes_nothing_away() {
        let mut waits = Waits::default();
        waits.set(&Key::new("ns", "a"), Some("Interceptor"), at(100));
        waits.read(at(150)).count();
        assert_eq!(waits.read(at(50)).collect::<Vec<_>>(), [("Interceptor", 1, 50.0)]);
    }
}
