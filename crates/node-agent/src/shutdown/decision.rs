//! What a shutdown of the node does next, from what is seen of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use usher_api::names::{
    NODE_AGENT_BOOT_ANNOTATION, NODE_AGENT_CAUSE_ANNOTATION, NODE_AGENT_DEADLINE_ANNOTATION,
};
use usher_api::{
    DrainPlanEntry, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStage as Stage, PodType,
};
use usher_decide::snapshot::NodePhase;

use super::{ANSWER_WITHIN, Options};
use crate::kubelet::GracePeriod;

/// So many priorities fit into a plan, beside those that every plan has.
const PRIORITIES_MAX: usize = 28;

/// Why the node goes down: it says so in its maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// logind said so, and says so too if it is cancelled.
    Shutdown,
    /// Somebody gave notice, and takes it back by completing the maintenance.
    Notice,
}

impl Cause {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Notice => "notice",
        }
    }
}

/// What is known of the node's own maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    pub uid: String,
    /// It is not completed and not being deleted.
    pub is_active: bool,
    pub is_deleting: bool,
    pub boot: String,
    pub is_of_shutdown: bool,
}

/// What is seen while the node is to go down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The API server does not answer, or refuses to tell, since then.
    Nothing {
        since: Timestamp,
    },
    Cluster {
        phase: Option<NodePhase>,
        own: Option<Own>,
    },
}

/// A shutdown that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    pub begun: Timestamp,
    /// It goes on then, whoever is left.
    pub until: Timestamp,
    /// A maintenance was seen: the pods are asked to leave.
    pub is_asked: bool,
    /// No maintenance could be made, since then.
    pub unmade_since: Option<Timestamp>,
}

impl UnderWay {
    pub fn new(begun: Timestamp, until: Timestamp) -> Self {
        Self { begun, until, is_asked: false, unmade_since: None }
    }

    /// How long the API server is waited for. One that is busy, or is being restarted, is back soon; pods that were asked are leaving
    /// meanwhile.
    pub(super) fn patience(&self) -> SignedDuration {
        let granted = self.until.duration_since(self.begun);
        if self.is_asked { (granted / 2).min(SignedDuration::from_secs(30)) } else { self.patience_to_ask() }
    }

    fn patience_to_ask(&self) -> SignedDuration {
        (self.until.duration_since(self.begun) / 4).min(SignedDuration::from_secs(10))
    }

    /// How long one call is waited for.
    pub(super) fn answer_within(&self, now: Timestamp) -> Duration {
        let left = self.until.duration_since(now).min(self.patience_to_ask());
        Duration::try_from(left).unwrap_or_default().clamp(Duration::from_millis(200), ANSWER_WITHIN)
    }
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes a maintenance. If that has been refused for long, what can be ended without it is.
    Create {
        is_alone: bool,
    },
    /// The maintenance of an earlier time has to go first.
    Remove,
    Wait,
    /// Nobody can be asked: what can be ended without the API server is ended.
    EndAlone,
    /// All pods have ended.
    Done,
    /// There is no more time.
    GiveUp,
}

/// A maintenance of the node that drains already is joined: there is one only if none does.
pub fn decide(seen: &Observed, under_way: &UnderWay, now: Timestamp) -> Step {
    let is_long = |since: Timestamp| now.duration_since(since) >= under_way.patience();
    match seen {
        Observed::Cluster { phase: Some(NodePhase::Drained), .. } => Step::Done,
        _ if now >= under_way.until => Step::GiveUp,
        Observed::Nothing { since } if is_long(*since) => Step::EndAlone,
        Observed::Nothing { .. } => Step::Wait,
        Observed::Cluster { phase: Some(NodePhase::Draining), .. } => Step::Wait,
        Observed::Cluster { own: Some(own), .. } if own.is_active => Step::Wait,
        Observed::Cluster { own: Some(own), .. } if own.is_deleting => Step::Wait,
        Observed::Cluster { own: Some(_), .. } => Step::Remove,
        Observed::Cluster { own: None, .. } => {
            Step::Create { is_alone: under_way.unmade_since.is_some_and(is_long) }
        }
    }
}

/// Whether the maintenance is to go while no shutdown is under way: it was cancelled, or the node has started again.
pub fn is_over(own: &Own, boot: &str, complete_after_boot: bool) -> bool {
    if own.boot == boot {
        own.is_of_shutdown && !own.is_deleting
    } else {
        complete_after_boot && !own.is_deleting
    }
}

/// The priorities of the kubelet's configuration, without the seconds: pods below each next one leave before those from it on.
pub fn plan(periods: &[GracePeriod]) -> Vec<DrainPlanEntry> {
    let priorities: BTreeSet<i32> = periods.iter().map(|it| it.priority).collect();
    let bounds: Vec<i32> = priorities.into_iter().skip(1).map(|it| it.saturating_sub(1)).collect();
    if bounds.len() > PRIORITIES_MAX {
        return Vec::new();
    }
    let kinds = [PodType::Default, PodType::DaemonSet, PodType::Static];
    kinds.into_iter().flat_map(|kind| bounds.iter().map(move |it| DrainPlanEntry::up_to(*it, kind))).collect()
}

/// Up to which priority static pods are ended after this long, if nobody can be asked: each group has its seconds, and the next one
/// begins after them.
pub fn alone_up_to(periods: &[GracePeriod], since: SignedDuration) -> i32 {
    let mut sorted: Vec<&GracePeriod> = periods.iter().collect();
    sorted.sort_by_key(|it| it.priority);
    let mut passed = SignedDuration::ZERO;
    for (at, period) in sorted.iter().enumerate() {
        passed += SignedDuration::from_secs(period.shutdown_grace_period_seconds.max(0));
        if since < passed {
            return sorted.get(at + 1).map_or(i32::MAX, |next| next.priority.saturating_sub(1));
        }
    }
    i32::MAX
}

/// The name of the maintenance that an agent makes for its node. Policies let it have no other.
pub fn maintenance_name(node: &str) -> String {
    format!("shutdown-{node}")
}

pub fn maintenance(
    options: &Options,
    cause: Cause,
    reason: &str,
    deadline: Option<Timestamp>,
) -> NodeMaintenance {
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![options.node.clone()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![by_name]), match_expressions: None };
    let spec = NodeMaintenanceSpec {
        node_selector: NodeSelector { node_selector_terms: vec![term] },
        stage: Stage::Drain,
        drain_plan: plan(&options.periods),
        reason: reason.to_owned(),
        ..NodeMaintenanceSpec::default()
    };
    let mut object = NodeMaintenance::new(&maintenance_name(&options.node), spec);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(NODE_AGENT_BOOT_ANNOTATION.to_owned(), options.boot.clone());
    annotations.insert(NODE_AGENT_CAUSE_ANNOTATION.to_owned(), cause.name().to_owned());
    if let Some(deadline) = deadline {
        annotations.insert(NODE_AGENT_DEADLINE_ANNOTATION.to_owned(), deadline.to_string());
    }
    object
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
