//! Whether a loop still turns: a beat in the same task as the work stops when the work no longer returns.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

const BEAT: Duration = Duration::from_secs(1);

/// Beats while something runs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// Runs the work, and beats for as long as it lets go of its task between two steps.
    pub async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let _rest = Rest(self);
        tokio::select! {
            done = work => done,
            never = self.beat() => match never {},
        }
    }

    async fn beat(&self) -> Infallible {
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            *self.0.lock() = Some(Instant::now());
        }
    }

    /// How long the last beat is ago; nothing if nothing runs.
    pub fn silence(&self) -> Option<Duration> {
        self.0.lock().map(|last| last.elapsed())
    }
}

/// Nothing runs any more, however it ended.
struct Rest<'a>(&'a Pulse);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep};

    #[tokio::test(start_paused = true)]
    async fn waiting_work_beats_and_work_that_holds_its_task_does_not() {
        let pulse = Pulse::default();
        assert_eq!(pulse.silence(), None);
        let seen = pulse.clone();
        let work = async move {
            sleep(Duration::from_secs(3600)).await;
            assert!(seen.silence().unwrap() <= BEAT, "waiting is no silence");
            // Time passes here without the task being given up: nothing else is polled meanwhile.
            let held = advance(Duration::from_secs(90));
            tokio::pin!(held);
            while futures::poll!(&mut held).is_pending() {}
            seen.silence()
        };
        assert!(pulse.beside(work).await.unwrap() >= Duration::from_secs(90));
        assert_eq!(pulse.silence(), None, "nothing runs");
    }
}
