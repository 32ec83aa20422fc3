//! Time as it is written into statuses. Timers are tokio's, so that with a clock that follows tokio's all of it runs in
//! virtual time.

use jiff::Timestamp;

/// What time it is. Any function that tells the time is a clock.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
