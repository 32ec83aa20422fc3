//! Somebody who counts: metrics hear of everything here, and decide nothing.

use jiff::Timestamp;
use usher_decide::eviction_request::Answer;
use usher_decide::snapshot::Request;
use usher_decide::waiting_on::WaitingOn;

use crate::observer::{Nobody, QueueObserver};

/// Hears what happens. All methods may be left out.
pub trait Observer: QueueObserver {
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

    /// Somebody who asked by plain evictions asks no more, and was taken off.
    fn withdrawn(&mut self, request: &Request) {
        let _ = request;
    }

    /// The pod of this request has left its node.
    fn pod_left(&mut self, request: &Request, now: Timestamp) {
        let _ = (request, now);
    }
}

impl Observer for Nobody {}
