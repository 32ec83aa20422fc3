//! Trying a write again after somebody else was faster.

use std::hash::{BuildHasher as _, DefaultHasher, Hash, Hasher as _, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::sleep;

/// How often it is tried, unless somebody says otherwise. The pauses between are about 6 seconds together, so that a request that is just
/// going away can be made anew.
const AT_MOST: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The attempts at one write, of which the first is under way. There is a pause between two of them, and none after the last. Who reads
/// before writing does so after the pause: what was read before it may be old.
///
/// Those who were in each other's way wait for different times, each always for the same.
#[derive(Debug, Clone)]
pub struct Attempts {
    who: DefaultHasher,
    made: u32,
    at_most: u32,
}

impl Attempts {
    /// `who` tells apart those who write at the same time.
    pub fn of(who: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        who.hash(&mut hasher);
        Self { who: hasher, made: 0, at_most: AT_MOST }
    }

    /// So many, with the first.
    #[must_use]
    pub fn at_most(self, attempts: u32) -> Self {
        Self { at_most: attempts, ..self }
    }

    /// Whether there is another attempt, for which nobody has to wait.
    pub fn again_at_once(&mut self) -> bool {
        self.made += 1;
        self.made < self.at_most
    }

    /// Whether there is another attempt, once it is time for it.
    pub async fn again(&mut self) -> bool {
        let pause = self.pause();
        let is_another = self.again_at_once();
        if is_another {
            sleep(pause).await;
        }
        is_another
    }

    /// After the attempt that is under way.
    fn pause(&self) -> Duration {
        let mut hasher = self.who.clone();
        self.made.hash(&mut hasher);
        let whole = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.made));
        whole / 2 + whole.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)
    }
}

/// Tells this process from its replicas, with which it shares every name.
pub fn this_process() -> u64 {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));
    *PROCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// The pauses, in milliseconds.
    async fn pauses(mut attempts: Attempts) -> Vec<u128> {
        let mut pauses = Vec::new();
        loop {
            let before = Instant::now();
            if !attempts.again().await {
                assert_eq!(before.elapsed(), Duration::ZERO, "nothing follows the last attempt");
                return pauses;
            }
            pauses.push(before.elapsed().as_millis());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_there_is_none_after_the_last_attempt() {
        let whole = pauses(Attempts::of("a")).await;
        assert_eq!(whole.len(), 7);
        for (pause, doubled) in whole.iter().zip([50, 100, 200, 400, 800, 1600, 3200]) {
            assert!((doubled / 2..=doubled * 3 / 2 + 1).contains(pause), "{whole:?}");
        }
        assert_eq!(pauses(Attempts::of("a").at_most(6)).await, whole[..5]);
        assert!(pauses(Attempts::of("a").at_most(1)).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_were_in_each_others_way_wait_for_different_times() {
        let (one, other) = (pauses(Attempts::of("a")).await, pauses(Attempts::of("b")).await);
        assert_ne!(one, other);
        assert_eq!(one, pauses(Attempts::of("a")).await, "each always for the same");
        assert_eq!(this_process(), this_process());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_follows_at_once_counts() {
        let mut attempts = Attempts::of("a").at_most(3);
        let begun = Instant::now();
        assert!(attempts.again_at_once() && begun.elapsed().is_zero());
        assert!(attempts.again().await);
        assert!(!attempts.again_at_once());
    }
}
