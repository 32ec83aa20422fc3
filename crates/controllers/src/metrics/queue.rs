//! What the loop of every controller measures: its queue, by the names that other controllers use, and failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use usher_apply::{Clock, Failure};

use super::ByReason;

/// Decisions that were not carried out, by reason.
pub type Errors = Family<ByReason, Counter>;

/// With the known reasons, so that rates begin at zero.
pub fn errors() -> Errors {
    let errors = Errors::default();
    for failure in [Failure::Outdated, Failure::Later(String::new())] {
        errors.get_or_create_owned(&ByReason { reason: failure.reason() });
    }
    errors
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct ByName {
    name: &'static str,
}

/// The counts of all queues.
#[derive(Clone)]
pub struct Queues {
    depth: Family<ByName, Gauge>,
    adds: Family<ByName, Counter>,
    retries: Family<ByName, Counter>,
    queued: Family<ByName, Histogram, fn() -> Histogram>,
    worked: Family<ByName, Histogram, fn() -> Histogram>,
    /// Of every queue, also of one that is named by a run after this.
    under_way: Arc<Mutex<BTreeMap<ByName, UnderWay>>>,
    clock: Clock,
}

#[derive(Default)]
struct UnderWay {
    busy: u32,
    /// The sum of the times at which it began.
    begun: f64,
}

impl UnderWay {
    /// It grows without end where something hangs.
    fn seconds(&self, now: Timestamp) -> f64 {
        (f64::from(self.busy) * seconds(now) - self.begun).max(0.0)
    }
}

fn short_times() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 4.0, 12))
}

fn seconds(at: Timestamp) -> f64 {
    at.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64()
}

impl Queues {
    pub fn new(registry: &mut Registry, clock: Clock) -> Self {
        let queues = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued: Family::new_with_constructor(short_times),
            worked: Family::new_with_constructor(short_times),
            under_way: Arc::default(),
            clock,
        };
        registry.register("workqueue_depth", "Items that wait in the queue", queues.depth.clone());
        registry.register("workqueue_adds", "Items added to the queue", queues.adds.clone());
        registry.register(
            "workqueue_retries",
            "Items added to the queue again after a failure",
            queues.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Seconds that an item waited in the queue",
            queues.queued.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Seconds that reconciling an item took",
            queues.worked.clone(),
        );
        queues
    }

    /// Creates the series of a queue, so that they exist before anything happens and rates begin at zero.
    pub fn create(&self, name: &'static str) {
        let name = ByName { name };
        self.depth.get_or_create_owned(&name);
        self.adds.get_or_create_owned(&name);
        self.retries.get_or_create_owned(&name);
        self.queued.get_or_create_owned(&name);
        self.worked.get_or_create_owned(&name);
        self.under_way.lock().entry(name).or_default();
    }

    /// For one run of a controller.
    pub fn run(&self, name: &'static str, errors: &Errors) -> QueueMetrics {
        self.create(name);
        QueueMetrics { name: ByName { name }, queues: self.clone(), errors: errors.clone() }
    }

    /// The seconds of all work that is under way, by queue.
    pub fn unfinished(&self) -> Vec<(ByName, f64)> {
        let now = self.clock.now();
        self.under_way.lock().iter().map(|(name, work)| (name.clone(), work.seconds(now))).collect()
    }
}

/// What the loop measures in one run of a controller. The queue counts as empty when the run ends.
pub struct QueueMetrics {
    name: ByName,
    queues: Queues,
    errors: Errors,
}

impl QueueMetrics {
    pub fn added(&self) {
        self.queues.adds.get_or_create(&self.name).inc();
    }

    pub fn taken(&self, waited: SignedDuration) {
        self.queues.queued.get_or_create(&self.name).observe(waited.as_secs_f64());
        let mut queues = self.queues.under_way.lock();
        let work = queues.entry(self.name.clone()).or_default();
        work.busy += 1;
        work.begun += seconds(self.queues.clock.now());
    }

    pub fn done(&self, worked: SignedDuration) {
        self.queues.worked.get_or_create(&self.name).observe(worked.as_secs_f64());
        let mut queues = self.queues.under_way.lock();
        let work = queues.entry(self.name.clone()).or_default();
        work.busy = work.busy.saturating_sub(1);
        let begun = seconds(self.queues.clock.now()) - worked.as_secs_f64();
        // With nothing under way the sum is zero; that also removes rounding errors.
        work.begun = if work.busy == 0 { 0.0 } else { work.begun - begun };
    }

    pub fn retried(&self) {
        self.queues.retries.get_or_create(&self.name).inc();
    }

    /// A decision was not carried out.
    pub fn failed(&self, failure: &Failure) {
        self.errors.get_or_create(&ByReason { reason: failure.reason() }).inc();
    }

    /// Number of items that wait.
    pub fn depth(&self, waiting: usize) {
        self.queues.depth.get_or_create(&self.name).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

impl Drop for QueueMetrics {
    fn drop(&mut self) {
        self.depth(0);
        self.queues.under_way.lock().insert(self.name.clone(), UnderWay::default());
    }
}
