//! Queues of controllers, by the names under which others count theirs.

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
    pub fn new(registry: &mut Registry) -> Self {
        let queues = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued: Family::new_with_constructor(short_times),
            worked: Family::new_with_constructor(short_times),
            under_way: Arc::default(),
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

    pub fn named(&self, name: &'static str) -> QueueCounts {
        let name = ByName { name };
        // They exist before anything happens, so that rates begin at nothing.
        self.depth.get_or_create_owned(&name);
        self.adds.get_or_create_owned(&name);
        self.retries.get_or_create_owned(&name);
        self.queued.get_or_create_owned(&name);
        self.worked.get_or_create_owned(&name);
        self.under_way.lock().entry(name.clone()).or_default();
        QueueCounts { name, all: self.clone() }
    }

    /// The seconds of all work that is under way, by queue.
    pub fn unfinished(&self, now: Timestamp) -> Vec<(ByName, f64)> {
        self.under_way.lock().iter().map(|(name, work)| (name.clone(), work.seconds(now))).collect()
    }
}

/// The counts of one queue.
pub struct QueueCounts {
    name: ByName,
    all: Queues,
}

impl QueueCounts {
    pub fn added(&self) {
        self.all.adds.get_or_create(&self.name).inc();
    }

    pub fn taken(&self, waited: SignedDuration, now: Timestamp) {
        self.all.queued.get_or_create(&self.name).observe(waited.as_secs_f64());
        let mut queues = self.all.under_way.lock();
        let work = queues.entry(self.name.clone()).or_default();
        work.busy += 1;
        work.begun += seconds(now);
    }

    pub fn done(&self, worked: SignedDuration, now: Timestamp) {
        self.all.worked.get_or_create(&self.name).observe(worked.as_secs_f64());
        let mut queues = self.all.under_way.lock();
        let work = queues.entry(self.name.clone()).or_default();
        work.busy = work.busy.saturating_sub(1);
        // With nothing under way the sum is nothing; that also ends what rounding has left.
        work.begun = if work.busy == 0 { 0.0 } else { work.begun - (seconds(now) - worked.as_secs_f64()) };
    }

    pub fn retried(&self) {
        self.all.retries.get_or_create(&self.name).inc();
    }

    pub fn depth(&self, waiting: usize) {
        self.all.depth.get_or_create(&self.name).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Its run is over; what was counted stays.
    pub fn end(&self) {
        self.depth(0);
        self.all.under_way.lock().insert(self.name.clone(), UnderWay::default());
    }
}
