//! The explanation of a node as data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::node_agent::NodeAgentMark;
use usher_api::{DrainPlanEntry, NodeMaintenanceStage as Stage};
use usher_decide::maintenance::waiting::{NodeWait, PodWait};
use usher_decide::snapshot::{Maintenance, Node, Pod};
use usher_forecast::node_state::{NodeDrain, Urgency, concerned, stage_started};

use crate::Environment;
use crate::explain::{self, Explanation, PodFound};
use crate::request_text::{WaitText as _, WaitingOnFacts};
use usher_forecast::request_state::{RequestWait, WaitCause};

/// What the explanation is made from.
pub struct NodeFound {
    pub node: Node,
    /// Who wrote last that the node takes no pods.
    pub cordoned_by: Option<String>,
    /// What its agent says, if it has one.
    pub agent: Option<Box<NodeAgentMark>>,
    /// All that there are.
    pub maintenances: Vec<Maintenance>,
    /// The pods that a drain waits for.
    pub pods: Vec<PodFound>,
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
    /// What it waits for, if it is to be cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_on: Option<WaitingOnFacts>,
    #[serde(skip)]
    pub waits: Option<NodeWait>,
    /// What its agent says, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<NodeAgentMark>>,
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
    /// What the interceptor that has the turn, or had the last one, says of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    pub advice: String,
    /// Since when the first of them waits.
    pub since: Option<Timestamp>,
    /// When something changes by itself, for the first of them.
    pub until: Option<Timestamp>,
    pub pods: Vec<String>,
}

/// What the pods of a group have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    urgency: Urgency,
    /// Where the drain has not asked them yet.
    not_asked: Option<PodWait>,
    cause: WaitCause,
    /// What the manager should have done by now.
    due: Option<&'static str>,
    /// Who would go first, and how many there are, where nobody has asked.
    interceptors: Option<(String, usize)>,
    /// Budgets of the same name in two namespaces are two.
    namespace: Option<String>,
}

pub fn explain(found: &NodeFound, now: Timestamp) -> NodeExplanation {
    let node = &found.node;
    let concerned = concerned(node, &found.maintenances);
    let maintenances = concerned.iter().map(|one| maintenance_facts(one, &node.name)).collect();
    let drain = NodeDrain::of(node, &concerned);
    let waits = NodeWait::of(node);
    NodeExplanation {
        name: node.name.to_string(),
        is_cordoned: node.unschedulable,
        cordoned_by: found.cordoned_by.clone().filter(|_| node.unschedulable),
        was_cordoned_before: node.was_unschedulable,
        held_by: node.held_by.iter().flatten().map(ToString::to_string).collect(),
        waiting_on: waits.as_ref().map(WaitingOnFacts::of_node),
        waits,
        agent: found.agent.clone(),
        maintenances,
        pods: found.pods.len(),
        groups: groups(found.pods.iter(), Beside::Node(drain.as_ref()), now),
    }
}

/// What is told beside the pods.
#[derive(Debug, Clone, Copy)]
pub enum Beside<'a> {
    /// Their node, and what those who drain it have come to, if anybody does.
    Node(Option<&'a NodeDrain>),
    /// Their Deployment, and what its new pods lack, if they do.
    Deployment { names_what_is_missing: bool },
}

/// Pods by what they wait on, worst first.
pub fn groups<'a>(
    pods: impl Iterator<Item = &'a PodFound>,
    beside: Beside<'_>,
    now: Timestamp,
) -> Vec<Group> {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    for pod in pods {
        let (key, group) = group_of(pod, beside, now);
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
    groups
}

fn maintenance_facts(maintenance: &Maintenance, node: &str) -> MaintenanceFacts {
    let stage = maintenance.stage();
    let shown = maintenance.status.node_statuses.iter().find(|status| status.node_ref.name == node);
    let targets = maintenance.targets.get(node);
    MaintenanceFacts {
        name: maintenance.name.to_string(),
        stage,
        since: stage_started(maintenance),
        reason: maintenance.reason.clone(),
        is_deleting: maintenance.is_deleting,
        drain_targets: targets.and_then(|targets| targets.entries()).unwrap_or_default().to_vec(),
        message: shown.map(|shown| shown.drain_message.clone()).unwrap_or_default(),
    }
}

/// A pod by itself.
fn group_of(found: &PodFound, beside: Beside<'_>, now: Timestamp) -> (GroupKey, Group) {
    let drain = match beside {
        Beside::Node(drain) => drain,
        Beside::Deployment { .. } => None,
    };
    let explanation = explain::explain(found, now);
    let name = format!("{}/{}", found.namespace, found.name);
    let is_leaving = explanation.request.is_some()
        || explanation.pod.as_ref().is_some_and(|pod| pod.terminating_until.is_some());
    let is_late = explanation.manager.is_some() || explanation.waits.is_overdue(now);
    let urgency = Urgency::of(is_leaving, drain.is_some(), explanation.is_blocked, is_late);
    let not_asked = drain.filter(|_| urgency == Urgency::NotYet).map(|drain| {
        found.pod.clone().map(Pod::from).map_or_else(|| drain.later(), |pod| drain.wait_of(&pod))
    });
    // Of those that are not asked yet, only what will block them is told.
    let tells_cause = not_asked.is_none() || explanation.is_blocked;
    let is_about_budgets = explanation.waits.is_about_budgets() && explanation.is_blocked;
    let first =
        explanation.interceptors.first().filter(|_| explanation.request.is_none() && not_asked.is_none());
    let key = GroupKey {
        urgency,
        not_asked: not_asked.clone(),
        cause: if tells_cause { explanation.waits.cause() } else { RequestWait::Nothing.cause() },
        due: explanation.manager.as_ref().map(|manager| manager.due.as_str()),
        interceptors: first.map(|first| (first.class.clone(), explanation.interceptors.len())),
        namespace: is_about_budgets.then(|| found.namespace.clone()),
    };
    if let Some(wait) = not_asked {
        return (key, not_yet(&wait, &explanation, name));
    }
    // Where the manager does not run, that is told first.
    let turn = explanation.waits.turn_of_deployment().filter(|_| urgency != Urgency::Late);
    let (said, advice) = match (beside, turn) {
        (Beside::Deployment { names_what_is_missing }, Some(turn)) => {
            (turn.said().filter(|_| !names_what_is_missing), turn.advice_beside_deployment())
        }
        _ => (explanation.waits.said(), explain::advice(&explanation, &Environment::plain(), now)),
    };
    let group = Group {
        urgency,
        waiting_on: explanation.waiting_on.clone(),
        advice,
        said: said.map(str::to_owned),
        sentence: explanation.sentence,
        since: explanation.since,
        until: explanation.until,
        pods: vec![name],
    };
    (key, group)
}

/// The drain has not asked the pod yet. What will block it then is told as well.
fn not_yet(wait: &PodWait, explanation: &Explanation, name: String) -> Group {
    let (sentence, advice) = if explanation.is_blocked {
        (
            format!("{wait}, and then: {}", explanation.sentence),
            format!("{}\n{}", wait.advice(), explanation.advice),
        )
    } else {
        (wait.to_string(), wait.advice())
    };
    Group {
        urgency: Urgency::NotYet,
        waiting_on: WaitingOnFacts::of_pod(wait),
        sentence,
        said: None,
        advice,
        since: None,
        until: None,
        pods: vec![name],
    }
}
