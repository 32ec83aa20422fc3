//! Time as the server stamps it; tests put their own clock here.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// How long it really takes until it is `at`; nothing if that is past.
    fn time_until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a fixed time and goes as tokio's does, so that a paused runtime gives virtual time.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// It is `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, started: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        later(self.start, self.started.elapsed())
    }
}

/// A clock that goes so many times as fast as the machine's, from the same time on.
#[derive(Debug, Clone, Copy)]
pub struct ScaledClock {
    start: Timestamp,
    started: Instant,
    speed: f64,
}

/// Beyond this, the cluster cannot keep up with its own time.
const FASTEST: f64 = 1000.0;

impl ScaledClock {
    /// It is now what the machine's clock says.
    ///
    /// # Errors
    /// A speed that is no number above 0 and up to 1000.
    pub fn new(speed: f64) -> Result<Self, String> {
        if speed > 0.0 && speed <= FASTEST {
            Ok(Self { start: Timestamp::now(), started: Instant::now(), speed })
        } else {
            Err(format!("time can go faster than 0 and up to {FASTEST} times as fast, not {speed} times"))
        }
    }
}

impl Clock for ScaledClock {
    fn now(&self) -> Timestamp {
        let passed = Duration::try_from_secs_f64(self.started.elapsed().as_secs_f64() * self.speed);
        later(self.start, passed.unwrap_or(Duration::MAX))
    }

    fn time_until(&self, at: Timestamp) -> Duration {
        let left = at.duration_since(self.now()).as_secs_f64() / self.speed;
        // What does not fit is further off than anybody waits; what is negative is past.
        Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX)
    }
}

/// A clock that is wrong by so much.
#[derive(Clone)]
pub struct SkewedClock {
    pub right: Arc<dyn Clock>,
    pub offset: SignedDuration,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        let right = self.right.now();
        right.checked_add(self.offset).unwrap_or(right)
    }

    fn time_until(&self, at: Timestamp) -> Duration {
        self.right.time_until(at.checked_sub(self.offset).unwrap_or(at))
    }
}

fn later(start: Timestamp, passed: Duration) -> Timestamp {
    let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
    start.checked_add(passed).unwrap_or(Timestamp::MAX)
}

/// `2026-11-15T02:07:43Z`: how `metav1.Time` is written.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_whole_seconds_that_have_passed() {
        let at: Timestamp = "2027-01-15T08:00:59.999Z".parse().expect("a time");
        assert_eq!(rfc3339(at), "2027-01-15T08:00:59Z");
    }

    #[tokio::test(start_paused = true)]
    async fn scaled_time_goes_faster_or_slower_and_sleeps_scale_with_it() {
        for (speed, passed) in [(60.0, 600), (0.5, 5), (1.0, 10)] {
            let clock = ScaledClock::new(speed).unwrap();
            let start = clock.now();
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!((clock.now() - start).get_seconds(), passed, "at {speed}");
            let at = clock.now() + SignedDuration::from_secs(60);
            let really = clock.time_until(at).as_secs_f64();
            assert!((really - 60.0 / speed).abs() < 1e-6, "at {speed}: {really}");
            assert_eq!(clock.time_until(start), Duration::ZERO, "that is past");
        }
    }

    #[test]
    fn a_speed_that_makes_no_sense_is_refused() {
        for speed in [0.0, -1.0, 1000.5, f64::NAN, f64::INFINITY] {
            assert!(ScaledClock::new(speed).is_err(), "{speed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_skewed_clock_is_wrong_by_its_offset_and_waits_accordingly() {
        let right = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
        let clock = SkewedClock { right, offset: SignedDuration::from_secs(-30) };
        assert_eq!(clock.now().as_second(), -30);
        assert_eq!(clock.time_until(Timestamp::UNIX_EPOCH), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_time_passes_with_the_runtime() {
        let clock = TokioClock::starting_at(Timestamp::UNIX_EPOCH);
        assert_eq!(rfc3339(clock.now()), "1970-01-01T00:00:00Z");
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        assert_eq!(rfc3339(clock.now()), "1970-01-01T01:00:00Z");
    }
}
