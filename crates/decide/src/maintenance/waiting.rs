//! What a maintenance that drains waits for, and its nodes and pods: decided once. Conditions, messages, metrics and explanations tell
//! it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::DrainedReason;

use super::drain_state::DrainState;
use super::nodes::MaintenanceState;
use super::stages::{Case, View};
use super::words::FirstNames;
use crate::snapshot::Node;

/// How far a maintenance that drains is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    /// `None`: it is drained. The plan is at its end, all nodes take no new pods, and no pod is left on any: nothing less is success.
    pub waiting_on: Option<MaintenanceWait>,
    /// What the drain waits for that has begun, whether or not nodes take new pods meanwhile. `None`: all pods have left the nodes that
    /// are selected.
    pub pods: Option<MaintenanceWait>,
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
            return Some(Self { waiting_on: Some(MaintenanceWait::NoNodes), pods: None });
        }
        let is_uncordoned = |view: &&View<'_>| !view.is_held || !view.unschedulable;
        let uncordoned = FirstNames::of(case.nodes.iter().filter(is_uncordoned).map(|view| view.name));
        let cordon = uncordoned.map(|nodes| MaintenanceWait::Cordon { nodes });
        let Some(drain) = &case.drain else {
            return Some(Self { waiting_on: cordon.or(Some(MaintenanceWait::AboutToBegin)), pods: None });
        };
        let is_empty = |view: &View<'_>| view.state.is_some_and(|state| state.is_empty()) && view.pods == 0;
        let have_all_left = drain.is_at_the_end && case.nodes.iter().all(is_empty);
        if have_all_left && let Some(nodes) = FirstNames::of(case.departed) {
            return Some(Self { waiting_on: Some(MaintenanceWait::NodesLeft { nodes }), pods: None });
        }
        let pods = (!have_all_left).then(|| MaintenanceWait::of_pods(case, drain));
        Some(Self { waiting_on: cordon.or_else(|| pods.clone()), pods })
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
                "all pods have left the nodes that are selected, but {nodes} lost the labels by which it was: this maintenance drains it no more"
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
    /// Somebody uncordoned it: it is cordoned again then. `None` for who looks on, since the manager alone knows how often that was.
    CordonConflict { until: Option<Timestamp> },
    /// The status of this maintenance still speaks of a node that is gone and had the same name: that is put right first.
    FormerNode { maintenance: Arc<str> },
}

impl NodeWait {
    /// For who looks on.
    pub fn of(node: &Node) -> Option<Self> {
        let is_held = node.held_by.as_ref().is_some_and(|names| !names.is_empty());
        (is_held && !node.unschedulable).then_some(Self::CordonConflict { until: None })
    }

    /// One word for machines.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::CordonConflict { .. } => "CordonConflict",
            Self::FormerNode { .. } => "FormerNode",
        }
    }
}

impl fmt::Display for NodeWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CordonConflict { .. } => {
                f.write_str("somebody uncordoned it, and it will be cordoned again")
            }
            Self::FormerNode { maintenance } => write!(
                f,
                "maintenance {maintenance} still speaks of a node of the same name that is gone; that is put right first"
            ),
        }
    }
}

/// What a pod of a node that is drained waits for, which is asked to leave later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWait {
    /// It is its turn: the manager has to request its eviction.
    Request,
    /// The node belongs to a later wave. On these nodes pods are asked to leave before.
    LaterWave { before: Option<FirstNames> },
    /// The plan has not reached it. On these nodes pods are asked to leave before.
    LaterInPlan { before: Option<FirstNames> },
    /// Its workload made it for a node that others of it were asked to leave: it is asked then. `None` for who looks on, since the
    /// manager alone knows how often that was.
    CameBack { until: Option<Timestamp> },
}

impl PodWait {
    /// One word for machines.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request => "RequestEviction",
            Self::LaterWave { .. } => "Wave",
            Self::LaterInPlan { .. } => "Plan",
            Self::CameBack { .. } => "CameBack",
        }
    }

    /// What the reader can do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Request => "wait a moment".to_owned(),
            Self::CameBack { .. } => {
                "wait a moment, and see whether the template of its workload names the node or tolerates \
                 node.kubernetes.io/unschedulable: as long as pods come back, the drain does not end"
                    .to_owned()
            }
            Self::LaterWave { before: None } | Self::LaterInPlan { before: None } => {
                "wait until the pods before it are gone".to_owned()
            }
            Self::LaterWave { before: Some(nodes) } | Self::LaterInPlan { before: Some(nodes) } => format!(
                "wait until the pods before it are gone, which are on {nodes}: see explain node/{}",
                nodes.first()
            ),
        }
    }
}

impl fmt::Display for PodWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "its turn has come; the manager has to request its eviction",
            Self::LaterWave { .. } => "the nodes of an earlier wave are not drained yet",
            Self::LaterInPlan { .. } => "the drain plan has not reached it yet",
            Self::CameBack { until: None } => {
                "it came to the node after the drain had begun: the manager has to request its eviction, later each time if it comes back"
            }
            Self::CameBack { until: Some(_) } => {
                "it came to the node after others like it were asked to leave, and is asked later each time"
            }
        })
    }
}
