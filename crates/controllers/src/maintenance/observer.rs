//! Somebody who counts: metrics hear of everything here, and decide nothing.

use jiff::Timestamp;
use usher_decide::maintenance::decision::Cause;
use usher_decide::snapshot::Maintenance;

use crate::observer::{Nobody, QueueObserver};

/// Hears what happens. All methods may be left out.
pub trait Observer: QueueObserver {
    /// The maintenance was seen, changed or gone. Its stages with their times, and its nodes and pods, are in its
    /// status.
    fn maintenance_changed(
        &mut self,
        before: Option<&Maintenance>,
        after: Option<&Maintenance>,
        now: Timestamp,
    ) {
        let _ = (before, after, now);
    }

    /// What the maintenance waits for now; `None` if it waits for nothing, or is gone.
    fn waits(&mut self, name: &str, cause: Option<Cause>, now: Timestamp) {
        let _ = (name, cause, now);
    }
}

impl Observer for Nobody {}
