//! One maintenance: its finalizer, its stages and its status.
//!
//! Nodes and pods are decided on by themselves ([`super::hold`], [`super::pods`]). A pod is requested only once the
//! status shows it as targeted: so targets do not go back, whenever the controller ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::NodeMaintenanceStage as Stage;
use usher_api::names::KEEP_NODES_ANNOTATION;
use usher_api::{DrainStatus, NodeMaintenanceStatus};

use super::decision::{Effect, MaintenanceDecision, Notice};
use super::nodes::{MaintenanceState, NodeState};
use super::targets::reached;
use super::waiting::DrainProgress;
use super::words::FirstNames;
use super::written::{PLAIN_BYTES, json_bytes};
use super::{eta, status};
use crate::decision::Decision;
use crate::snapshot::Maintenance;

/// Counts that go down are written no more often than this, while the status is small.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// A large status is written in whole for each count: a second for each so many bytes passes between two writes.
const BYTES_A_SECOND: usize = 32 << 10;
/// That a node is drained is worth a write sooner.
const SOONER: i32 = 2;

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
    /// Pods beside these that stay because their workloads say so. Nobody waits for them.
    pub kept: u32,
    /// Older maintenances that drain it too.
    pub older: Vec<Arc<str>>,
}

/// The server did not take a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One word, for machines.
    pub reason: &'static str,
    pub message: String,
    /// Not tried again before.
    pub until: Timestamp,
}

/// What is known of a maintenance.
#[derive(Debug)]
pub struct Case<'a> {
    pub maintenance: &'a Maintenance,
    /// Sorted by name.
    pub nodes: &'a [View<'a>],
    /// Nodes that have lost the labels by which it selected them, and that it has let go.
    pub departed: &'a BTreeSet<Arc<str>>,
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
    /// Its status was not taken, the last time.
    pub refused: Option<&'a Refusal>,
    /// When its drain is expected to be done, as far as anything is known.
    pub expected_finish: Option<Timestamp>,
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> MaintenanceDecision {
    let progress = DrainProgress::of(case);
    let decision = next(case, progress.as_ref(), now);
    Decision { waiting_on: progress.and_then(|progress| progress.waiting_on), ..decision }
}

/// What to write, and when to look again.
fn next(case: &Case<'_>, progress: Option<&DrainProgress>, now: Timestamp) -> MaintenanceDecision {
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
    let new = status::of(case, progress, is_over, now);
    let mut decision = Decision::default();
    let old = &maintenance.status;
    // When what is expected now has not come, something else is.
    decision.recheck_at = expected(&new).map(|at| at.max(now + eta::PAUSE));
    // At the end the nodes are taken out, so that it is worth a try.
    if let Some(refusal) = case.refused.filter(|it| now < it.until && new != *old && !is_over) {
        decision = record_refusal(case, refusal, now);
    } else if new != *old {
        let next = case.last_written.map(|written| written + pause(old, &new));
        match next {
            Some(next) if now < next && !is_urgent(case, &new) && !is_over => {
                decision.recheck_at = Some(next)
            }
            _ => {
                record_changes(case, &new, &mut decision.effects);
                decision.effects.insert(0, Effect::WriteStatus(Box::new(new)));
            }
        }
    }
    if is_over && maintenance.has_begun() {
        decision.effects.push(Effect::RemoveFinalizer);
    }
    decision
}

/// Rather than try the same again and again: people are told, once, and it is tried later.
fn record_refusal(case: &Case<'_>, refusal: &Refusal, now: Timestamp) -> MaintenanceDecision {
    let status = status::with_refusal(case, refusal, now);
    let mut decision = Decision { recheck_at: Some(refusal.until), ..Decision::default() };
    if status.conditions != case.maintenance.status.conditions {
        let message = format!("the status could not be written: {}", refusal.message);
        decision.effects.push(Effect::RecordEvent(Notice::warning(refusal.reason, message)));
        decision.effects.push(Effect::WriteConditions(status.conditions));
    }
    decision
}

/// How long after the last write what is not urgent is written.
fn pause(old: &NodeMaintenanceStatus, new: &NodeMaintenanceStatus) -> SignedDuration {
    let bytes = json_bytes(new);
    let seconds = i64::try_from(bytes / BYTES_A_SECOND).unwrap_or(i64::MAX);
    let pause = if bytes > PLAIN_BYTES { SignedDuration::from_secs(seconds) } else { PAUSE };
    let drained = |status: &NodeMaintenanceStatus| status.drain_status.as_ref().map(|it| it.nodes_drained);
    if is_only_expectation(old, new) {
        pause.max(eta::PAUSE)
    } else if drained(old) != drained(new) {
        (pause / SOONER).max(PAUSE)
    } else {
        pause
    }
}

fn expected(status: &NodeMaintenanceStatus) -> Option<Timestamp> {
    Some(status.drain_status.as_ref()?.expected_finish_time.as_ref()?.0)
}

/// Nothing has changed but when the drain is expected to be done.
fn is_only_expectation(old: &NodeMaintenanceStatus, new: &NodeMaintenanceStatus) -> bool {
    let NodeMaintenanceStatus {
        stage_statuses,
        nodes,
        drain_status,
        node_statuses,
        left_nodes,
        drain_target_lists,
        drain_target_sets,
        conditions,
    } = new;
    let before = expected(old);
    let drain =
        drain_status.clone().map(|drain| DrainStatus { expected_finish_time: before.map(Time), ..drain });
    (stage_statuses, nodes, &drain) == (&old.stage_statuses, &old.nodes, &old.drain_status)
        && (node_statuses, left_nodes, conditions) == (&old.node_statuses, &old.left_nodes, &old.conditions)
        && (drain_target_lists, drain_target_sets) == (&old.drain_target_lists, &old.drain_target_sets)
}

fn act(effects: Vec<Effect>) -> MaintenanceDecision {
    Decision { effects, ..Decision::default() }
}

/// Something other than counts and words has changed.
fn is_urgent(case: &Case<'_>, new: &NodeMaintenanceStatus) -> bool {
    let old = &case.maintenance.status;
    let position = |status: &NodeMaintenanceStatus| status.drain_status.as_ref().map(|it| it.plan_position);
    let is_retargeted = |view: &View<'_>| {
        let written = case.maintenance.targets.get(view.name);
        let targets = view.state.map(|state| &state.targets).filter(|targets| !targets.is_empty());
        written != targets
    };
    let conditions = |status: &NodeMaintenanceStatus| -> Vec<_> {
        status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect()
    };
    old.stage_statuses != new.stage_statuses
        || old.nodes != new.nodes
        || position(old) != position(new)
        || conditions(old) != conditions(new)
        || matches!(case.maintenance.stage(), Stage::Cordon | Stage::Drain)
            && case.nodes.iter().any(is_retargeted)
}

fn record_changes(case: &Case<'_>, new: &NodeMaintenanceStatus, effects: &mut Vec<Effect>) {
    let old = &case.maintenance.status;
    for stage in new.stage_statuses.iter().skip(old.stage_statuses.len()) {
        let nodes = match case.nodes.len() {
            0 => "no node, as none is selected".to_owned(),
            count => counted(count),
        };
        let notice = match stage.name {
            Stage::Idle => continue,
            Stage::Cordon => Notice::normal("Cordon", format!("cordoning {nodes}")),
            Stage::Drain => Notice::normal("Drain", format!("draining {nodes}")),
            Stage::Complete => Notice::normal(
                "Complete",
                "letting go of the nodes and withdrawing what can still be withdrawn".to_string(),
            ),
        };
        effects.push(Effect::RecordEvent(notice));
    }
    let is_told = |node: &&Arc<str>| old.left_nodes.iter().any(|left| *left.name == ***node);
    if let Some(left) = FirstNames::of(case.departed.iter().filter(|node| !is_told(node))) {
        let message = format!(
            "{left} lost the labels by which this maintenance selects nodes: uncordoned, and its pods stay; whoever changed them \
             may put them back, and the annotation {KEEP_NODES_ANNOTATION}=true keeps nodes in"
        );
        effects.push(Effect::RecordEvent(Notice::warning("NodeLeft", message)));
    }
    let older: BTreeSet<Arc<str>> = case.pushed_by.iter().cloned().chain(ahead(case)).collect();
    if !older.is_empty() {
        let names: Vec<&str> = older.iter().map(|name| &**name).collect();
        let message = format!(
            "fast-forwarding {} due to older maintenance(s) {}",
            case.maintenance.name,
            names.join(", ")
        );
        effects.push(Effect::RecordEvent(Notice::warning("FastForward", message)));
    }
    if status::is_drained(new) && !status::is_drained(old) {
        let message = format!("all pods have left {}", counted(case.nodes.len()));
        effects.push(Effect::RecordEvent(Notice::normal("Drained", message)));
    }
}

fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_string() } else { format!("{nodes} nodes") }
}

/// The older maintenances of nodes that join with targets beyond what this plan has reached.
fn ahead(case: &Case<'_>) -> BTreeSet<Arc<str>> {
    let maintenance = case.maintenance;
    let Some(drain) = &case.drain else { return BTreeSet::new() };
    let own = reached(&maintenance.plan, drain.position);
    let is_ahead = |view: &&View<'_>| {
        !view.older.is_empty()
            && !maintenance.targets.has(view.name)
            && view.state.is_some_and(|state| !state.targets.are_within(&own))
    };
    case.nodes.iter().filter(is_ahead).flat_map(|view| view.older.iter().cloned()).collect()
}
