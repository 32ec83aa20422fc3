//! The explanation of a node as text.

use jiff::Timestamp;
use usher_api::node_agent::NodeAgentMark;
use usher_api::{DrainPlanEntry, NodeMaintenanceStage as Stage};

use super::explanation::{Group, MaintenanceFacts, NodeExplanation};
use crate::sheet::Sheet;
use crate::{Environment, span};
use usher_decide::maintenance::drain_state::DrainState;
use usher_forecast::node_state::Urgency;

/// So many pods of a group are named.
const NAMED: usize = 5;

pub fn render(explanation: &NodeExplanation, environment: &Environment, now: Timestamp) -> String {
    let mut sheet = Sheet::new(environment);
    sheet.headline(&environment.bold(&headline(explanation)));
    for (at, maintenance) in explanation.maintenances.iter().enumerate() {
        sheet.put(if at == 0 { "Maintenance" } else { "" }, &maintenance_told(maintenance, now));
    }
    sheet.put("Cordoned", &cordon(explanation));
    if let Some(agent) = &explanation.agent {
        sheet.put("Agent", &agent_told(agent));
    }
    let program = &environment.program;
    if let Some(first) = explanation.maintenances.first() {
        sheet.put("To end it", &format!("{program} maintenance complete {}", first.name));
    }
    for group in &explanation.groups {
        sheet.space();
        render_group(&mut sheet, group, environment, now);
    }
    if explanation.maintenances.is_empty() {
        sheet.space();
        sheet.put(
            "To drain it",
            &format!("{program} drain {0} --dry-run, then {program} drain {0}", explanation.name),
        );
    } else if explanation.groups.iter().any(|group| group.urgency.is_asked()) {
        sheet.space();
        sheet.put("More", &format!("{program} explain POD -n NAMESPACE"));
    }
    sheet.text
}

fn headline(explanation: &NodeExplanation) -> String {
    let name = &explanation.name;
    let pods = |count: usize| format!("{count} pod{}", if count == 1 { "" } else { "s" });
    let of = |urgency: Urgency| {
        explanation
            .groups
            .iter()
            .filter(|group| group.urgency == urgency)
            .map(|group| group.pods.len())
            .sum::<usize>()
    };
    let drains = explanation.maintenances.iter().any(|one| one.stage == Stage::Drain);
    match (explanation.maintenances.is_empty(), drains, explanation.pods) {
        (true, _, count) => match of(Urgency::WouldBeBlocked) {
            0 => format!("Node {name} is in no maintenance, and has {}.", pods(count)),
            blocked => format!(
                "Node {name} is in no maintenance, and has {}; {blocked} could not be evicted now.",
                pods(count)
            ),
        },
        (false, true, 0) if explanation.maintenances.iter().any(has_not_come_to) => {
            format!("Node {name} has no pods, and its drain has not begun.")
        }
        (false, true, 0) => format!("Node {name} is drained."),
        (false, true, count) => {
            let have = if count == 1 { "has" } else { "have" };
            match of(Urgency::Blocked) {
                0 => format!(
                    "Node {name} is being drained: {} {have} not been evicted yet, none is blocked.",
                    pods(count)
                ),
                blocked => {
                    format!(
                        "Node {name} is being drained: {} {have} not been evicted yet, {blocked} blocked.",
                        pods(count)
                    )
                }
            }
        }
        (false, false, count) => {
            format!("Node {name} is in a maintenance that does not drain it, and has {}.", pods(count))
        }
    }
}

/// A drain by it has not come to the node, whether it has pods or not.
fn has_not_come_to(maintenance: &MaintenanceFacts) -> bool {
    let state = DrainState::of_message(&maintenance.message);
    let has_not_come = matches!(state, Some(DrainState::ToBeCordoned | DrainState::Cordoned));
    maintenance.stage == Stage::Drain && has_not_come
}

fn agent_told(agent: &NodeAgentMark) -> String {
    let delays = if agent.delays_shutdown { "shutdowns wait for the pods" } else { "shutdowns do not wait" };
    let statics = if agent.static_pods.is_empty() { "moves no static pods" } else { "moves static pods" };
    let mut text = format!("{statics}, {delays}");
    if !agent.taken.is_empty() {
        text.push_str(&format!("\n  taken from {}: {}", agent.static_pods, agent.taken.join(", ")));
    }
    for warning in &agent.warnings {
        text.push_str(&format!("\n  {warning}"));
    }
    text
}

fn maintenance_told(maintenance: &MaintenanceFacts, now: Timestamp) -> String {
    let since =
        maintenance.since.map(|since| format!(" since {}", span::since(since, now))).unwrap_or_default();
    let deleted = if maintenance.is_deleting { ", deleted" } else { "" };
    let mut text = format!("{}: {:?}{since}{deleted}", maintenance.name, maintenance.stage);
    if !maintenance.reason.is_empty() {
        text.push_str(&format!("; {}", maintenance.reason));
    }
    if !maintenance.message.is_empty() {
        text.push_str(&format!("\n  {}", maintenance.message));
    }
    if !maintenance.drain_targets.is_empty() {
        let targets: Vec<String> = maintenance.drain_targets.iter().map(target).collect();
        text.push_str(&format!("\n  evicts: {}", targets.join("; ")));
    }
    text
}

fn target(entry: &DrainPlanEntry) -> String {
    let labels =
        entry.pod_selector.clone().and_then(|selector| kube::core::Selector::try_from(selector).ok());
    let labels = labels.map(|labels| format!(" with {labels}")).unwrap_or_default();
    format!("{:?} pods up to priority {}{labels}", entry.pod_type, entry.pod_priority)
}

fn cordon(explanation: &NodeExplanation) -> String {
    let holders = explanation.held_by.join(", ");
    let after = if explanation.was_cordoned_before {
        "; it was cordoned before, and stays cordoned afterwards"
    } else {
        ""
    };
    if let Some(wait) = &explanation.waits {
        return format!("no, although maintenance {holders} holds it: {wait}");
    }
    match (explanation.is_cordoned, holders.is_empty()) {
        (true, false) => format!("by maintenance {holders}{after}"),
        (true, true) => match &explanation.cordoned_by {
            Some(who) => format!("by {who}, not by a maintenance"),
            None => "not by a maintenance".to_string(),
        },
        (false, _) => "no".to_string(),
    }
}

/// One group of pods.
pub fn render_group(sheet: &mut Sheet, group: &Group, environment: &Environment, now: Timestamp) {
    let name = match group.urgency {
        Urgency::Blocked => "Blocked",
        Urgency::Late => "Late",
        Urgency::Moving => "Evicting",
        Urgency::NotYet => "Pending",
        Urgency::WouldBeBlocked => "Would block",
        Urgency::Free => "Evictable",
    };
    let count = group.pods.len();
    let sentence = format!("{count} pod{}: {}", if count == 1 { "" } else { "s" }, group.sentence);
    let is_bad = matches!(group.urgency, Urgency::Blocked | Urgency::Late | Urgency::WouldBeBlocked);
    sheet.put(name, &if is_bad { environment.alarming(&sentence) } else { sentence });
    let named = group.pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = count.saturating_sub(NAMED);
    sheet.put("", &if more > 0 { format!("{named} and {more} more") } else { named });
    if let Some(said) = &group.said {
        let of = if count > 1 { "of the first: " } else { "" };
        sheet.put("  Message", &format!("{of}{said}"));
    }
    if let Some(since) = group.since {
        sheet.put("  Since", &span::since(since, now));
    }
    if let Some(until) = group.until {
        sheet.put("  Until", &span::describe(until, now));
    }
    if group.urgency != Urgency::Free {
        sheet.put("  What to do", &group.advice);
    }
}
