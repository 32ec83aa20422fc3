//! One maintenance: its finalizer, its stages and its status.
//!
//! Nodes and pods are decided on by themselves ([`super::hold`], [`super::pods`]). A pod is requested only once the
//! status shows it as targeted: so targets do not go back, whenever the controller ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::NodeMaintenanceStage as Stage;
use usher_api::{DrainStatus, NodeMaintenanceStatus};

use super::decision::{Decision, Effect, Notice};
use super::nodes::{MaintenanceState, NodeState};
use super::targets::{covers, reached};
use super::{eta, status};
use crate::snapshot::Maintenance;

/// Counts that go down are written no more often than this.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// A node that the maintenance selects.
#[derive(Debug)]
pub struct View<'a> {
    pub name: &'a Arc<str>,
    /// It carries the mark of this maintenance.
    pub is_held: bool,
    pub unschedulable: bool,
    /// Where its drain stands; `None` if it is not, or not yet, drained by this maintenance.
    pub state: Option<&'a NodeState>,
    /// Pods that have not ended, and those of them with a request.
    pub pods: u32,
    pub evicting: u32,
    /// Those of the latter that nothing ends.
    pub staying: u32,
    /// Older maintenances that drain it too.
    pub older: Vec<Arc<str>>,
}

/// What is known of a maintenance.
#[derive(Debug)]
pub struct Case<'a> {
    pub maintenance: &'a Maintenance,
    /// Sorted by name.
    pub nodes: &'a [View<'a>],
    /// Where its drain stands, once it has begun.
    pub drain: Option<MaintenanceState>,
    /// The pods on its nodes that are asked to leave and that nothing ends, as people know them.
    pub staying: &'a BTreeSet<String>,
    /// Older maintenances that pushed it on since the last decision.
    pub pushed_by: &'a BTreeSet<Arc<str>>,
    /// Nodes that still carry its mark, and requests that are still to be withdrawn: both matter at the end.
    pub marks_left: usize,
    pub requests_left: usize,
    pub last_written: Option<Timestamp>,
    /// When its drain is expected to be done, as far as anything is known.
    pub expected_finish: Option<Timestamp>,
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision<Effect> {
    let maintenance = case.maintenance;
    let stage = maintenance.stage();
    let begins = matches!(stage, Stage::Cordon | Stage::Drain) && !maintenance.has_begun();
    if maintenance.is_deleting && maintenance.has_begun() && maintenance.wanted != Stage::Complete {
        return act(vec![Effect::SetStageComplete]);
    }
    if maintenance.is_deleting && !maintenance.has_begun() {
        return Decision::default();
    }
    if begins {
        return act(vec![Effect::AddFinalizer]);
    }
    let is_over = stage == Stage::Complete && case.marks_left == 0 && case.requests_left == 0;
    let new = status::of(case, is_over, now);
    let mut decision = Decision::default();
    let old = &maintenance.status;
    // When what is expected now has not come, something else is.
    decision.recheck_at = expected(&new).map(|at| at.max(now + eta::PAUSE));
    if new != *old {
        let pause = if is_only_expectation(old, &new) { eta::PAUSE } else { PAUSE };
        let next = case.last_written.map(|written| written + pause);
        match next {
            Some(next) if now < next && !is_urgent(old, &new) && !is_over => decision.recheck_at = Some(next),
            _ => {
                tell_news(case, &new, &mut decision.effects);
                decision.effects.insert(0, Effect::WriteStatus(Box::new(new)));
            }
        }
    }
    if is_over && maintenance.has_begun() {
        decision.effects.push(Effect::RemoveFinalizer);
    }
    decision
}

fn expected(status: &NodeMaintenanceStatus) -> Option<Timestamp> {
    Some(status.drain_status.as_ref()?.expected_finish_time.as_ref()?.0)
}

/// Nothing has changed but when the drain is expected to be done.
fn is_only_expectation(old: &NodeMaintenanceStatus, new: &NodeMaintenanceStatus) -> bool {
    let NodeMaintenanceStatus { stage_statuses, nodes, drain_status, node_statuses, conditions } = new;
    let before = expected(old);
    let drain =
        drain_status.clone().map(|drain| DrainStatus { expected_finish_time: before.map(Time), ..drain });
    (stage_statuses, nodes, &drain) == (&old.stage_statuses, &old.nodes, &old.drain_status)
        && (node_statuses, conditions) == (&old.node_statuses, &old.conditions)
}

fn act(effects: Vec<Effect>) -> Decision<Effect> {
    Decision { effects, recheck_at: None }
}

/// Something other than counts and words has changed.
fn is_urgent(old: &NodeMaintenanceStatus, new: &NodeMaintenanceStatus) -> bool {
    let place = |status: &NodeMaintenanceStatus| {
        status.drain_status.as_ref().map(|drain| (drain.plan_position, drain.reached_drain_targets.clone()))
    };
    let nodes = |status: &NodeMaintenanceStatus| -> Vec<_> {
        status.node_statuses.iter().map(|node| (node.node_ref.clone(), node.drain_targets.clone())).collect()
    };
    let conditions = |status: &NodeMaintenanceStatus| -> Vec<_> {
        status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect()
    };
    old.stage_statuses != new.stage_statuses
        || place(old) != place(new)
        || conditions(old) != conditions(new)
        || nodes(old) != nodes(new)
}

fn tell_news(case: &Case<'_>, new: &NodeMaintenanceStatus, effects: &mut Vec<Effect>) {
    let old = &case.maintenance.status;
    for stage in new.stage_statuses.iter().skip(old.stage_statuses.len()) {
        let nodes = case.nodes.len();
        let notice = match stage.name {
            Stage::Idle => continue,
            Stage::Cordon => Notice::normal("Cordon", format!("cordoning {nodes} nodes")),
            Stage::Drain => Notice::normal("Drain", format!("draining {nodes} nodes")),
            Stage::Complete => Notice::normal(
                "Complete",
                "letting go of the nodes and withdrawing what can still be withdrawn".to_string(),
            ),
        };
        effects.push(Effect::Tell(notice));
    }
    let older: BTreeSet<Arc<str>> = case.pushed_by.iter().cloned().chain(ahead(case)).collect();
    if !older.is_empty() {
        let names: Vec<&str> = older.iter().map(|name| &**name).collect();
        let message = format!(
            "fast-forwarding {} due to older maintenance(s) {}",
            case.maintenance.name,
            names.join(", ")
        );
        effects.push(Effect::Tell(Notice::warning("FastForward", message)));
    }
    if status::is_drained(new) && !status::is_drained(old) {
        let message = format!("all pods have left the {} nodes", case.nodes.len());
        effects.push(Effect::Tell(Notice::normal("Drained", message)));
    }
}

/// The older maintenances of nodes that join with targets beyond what this plan has reached.
fn ahead(case: &Case<'_>) -> BTreeSet<Arc<str>> {
    let maintenance = case.maintenance;
    let Some(drain) = &case.drain else { return BTreeSet::new() };
    let own = reached(&maintenance.plan, drain.position);
    let known: BTreeSet<&str> = maintenance
        .status
        .node_statuses
        .iter()
        .filter(|node| !node.drain_targets.is_empty())
        .map(|node| node.node_ref.name.as_str())
        .collect();
    let is_ahead = |view: &&View<'_>| {
        !view.older.is_empty()
            && !known.contains(&**view.name)
            && view.state.is_some_and(|state| !covers(&own, &state.targets))
    };
    case.nodes.iter().filter(is_ahead).flat_map(|view| view.older.iter().cloned()).collect()
}
