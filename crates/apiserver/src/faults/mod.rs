//! Faults at the API boundary, on demand: requests that are refused, lost, late or answered from the past, watches that
//! end or fall silent, webhooks that cannot be reached.
//!
//! Rules are data ([`Rule`]): who asks for what, when, and what goes wrong then. Deciding is pure (`Rules::decide`);
//! a [`ClientService`] carries the decision out for one named client. Services that no client name was given to see no
//! faults, so tests judge the cluster by them. All chance comes from the cluster's seed, in a stream of its own: the
//! same seed and the same requests give the same faults.

mod broken_watch;
mod rule;
mod service;
mod stale;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use rule::Asked;
pub use rule::{Fault, Matcher, Outage, Refusal, Rule, When};
pub use service::{ClientService, NoAnswer};

use crate::clock::Clock;
use rule::Rules;

/// Keeps the stream of faults apart from that of names and uids.
const STREAM: u64 = 0x0066_6175_6c74_7321;

/// The faults of one cluster. Clones share them.
#[derive(Clone)]
pub struct Faults {
    /// Nothing can go wrong now; asked for each request, so it must be cheap.
    quiet: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    book: Arc<Mutex<Book>>,
}

struct Book {
    rules: Rules,
    random: fastrand::Rng,
    trace: Option<UnboundedSender<String>>,
}

impl Faults {
    pub(crate) fn new(clock: Arc<dyn Clock>, seed: Option<u64>) -> Self {
        let random = seed.map_or_else(fastrand::Rng::new, |seed| fastrand::Rng::with_seed(seed ^ STREAM));
        let book = Book { rules: Rules::default(), random, trace: None };
        Self { quiet: Arc::new(AtomicBool::new(true)), clock, book: Arc::new(Mutex::new(book)) }
    }

    /// From now on these rules hold, and no others. A watch that is open already keeps to the rules it was opened
    /// under, as far as they still hold.
    pub fn set(&self, rules: Vec<Rule>) {
        self.quiet.store(rules.is_empty(), Ordering::Release);
        self.book.lock().rules = Rules::new(rules);
    }

    /// Nothing goes wrong any more, except what has begun already.
    pub fn stop(&self) {
        self.set(Vec::new());
    }

    /// Gets a line for each fault that happens.
    pub fn trace_to(&self, trace: UnboundedSender<String>) {
        self.book.lock().trace = Some(trace);
    }

    /// A number below `bound`, from the stream of faults: for schedules that are part of them.
    pub fn random(&self, bound: u64) -> u64 {
        self.book.lock().random.u64(0..bound.max(1))
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire)
    }

    /// What goes wrong with a request, if anything does.
    pub(crate) fn strike(&self, asked: &Asked<'_>) -> Option<Fault> {
        if self.is_quiet() {
            return None;
        }
        let now = self.clock.now();
        let book = &mut *self.book.lock();
        let fault = book.rules.decide(asked, now, &mut book.random)?;
        if let Some(trace) = &book.trace
            && trace.send(format!("{now} fault {asked}: {fault}")).is_err()
        {
            tracing::debug!("nobody reads the trace any more");
        }
        Some(fault)
    }

    /// When an open watch has to ask again whether something goes wrong with it.
    pub(crate) fn next_window(&self, asked: &Asked<'_>) -> Option<Timestamp> {
        self.book.lock().rules.next_window(asked, self.clock.now())
    }
}
