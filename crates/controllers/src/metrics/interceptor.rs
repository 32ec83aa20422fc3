//! What a bundled interceptor counts: its queue, what was not carried out, and what workloads wait for. Turns are counted with the requests.

use std::collections::HashMap;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use usher_decide::interceptors::Item;

use super::counting::{ControllerCounts, Counting, Errors};
use super::queue::QueueCounts;
use crate::interceptors::Observer;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByWait {
    pub interceptor: &'static str,
    pub reason: &'static str,
}

pub struct Counts {
    pub class: &'static str,
    pub errors: Errors,
    pub queue: QueueCounts,
    pub waiting: Family<ByWait, Gauge>,
    /// What each of them waits for.
    pub waits: HashMap<Item, &'static str>,
}

impl Counts {
    fn gauge(&self, reason: &'static str) -> Gauge {
        self.waiting.get_or_create_owned(&ByWait { interceptor: self.class, reason })
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
    fn waits(&mut self, item: &Item, reason: Option<&'static str>) {
        let mut counts = self.counts.lock();
        let before = match reason {
            Some(reason) => counts.waits.insert(item.clone(), reason),
            None => counts.waits.remove(item),
        };
        if before != reason {
            before.map(|before| counts.gauge(before).dec());
            reason.map(|reason| counts.gauge(reason).inc());
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_api::workloads::BundledInterceptor;
    use usher_apply::Clock;
    use usher_decide::snapshot::Key;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn workloads_that_wait_are_counted_by_what_for() {
        let metrics = Metrics::new(Clock::system());
        let mut observer = metrics.interceptor_observer(BundledInterceptor::Deployment, || {});
        let line = |reason: &str, count: usize| {
            format!(
                "bundled_interceptor_waiting{{interceptor=\"deployment.apps.k8s.io\",reason=\"{reason}\"}} {count}\n"
            )
        };
        let item = |name: &str| Item::Workload(Key::new("shop", name));
        observer.waits(&item("a"), Some("Unschedulable"));
        observer.waits(&item("b"), Some("Unschedulable"));
        observer.waits(&item("b"), Some("Unschedulable"));
        observer.waits(&item("b"), Some("NotReady"));
        assert!(metrics.text().unwrap().contains(&line("Unschedulable", 1)));
        assert!(metrics.text().unwrap().contains(&line("NotReady", 1)));
        observer.waits(&item("b"), None);
        drop(observer);
        let text = metrics.text().unwrap();
        assert!(text.contains(&line("Unschedulable", 0)) && text.contains(&line("NotReady", 0)), "{text}");
    }
}
