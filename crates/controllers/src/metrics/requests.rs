//! Metrics of eviction requests, by the names of the specification.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use usher_apply::Clock;
use usher_decide::eviction_request::Answer;
use usher_decide::snapshot::{Key, Request};
use usher_decide::waiting_on::WaitingOn;

use super::queue::{Errors, QueueMetrics, errors};
use super::tally::Tally;
use super::waits::Waits;

pub const QUEUE: &str = "evictionrequests";
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

const ACCEPTED: Evicted = Evicted { result: "accepted", reason: "Accepted" };

/// The registered series.
#[derive(Clone)]
pub struct Series {
    evictions: Family<Evicted, Counter>,
    active_interceptors: Family<ByInterceptor, Gauge>,
    active_requesters: Family<ByRequester, Gauge>,
    pod_interceptors: Family<ByCount, Gauge>,
    withdrawn: Counter,
    removal: Histogram,
    /// Written with every scrape.
    pub waits: Arc<Mutex<Waits<Key>>>,
    pub errors: Errors,
}

impl Series {
    pub fn new(registry: &mut Registry) -> Self {
        let series = Self {
            evictions: Family::default(),
            active_interceptors: Family::default(),
            active_requesters: Family::default(),
            pod_interceptors: Family::default(),
            withdrawn: Counter::default(),
            removal: Histogram::new(REMOVAL_SECONDS),
            waits: Arc::default(),
            errors: errors(),
        };
        registry.register(
            "evictionrequest_controller_evictions",
            "Calls of the eviction API, by what came of them",
            series.evictions.clone(),
        );
        registry.register(
            "evictionrequest_controller_active_interceptor",
            "Requests in which an interceptor has its turn, by its class; rare ones beyond 100 are called other",
            series.active_interceptors.clone(),
        );
        registry.register(
            "evictionrequest_controller_active_requester",
            "Requests that somebody wants, by requester; those beyond 100 are called other",
            series.active_requesters.clone(),
        );
        registry.register(
            "evictionrequest_controller_pod_interceptors",
            "Pods that are requested to leave, by how many interceptors they have",
            series.pod_interceptors.clone(),
        );
        registry.register(
            "usher_gateway_withdrawn",
            "Requests that callers of plain evictions stopped asking for, and from which they were taken off",
            series.withdrawn.clone(),
        );
        registry.register(
            "evictionrequest_controller_pod_removal_seconds",
            "Seconds from a request to the end of its pod",
            series.removal.clone(),
        );
        registry.register(
            "evictionrequest_controller_reconcile_errors",
            "Decisions on requests that were not carried out: outdated ones, and those that the server would not take",
            series.errors.clone(),
        );
        // It exists before anything happens, so that rates begin at zero.
        series.evictions.get_or_create_owned(&ACCEPTED);
        series
    }
}

/// What a run of the eviction request controller measures. What exists is forgotten when the run ends.
pub struct RequestMetrics {
    pub queue: QueueMetrics,
    series: Series,
    active_interceptors: Tally<ByInterceptor>,
    active_requesters: Tally<ByRequester>,
    clock: Clock,
}

impl RequestMetrics {
    pub fn new(queue: QueueMetrics, series: Series, clock: Clock) -> Self {
        let (interceptors, requesters) =
            (series.active_interceptors.clone(), series.active_requesters.clone());
        Self {
            queue,
            series,
            active_interceptors: Tally::new(interceptors, |interceptor| ByInterceptor { interceptor }),
            active_requesters: Tally::new(requesters, |requester| ByRequester { requester }),
            clock,
        }
    }

    /// The request was seen, changed or gone.
    pub fn request_changed(&mut self, before: Option<&Request>, after: Option<&Request>) {
        if let Some(before) = before {
            active_interceptor(before).into_iter().for_each(|class| self.active_interceptors.leave(class));
            before.requesters().for_each(|requester| self.active_requesters.leave(requester));
            self.series.pod_interceptors.get_or_create(&count_of_interceptors(before)).dec();
        }
        if let Some(after) = after {
            active_interceptor(after).into_iter().for_each(|class| self.active_interceptors.enter(class));
            after.requesters().for_each(|requester| self.active_requesters.enter(requester));
            self.series.pod_interceptors.get_or_create(&count_of_interceptors(after)).inc();
        }
    }

    /// What the request waits for now; `None` if it waits for nothing, or is gone.
    pub fn waits(&self, request: &Request, waiting_on: Option<&WaitingOn>, now: Timestamp) {
        self.series.waits.lock().set(&request.key, waiting_on.map(WaitingOn::reason), now);
    }

    /// The eviction API has answered.
    pub fn evicted(&self, answer: &Answer) {
        let labels = match answer {
            Answer::Accepted => ACCEPTED,
            Answer::Refused(refusal) => Evicted { result: "refused", reason: refusal.reason().as_str() },
        };
        self.series.evictions.get_or_create(&labels).inc();
    }

    /// A requester stopped sending plain evictions and was removed from its request.
    pub fn withdrawn(&self) {
        self.series.withdrawn.inc();
    }

    /// The pod of this request has left its node.
    pub fn pod_left(&self, request: &Request, now: Timestamp) {
        self.series.removal.observe(now.duration_since(request.created).as_secs_f64());
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        self.series.active_interceptors.clear();
        self.series.active_requesters.clear();
        self.series.pod_interceptors.clear();
        self.series.waits.lock().end(self.clock.now());
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
