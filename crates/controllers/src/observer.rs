//! Somebody who counts: what every controller tells of its queue. Metrics hear of it, and decide nothing.

use jiff::SignedDuration;
use usher_apply::Failure;

/// Hears of a queue. All methods may be left out.
pub trait QueueObserver: Send {
    fn queue_added(&mut self) {}

    fn queue_taken(&mut self, waited: SignedDuration) {
        let _ = waited;
    }

    fn queue_done(&mut self, worked: SignedDuration) {
        let _ = worked;
    }

    fn queue_retried(&mut self) {}

    /// A decision was not carried out.
    fn failed(&mut self, failure: &Failure) {
        let _ = failure;
    }

    /// How many wait, and how many are worked on.
    fn queue_depth(&mut self, waiting: usize, busy: usize) {
        let _ = (waiting, busy);
    }

    /// All watches have told what there is.
    fn synced(&mut self) {}
}

/// Nobody counts.
#[derive(Debug, Default)]
pub struct Nobody;

impl QueueObserver for Nobody {}
