//! The time of day, as somebody gives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Where the time comes from: the system, a test, or a simulated cluster whose time goes faster.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    time_until: Arc<dyn Fn(Timestamp) -> Duration + Send + Sync>,
}

impl Clock {
    pub fn system() -> Self {
        Self::from_fn(Timestamp::now)
    }

    /// A clock that goes as fast as the timers of this process.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let now = Arc::new(now);
        let time_until = {
            let now = now.clone();
            move |at: Timestamp| Duration::try_from(at.duration_since(now())).unwrap_or_default()
        };
        Self { now, time_until: Arc::new(time_until) }
    }

    /// A clock that goes at its own speed, and knows how long a timer has to run until a time.
    pub fn with_timers(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        time_until: impl Fn(Timestamp) -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), time_until: Arc::new(time_until) }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// How long a timer has to run until this time. Timers count in milliseconds, so it is one more: never too early.
    pub fn time_until(&self, at: Timestamp) -> Duration {
        (self.time_until)(at).saturating_add(Duration::from_millis(1))
    }
}

/// Any function that tells the time is a clock.
impl<F: Fn() -> Timestamp + Send + Sync + 'static> From<F> for Clock {
    fn from(now: F) -> Self {
        Self::from_fn(now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
