//! The status of a maintenance, made anew from what is; only times are taken from before.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use usher_api::NodeMaintenanceStage as Stage;
use usher_api::names::{DRAINED_CONDITION, STATUS_COMPLETE_CONDITION};
use usher_api::node_maintenance::LEFT_NODES_MAX;
use usher_api::{
    CONDITIONS_MAX, DrainStatus, DrainedReason, NodeMaintenanceStatus, NodeReference, NodeStatus, StageStatus,
};

use super::drain_state::DrainState;
use super::stages::{Case, Refusal, View};
use super::waiting::{DrainProgress, MaintenanceWait};
use super::written::{self, Row};
use super::{eta, words};

const NODES_LEFT_OUT: &str = "NodesLeftOut";

pub fn is_drained(status: &NodeMaintenanceStatus) -> bool {
    let drained = |condition: &Condition| condition.type_ == DRAINED_CONDITION && condition.status == "True";
    status.conditions.iter().any(drained)
}

pub fn of(
    case: &Case<'_>,
    progress: Option<&DrainProgress>,
    is_over: bool,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let maintenance = case.maintenance;
    let old = &maintenance.status;
    // What came of a drain is told of the nodes that it had.
    let was_complete = old.stage_statuses.iter().any(|started| started.name == Stage::Complete);
    let nodes = if was_complete { old.nodes } else { number(case.nodes.len()) };
    let mut status = NodeMaintenanceStatus { nodes, ..old.clone() };
    let departed = case.departed.iter().take(LEFT_NODES_MAX);
    status.left_nodes = departed.map(|node| NodeReference { name: node.to_string() }).collect();
    let mut left_out = Some(0);
    match maintenance.stage() {
        Stage::Idle => started(&mut status, Stage::Idle, now),
        Stage::Cordon => {
            started(&mut status, Stage::Cordon, now);
            left_out = Some(show_nodes(case, &mut status));
        }
        Stage::Drain => {
            // Nobody is asked to leave before all nodes are cordoned.
            started(&mut status, Stage::Cordon, now);
            if let Some(progress) = progress {
                show_drain(case, progress, &mut status, now);
                show_drained(case, progress, &mut status, now);
            }
            left_out = Some(show_nodes(case, &mut status));
        }
        Stage::Complete => {
            started(&mut status, Stage::Complete, now);
            show_end(case, &mut status, now);
            if let Some(drain) = &mut status.drain_status {
                drain.expected_finish_time = None;
            }
            if is_over {
                written::write(&mut status, Vec::new(), Some(&written::reached(old)), maintenance.rest_bytes);
                let state = if is_drained(old) { DrainState::Drained } else { DrainState::Cancelled };
                if let Some(drain) = &mut status.drain_status {
                    drain.drain_message = state.to_string();
                    drain.pods_pending_eviction = 0;
                    drain.pods_evicting = 0;
                }
            } else {
                // The nodes stay as they were.
                left_out = None;
            }
        }
    }
    show_left_out(case, left_out, &mut status, now);
    status
}

/// Nodes and their targets, in the form that fits. Returns how many could not be named.
fn show_nodes(case: &Case<'_>, status: &mut NodeMaintenanceStatus) -> usize {
    let rows: Vec<Row> = case.nodes.iter().map(row).collect();
    // Where some nodes have no targets yet, nothing is targeted everywhere.
    let is_later = case.nodes.iter().any(|view| view.state.is_none());
    let reached = case.drain.as_ref().map(|drain| &drain.reached).filter(|_| !is_later);
    written::write(status, rows, reached, case.maintenance.rest_bytes)
}

/// `None`: as many as before.
fn show_left_out(
    case: &Case<'_>,
    left_out: Option<usize>,
    status: &mut NodeMaintenanceStatus,
    now: Timestamp,
) {
    let Some(left_out) = left_out.filter(|count| *count > 0) else {
        let stays = |condition: &Condition| left_out.is_none() && condition.reason == NODES_LEFT_OUT;
        status.conditions.retain(|it| it.type_ != STATUS_COMPLETE_CONDITION || stays(it));
        return;
    };
    let message = format!(
        "{left_out} of {} nodes are counted but not listed in nodeStatuses: an object has no room for their names",
        case.nodes.len()
    );
    set(
        status,
        maintenance_generation(case),
        STATUS_COMPLETE_CONDITION,
        ["False", NODES_LEFT_OUT, &message],
        now,
    );
}

/// The status as it was written last, with a condition that says why it is not written anew.
pub fn with_refusal(case: &Case<'_>, refusal: &Refusal, now: Timestamp) -> NodeMaintenanceStatus {
    let mut status = case.maintenance.status.clone();
    let message =
        format!("the status is not brought up to date, and the drain stands still: {}", refusal.message);
    set(
        &mut status,
        maintenance_generation(case),
        STATUS_COMPLETE_CONDITION,
        ["False", refusal.reason, &message],
        now,
    );
    status
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn started(status: &mut NodeMaintenanceStatus, name: Stage, now: Timestamp) {
    if !status.stage_statuses.iter().any(|stage| stage.name == name) {
        // Times are kept in whole seconds.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        status.stage_statuses.push(StageStatus { name, start_timestamp: Some(Time(now)) });
    }
}

fn row(view: &View<'_>) -> Row {
    let node_ref = NodeReference { name: view.name.to_string() };
    let targets = view.state.map(|state| state.targets.clone()).unwrap_or_default();
    let drain = match view.state {
        Some(state) if view.staying > 0 && view.staying == state.evicting => DrainState::NothingEnds,
        Some(state) => state.drain.clone(),
        None if view.is_held => DrainState::Cordoned,
        None => DrainState::ToBeCordoned,
    };
    let (pending, evicting) = match view.state {
        Some(state) => (state.pending, state.evicting),
        None => (view.pods - view.evicting.min(view.pods), view.evicting),
    };
    let node = NodeStatus {
        node_ref,
        drain_message: drain.to_string(),
        pods_pending_eviction: count(pending),
        pods_evicting: count(evicting),
        ..NodeStatus::default()
    };
    Row { node, drain, targets }
}

fn show_drain(case: &Case<'_>, progress: &DrainProgress, status: &mut NodeMaintenanceStatus, now: Timestamp) {
    let Some(drain) = &case.drain else { return };
    started(status, Stage::Drain, now);
    let before = case.maintenance.status.drain_status.as_ref();
    let said_before = before.and_then(|drain| drain.expected_finish_time.as_ref()).map(|time| time.0);
    let later: Vec<&View<'_>> = case.nodes.iter().filter(|view| view.state.is_none()).collect();
    let pods: u32 = later.iter().map(|view| view.pods).sum();
    let evicting: u32 = later.iter().map(|view| view.evicting.min(view.pods)).sum();
    let left = drain.pending + drain.evicting + pods;
    // The condition tells of the cordon, of nodes that left and of none that is selected; how far the drain is meanwhile, this does.
    let message = progress.pods.as_ref().map_or_else(|| DrainState::Drained.to_string(), ToString::to_string);
    status.drain_status = Some(DrainStatus {
        // Written with the nodes.
        reached_drain_targets: Vec::new(),
        drain_target_set: None,
        plan_position: number(drain.position),
        drain_message: message,
        pods_pending_eviction: count(drain.pending + pods - evicting),
        pods_evicting: count(drain.evicting + evicting),
        nodes_drained: count(drain.nodes_drained),
        expected_finish_time: eta::shown(said_before, case.expected_finish, now)
            .filter(|_| left > 0)
            .map(Time),
    });
}

fn show_drained(
    case: &Case<'_>,
    progress: &DrainProgress,
    status: &mut NodeMaintenanceStatus,
    now: Timestamp,
) {
    match &progress.waiting_on {
        None => {
            let message = words::drained(case.nodes.iter().map(|view| view.kept).sum());
            set_drained(case, status, DrainedReason::Drained, &message, now);
        }
        Some(waiting_on) => {
            set_drained(case, status, waiting_on.reason(), &waiting_on.to_string(), now);
        }
    }
}

/// What came of the drain, if there was one: it is not looked at any more.
fn show_end(case: &Case<'_>, status: &mut NodeMaintenanceStatus, now: Timestamp) {
    let before = status.conditions.iter().find(|condition| condition.type_ == DRAINED_CONDITION);
    let Some(before) = before.map(|condition| DrainedReason::of(&condition.reason)) else { return };
    // Others may have been selected with the same write: nobody has looked at them.
    let known: BTreeSet<&str> =
        case.maintenance.status.node_statuses.iter().map(|node| &*node.node_ref.name).collect();
    let is_another = |view: &View<'_>| !known.is_empty() && !known.contains(&**view.name);
    let are_others = status.drain_target_lists.is_empty() && case.nodes.iter().any(is_another);
    let (reason, message) = if is_drained(status) && are_others {
        let message = "the maintenance was completed with other nodes than those that were drained";
        (DrainedReason::Cancelled, message.to_string())
    } else if is_drained(status) {
        let message = "all pods had left all nodes before the maintenance was completed";
        (DrainedReason::Drained, message.to_string())
    } else if before == Some(DrainedReason::NoNodes) {
        (DrainedReason::NoNodes, MaintenanceWait::NoNodes.to_string())
    } else {
        let message = "the maintenance was completed before all pods had left";
        (DrainedReason::Cancelled, message.to_string())
    };
    set_drained(case, status, reason, &message, now);
}

fn set_drained(
    case: &Case<'_>,
    status: &mut NodeMaintenanceStatus,
    reason: DrainedReason,
    message: &str,
    now: Timestamp,
) {
    let texts = [reason.condition_status(), reason.name(), message];
    set(status, maintenance_generation(case), DRAINED_CONDITION, texts, now);
}

fn maintenance_generation(case: &Case<'_>) -> Option<i64> {
    Some(case.maintenance.generation).filter(|generation| *generation > 0)
}

fn set(
    status: &mut NodeMaintenanceStatus,
    observed_generation: Option<i64>,
    kind: &str,
    [value, reason, message]: [&str; 3],
    now: Timestamp,
) {
    let at = status.conditions.iter().position(|condition| condition.type_ == kind);
    let before = at.map(|at| &status.conditions[at]).filter(|before| before.status == value);
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = Condition {
        type_: kind.to_string(),
        status: value.to_string(),
        reason: reason.to_string(),
        message: message.to_string(),
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        observed_generation,
    };
    match at {
        Some(at) => status.conditions[at] = condition,
        None => {
            // Whoever filled the list does not keep us from saying what is the matter.
            status.conditions.truncate(CONDITIONS_MAX - 1);
            status.conditions.push(condition);
        }
    }
}
