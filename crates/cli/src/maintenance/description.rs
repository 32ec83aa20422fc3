//! A maintenance as text, made from what was found and the time.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::core::Selector;
use usher_api::names::DRAINED_CONDITION;
use usher_api::{DrainPlanEntry, NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_decide::maintenance::plan::with_defaults;
use usher_decide::maintenance::targets::Targets;
use usher_decide::maintenance::written::Written;
use usher_forecast::followed_drain::has_released;

use super::picture::{cause, eta, plural};
use super::progress::{NodeProgress, Progress};
use super::rows::{limit, one_line};
use super::selection;
use crate::explain::event_time;
use crate::sheet::Sheet;
use crate::table::Table;
use crate::{Environment, span};

/// So many events are told, the newest; and so many causes, the worst.
const EVENTS: usize = 8;
const CAUSES: usize = 5;

/// What a description is made from.
pub struct MaintenanceFound<'a> {
    pub maintenance: &'a NodeMaintenance,
    /// `None`: its pods may not be read.
    pub progress: Option<Progress>,
    /// Others that are at work on some of its nodes.
    pub overlaps: Vec<(&'a NodeMaintenance, Vec<String>)>,
    pub events: Vec<Event>,
}

pub fn render(found: &MaintenanceFound<'_>, environment: &Environment, now: Timestamp) -> String {
    let maintenance = found.maintenance;
    let spec = &maintenance.spec;
    let mut sheet = Sheet::new(environment);
    sheet.headline(&environment.bold(&headline(maintenance)));
    if !spec.reason.is_empty() {
        sheet.put("Reason", &one_line(&spec.reason));
    }
    if let Some(created) = maintenance.creation_timestamp() {
        sheet.put("Created", &span::since(created.0, now));
    }
    sheet.put("Selects", &selection::describe(&spec.node_selector));
    if let Some(of) = &spec.drain_limit {
        sheet.put("Limit", &limit(of));
    }
    sheet.put("Stages", &stages(maintenance, now));
    drained(&mut sheet, maintenance, now);
    let nothing = NodeProgress::default();
    let all = found.progress.as_ref().map_or(&nothing, Progress::all);
    if let Some(eta) = eta(maintenance, all, now) {
        sheet.put("ETA", &eta);
    }
    waiting(&mut sheet, all, environment);
    for (other, shared) in &found.overlaps {
        let told = format!("{} in stage {:?}, on {}", other.name_any(), other.spec.stage, shared.join(", "));
        sheet.put("Overlaps", &told);
    }
    sheet.put("Plan", &plan(maintenance));
    sheet.put("Nodes", &nodes(found, sheet.room()));
    let events = events(&found.events, now);
    if !events.is_empty() {
        sheet.put("Events", &events);
    }
    sheet.text
}

fn headline(maintenance: &NodeMaintenance) -> String {
    let name = maintenance.name_any();
    let nodes = maintenance.status.as_ref().map(|status| usize::try_from(status.nodes).unwrap_or(0));
    let nodes = nodes.map_or("its nodes".to_string(), |nodes| plural(nodes, "node"));
    if maintenance.metadata.deletion_timestamp.is_some() {
        if has_released(maintenance) {
            let kept = maintenance.finalizers().join(", ");
            return format!(
                "Maintenance {name} has released its nodes; it is gone once the owners of its finalizers remove them: {kept}."
            );
        }
        return format!("Maintenance {name} is being deleted and releases {nodes}.");
    }
    match maintenance.spec.stage {
        Stage::Idle => format!("Maintenance {name} is planned for {nodes} and changes nothing yet."),
        Stage::Cordon => format!("Maintenance {name} keeps {nodes} cordoned."),
        Stage::Drain => format!("Maintenance {name} drains {nodes}."),
        Stage::Complete => format!("Maintenance {name} is complete."),
    }
}

fn stages(maintenance: &NodeMaintenance, now: Timestamp) -> String {
    let mut table = Table::default();
    let started = maintenance.status.iter().flat_map(|status| &status.stage_statuses);
    for stage in started {
        let since = stage.start_timestamp.as_ref().map(|at| span::since(at.0, now));
        table.row(vec![format!("{:?}", stage.name), since.unwrap_or_default()]);
    }
    let wanted = maintenance.spec.stage;
    let is_started = |status: &usher_api::NodeMaintenanceStatus| {
        status.stage_statuses.iter().any(|stage| stage.name == wanted)
    };
    if !maintenance.status.as_ref().is_some_and(is_started) {
        table.row(vec![format!("{wanted:?}"), "requested, not started yet".to_string()]);
    }
    table.render()
}

fn drained(sheet: &mut Sheet, maintenance: &NodeMaintenance, now: Timestamp) {
    let conditions = maintenance.status.iter().flat_map(|status| &status.conditions);
    let Some(drained) = conditions.into_iter().find(|condition| condition.type_ == DRAINED_CONDITION) else {
        return;
    };
    let answer = if drained.status == "True" { "yes" } else { "no" };
    let since = span::since(drained.last_transition_time.0, now);
    sheet.put("Drained", &format!("{answer}, since {since}: {}", one_line(&drained.message)));
    if let Some(drain) = maintenance.status.as_ref().and_then(|status| status.drain_status.as_ref()) {
        let (pending, evicting) = (drain.pods_pending_eviction, drain.pods_evicting);
        sheet.put("Pods", &format!("{pending} pending, {evicting} evicting"));
    }
}

fn waiting(sheet: &mut Sheet, all: &NodeProgress, environment: &Environment) {
    let lines: Vec<String> = all
        .causes
        .iter()
        .take(CAUSES)
        .map(|one| {
            let told = cause(one, true);
            if one.waits.is_blocked() { environment.alarming(&told) } else { told }
        })
        .collect();
    if !lines.is_empty() {
        sheet.put("Waiting on", &lines.join("\n"));
    }
}

/// The entries with the place in them; one that is worked off has an arrow.
fn plan(maintenance: &NodeMaintenance) -> String {
    let entries = with_defaults(&maintenance.spec.drain_plan);
    let drain = maintenance.status.as_ref().and_then(|status| status.drain_status.as_ref());
    let at = drain.and_then(|drain| usize::try_from(drain.plan_position).ok());
    let mut table = Table::default();
    for (number, entry) in entries.iter().enumerate() {
        let mark = match at {
            Some(at) if number < at => "done",
            Some(at) if number == at => "->",
            _ => " ",
        };
        table.row(vec![
            format!("{}/{}", number + 1, entries.len()),
            mark.to_string(),
            format!("{:?}", entry.pod_type),
            describe(entry),
        ]);
    }
    table.render()
}

/// `priority up to 1000, app=web`.
fn describe(entry: &DrainPlanEntry) -> String {
    let selector = entry.pod_selector.clone().map(|selector| match Selector::try_from(selector) {
        Ok(selector) if selector.selects_all() => String::new(),
        Ok(selector) => format!(", {selector}"),
        Err(why) => format!(", an invalid selector: {why}"),
    });
    format!("priority up to {}{}", entry.pod_priority, selector.unwrap_or_default())
}

fn nodes(found: &MaintenanceFound<'_>, width: Option<usize>) -> String {
    let statuses = found.maintenance.status.iter().flat_map(|status| &status.node_statuses);
    let written = found.maintenance.status.as_ref().map(Written::read).unwrap_or_default();
    let mut table = Table::new(&["NODE", "PENDING", "EVICTING", "BLOCKED", "TARGETS", "MESSAGE"]);
    for status in statuses {
        let name = &status.node_ref.name;
        let progress = found.progress.as_ref().and_then(|progress| progress.node(name));
        table.row(vec![
            name.clone(),
            status.pods_pending_eviction.to_string(),
            status.pods_evicting.to_string(),
            progress.map(|node| node.blocked.to_string()).unwrap_or_default(),
            written.get(name).map(targets).unwrap_or_default(),
            one_line(&status.drain_message),
        ]);
    }
    if let Some(width) = width {
        table.fit(width, &["TARGETS"], "NODE");
        // Long names of nodes leave room for no more than what is in the way.
        table.fit(width, &["PENDING", "EVICTING"], "NODE");
        table.fit(width, &[], "MESSAGE");
    }
    if table.len() == 0 { "none".to_string() } else { table.render() }
}

/// The highest priority of each pod type, and selectors beyond it.
fn targets(targets: &Arc<Targets>) -> String {
    let Some(entries) = targets.entries() else { return "what all plans have reached".to_string() };
    let parts = entries.iter().map(|entry| format!("{:?} {}", entry.pod_type, describe(entry)));
    parts.collect::<Vec<_>>().join("; ").replace("priority up to ", "<= ")
}

fn events(events: &[Event], now: Timestamp) -> String {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event_time(event));
    let mut table = Table::default();
    for event in events.iter().skip(events.len().saturating_sub(EVENTS)) {
        let age = event_time(event).map(|at| format!("{} ago", span::age(at, now)));
        let text = |text: &Option<String>| one_line(text.as_deref().unwrap_or_default());
        table.row(vec![
            age.unwrap_or_default(),
            text(&event.type_),
            text(&event.reason),
            text(&event.message),
        ]);
    }
    table.render()
}
