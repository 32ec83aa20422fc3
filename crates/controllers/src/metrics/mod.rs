//! Metrics of the controllers; those of eviction requests are here, by the names of the specification, those of
//! maintenances in [`maintenance`].
//!
//! The specification speaks of metrics "per EvictionRequest and Pod". A label for each of 150,000 pods would be more
//! than any Prometheus can take, so they are by result, class and requester, and the last two are bounded: see
//! [`tally`]. Which request waits for what is in its status, its events and `usher explain`.

mod counting;
mod descheduler;
mod evict_policy;
mod interceptor;
mod maintenance;
mod observers;
mod queue;
pub mod tally;
pub mod text;
mod waits;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use usher_apply::Clock;
use usher_decide::eviction_request::Answer;
use usher_decide::snapshot::{Key, Request};
use usher_decide::waiting_on::WaitingOn;

use crate::eviction_request::Observer;
use counting::{ControllerCounts, Counting, Errors};
use maintenance::ByCause;
use queue::{QueueCounts, Queues};
use tally::Tally;
use waits::Waits;

/// Pods with more interceptors than this are counted together.
const MOST_INTERCEPTORS: usize = 10;
/// From a second to a day: interceptors may take hours.
const REMOVAL_SECONDS: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Evicted {
    result: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByInterceptor {
    interceptor: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByRequester {
    requester: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCount {
    interceptors: String,
}

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

/// All metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    counts: Arc<Mutex<Counts>>,
    maintenances: Arc<Mutex<maintenance::Counts>>,
    descheduler: Arc<Mutex<descheduler::Counts>>,
    evict_policy: Arc<Mutex<evict_policy::Counts>>,
    queues: Queues,
    interceptor_errors: Errors,
    interceptors_waiting: Family<interceptor::ByWait, Gauge>,
    leads: Family<ByLease, Gauge>,
    plain_evictions: Family<PlainEvictions, Counter>,
    clock: Clock,
}

struct Counts {
    evictions: Family<Evicted, Counter>,
    active_interceptors: Tally<ByInterceptor>,
    active_requesters: Tally<ByRequester>,
    pod_interceptors: Family<ByCount, Gauge>,
    withdrawn: Counter,
    removal: Histogram,
    waits: Waits<Key>,
    errors: Errors,
    queue: QueueCounts,
}

impl Metrics {
    pub fn new(clock: Clock) -> Self {
        let mut registry = Registry::default();
        let queues = Queues::new(&mut registry);
        let counts = Counts {
            evictions: Family::default(),
            active_interceptors: Tally::new(|interceptor| ByInterceptor { interceptor }),
            active_requesters: Tally::new(|requester| ByRequester { requester }),
            pod_interceptors: Family::default(),
            withdrawn: Counter::default(),
            removal: Histogram::new(REMOVAL_SECONDS),
            waits: Waits::default(),
            errors: counting::errors(),
            queue: queues.named("evictionrequests"),
        };
        let leads = Family::default();
        counts.register(&mut registry);
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
        let maintenances = maintenance::Counts::new(&mut registry, queues.named("nodemaintenances"));
        let descheduler = descheduler::Counts::new(&mut registry, queues.named("descheduler"));
        let evict_policy = evict_policy::Counts::new(&mut registry, queues.named("evictpolicy"));
        let interceptor_errors = counting::errors();
        registry.register(
            "bundled_interceptor_errors",
            "Decisions of bundled interceptors that were not carried out, by why",
            interceptor_errors.clone(),
        );
        let interceptors_waiting = Family::<interceptor::ByWait, Gauge>::default();
        registry.register(
            "bundled_interceptor_waiting",
            "Workloads and pods that a bundled interceptor waits with, by what for, such as Unschedulable",
            interceptors_waiting.clone(),
        );
        let (counts, maintenances) = (Arc::new(Mutex::new(counts)), Arc::new(Mutex::new(maintenances)));
        registry.register_collector(Box::new(AtRead {
            counts: counts.clone(),
            maintenances: maintenances.clone(),
            queues: queues.clone(),
            clock: clock.clone(),
        }));
        Self {
            registry: Arc::new(registry),
            counts,
            maintenances,
            descheduler: Arc::new(Mutex::new(descheduler)),
            evict_policy: Arc::new(Mutex::new(evict_policy)),
            queues,
            interceptor_errors,
            interceptors_waiting,
            leads,
            plain_evictions,
            clock,
        }
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

impl Counts {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "evictionrequest_controller_evictions",
            "Calls of the eviction API, by what came of them",
            self.evictions.clone(),
        );
        registry.register(
            "evictionrequest_controller_active_interceptor",
            "Requests in which an interceptor has its turn, by its class; rare ones beyond 100 are called other",
            self.active_interceptors.gauges(),
        );
        registry.register(
            "evictionrequest_controller_active_requester",
            "Requests that somebody wants, by requester; those beyond 100 are called other",
            self.active_requesters.gauges(),
        );
        registry.register(
            "evictionrequest_controller_pod_interceptors",
            "Pods that are requested to leave, by how many interceptors they have",
            self.pod_interceptors.clone(),
        );
        registry.register(
            "usher_gateway_withdrawn",
            "Requests that callers of plain evictions stopped asking for, and from which they were taken off",
            self.withdrawn.clone(),
        );
        registry.register(
            "evictionrequest_controller_pod_removal_seconds",
            "Seconds from a request to the end of its pod",
            self.removal.clone(),
        );
        registry.register(
            "evictionrequest_controller_reconcile_errors",
            "Decisions on requests that were not carried out: outdated ones, and those that the server would not take",
            self.errors.clone(),
        );
        // It exists before anything happens, so that rates begin at nothing.
        self.evictions.get_or_create_owned(&ACCEPTED);
    }
}

impl ControllerCounts for Counts {
    fn queue(&self) -> &QueueCounts {
        &self.queue
    }

    fn errors(&self) -> &Errors {
        &self.errors
    }

    fn forget(&mut self, now: Timestamp) {
        self.active_interceptors.clear();
        self.active_requesters.clear();
        self.pod_interceptors.clear();
        self.waits.end(now);
        self.queue.end();
    }
}

const ACCEPTED: Evicted = Evicted { result: "accepted", reason: "Accepted" };

/// What grows by itself is counted when it is read.
struct AtRead {
    counts: Arc<Mutex<Counts>>,
    maintenances: Arc<Mutex<maintenance::Counts>>,
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
        let (mut counts, mut maintenances) = (self.counts.lock(), self.maintenances.lock());
        let waits: Vec<_> = counts.waits.read(now).collect();
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
        let waits: Vec<_> = maintenances.waits.read(now).collect();
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
        for (queue, seconds) in self.queues.unfinished(now) {
            ConstGauge::new(seconds).encode(unfinished.encode_family(&queue)?)?;
        }
        Ok(())
    }
}

fn active_interceptor(request: &Request) -> Option<&str> {
    let status = &request.status;
    status.active_interceptor_class.as_deref().filter(|_| !status.active_interceptor_completed)
}

fn count_of_interceptors(request: &Request) -> ByCount {
    let count = request.interceptors.len();
    let interceptors =
        if count > MOST_INTERCEPTORS { format!("more than {MOST_INTERCEPTORS}") } else { count.to_string() };
    ByCount { interceptors }
}

impl Observer for Counting<Counts> {
    fn request_changed(&mut self, before: Option<&Request>, after: Option<&Request>) {
        let mut counts = self.counts.lock();
        if let Some(before) = before {
            active_interceptor(before).into_iter().for_each(|class| counts.active_interceptors.leave(class));
            before.requesters().for_each(|requester| counts.active_requesters.leave(requester));
            counts.pod_interceptors.get_or_create(&count_of_interceptors(before)).dec();
        }
        if let Some(after) = after {
            active_interceptor(after).into_iter().for_each(|class| counts.active_interceptors.enter(class));
            after.requesters().for_each(|requester| counts.active_requesters.enter(requester));
            counts.pod_interceptors.get_or_create(&count_of_interceptors(after)).inc();
        }
    }

    fn waits(&mut self, request: &Request, waiting_on: Option<&WaitingOn>, now: Timestamp) {
        self.counts.lock().waits.set(&request.key, waiting_on.map(WaitingOn::reason), now);
    }

    fn evicted(&mut self, _request: &Request, answer: &Answer) {
        let labels = match answer {
            Answer::Accepted => ACCEPTED,
            Answer::Refused(refusal) => Evicted { result: "refused", reason: refusal.reason().as_str() },
        };
        self.counts.lock().evictions.get_or_create(&labels).inc();
    }

    fn withdrawn(&mut self, _request: &Request) {
        self.counts.lock().withdrawn.inc();
    }

    fn pod_left(&mut self, request: &Request, now: Timestamp) {
        self.counts.lock().removal.observe(now.duration_since(request.created).as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
