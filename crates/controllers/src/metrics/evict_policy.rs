//! What the Pod Evict Policy counts: pods that are wanted gone, by what is waited for, and those whose workloads did not come to it.

use std::collections::HashMap;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use usher_decide::evict_policy::Wait;
use usher_decide::snapshot::Key;

use super::ByReason;
use super::counting::{ControllerCounts, Counting, Errors, errors};
use super::queue::QueueCounts;
use crate::evict_policy::Observer;

pub struct Counts {
    wanted: Family<ByReason, Gauge>,
    waits: HashMap<Key, &'static str>,
    fell_back: Counter,
    errors: Errors,
    queue: QueueCounts,
}

impl Counts {
    pub fn new(registry: &mut Registry, queue: QueueCounts) -> Self {
        let counts = Self {
            wanted: Family::default(),
            waits: HashMap::new(),
            fell_back: Counter::default(),
            errors: errors(),
            queue,
        };
        registry.register(
            "usher_evict_policy_wanted",
            "Pods that Kubernetes wants to evict and that their workloads take over, by who is waited for",
            counts.wanted.clone(),
        );
        registry.register(
            "usher_evict_policy_fell_back",
            "Pods of tainted nodes that were deleted because their workloads did not end them in time",
            counts.fell_back.clone(),
        );
        registry.register(
            "usher_evict_policy_errors",
            "Decisions on such pods that were not carried out, by why",
            counts.errors.clone(),
        );
        counts
    }

    fn gauge(&self, reason: &'static str) -> Gauge {
        self.wanted.get_or_create_owned(&ByReason { reason })
    }
}

impl ControllerCounts for Counts {
    fn queue(&self) -> &QueueCounts {
        &self.queue
    }

    fn errors(&self) -> &Errors {
        &self.errors
    }

    fn forget(&mut self, _: Timestamp) {
        self.queue.end();
        for reason in std::mem::take(&mut self.waits).into_values() {
            self.gauge(reason).dec();
        }
    }
}

impl Observer for Counting<Counts> {
    fn waits(&mut self, pod: &Key, wait: Option<Wait>) {
        let mut counts = self.counts.lock();
        let after = wait.map(Wait::reason);
        let before = match after {
            Some(reason) => counts.waits.insert(pod.clone(), reason),
            None => counts.waits.remove(pod),
        };
        if before != after {
            before.map(|before| counts.gauge(before).dec());
            after.map(|after| counts.gauge(after).inc());
        }
    }

    fn fell_back(&mut self) {
        self.counts.lock().fell_back.inc();
    }
}

#[cfg(test)]
mod tests {
    use usher_apply::Clock;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn pods_that_are_wanted_gone_and_those_that_fell_back_are_counted() {
        let metrics = Metrics::new(Clock::system());
        let mut observer = metrics.evict_policy_observer(|| {});
        let has = |line: &str| {
            let text = metrics.text().unwrap();
            assert!(text.contains(line), "{line}: {text}");
        };
        has("usher_evict_policy_fell_back_total 0");
        let pod = Key::new("shop", "web");
        observer.waits(&pod, Some(Wait::Workload { until: Timestamp::MAX }));
        has("usher_evict_policy_wanted{reason=\"Workload\"} 1");
        observer.waits(&pod, Some(Wait::Interceptor));
        observer.fell_back();
        has("usher_evict_policy_wanted{reason=\"Workload\"} 0");
        has("usher_evict_policy_wanted{reason=\"Interceptor\"} 1");
        drop(observer);
        has("usher_evict_policy_wanted{reason=\"Interceptor\"} 0");
        has("usher_evict_policy_fell_back_total 1");
    }
}
