//! Pods that come to a node which others of their workload were asked to leave: their template names the node, or tolerates that it is
//! cordoned. Each is asked later than the one before, or new ones would come and go without end.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::later;
use crate::snapshot::Pod;

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(2);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// So long after the last one has left, nobody remembers.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);
/// What is forgotten is removed when there is more than this, and twice as much as was left the last time.
const MANY: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct CameBack {
    /// By the UID of the workload, and node.
    left: HashMap<(Arc<str>, Arc<str>), Left>,
    /// So many were left when those were removed that are forgotten.
    kept: usize,
}

/// Pods of one workload that have left one node.
#[derive(Debug)]
struct Left {
    /// When the last one was asked to, by the server's clock, as are the times at which pods were created. They have whole seconds: one of
    /// the same second may have been there before, and counts as if it had.
    asked: Timestamp,
    at: Timestamp,
    /// How often some of them had come back.
    times: u32,
}

impl CameBack {
    /// A pod of the workload leaves its node, which it was asked to at this time. One that was there when the node began to be drained has
    /// not come back, whenever others were asked before.
    pub fn has_left(
        &mut self,
        workload: Arc<str>,
        pod: &Pod,
        asked: Timestamp,
        is_new: bool,
        now: Timestamp,
    ) {
        let entry = self.left.entry((workload, pod.node.clone()));
        let left = entry.or_insert(Left { asked, at: now, times: 0 });
        if !is_new {
            left.times = 0;
        } else if pod.created > left.asked {
            left.times = left.times.saturating_add(1);
        }
        // Of those that came back together, the first counts, and the others are not newer than its request.
        left.asked = left.asked.max(asked);
        left.at = now;
        if self.left.len() >= MANY.max(self.kept.saturating_mul(2)) {
            self.left.retain(|_, left| now < later(left.at, FORGOTTEN));
            self.kept = self.left.len();
        }
    }

    /// Until when a pod that came back waits.
    pub fn held_until(&self, workload: &Arc<str>, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let left = self.left.get(&(workload.clone(), pod.node.clone()))?;
        let pause = FIRST_PAUSE * 2_i32.pow(left.times.min(10));
        let until = later(left.at, pause.min(LONGEST_PAUSE));
        (pod.created > left.asked && now < until).then_some(until)
    }
}
