//! Queues of controllers, by the names under which others count theirs.

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
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
        };
        registry.register("workqueue_depth", "Objects that wait to be looked at", queues.depth.clone());
        registry.register("workqueue_adds", "Objects that were to be looked at", queues.adds.clone());
        registry.register(
            "workqueue_retries",
            "Objects that are looked at again after a failure",
            queues.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Seconds that objects waited to be looked at",
            queues.queued.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Seconds that the work on an object took",
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
        QueueCounts { name, all: self.clone(), busy: 0, begun: 0.0 }
    }
}

/// The counts of one queue.
pub struct QueueCounts {
    pub name: ByName,
    all: Queues,
    busy: u32,
    /// The sum of the times at which what is under way began.
    begun: f64,
}

impl QueueCounts {
    pub fn added(&self) {
        self.all.adds.get_or_create(&self.name).inc();
    }

    pub fn taken(&mut self, waited: SignedDuration, now: Timestamp) {
        self.all.queued.get_or_create(&self.name).observe(waited.as_secs_f64());
        self.busy += 1;
        self.begun += seconds(now);
    }

    pub fn done(&mut self, worked: SignedDuration, now: Timestamp) {
        self.all.worked.get_or_create(&self.name).observe(worked.as_secs_f64());
        self.busy = self.busy.saturating_sub(1);
        // With nothing under way the sum is nothing; that also ends what rounding has left.
        self.begun = if self.busy == 0 { 0.0 } else { self.begun - (seconds(now) - worked.as_secs_f64()) };
    }

    pub fn retried(&self) {
        self.all.retries.get_or_create(&self.name).inc();
    }

    pub fn depth(&self, waiting: usize) {
        self.all.depth.get_or_create(&self.name).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// The seconds of all work that is under way. It grows without end where something hangs.
    pub fn unfinished(&self, now: Timestamp) -> f64 {
        (f64::from(self.busy) * seconds(now) - self.begun).max(0.0)
    }

    /// Its run is over; what was counted stays.
    pub fn end(&mut self) {
        self.depth(0);
        (self.busy, self.begun) = (0, 0.0);
    }
}
