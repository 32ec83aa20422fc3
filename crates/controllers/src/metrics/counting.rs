//! Counts for a run of a controller: of its queue here, of its own matters where they are known.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use usher_apply::{Clock, Failure};

use super::ByReason;
use super::queue::QueueCounts;
use crate::observer::QueueObserver;

/// Decisions that were not carried out, by why.
pub type Errors = Family<ByReason, Counter>;

/// With the reasons that there are, so that rates begin at nothing.
pub fn errors() -> Errors {
    let errors = Errors::default();
    for failure in [Failure::Outdated, Failure::Later(String::new())] {
        errors.get_or_create_owned(&ByReason { reason: failure.reason() });
    }
    errors
}

/// What a controller counts.
pub trait ControllerCounts {
    fn queue(&self) -> &QueueCounts;

    /// Decisions that were not carried out.
    fn errors(&self) -> &Errors;

    /// What there is, as opposed to what has happened, is not known any more.
    fn forget(&mut self, now: Timestamp);
}

/// The observer of a run; what there is is forgotten with it.
pub struct Counting<C: ControllerCounts> {
    pub counts: Arc<Mutex<C>>,
    pub clock: Clock,
    /// Called when the watches have told what there is.
    pub synced: Box<dyn Fn() + Send>,
}

impl<C: ControllerCounts> Drop for Counting<C> {
    fn drop(&mut self) {
        self.counts.lock().forget(self.clock.now());
    }
}

impl<C: ControllerCounts + Send> QueueObserver for Counting<C> {
    fn synced(&mut self) {
        (self.synced)();
    }

    fn queue_added(&mut self) {
        self.counts.lock().queue().added();
    }

    fn queue_taken(&mut self, waited: SignedDuration) {
        self.counts.lock().queue().taken(waited, self.clock.now());
    }

    fn queue_done(&mut self, worked: SignedDuration) {
        self.counts.lock().queue().done(worked, self.clock.now());
    }

    fn queue_retried(&mut self) {
        self.counts.lock().queue().retried();
    }

    fn failed(&mut self, failure: &Failure) {
        self.counts.lock().errors().get_or_create(&ByReason { reason: failure.reason() }).inc();
    }

    fn queue_depth(&mut self, waiting: usize, _busy: usize) {
        self.counts.lock().queue().depth(waiting);
    }
}
