//! What a bundled interceptor counts: its queue, and what was not carried out. Turns are counted with the requests.

use jiff::Timestamp;

use super::counting::{Counted, Errors};
use super::queue::QueueCounts;

pub struct Counts {
    pub errors: Errors,
    pub queue: QueueCounts,
}

impl Counted for Counts {
    fn queue(&mut self) -> &mut QueueCounts {
        &mut self.queue
    }

    fn errors(&self) -> &Errors {
        &self.errors
    }

    fn forget(&mut self, _: Timestamp) {
        self.queue.end();
    }
}
