//! Tells watches that a log has grown.
//!
//! Like a watch channel, except that whoever waits is woken in the order in which they began to wait. A channel leaves
//! that to chance, and in virtual time the same seed has to give the same history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Shared {
    revision: AtomicU64,
    is_over: AtomicBool,
    notify: Notify,
}

/// The log's end. When it is dropped, nothing grows any more.
#[derive(Debug, Default)]
pub(super) struct Grower(Arc<Shared>);

impl Grower {
    pub(crate) fn reached(&self) -> u64 {
        self.0.revision.load(Ordering::Acquire)
    }

    pub(crate) fn grow(&self, revision: u64) {
        self.0.revision.store(revision, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub(crate) fn follow(&self) -> Growth {
        Growth { seen: self.reached(), shared: self.0.clone() }
    }
}

impl Drop for Grower {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

/// One who follows a log.
#[derive(Debug)]
pub struct Growth {
    shared: Arc<Shared>,
    seen: u64,
}

impl Growth {
    /// Waits until the log has grown since the last time; `false` if it never will again.
    pub async fn grown(&mut self) -> bool {
        loop {
            // Who waits is entered first, so that nothing is missed between the look and the wait.
            let mut notified = std::pin::pin!(self.shared.notify.notified());
            notified.as_mut().enable();
            let revision = self.shared.revision.load(Ordering::Acquire);
            if revision != self.seen {
                self.seen = revision;
                return true;
            }
            if self.shared.is_over.load(Ordering::Acquire) {
                return false;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_follows_hears_of_growth_once_and_of_the_end() {
        let grower = Grower::default();
        grower.grow(3);
        let mut growth = grower.follow();
        grower.grow(4);
        grower.grow(5);
        assert!(growth.grown().await);
        let waiting = tokio::spawn(async move { growth.grown().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(grower);
        assert!(!waiting.await.unwrap());
    }
}
