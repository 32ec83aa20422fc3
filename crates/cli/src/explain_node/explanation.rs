//! The explanation of a node as data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::{DrainPlanEntry, NodeMaintenanceStage as Stage};
use usher_decide::maintenance::plan::PodClass;
use usher_decide::maintenance::targets::Targets;
use usher_decide::snapshot::{Maintenance, Node, Pod, PodOnWire};
use usher_decide::waiting_on::WaitingOn;

use crate::Surroundings;
use crate::explain::{self, Explanation, Found};
use crate::request_text::{WaitText as _, WaitingOnFacts};
use usher_decide::request_state::{ManagerStep, RequestWait};

/// So many nodes are named where a sentence tells of some.
const NAMED: usize = 3;

/// What the explanation is made from.
pub struct NodeFound {
    pub node: Node,
    /// Who wrote last that the node takes no pods.
    pub cordoned_by: Option<String>,
    /// All that there are.
    pub maintenances: Vec<Maintenance>,
    /// The pods that a drain waits for.
    pub pods: Vec<Found>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    pub name: String,
    pub is_cordoned: bool,
    /// Under which name it was cordoned, as far as the server tells.
    pub cordoned_by: Option<String>,
    /// It was cordoned before any maintenance came, and stays so.
    pub was_cordoned_before: bool,
    /// The maintenances that keep it cordoned, as the node says itself.
    pub held_by: Vec<String>,
    /// The maintenances that select the node, or are still marked on it.
    pub maintenances: Vec<MaintenanceFacts>,
    /// The pods that have not ended.
    pub pods: usize,
    /// What they wait on, worst first.
    pub groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceFacts {
    pub name: String,
    pub stage: Stage,
    /// When it came to this stage.
    pub since: Option<Timestamp>,
    pub reason: String,
    pub is_deleting: bool,
    /// The pods that it asks to leave on this node.
    pub drain_targets: Vec<DrainPlanEntry>,
    /// What it says of this node.
    pub message: String,
}

/// Pods that wait on the same.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub urgency: Urgency,
    /// Of the first of them.
    pub waiting_on: WaitingOnFacts,
    pub sentence: String,
    pub advice: String,
    /// Since when the first of them waits.
    pub since: Option<Timestamp>,
    /// When something changes by itself, for the first of them.
    pub until: Option<Timestamp>,
    pub pods: Vec<String>,
}

/// How bad it is; the order is that in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Urgency {
    /// Asked to leave, and nothing moves until somebody does something.
    Blocked,
    /// Asked to leave, and later than it should be.
    Late,
    /// Asked to leave, and on its way.
    Moving,
    /// The drain has not come to it yet.
    NotYet,
    /// Nobody asks it to leave, and something would be in its way.
    WouldBeBlocked,
    /// Nobody asks it to leave, and it could.
    Free,
}

impl Urgency {
    pub fn is_asked(self) -> bool {
        matches!(self, Self::Blocked | Self::Late | Self::Moving)
    }
}

pub fn explain(found: &NodeFound, now: Timestamp) -> NodeExplanation {
    let node = &found.node;
    let concerned: Vec<&Maintenance> = found
        .maintenances
        .iter()
        .filter(|one| node.is_held_by(&one.name) || one.selector.matches(&node.name, &node.labels))
        .filter(|one| node.is_held_by(&one.name) || one.stage() != Stage::Complete)
        .collect();
    let mut maintenances: Vec<MaintenanceFacts> =
        concerned.iter().map(|one| maintenance_facts(one, &node.name)).collect();
    // Those that do the most come first.
    maintenances.sort_by(|a, b| (rank(a.stage), a.since, &a.name).cmp(&(rank(b.stage), b.since, &b.name)));
    let drain = Drain::of(node, &concerned);
    let mut groups: BTreeMap<(Urgency, String, String, String), Group> = BTreeMap::new();
    for pod in &found.pods {
        let group = group_of(pod, drain.as_ref(), now);
        // Budgets of the same name in two namespaces are two.
        let namespace = if group.waiting_on.reason.contains("DisruptionBudget") {
            pod.namespace.clone()
        } else {
            String::new()
        };
        let key = (group.urgency, group.sentence.clone(), group.advice.clone(), namespace);
        let earliest = |a: Option<Timestamp>, b: Option<Timestamp>| a.into_iter().chain(b).min();
        groups
            .entry(key)
            .and_modify(|known| {
                known.since = earliest(known.since, group.since);
                known.until = earliest(known.until, group.until);
                known.pods.extend(group.pods.iter().cloned());
            })
            .or_insert(group);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let rank = |group: &Group| {
            (group.urgency, group.since.unwrap_or(Timestamp::MAX), usize::MAX - group.pods.len())
        };
        rank(a).cmp(&rank(b)).then_with(|| a.sentence.cmp(&b.sentence))
    });
    NodeExplanation {
        name: node.name.to_string(),
        is_cordoned: node.unschedulable,
        cordoned_by: found.cordoned_by.clone().filter(|_| node.unschedulable),
        was_cordoned_before: node.was_unschedulable,
        held_by: node.held_by.iter().flatten().map(ToString::to_string).collect(),
        maintenances,
        pods: found.pods.len(),
        groups,
    }
}

fn rank(stage: Stage) -> u8 {
    match stage {
        Stage::Drain => 0,
        Stage::Complete => 1,
        Stage::Cordon => 2,
        Stage::Idle => 3,
    }
}

fn maintenance_facts(maintenance: &Maintenance, node: &str) -> MaintenanceFacts {
    let stage = maintenance.stage();
    let started = maintenance.status.stage_statuses.iter().find(|started| started.name == stage);
    let shown = maintenance.status.node_statuses.iter().find(|status| status.node_ref.name == node);
    let targets = maintenance.targets.get(node);
    MaintenanceFacts {
        name: maintenance.name.to_string(),
        stage,
        since: started.and_then(|started| started.start_timestamp.as_ref()).map(|time| time.0),
        reason: maintenance.reason.clone(),
        is_deleting: maintenance.is_deleting,
        drain_targets: targets.and_then(|targets| targets.entries()).unwrap_or_default().to_vec(),
        message: shown.map(|shown| shown.drain_message.clone()).unwrap_or_default(),
    }
}

/// What those who drain the node have come to.
struct Drain {
    /// The pods of the node that are asked to leave.
    targets: Vec<Arc<Targets>>,
    /// They take only some of their nodes at once, and not this one yet.
    is_later: bool,
    /// Other nodes, on which pods are asked to leave before.
    before: Vec<String>,
}

impl Drain {
    fn of(node: &Node, concerned: &[&Maintenance]) -> Option<Self> {
        let draining: Vec<&&Maintenance> =
            concerned.iter().filter(|one| one.stage() == Stage::Drain).collect();
        let targets: Vec<Arc<Targets>> =
            concerned.iter().filter_map(|one| one.targets.get(&node.name).cloned()).collect();
        let others = draining.iter().flat_map(|one| &one.status.node_statuses);
        let before = others
            .filter(|other| other.pods_evicting > 0 && other.node_ref.name != *node.name)
            .map(|other| other.node_ref.name.clone());
        let before: BTreeSet<String> = before.collect();
        (!draining.is_empty()).then(|| Self {
            is_later: targets.is_empty() && draining.iter().all(|one| one.limit.is_some()),
            targets,
            before: before.into_iter().collect(),
        })
    }
}

/// A pod by itself.
fn group_of(found: &Found, drain: Option<&Drain>, now: Timestamp) -> Group {
    let explanation = explain::explain(found, now);
    let name = format!("{}/{}", found.namespace, found.name);
    let is_leaving = explanation.request.is_some()
        || explanation.pod.as_ref().is_some_and(|pod| pod.terminating_until.is_some());
    if !is_leaving && let Some(drain) = drain {
        return not_yet(found, &explanation, drain, name);
    }
    let is_late = explanation.manager.is_some()
        || matches!(&explanation.waits, RequestWait::On(WaitingOn::Termination { grace_ends, .. }) if *grace_ends < now);
    let urgency = match (is_leaving, explanation.is_blocked) {
        (true, true) => Urgency::Blocked,
        (true, false) if is_late => Urgency::Late,
        (true, false) => Urgency::Moving,
        (false, true) => Urgency::WouldBeBlocked,
        (false, false) => Urgency::Free,
    };
    Group {
        urgency,
        waiting_on: explanation.waiting_on.clone(),
        advice: explain::advice(&explanation, &Surroundings::plain(), now),
        sentence: explanation.sentence,
        since: explanation.since,
        until: explanation.until,
        pods: vec![name],
    }
}

/// The drain has not asked the pod yet: it is not its turn, or the manager is about to.
fn not_yet(found: &Found, explanation: &Explanation, drain: &Drain, name: String) -> Group {
    let is_targeted = slim(found).is_some_and(|pod| {
        let class = PodClass { kind: pod.kind(), priority: pod.priority, labels: pod.labels.clone() };
        drain.targets.iter().any(|targets| targets.selects(&class))
    });
    let (waiting_on, sentence, advice) = if is_targeted {
        let waits =
            WaitingOnFacts { reason: "RequestEviction", ..RequestWait::Manager(ManagerStep::Report).facts() };
        (waits, "its turn has come; the manager has to request its eviction", "wait a moment".to_string())
    } else {
        let sentence = if drain.is_later {
            "the nodes of an earlier wave are not drained yet"
        } else {
            "the drain plan has not reached it yet"
        };
        let advice = match &drain.before[..] {
            [] => "wait until the pods before it are gone".to_string(),
            [first, ..] => format!(
                "wait until the pods before it are gone, which are on {}: see explain node/{first}",
                some(&drain.before)
            ),
        };
        let reason = if drain.is_later { "Wave" } else { "Plan" };
        let waits = WaitingOnFacts { kind: "DrainPlan", reason, is_blocked: false, names: Vec::new() };
        (waits, sentence, advice)
    };
    let (sentence, advice) = if explanation.is_blocked {
        (
            format!("{sentence}, and then: {}", explanation.sentence),
            format!("{advice}\n{}", explanation.advice),
        )
    } else {
        (sentence.to_string(), advice)
    };
    Group {
        urgency: Urgency::NotYet,
        waiting_on,
        sentence,
        advice,
        since: None,
        until: None,
        pods: vec![name],
    }
}

fn some(nodes: &[String]) -> String {
    let named = nodes.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn slim(found: &Found) -> Option<Pod> {
    let value = serde_json::to_value(found.pod.as_ref()?).ok()?;
    serde_json::from_value::<PodOnWire>(value).ok().map(Pod::from)
}
