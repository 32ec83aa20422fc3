//! What the Pod Evict Policy counts: pods that are wanted gone, by what is waited for, and those whose workloads did not come to it.

use std::collections::HashMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use usher_decide::evict_policy::Wait;
use usher_decide::snapshot::Key;

use super::ByReason;
use super::queue::{Errors, QueueMetrics, errors};

pub const QUEUE: &str = "evictpolicy";

/// The registered series.
#[derive(Clone)]
pub struct Series {
    wanted: Family<ByReason, Gauge>,
    fell_back: Counter,
    pub errors: Errors,
}

impl Series {
    pub fn new(registry: &mut Registry) -> Self {
        let series = Self { wanted: Family::default(), fell_back: Counter::default(), errors: errors() };
        registry.register(
            "usher_evict_policy_wanted",
            "Pods that Kubernetes wants to evict and that their workloads take over, by who is waited for",
            series.wanted.clone(),
        );
        registry.register(
            "usher_evict_policy_fell_back",
            "Pods of tainted nodes that were deleted because their workloads did not end them in time",
            series.fell_back.clone(),
        );
        registry.register(
            "usher_evict_policy_errors",
            "Decisions on such pods that were not carried out, by why",
            series.errors.clone(),
        );
        series
    }
}

/// What a run of the Pod Evict Policy measures. What exists is forgotten when the run ends.
pub struct EvictPolicyMetrics {
    pub queue: QueueMetrics,
    series: Series,
    /// What each pod waits for.
    waits: HashMap<Key, &'static str>,
}

impl EvictPolicyMetrics {
    pub fn new(queue: QueueMetrics, series: Series) -> Self {
        Self { queue, series, waits: HashMap::new() }
    }

    /// What the pod waits for from now on.
    pub fn waits(&mut self, pod: &Key, wait: Option<Wait>) {
        let after = wait.map(Wait::reason);
        let before = match after {
            Some(reason) => self.waits.insert(pod.clone(), reason),
            None => self.waits.remove(pod),
        };
        if before != after {
            before.map(|before| self.gauge(before).dec());
            after.map(|after| self.gauge(after).inc());
        }
    }

    /// The workload of a pod did not end it in time, and the pod is deleted.
    pub fn fell_back(&self) {
        self.series.fell_back.inc();
    }

    fn gauge(&self, reason: &'static str) -> Gauge {
        self.series.wanted.get_or_create_owned(&ByReason { reason })
    }
}

impl Drop for EvictPolicyMetrics {
    fn drop(&mut self) {
        for reason in std::mem::take(&mut self.waits).into_values() {
            self.gauge(reason).dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use usher_apply::Clock;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn pods_that_are_wanted_gone_and_those_that_fell_back_are_counted() {
        let metrics = Metrics::new(Clock::system());
        let mut run = metrics.evict_policy();
        let has = |line: &str| {
            let text = metrics.text().unwrap();
            assert!(text.contains(line), "{line}: {text}");
        };
        has("usher_evict_policy_fell_back_total 0");
        let pod = Key::new("shop", "web");
        run.waits(&pod, Some(Wait::Workload { until: Timestamp::MAX }));
        has("usher_evict_policy_wanted{reason=\"Workload\"} 1");
        run.waits(&pod, Some(Wait::Interceptor));
        run.fell_back();
        has("usher_evict_policy_wanted{reason=\"Workload\"} 0");
        has("usher_evict_policy_wanted{reason=\"Interceptor\"} 1");
        drop(run);
        has("usher_evict_policy_wanted{reason=\"Interceptor\"} 0");
        has("usher_evict_policy_fell_back_total 1");
    }
}
