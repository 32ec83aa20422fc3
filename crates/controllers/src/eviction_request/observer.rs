//! Somebody who counts: metrics hear of everything here, and decide nothing.

use jiff::{SignedDuration, Timestamp};
use usher_apply::Failure;
use usher_decide::eviction_request::Answer;
use usher_decide::snapshot::Request;
use usher_decide::waiting_on::WaitingOn;

/// Hears what happens. All methods may be left out.
pub trait Observer: Send {
    /// The request was seen, changed or gone.
    fn request_changed(&mut self, before: Option<&Request>, after: Option<&Request>) {
        let _ = (before, after);
    }

    /// What the request waits for now; `None` if it waits for nothing, or is gone.
    fn waits(&mut self, request: &Request, waiting_on: Option<&WaitingOn>, now: Timestamp) {
        let _ = (request, waiting_on, now);
    }

    /// An eviction was tried.
    fn evicted(&mut self, request: &Request, answer: &Answer) {
        let _ = (request, answer);
    }

    /// The pod of this request has left its node.
    fn pod_left(&mut self, request: &Request, now: Timestamp) {
        let _ = (request, now);
    }

    fn failed(&mut self, failure: &Failure) {
        let _ = failure;
    }

    fn queue_added(&mut self) {}

    fn queue_taken(&mut self, waited: SignedDuration) {
        let _ = waited;
    }

    fn queue_done(&mut self, worked: SignedDuration) {
        let _ = worked;
    }

    fn queue_retried(&mut self) {}

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

impl Observer for Nobody {}
