//! What a bundled interceptor counts: its queue, what was not carried out, and what workloads wait for. Turns are counted with the requests.

use std::collections::HashMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use usher_api::workloads::BundledInterceptor;
use usher_decide::interceptors::Item;

use super::queue::{Errors, QueueMetrics, errors};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByWait {
    interceptor: &'static str,
    reason: &'static str,
}

/// The registered series, which all bundled interceptors share.
#[derive(Clone)]
pub struct Series {
    waiting: Family<ByWait, Gauge>,
    pub errors: Errors,
}

impl Series {
    pub fn new(registry: &mut Registry) -> Self {
        let series = Self { waiting: Family::default(), errors: errors() };
        registry.register(
            "bundled_interceptor_errors",
            "Decisions of bundled interceptors that were not carried out, by why",
            series.errors.clone(),
        );
        registry.register(
            "bundled_interceptor_waiting",
            "Workloads and pods that a bundled interceptor waits with, by what for, such as Unschedulable",
            series.waiting.clone(),
        );
        series
    }
}

/// What a run of a bundled interceptor measures. What exists is forgotten when the run ends.
pub struct InterceptorMetrics {
    pub queue: QueueMetrics,
    series: Series,
    class: &'static str,
    /// What each item waits for.
    waits: HashMap<Item, &'static str>,
}

impl InterceptorMetrics {
    pub fn new(queue: QueueMetrics, series: Series, which: BundledInterceptor) -> Self {
        Self { queue, series, class: which.class(), waits: HashMap::new() }
    }

    /// What the item waits for from now on.
    pub fn waits(&mut self, item: &Item, reason: Option<&'static str>) {
        let before = match reason {
            Some(reason) => self.waits.insert(item.clone(), reason),
            None => self.waits.remove(item),
        };
        if before != reason {
            before.map(|before| self.gauge(before).dec());
            reason.map(|reason| self.gauge(reason).inc());
        }
    }

    fn gauge(&self, reason: &'static str) -> Gauge {
        self.series.waiting.get_or_create_owned(&ByWait { interceptor: self.class, reason })
    }
}

impl Drop for InterceptorMetrics {
    fn drop(&mut self) {
        for reason in std::mem::take(&mut self.waits).into_values() {
            self.gauge(reason).dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_apply::Clock;
    use usher_decide::snapshot::Key;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn workloads_that_wait_are_counted_by_what_for() {
        let metrics = Metrics::new(Clock::system());
        let mut run = metrics.interceptor(BundledInterceptor::Deployment);
        let line = |reason: &str, count: usize| {
            format!(
                "bundled_interceptor_waiting{{interceptor=\"deployment.apps.k8s.io\",reason=\"{reason}\"}} {count}\n"
            )
        };
        let item = |name: &str| Item::Workload(Key::new("shop", name));
        run.waits(&item("a"), Some("Unschedulable"));
        run.waits(&item("b"), Some("Unschedulable"));
        run.waits(&item("b"), Some("Unschedulable"));
        run.waits(&item("b"), Some("NotReady"));
        assert!(metrics.text().unwrap().contains(&line("Unschedulable", 1)));
        assert!(metrics.text().unwrap().contains(&line("NotReady", 1)));
        run.waits(&item("b"), None);
        drop(run);
        let text = metrics.text().unwrap();
        assert!(text.contains(&line("Unschedulable", 0)) && text.contains(&line("NotReady", 0)), "{text}");
    }
}
