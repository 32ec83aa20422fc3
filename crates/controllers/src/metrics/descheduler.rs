//! What the descheduler counts: by the names of the specification (`pod_evacuations`), and by those of the Go descheduler, so that
//! dashboards go on.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use usher_descheduler::requester::{AskOutcome, Way};
use usher_descheduler::{Plan, Proposal, Stop, Took};

use super::counting::{ControllerCounts, Counting, Errors, errors};
use super::queue::QueueCounts;
use crate::descheduler::Observer;

/// As the Go descheduler labels them.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Evicted {
    result: &'static str,
    strategy: &'static str,
    profile: String,
    namespace: String,
    node: String,
}

impl Evicted {
    fn of(proposal: &Proposal, result: &'static str) -> Self {
        Self {
            result,
            strategy: proposal.plugin.as_str(),
            profile: proposal.profile.clone(),
            namespace: proposal.pod.namespace.clone(),
            node: proposal.pod.node.clone(),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByPlugin {
    strategy: &'static str,
    profile: String,
}

/// With the labels of the Go descheduler, of which only versions mean something here.
type Build = Vec<(&'static str, &'static str)>;

pub struct Counts {
    errors: Errors,
    queue: QueueCounts,
    evicted: Family<Evicted, Counter>,
    evacuations: Counter,
    in_progress: Gauge,
    cycle: Histogram,
    plugins: Family<ByPlugin, Histogram, fn() -> Histogram>,
    proposals: Family<ByPlugin, Gauge>,
    /// 1 while the policy that was last read is refused.
    policy_refused: Gauge,
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}

impl Counts {
    pub fn new(registry: &mut Registry, queue: QueueCounts) -> Self {
        let counts = Self {
            errors: errors(),
            queue,
            evicted: Family::default(),
            evacuations: Counter::default(),
            in_progress: Gauge::default(),
            cycle: durations(),
            plugins: Family::new_with_constructor(durations as fn() -> Histogram),
            proposals: Family::default(),
            policy_refused: Gauge::default(),
        };
        registry.register(
            "pod_evacuations",
            "Pods that the descheduler has asked to leave, by requests or in the background",
            counts.evacuations.clone(),
        );
        registry.register(
            "pod_evacuations_in_progress",
            "Pods that the descheduler has asked to leave and that have not left",
            counts.in_progress.clone(),
        );
        registry.register(
            "descheduler_pods_evicted",
            "Pods that were asked to leave, by result, plugin, profile, namespace and node",
            counts.evicted.clone(),
        );
        registry.register(
            "descheduler_loop_duration_seconds",
            "Seconds that a cycle took, from reading usage to the last answer",
            counts.cycle.clone(),
        );
        registry.register(
            "descheduler_strategy_duration_seconds",
            "Seconds that a plugin took in a cycle, by plugin and profile",
            counts.plugins.clone(),
        );
        registry.register(
            "descheduler_proposals",
            "Pods that the last cycle proposed, by plugin and profile",
            counts.proposals.clone(),
        );
        registry.register(
            "descheduler_policy_refused",
            "Whether the policy that was last read is refused, so that the one before it holds",
            counts.policy_refused.clone(),
        );
        registry.register(
            "descheduler_errors",
            "Decisions of the descheduler that were not carried out, by why",
            counts.errors.clone(),
        );
        let build = Family::<Build, Gauge>::default();
        let version = env!("CARGO_PKG_VERSION");
        let labels = vec![
            ("version", version),
            ("AppVersion", version),
            ("DeschedulerVersion", version),
            ("GitBranch", ""),
            ("GitSha1", ""),
            ("GoVersion", ""),
        ];
        build.get_or_create_owned(&labels).set(1);
        registry.register("descheduler_build_info", "The version of the descheduler", build);
        counts
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
        self.in_progress.set(0);
        self.policy_refused.set(0);
        self.proposals.clear();
    }
}

/// What the Go descheduler says of a limit.
fn result_of(stop: &Stop) -> Option<&'static str> {
    match stop {
        Stop::FewerThanTwoReadyNodes { .. } => None,
        Stop::TotalLimit { .. } => Some("maximum number of evicted pods per a descheduling cycle reached"),
        Stop::NodeLimit { .. } => Some("maximum number of evicted pods per node reached"),
        Stop::NamespaceLimit { .. } => Some("maximum number of evicted pods per namespace reached"),
    }
}

impl Observer for Counting<Counts> {
    fn cycled(&mut self, took: Duration) {
        self.counts.lock().cycle.observe(took.as_secs_f64());
    }

    fn planned(&mut self, plan: &Plan, plugins: &[Took]) {
        let counts = self.counts.lock();
        for Took { profile, plugin, time } in plugins {
            let labels = ByPlugin { strategy: plugin.as_str(), profile: profile.clone() };
            counts.plugins.get_or_create(&labels).observe(time.as_secs_f64());
        }
        for stopped in &plan.stops {
            let (Some((profile, plugin)), Some(result)) = (&stopped.plugin, result_of(&stopped.by)) else {
                continue;
            };
            for ((namespace, node), pods) in &stopped.places {
                let labels = Evicted {
                    result,
                    strategy: plugin.as_str(),
                    profile: profile.clone(),
                    namespace: namespace.clone(),
                    node: node.clone(),
                };
                let pods = u64::try_from(*pods).unwrap_or(u64::MAX);
                counts.evicted.get_or_create(&labels).inc_by(pods);
            }
        }
        // Plugins that were in the policy before propose nothing any more.
        counts.proposals.clear();
        for count in &plan.counts {
            let labels = ByPlugin { strategy: count.plugin.as_str(), profile: count.profile.clone() };
            let proposed = i64::try_from(count.proposed).unwrap_or(i64::MAX);
            counts.proposals.get_or_create(&labels).set(proposed);
        }
    }

    fn asked(&mut self, proposal: &Proposal, _: Way, asked: &AskOutcome) {
        let counts = self.counts.lock();
        let result = match asked {
            AskOutcome::Requested | AskOutcome::Evicted => "success",
            AskOutcome::InBackground => "background",
            AskOutcome::Gone | AskOutcome::ByOthers => return,
            AskOutcome::Refused | AskOutcome::Unknown => "error",
        };
        if matches!(asked, AskOutcome::Requested | AskOutcome::InBackground) {
            counts.evacuations.inc();
        }
        counts.evicted.get_or_create(&Evicted::of(proposal, result)).inc();
    }

    fn moved(&mut self, proposal: &Proposal) {
        self.counts.lock().evicted.get_or_create(&Evicted::of(proposal, "success")).inc();
    }

    fn under_way(&mut self, pods: usize) {
        self.counts.lock().in_progress.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    fn policy(&mut self, is_good: bool) {
        self.counts.lock().policy_refused.set(i64::from(!is_good));
    }
}

#[cfg(test)]
mod tests {
    use usher_apply::Clock;
    use usher_descheduler::policy::PluginName;
    use usher_descheduler::{PluginCount, PodRef, Reason, Stopped};

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn pods_are_counted_by_the_names_that_dashboards_know() {
        let metrics = Metrics::new(Clock::system());
        let mut observer = metrics.descheduler_observer(|| {});
        let proposal = Proposal {
            pod: PodRef { namespace: "shop".into(), name: "web".into(), uid: "u".into(), node: "n-1".into() },
            profile: "default".into(),
            plugin: PluginName::RemoveFailedPods,
            reason: Reason::Failed { reason: None },
            fits_on: None,
            owner: None,
        };
        let took = Took {
            profile: "default".into(),
            plugin: PluginName::RemoveFailedPods,
            time: Duration::from_millis(3),
        };
        let count =
            |plugin| PluginCount { profile: "default".into(), plugin, wanted: 2, proposed: 2, leaving: 0 };
        let before = Plan { counts: vec![count(PluginName::PodLifeTime)], ..Plan::default() };
        observer.planned(&before, &[]);
        let stopped = Stopped {
            by: Stop::NodeLimit { node: "n-1".into(), limit: 1 },
            plugin: Some(("default".into(), PluginName::RemoveFailedPods)),
            pods: 2,
            places: [(("shop".to_owned(), "n-1".to_owned()), 2)].into(),
        };
        let counts = vec![count(PluginName::RemoveFailedPods)];
        observer.planned(&Plan { stops: vec![stopped], counts, ..Plan::default() }, &[took]);
        observer.cycled(Duration::from_millis(4));
        observer.asked(&proposal, Way::Request, &AskOutcome::Requested);
        observer.asked(&proposal, Way::Request, &AskOutcome::ByOthers);
        observer.asked(&proposal, Way::Request, &AskOutcome::Refused);
        // What is moved in the background is a success when it was.
        observer.asked(&proposal, Way::Eviction { in_background: true }, &AskOutcome::InBackground);
        observer.asked(&proposal, Way::Eviction { in_background: true }, &AskOutcome::InBackground);
        observer.moved(&proposal);
        observer.under_way(3);
        observer.policy(false);
        let text = metrics.text().unwrap();
        for line in [
            "pod_evacuations_total 3\n",
            "descheduler_pods_evicted_total{result=\"background\",strategy=\"RemoveFailedPods\",profile=\"default\",namespace=\"shop\",node=\"n-1\"} 2\n",
            "pod_evacuations_in_progress 3\n",
            "descheduler_pods_evicted_total{result=\"success\",strategy=\"RemoveFailedPods\",profile=\"default\",namespace=\"shop\",node=\"n-1\"} 2\n",
            "descheduler_pods_evicted_total{result=\"error\",strategy=\"RemoveFailedPods\",profile=\"default\",namespace=\"shop\",node=\"n-1\"} 1\n",
            "descheduler_loop_duration_seconds_count 1\n",
            "descheduler_strategy_duration_seconds_count{strategy=\"RemoveFailedPods\",profile=\"default\"} 1\n",
            "descheduler_policy_refused 1\n",
            "descheduler_build_info{version=",
            "AppVersion=",
            "DeschedulerVersion=",
            "GitBranch=\"\",GitSha1=\"\",GoVersion=\"\"} 1\n",
            "descheduler_pods_evicted_total{result=\"maximum number of evicted pods per node reached\",strategy=\"RemoveFailedPods\",profile=\"default\",namespace=\"shop\",node=\"n-1\"} 2\n",
            "descheduler_proposals{strategy=\"RemoveFailedPods\",profile=\"default\"} 2\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("PodLifeTime"), "it is not in the policy any more: {text}");
        drop(observer);
        assert!(metrics.text().unwrap().contains("pod_evacuations_in_progress 0\n"));
    }
}
