//! Metrics of the controllers.
//!
//! [`Metrics`] holds all series of a process. Each run of a controller gets its own struct from it, such as [`RequestMetrics`]. When
//! the run ends and drops it, series of what exists now are reset: another leader counts that from then on. Counters of what has
//! happened stay.
//!
//! The specification speaks of metrics "per EvictionRequest and Pod". A label for each of 150,000 pods would be more
//! than any Prometheus can take, so they are by result, class and requester, and the last two are bounded: see
//! [`tally`]. Which request waits for what is in its status, its events and `usher explain`.

mod descheduler;
mod evict_policy;
mod interceptor;
mod maintenance;
mod queue;
mod requests;
pub mod tally;
pub mod text;
mod waits;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_decide::snapshot::Key;

use maintenance::ByCause;
use queue::Queues;
use waits::Waits;

pub use descheduler::DeschedulerMetrics;
pub use evict_policy::EvictPolicyMetrics;
pub use interceptor::InterceptorMetrics;
pub use maintenance::MaintenanceMetrics;
pub use queue::QueueMetrics;
pub use requests::RequestMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByReason {
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PlainEvictions {
    answer: &'static str,
    caller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByLease {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByKind {
    kind: String,
}

/// All metrics of this process. Cheap to clone. The default is for controllers that are not measured: no endpoint serves it.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    queues: Queues,
    requests: requests::Series,
    maintenances: maintenance::Series,
    descheduler: descheduler::Series,
    evict_policy: evict_policy::Series,
    interceptors: interceptor::Series,
    leads: Family<ByLease, Gauge>,
    plain_evictions: Family<PlainEvictions, Counter>,
    clock: Clock,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Clock::system())
    }
}

impl Metrics {
    pub fn new(clock: Clock) -> Self {
        let mut registry = Registry::default();
        let queues = Queues::new(&mut registry, clock.clone());
        for name in [requests::QUEUE, maintenance::QUEUE, descheduler::QUEUE, evict_policy::QUEUE] {
            queues.create(name);
        }
        let requests = requests::Series::new(&mut registry);
        let leads = Family::default();
        registry.register(
            "leader_election_master_status",
            "Whether this process is the leader, by the name of the lease",
            leads.clone(),
        );
        let plain_evictions = Family::default();
        registry.register(
            "usher_gateway_evictions",
            "Plain evictions that came to the gateway, by what it answered and the kind of caller",
            plain_evictions.clone(),
        );
        let maintenances = maintenance::Series::new(&mut registry);
        let descheduler = descheduler::Series::new(&mut registry);
        let evict_policy = evict_policy::Series::new(&mut registry);
        let interceptors = interceptor::Series::new(&mut registry);
        registry.register_collector(Box::new(AtRead {
            requests: requests.waits.clone(),
            maintenances: maintenances.waits.clone(),
            queues: queues.clone(),
            clock: clock.clone(),
        }));
        Self {
            registry: Arc::new(registry),
            queues,
            requests,
            maintenances,
            descheduler,
            evict_policy,
            interceptors,
            leads,
            plain_evictions,
            clock,
        }
    }

    /// For one run of the eviction request controller.
    pub fn requests(&self) -> RequestMetrics {
        let queue = self.queues.run(requests::QUEUE, &self.requests.errors);
        RequestMetrics::new(queue, self.requests.clone(), self.clock.clone())
    }

    /// For one run of the node maintenance controller.
    pub fn maintenances(&self) -> MaintenanceMetrics {
        let queue = self.queues.run(maintenance::QUEUE, &self.maintenances.errors);
        MaintenanceMetrics { queue, series: self.maintenances.clone(), clock: self.clock.clone() }
    }

    /// For one run of the descheduler.
    pub fn descheduler(&self) -> DeschedulerMetrics {
        let queue = self.queues.run(descheduler::QUEUE, &self.descheduler.errors);
        DeschedulerMetrics { queue, series: self.descheduler.clone() }
    }

    /// For one run of the Pod Evict Policy.
    pub fn evict_policy(&self) -> EvictPolicyMetrics {
        let queue = self.queues.run(evict_policy::QUEUE, &self.evict_policy.errors);
        EvictPolicyMetrics::new(queue, self.evict_policy.clone())
    }

    /// For one run of a bundled interceptor.
    pub fn interceptor(&self, which: BundledInterceptor) -> InterceptorMetrics {
        let queue = self.queues.run(which.class(), &self.interceptors.errors);
        InterceptorMetrics::new(queue, self.interceptors.clone(), which)
    }

    /// Whether this process leads.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.leads.get_or_create(&ByLease { name: lease.to_string() }).set(leads.into());
    }

    /// A plain eviction came to the gateway.
    pub fn plain_eviction(&self, answer: &'static str, caller: &'static str) {
        self.plain_evictions.get_or_create(&PlainEvictions { answer, caller }).inc();
    }

    /// What a scrape gets; see [`text::CONTENT_TYPE`].
    ///
    /// # Errors
    /// A metric could not be written.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut open_metrics = String::new();
        prometheus_client::encoding::text::encode(&mut open_metrics, &self.registry)?;
        Ok(text::classic(&open_metrics))
    }
}

/// What grows by itself is counted when it is read.
struct AtRead {
    requests: Arc<Mutex<Waits<Key>>>,
    maintenances: Arc<Mutex<Waits<Arc<str>>>>,
    queues: Queues,
    clock: Clock,
}

impl std::fmt::Debug for AtRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtRead")
    }
}

impl prometheus_client::collector::Collector for AtRead {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::DescriptorEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        use prometheus_client::encoding::EncodeMetric as _;
        use prometheus_client::metrics::MetricType;
        let now = self.clock.now();
        let waits: Vec<_> = self.requests.lock().read(now).collect();
        let mut waiting = encoder.encode_descriptor(
            "evictionrequest_controller_waiting",
            "Requests that wait, by what for",
            None,
            MetricType::Gauge,
        )?;
        for (reason, requests, _) in &waits {
            let labels = ByReason { reason };
            ConstGauge::new(i64::from(*requests)).encode(waiting.encode_family(&labels)?)?;
        }
        let mut blocked = encoder.encode_descriptor(
            "evictionrequest_controller_blocked_seconds",
            "Seconds that requests have waited, summed over them, by what for",
            None,
            MetricType::Counter,
        )?;
        for (reason, _, seconds) in &waits {
            let labels = ByReason { reason };
            ConstCounter::new(*seconds).encode(blocked.encode_family(&labels)?)?;
        }
        let waits: Vec<_> = self.maintenances.lock().read(now).collect();
        let mut waiting = encoder.encode_descriptor(
            "nodemaintenance_controller_waiting",
            "Maintenances that cannot go on yet, by why",
            None,
            MetricType::Gauge,
        )?;
        for (cause, maintenances, _) in &waits {
            ConstGauge::new(i64::from(*maintenances)).encode(waiting.encode_family(&ByCause { cause })?)?;
        }
        let mut blocked = encoder.encode_descriptor(
            "nodemaintenance_controller_blocked_seconds",
            "Seconds that maintenances could not go on, summed over them, by why",
            None,
            MetricType::Counter,
        )?;
        for (cause, _, seconds) in &waits {
            ConstCounter::new(*seconds).encode(blocked.encode_family(&ByCause { cause })?)?;
        }
        let mut unreadable = encoder.encode_descriptor(
            "usher_unreadable_objects",
            "Objects that are left out because somebody wrote something into them that cannot be read, by kind",
            None,
            MetricType::Gauge,
        )?;
        for (kind, objects) in crate::watch::unreadable::counts() {
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            ConstGauge::new(objects).encode(unreadable.encode_family(&ByKind { kind })?)?;
        }
        let mut unfinished = encoder.encode_descriptor(
            "workqueue_unfinished_work_seconds",
            "Seconds of all work that is under way; it grows where something hangs",
            None,
            MetricType::Gauge,
        )?;
        for (queue, seconds) in self.queues.unfinished() {
            ConstGauge::new(seconds).encode(unfinished.encode_family(&queue)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
