//! The events of one resource, newest last, bounded by bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Compacted, Object};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug, Clone)]
pub struct LogEvent {
    pub kind: EventKind,
    pub object: Arc<Object>,
    /// The object before the change; tells whether it entered or left a selection.
    pub before: Option<Arc<Object>>,
}

impl LogEvent {
    fn bytes(&self) -> usize {
        self.object.text().len() + self.before.as_ref().map_or(0, |before| before.text().len())
    }
}

#[derive(Default)]
pub(super) struct Log {
    events: VecDeque<LogEvent>,
    bytes: usize,
    /// Events up to and including this revision may be gone.
    forgotten: u64,
}

impl Log {
    pub(crate) fn push(&mut self, event: LogEvent, max_bytes: usize) {
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.bytes > max_bytes
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.forgotten = oldest.object.revision;
        }
    }

    pub(crate) fn after(&self, revision: u64, limit: usize) -> Result<Vec<LogEvent>, Compacted> {
        if revision < self.forgotten {
            return Err(Compacted { oldest: self.forgotten });
        }
        let start = self.events.partition_point(|event| event.object.revision <= revision);
        Ok(self.events.range(start..).take(limit).cloned().collect())
    }

    pub(crate) fn forget_up_to(&mut self, revision: u64) {
        self.events.clear();
        self.bytes = 0;
        self.forgotten = revision;
    }
}
