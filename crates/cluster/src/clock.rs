//! Time as the server stamps it; tests put their own clock here.

use jiff::Timestamp;
use tokio::time::Instant;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

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
        let passed =
            jiff::SignedDuration::try_from(self.started.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        self.start.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// `2026-11-15T02:07:43Z`: how `metav1.Time` is written.
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_passes_with_the_runtime() {
        let clock = TokioClock::starting_at(Timestamp::UNIX_EPOCH);
        assert_eq!(rfc3339(clock.now()), "1970-01-01T00:00:00Z");
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        assert_eq!(rfc3339(clock.now()), "1970-01-01T01:00:00Z");
    }
}
