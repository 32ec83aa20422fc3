//! What a maintenance that drains waits for, and its nodes and pods: decided once. Conditions, messages and metrics tell it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::DrainedReason;

use super::drain_state::DrainState;
use super::nodes::MaintenanceState;
use super::stages::{Case, View};
use super::words::FirstNames;

/// How far a maintenance that drains is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainProgress {
    Waits(MaintenanceWait),
    /// The plan is at its end, all nodes take no new pods, and no pod is left on any: nothing less is success.
    Drained,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaintenanceWait {
    /// Somebody has to select a node.
    NoNodes,
    /// All pods have left, but for nodes that lost the labels by which they were selected.
    NodesLeft { nodes: FirstNames },
    /// These nodes take new pods, or do not carry the maintenance's mark, yet.
    Cordon { nodes: FirstNames },
    /// All nodes are cordoned, and the drain is planned next.
    AboutToBegin,
    /// No pod is asked to leave before these maintenances have come as far.
    Maintenances { names: Vec<String> },
    /// Other nodes have their turn, or are drained; so many come later.
    LaterNodes { drained: u32, later: usize },
    /// Pods are asked to leave, not as fast as one would like if other maintenances limit it.
    Pods { limited_by: Vec<String> },
    /// Only pods are left that nothing ends.
    NothingEnds { pods: FirstNames },
    /// No pod is left, and entries of the plan are. The board goes on to the end by itself.
    PlanEntries,
}

impl DrainProgress {
    /// `None`: it does not drain.
    pub fn of(case: &Case<'_>) -> Option<Self> {
        if !case.maintenance.drains() {
            return None;
        }
        if case.nodes.is_empty() {
            return Some(Self::Waits(MaintenanceWait::NoNodes));
        }
        let is_uncordoned = |view: &&View<'_>| !view.is_held || !view.unschedulable;
        let uncordoned = FirstNames::of(case.nodes.iter().filter(is_uncordoned).map(|view| view.name));
        let cordon = uncordoned.map(|nodes| MaintenanceWait::Cordon { nodes });
        let Some(drain) = &case.drain else {
            return Some(Self::Waits(cordon.unwrap_or(MaintenanceWait::AboutToBegin)));
        };
        let progress = Self::of_drain(case, drain);
        Some(match cordon {
            Some(cordon) if !matches!(progress, Self::Waits(MaintenanceWait::NodesLeft { .. })) => {
                Self::Waits(cordon)
            }
            _ => progress,
        })
    }

    /// How far a drain is that has begun, whether or not nodes take new pods meanwhile.
    pub fn of_drain(case: &Case<'_>, drain: &MaintenanceState) -> Self {
        let is_empty = |view: &View<'_>| view.state.is_some_and(|state| state.is_empty()) && view.pods == 0;
        let have_all_left = drain.is_at_the_end && case.nodes.iter().all(is_empty);
        match FirstNames::of(case.departed) {
            Some(nodes) if have_all_left => Self::Waits(MaintenanceWait::NodesLeft { nodes }),
            None if have_all_left => Self::Drained,
            _ => Self::Waits(MaintenanceWait::of_pods(case, drain)),
        }
    }

    /// `None`: there is nothing more to wait for.
    pub fn waiting_on(self) -> Option<MaintenanceWait> {
        match self {
            Self::Waits(waiting_on) => Some(waiting_on),
            Self::Drained => None,
        }
    }
}

impl MaintenanceWait {
    /// What metrics call it.
    pub const CAUSES: [&'static str; 4] = ["Nodes", "Cordon", "Maintenance", "Pods"];

    /// Pods are left, or entries of the plan.
    fn of_pods(case: &Case<'_>, drain: &MaintenanceState) -> Self {
        let later = || case.nodes.iter().filter(|view| view.state.is_none());
        let asked_later: u32 = later().map(|view| view.evicting.min(view.pods)).sum();
        let staying: u32 = case.nodes.iter().map(|view| view.staying).sum();
        if let Some(pods) = FirstNames::of(case.staying)
            && staying == drain.evicting + asked_later
        {
            return Self::NothingEnds { pods };
        }
        match &drain.drain {
            DrainState::Waiting { on } => Self::Maintenances { names: on.clone() },
            DrainState::Evicting { limited_by } => Self::Pods { limited_by: limited_by.clone() },
            // The board says one of these three of a maintenance, and the last one where nobody is left of the nodes that it drains.
            DrainState::Drained
            | DrainState::ToBeCordoned
            | DrainState::Cordoned
            | DrainState::NothingEnds
            | DrainState::Cancelled => match later().count() {
                0 if drain.is_at_the_end => Self::Pods { limited_by: Vec::new() },
                0 => Self::PlanEntries,
                later => Self::LaterNodes { drained: drain.nodes_drained, later },
            },
        }
    }

    pub fn reason(&self) -> DrainedReason {
        match self {
            Self::NoNodes => DrainedReason::NoNodes,
            Self::NodesLeft { .. } => DrainedReason::NodesLeft,
            Self::Cordon { .. } | Self::AboutToBegin => DrainedReason::Cordoning,
            Self::Maintenances { .. } => DrainedReason::Waiting,
            Self::LaterNodes { .. } | Self::Pods { .. } | Self::NothingEnds { .. } | Self::PlanEntries => {
                DrainedReason::Draining
            }
        }
    }

    /// One of [`Self::CAUSES`].
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NoNodes | Self::NodesLeft { .. } => "Nodes",
            Self::Cordon { .. } | Self::AboutToBegin => "Cordon",
            Self::Maintenances { .. } => "Maintenance",
            Self::LaterNodes { .. } | Self::Pods { .. } | Self::NothingEnds { .. } | Self::PlanEntries => {
                "Pods"
            }
        }
    }
}

/// What the condition says.
impl fmt::Display for MaintenanceWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("no node is selected"),
            Self::NodesLeft { nodes } => write!(
                f,
                "all pods have left the nodes that are selected, but {nodes} lost the labels by which it was: it was not drained"
            ),
            Self::Cordon { nodes } => write!(f, "waiting until {nodes} is cordoned"),
            Self::AboutToBegin => f.write_str("all nodes are cordoned, and the drain is about to begin"),
            Self::Maintenances { names } => DrainState::Waiting { on: names.clone() }.fmt(f),
            Self::LaterNodes { drained, later } => {
                write!(f, "{drained} nodes are drained, {later} wait for their turn")
            }
            Self::Pods { limited_by } => DrainState::Evicting { limited_by: limited_by.clone() }.fmt(f),
            Self::NothingEnds { pods } => write!(
                f,
                "Nothing ends {pods}: keep them off these nodes, or end them by an interceptor or by hand"
            ),
            Self::PlanEntries => f.write_str("no pod is left, and the plan is not at its end yet"),
        }
    }
}

/// What a node waits for, which is cordoned later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeWait {
    /// Somebody keeps uncordoning it: it is cordoned again then.
    CordonConflict { until: Timestamp },
    /// The status of this maintenance still speaks of a node that is gone and had the same name: that is put right first.
    FormerNode { maintenance: Arc<str> },
}

/// What a pod waits for, which is asked to leave later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodWait {
    /// It came to a node that others of its workload were asked to leave: it is asked then.
    CameBack { until: Timestamp },
}
