//! Somebody who counts: metrics hear of everything here, and decide nothing.

use jiff::Timestamp;
use usher_decide::maintenance::waiting::MaintenanceWait;
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
    fn waits(&mut self, name: &str, waiting_on: Option<&MaintenanceWait>, now: Timestamp) {
        let _ = (name, waiting_on, now);
    }
}

impl Observer for Nobody {}
