//! Metrics of the node maintenance controller: how many maintenances are where, and what they wait for.
//!
//! None has the name of a maintenance, a node or a pod in it: that is in their status. Where maintenances overlap, a node and its
//! pods are counted for each of them.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use usher_api::NodeMaintenanceStage as Stage;
use usher_api::{NodeStatus, StageStatus};
use usher_apply::{Clock, RefusedWrite};
use usher_decide::maintenance::waiting::MaintenanceWait;
use usher_decide::snapshot::Maintenance;

use super::ByReason;
use super::queue::{Errors, QueueMetrics, errors};
use super::waits::Waits;

pub const QUEUE: &str = "nodemaintenances";

/// From a second to a week.
const STAGE_SECONDS: [f64; 12] =
    [1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 604_800.0];

const STAGES: [Stage; 4] = [Stage::Idle, Stage::Cordon, Stage::Drain, Stage::Complete];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByStage {
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ByCause {
    pub cause: &'static str,
}

fn name_of(stage: Stage) -> ByStage {
    let stage = match stage {
        Stage::Idle => "Idle",
        Stage::Cordon => "Cordon",
        Stage::Drain => "Drain",
        Stage::Complete => "Complete",
    };
    ByStage { stage }
}

const NODE_STATES: [&str; 4] = ["cordoned", "pending", "evicting", "drained"];
const POD_STATES: [&str; 2] = ["pending", "evicting"];

/// The registered series.
#[derive(Clone)]
pub struct Series {
    maintenances: Family<ByStage, Gauge>,
    nodes: Family<ByState, Gauge>,
    pods: Family<ByState, Gauge>,
    durations: Family<ByStage, Histogram, fn() -> Histogram>,
    /// Written with every scrape.
    pub waits: Arc<Mutex<Waits<Arc<str>>>>,
    pub errors: Errors,
}

impl Series {
    pub fn new(registry: &mut Registry) -> Self {
        let series = Self {
            maintenances: Family::default(),
            nodes: Family::default(),
            pods: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(STAGE_SECONDS)),
            waits: Arc::new(Mutex::new(Waits::for_reasons(MaintenanceWait::CAUSES))),
            errors: errors(),
        };
        registry.register(
            "nodemaintenance_controller_maintenances",
            "Maintenances, by the stage that they are in",
            series.maintenances.clone(),
        );
        registry.register(
            "nodemaintenance_controller_nodes",
            "Nodes of maintenances that cordon or drain: cordoned and no more, pods not asked to leave, pods asked to leave, \
             and no pods left",
            series.nodes.clone(),
        );
        registry.register(
            "nodemaintenance_controller_pods",
            "Pods on the nodes of maintenances that drain: pending without an eviction request, evicting with one",
            series.pods.clone(),
        );
        registry.register(
            "nodemaintenance_controller_stage_duration_seconds",
            "Seconds from the start of a stage to that of the next, or until a complete one has let go of everything",
            series.durations.clone(),
        );
        registry.register(
            "nodemaintenance_controller_reconcile_errors",
            "Decisions on maintenances, nodes and pods that were not carried out: outdated ones, and those that the server \
             would not take",
            series.errors.clone(),
        );
        series.begin();
        for reason in RefusedWrite::OF_STATUS.map(RefusedWrite::as_str) {
            series.errors.get_or_create_owned(&ByReason { reason });
        }
        for stage in STAGES {
            series.durations.get_or_create_owned(&name_of(stage));
        }
        series
    }

    /// Nothing is there as far as this process can tell.
    fn begin(&self) {
        for stage in STAGES {
            self.maintenances.get_or_create(&name_of(stage)).set(0);
        }
        for state in NODE_STATES {
            self.nodes.get_or_create(&ByState { state }).set(0);
        }
        for state in POD_STATES {
            self.pods.get_or_create(&ByState { state }).set(0);
        }
    }

    fn count(&self, maintenance: &Maintenance, by: i64) {
        let stage = maintenance.stage();
        self.maintenances.get_or_create(&name_of(stage)).inc_by(by);
        if !matches!(stage, Stage::Cordon | Stage::Drain) {
            return;
        }
        let mut nodes = [0_i64; NODE_STATES.len()];
        for node in &maintenance.status.node_statuses {
            nodes[state_of(node, stage)] += by;
        }
        for (state, count) in NODE_STATES.into_iter().zip(nodes) {
            self.nodes.get_or_create(&ByState { state }).inc_by(count);
        }
        if stage == Stage::Drain
            && let Some(drain) = &maintenance.status.drain_status
        {
            let pods = [drain.pods_pending_eviction, drain.pods_evicting];
            for (state, count) in POD_STATES.into_iter().zip(pods) {
                self.pods.get_or_create(&ByState { state }).inc_by(by * i64::from(count));
            }
        }
    }

    /// The stages that have ended between two looks at a maintenance.
    fn time(&self, before: &Maintenance, after: Option<&Maintenance>, now: Timestamp) {
        if let Some(after) = after {
            let known = before.status.stage_statuses.len();
            let stages = &after.status.stage_statuses;
            for pair in stages.windows(2).skip(known.saturating_sub(1)) {
                if let [ended, next] = pair
                    && let Some(next) = start(next)
                {
                    self.ended(ended, next);
                }
            }
        }
        let is_over = before.has_begun() && after.is_none_or(|after| !after.has_begun());
        let mut stages = after.unwrap_or(before).status.stage_statuses.iter();
        if is_over && let Some(complete) = stages.find(|stage| stage.name == Stage::Complete) {
            self.ended(complete, now);
        }
    }

    fn ended(&self, stage: &StageStatus, at: Timestamp) {
        if let Some(start) = start(stage) {
            let seconds = at.duration_since(start).as_secs_f64().max(0.0);
            self.durations.get_or_create(&name_of(stage.name)).observe(seconds);
        }
    }
}

fn start(stage: &StageStatus) -> Option<Timestamp> {
    stage.start_timestamp.as_ref().map(|time| time.0)
}

/// Its place in [`NODE_STATES`].
fn state_of(node: &NodeStatus, stage: Stage) -> usize {
    match (stage, node.pods_pending_eviction, node.pods_evicting) {
        (Stage::Cordon, ..) => 0,
        (_, _, 1..) => 2,
        (_, 1.., _) => 1,
        _ => 3,
    }
}

/// What a run of the node maintenance controller measures. What exists is forgotten when the run ends.
pub struct MaintenanceMetrics {
    pub queue: QueueMetrics,
    pub(super) series: Series,
    pub(super) clock: Clock,
}

impl MaintenanceMetrics {
    /// The maintenance was seen, changed or gone. Its stages with their times, and its nodes and pods, are in its status.
    pub fn maintenance_changed(
        &self,
        before: Option<&Maintenance>,
        after: Option<&Maintenance>,
        now: Timestamp,
    ) {
        if let Some(before) = before {
            self.series.count(before, -1);
            self.series.time(before, after, now);
        }
        if let Some(after) = after {
            self.series.count(after, 1);
        }
    }

    /// What the maintenance waits for now; `None` if it waits for nothing, or is gone.
    pub fn waits(&self, name: &str, waiting_on: Option<&MaintenanceWait>, now: Timestamp) {
        self.series.waits.lock().set(&Arc::from(name), waiting_on.map(MaintenanceWait::cause), now);
    }
}

impl Drop for MaintenanceMetrics {
    fn drop(&mut self) {
        self.series.begin();
        self.series.waits.lock().end(self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;
    use jiff::SignedDuration;
    use serde_json::{Value, json};
    use usher_apply::Failure;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn maintenance(stage: &str, begun: bool, status: Value) -> Maintenance {
        let finalizers = if begun { vec!["nodemaintenance.k8s.io/maintenance-completion"] } else { vec![] };
        let object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": "m", "uid": "m", "finalizers": finalizers},
            "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": [{}]}}, "status": status,
        });
        Maintenance::from(serde_json::from_value::<usher_api::NodeMaintenance>(object).unwrap())
    }

    fn stages(started: &[(&str, i64)]) -> Value {
        started
            .iter()
            .map(|(name, second)| json!({"name": name, "startTimestamp": at(*second).to_string()}))
            .collect()
    }

    fn node(name: &str, pending: u32, evicting: u32) -> Value {
        json!({"nodeRef": {"name": name}, "podsPendingEviction": pending, "podsEvicting": evicting})
    }

    fn has(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text().unwrap();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn all_names_are_there_before_anything_happens() {
        has(
            &Metrics::new(Clock::from_fn(|| at(0))),
            &[
                "nodemaintenance_controller_maintenances{stage=\"Idle\"} 0",
                "nodemaintenance_controller_maintenances{stage=\"Complete\"} 0",
                "nodemaintenance_controller_nodes{state=\"cordoned\"} 0",
                "nodemaintenance_controller_pods{state=\"evicting\"} 0",
                "nodemaintenance_controller_stage_duration_seconds_count{stage=\"Drain\"} 0",
                "nodemaintenance_controller_blocked_seconds_total{cause=\"Maintenance\"} 0.0",
                "nodemaintenance_controller_reconcile_errors_total{reason=\"Outdated\"} 0",
                "nodemaintenance_controller_reconcile_errors_total{reason=\"Server\"} 0",
                "evictionrequest_controller_reconcile_errors_total{reason=\"Server\"} 0",
                "workqueue_depth{name=\"nodemaintenances\"} 0",
                "workqueue_unfinished_work_seconds{name=\"nodemaintenances\"} 0.0",
            ],
        );
    }

    #[test]
    fn maintenances_nodes_and_pods_are_counted_where_they_stand_and_stages_when_they_end() {
        let metrics = Metrics::new(Clock::from_fn(|| at(1000)));
        let run = metrics.maintenances();
        let cordon = maintenance(
            "Cordon",
            true,
            json!({
                "nodes": 2, "stageStatuses": stages(&[("Cordon", 100)]),
                "nodeStatuses": [node("n1", 3, 0), node("n2", 0, 0)],
            }),
        );
        run.maintenance_changed(None, Some(&cordon), at(101));
        has(
            &metrics,
            &[
                "nodemaintenance_controller_maintenances{stage=\"Cordon\"} 1",
                "nodemaintenance_controller_nodes{state=\"cordoned\"} 2",
                "nodemaintenance_controller_pods{state=\"pending\"} 0",
            ],
        );
        let drain = maintenance(
            "Drain",
            true,
            json!({
                "nodes": 4, "stageStatuses": stages(&[("Cordon", 100), ("Drain", 130)]),
                "drainStatus": {"podsPendingEviction": 7, "podsEvicting": 5},
                "nodeStatuses": [node("n1", 3, 0), node("n2", 4, 1), node("n3", 0, 4), node("n4", 0, 0)],
            }),
        );
        run.maintenance_changed(Some(&cordon), Some(&drain), at(131));
        run.maintenance_changed(Some(&drain), Some(&drain), at(132));
        has(
            &metrics,
            &[
                "nodemaintenance_controller_maintenances{stage=\"Cordon\"} 0",
                "nodemaintenance_controller_maintenances{stage=\"Drain\"} 1",
                "nodemaintenance_controller_nodes{state=\"cordoned\"} 0",
                "nodemaintenance_controller_nodes{state=\"pending\"} 1",
                "nodemaintenance_controller_nodes{state=\"evicting\"} 2",
                "nodemaintenance_controller_nodes{state=\"drained\"} 1",
                "nodemaintenance_controller_pods{state=\"pending\"} 7",
                "nodemaintenance_controller_pods{state=\"evicting\"} 5",
                "nodemaintenance_controller_stage_duration_seconds_sum{stage=\"Cordon\"} 30.0",
                "nodemaintenance_controller_stage_duration_seconds_count{stage=\"Cordon\"} 1",
                "nodemaintenance_controller_stage_duration_seconds_count{stage=\"Drain\"} 0",
            ],
        );
        let all = stages(&[("Cordon", 100), ("Drain", 130), ("Complete", 430)]);
        let complete = maintenance("Complete", true, json!({"stageStatuses": all}));
        run.maintenance_changed(Some(&drain), Some(&complete), at(431));
        let over = maintenance("Complete", false, json!({"stageStatuses": all}));
        run.maintenance_changed(Some(&complete), Some(&over), at(440));
        run.maintenance_changed(Some(&over), None, at(999));
        has(
            &metrics,
            &[
                "nodemaintenance_controller_maintenances{stage=\"Complete\"} 0",
                "nodemaintenance_controller_nodes{state=\"evicting\"} 0",
                "nodemaintenance_controller_pods{state=\"pending\"} 0",
                "nodemaintenance_controller_stage_duration_seconds_sum{stage=\"Drain\"} 300.0",
                "nodemaintenance_controller_stage_duration_seconds_sum{stage=\"Complete\"} 10.0",
                "nodemaintenance_controller_stage_duration_seconds_count{stage=\"Complete\"} 1",
            ],
        );
    }

    #[test]
    fn decisions_that_are_not_carried_out_are_counted_by_controller() {
        let metrics = Metrics::new(Clock::from_fn(|| at(0)));
        let refused = Failure::Later("503".to_string());
        let maintenances = metrics.maintenances();
        maintenances.queue.failed(&refused);
        maintenances.queue.failed(&refused);
        metrics.requests().queue.failed(&Failure::Outdated);
        has(
            &metrics,
            &[
                "nodemaintenance_controller_reconcile_errors_total{reason=\"Server\"} 2",
                "nodemaintenance_controller_reconcile_errors_total{reason=\"Outdated\"} 0",
                "evictionrequest_controller_reconcile_errors_total{reason=\"Outdated\"} 1",
            ],
        );
    }

    #[test]
    fn blocked_time_adds_up_by_cause_and_what_there_is_ends_with_the_run() {
        let now = Arc::new(Mutex::new(at(100)));
        let read = now.clone();
        let metrics = Metrics::new(Clock::from_fn(move || *read.lock()));
        let run = metrics.maintenances();
        let drain = maintenance("Drain", true, json!({"drainStatus": {"podsEvicting": 2}}));
        run.maintenance_changed(None, Some(&drain), at(100));
        run.waits("m", Some(&MaintenanceWait::AboutToBegin), at(100));
        run.waits("m", Some(&MaintenanceWait::Pods { limited_by: vec![] }), at(110));
        run.queue.added();
        run.queue.taken(SignedDuration::ZERO);
        run.queue.retried();
        *now.lock() = at(150);
        has(
            &metrics,
            &[
                "nodemaintenance_controller_blocked_seconds_total{cause=\"Cordon\"} 10.0",
                "nodemaintenance_controller_blocked_seconds_total{cause=\"Pods\"} 40.0",
                "nodemaintenance_controller_waiting{cause=\"Pods\"} 1",
                "workqueue_adds_total{name=\"nodemaintenances\"} 1",
                "workqueue_retries_total{name=\"nodemaintenances\"} 1",
                "workqueue_unfinished_work_seconds{name=\"nodemaintenances\"} 50.0",
            ],
        );
        drop(run);
        *now.lock() = at(900);
        has(
            &metrics,
            &[
                "nodemaintenance_controller_maintenances{stage=\"Drain\"} 0",
                "nodemaintenance_controller_pods{state=\"evicting\"} 0",
                "nodemaintenance_controller_waiting{cause=\"Pods\"} 0",
                "nodemaintenance_controller_blocked_seconds_total{cause=\"Pods\"} 40.0",
                "workqueue_unfinished_work_seconds{name=\"nodemaintenances\"} 0.0",
            ],
        );
    }
}
