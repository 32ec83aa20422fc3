//! What the descheduler counts: by the names of the specification (`pod_evacuations`), and by those of the Go descheduler, so that
//! dashboards go on.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use usher_descheduler::requester::AskOutcome;
use usher_descheduler::{Plan, Proposal, Stop, Took};

use super::queue::{Errors, QueueMetrics, errors};

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

pub const QUEUE: &str = "descheduler";

/// The registered series.
#[derive(Clone)]
pub struct Series {
    evicted: Family<Evicted, Counter>,
    evacuations: Counter,
    in_progress: Gauge,
    cycle: Histogram,
    plugins: Family<ByPlugin, Histogram, fn() -> Histogram>,
    proposals: Family<ByPlugin, Gauge>,
    /// 1 while the policy that was last read is refused.
    policy_refused: Gauge,
    pub errors: Errors,
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}

impl Series {
    pub fn new(registry: &mut Registry) -> Self {
        let series = Self {
            evicted: Family::default(),
            evacuations: Counter::default(),
            in_progress: Gauge::default(),
            cycle: durations(),
            plugins: Family::new_with_constructor(durations as fn() -> Histogram),
            proposals: Family::default(),
            policy_refused: Gauge::default(),
            errors: errors(),
        };
        registry.register(
            "pod_evacuations",
            "Pods that the descheduler has asked to leave, by requests or in the background",
            series.evacuations.clone(),
        );
        registry.register(
            "pod_evacuations_in_progress",
            "Pods that the descheduler has asked to leave and that have not left",
            series.in_progress.clone(),
        );
        registry.register(
            "descheduler_pods_evicted",
            "Pods that were asked to leave, by result, plugin, profile, namespace and node",
            series.evicted.clone(),
        );
        registry.register(
            "descheduler_loop_duration_seconds",
            "Seconds that a cycle took, from reading usage to the last answer",
            series.cycle.clone(),
        );
        registry.register(
            "descheduler_strategy_duration_seconds",
            "Seconds that a plugin took in a cycle, by plugin and profile",
            series.plugins.clone(),
        );
        registry.register(
            "descheduler_proposals",
            "Pods that the last cycle proposed, by plugin and profile",
            series.proposals.clone(),
        );
        registry.register(
            "descheduler_policy_refused",
            "Whether the policy that was last read is refused, so that the one before it holds",
            series.policy_refused.clone(),
        );
        registry.register(
            "descheduler_errors",
            "Decisions of the descheduler that were not carried out, by why",
            series.errors.clone(),
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
        series
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

/// What a run of the descheduler measures. What exists is forgotten when the run ends.
pub struct DeschedulerMetrics {
    pub queue: QueueMetrics,
    pub(super) series: Series,
}

impl DeschedulerMetrics {
    /// A cycle has ended; `took` includes reading usage before it and the calls after it.
    pub fn cycled(&self, took: Duration) {
        self.series.cycle.observe(took.as_secs_f64());
    }

    /// A cycle was planned.
    pub fn planned(&self, plan: &Plan, plugins: &[Took]) {
        let series = &self.series;
        for Took { profile, plugin, time } in plugins {
            let labels = ByPlugin { strategy: plugin.as_str(), profile: profile.clone() };
            series.plugins.get_or_create(&labels).observe(time.as_secs_f64());
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
                series.evicted.get_or_create(&labels).inc_by(pods);
            }
        }
        // Plugins that were in the policy before propose nothing any more.
        series.proposals.clear();
        for count in &plan.counts {
            let labels = ByPlugin { strategy: count.plugin.as_str(), profile: count.profile.clone() };
            let proposed = i64::try_from(count.proposed).unwrap_or(i64::MAX);
            series.proposals.get_or_create(&labels).set(proposed);
        }
    }

    pub fn asked(&self, proposal: &Proposal, asked: &AskOutcome) {
        let result = match asked {
            AskOutcome::Requested | AskOutcome::Evicted => "success",
            AskOutcome::InBackground => "background",
            AskOutcome::Gone | AskOutcome::ByOthers => return,
            AskOutcome::Refused | AskOutcome::Unknown => "error",
        };
        if matches!(asked, AskOutcome::Requested | AskOutcome::InBackground) {
            self.series.evacuations.inc();
        }
        self.series.evicted.get_or_create(&Evicted::of(proposal, result)).inc();
    }

    /// A pod that another component had promised to move in the background was moved.
    pub fn moved(&self, proposal: &Proposal) {
        self.series.evicted.get_or_create(&Evicted::of(proposal, "success")).inc();
    }

    /// Number of pods that were asked to leave and have not left.
    pub fn under_way(&self, pods: usize) {
        self.series.in_progress.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// A policy was read, or refused.
    pub fn policy(&self, is_good: bool) {
        self.series.policy_refused.set(i64::from(!is_good));
    }
}

impl Drop for DeschedulerMetrics {
    fn drop(&mut self) {
        self.series.in_progress.set(0);
        self.series.policy_refused.set(0);
        self.series.proposals.clear();
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
        let run = metrics.descheduler();
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
        run.planned(&before, &[]);
        let stopped = Stopped {
            by: Stop::NodeLimit { node: "n-1".into(), limit: 1 },
            plugin: Some(("default".into(), PluginName::RemoveFailedPods)),
            pods: 2,
            places: [(("shop".to_owned(), "n-1".to_owned()), 2)].into(),
        };
        let counts = vec![count(PluginName::RemoveFailedPods)];
        run.planned(&Plan { stops: vec![stopped], counts, ..Plan::default() }, &[took]);
        run.cycled(Duration::from_millis(4));
        run.asked(&proposal, &AskOutcome::Requested);
        run.asked(&proposal, &AskOutcome::ByOthers);
        run.asked(&proposal, &AskOutcome::Refused);
        // What is moved in the background is a success when it was.
        run.asked(&proposal, &AskOutcome::InBackground);
        run.asked(&proposal, &AskOutcome::InBackground);
        run.moved(&proposal);
        run.under_way(3);
        run.policy(false);
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
        drop(run);
        assert!(metrics.text().unwrap().contains("pod_evacuations_in_progress 0\n"));
    }
}
