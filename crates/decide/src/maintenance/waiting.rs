//! What a maintenance that drains waits for: decided here once. The condition and metrics tell it.

use std::fmt;
use std::sync::Arc;

use usher_api::{DrainedReason, NodeMaintenanceStage as Stage};

use super::drain_state::DrainState;
use super::nodes::MaintenanceState;
use super::stages::{Case, View};
use super::words;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaintenanceWait {
    /// Somebody has to select a node.
    NoNodes,
    /// All pods have left, but for nodes that lost the labels by which they were selected.
    NodesLeft { nodes: Vec<Arc<str>> },
    /// These nodes take new pods, or do not carry the maintenance's mark, yet.
    Cordon { nodes: Vec<Arc<str>> },
    /// Maintenances, which may be itself, have not come as far.
    Maintenances { names: Vec<String> },
    /// Other nodes have their turn, or are drained; so many come later.
    LaterNodes { drained: u32, later: usize },
    /// Pods are asked to leave, not as fast as one would like if other maintenances limit it.
    Pods { limited_by: Vec<String> },
    /// Only pods are left that nothing ends.
    NothingEnds { pods: Vec<String> },
}

impl MaintenanceWait {
    /// What metrics call it.
    pub const CAUSES: [&'static str; 4] = ["Nodes", "Cordon", "Maintenance", "Pods"];

    /// `None`: it does not drain, or all pods have left.
    pub fn of(case: &Case<'_>) -> Option<Self> {
        if case.maintenance.stage() != Stage::Drain {
            return None;
        }
        if case.nodes.is_empty() {
            return Some(Self::NoNodes);
        }
        let is_empty = |view: &View<'_>| view.state.is_some_and(|state| state.is_empty()) && view.pods == 0;
        let is_at_the_end = case.drain.as_ref().is_some_and(|drain| drain.is_at_the_end);
        let have_all_left = is_at_the_end && case.nodes.iter().all(is_empty);
        if have_all_left && !case.departed.is_empty() {
            return Some(Self::NodesLeft { nodes: case.departed.iter().cloned().collect() });
        }
        let is_uncordoned = |view: &&View<'_>| !view.is_held || !view.unschedulable;
        let nodes: Vec<Arc<str>> =
            case.nodes.iter().filter(is_uncordoned).map(|view| view.name.clone()).collect();
        match &case.drain {
            Some(drain) if nodes.is_empty() => (!have_all_left).then(|| Self::of_drain(case, drain)),
            _ => Some(Self::Cordon { nodes }),
        }
    }

    /// What a drain that has begun waits for, whether or not nodes take new pods meanwhile.
    pub fn of_drain(case: &Case<'_>, drain: &MaintenanceState) -> Self {
        let later = || case.nodes.iter().filter(|view| view.state.is_none());
        let asked_later: u32 = later().map(|view| view.evicting.min(view.pods)).sum();
        let staying: u32 = case.nodes.iter().map(|view| view.staying).sum();
        if !case.staying.is_empty() && staying == drain.evicting + asked_later {
            return Self::NothingEnds { pods: case.staying.iter().cloned().collect() };
        }
        match &drain.drain {
            DrainState::Waiting { on } => Self::Maintenances { names: on.clone() },
            DrainState::Evicting { limited_by } => Self::Pods { limited_by: limited_by.clone() },
            DrainState::Drained if later().next().is_some() => {
                Self::LaterNodes { drained: drain.nodes_drained, later: later().count() }
            }
            _ if !drain.waits_for.is_empty() => Self::Maintenances { names: drain.waits_for.clone() },
            _ => Self::Pods { limited_by: Vec::new() },
        }
    }

    pub fn reason(&self) -> DrainedReason {
        match self {
            Self::NoNodes => DrainedReason::NoNodes,
            Self::NodesLeft { .. } => DrainedReason::NodesLeft,
            Self::Cordon { .. } => DrainedReason::Cordoning,
            Self::Maintenances { .. } => DrainedReason::Waiting,
            Self::LaterNodes { .. } | Self::Pods { .. } | Self::NothingEnds { .. } => DrainedReason::Draining,
        }
    }

    /// One of [`Self::CAUSES`].
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NoNodes | Self::NodesLeft { .. } => "Nodes",
            Self::Cordon { .. } => "Cordon",
            Self::Maintenances { .. } => "Maintenance",
            Self::LaterNodes { .. } | Self::Pods { .. } | Self::NothingEnds { .. } => "Pods",
        }
    }
}

/// What the condition says.
impl fmt::Display for MaintenanceWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = |nodes: &[Arc<str>]| words::some(&nodes.iter().map(|node| &**node).collect::<Vec<_>>());
        match self {
            Self::NoNodes => f.write_str("no node is selected"),
            Self::NodesLeft { nodes } => write!(
                f,
                "all pods have left the nodes that are selected, but {} lost the labels by which it was: it was not drained",
                some(nodes)
            ),
            Self::Cordon { nodes } if nodes.is_empty() => {
                f.write_str("all nodes are cordoned, and the drain is about to begin")
            }
            Self::Cordon { nodes } => write!(f, "waiting until {} is cordoned", some(nodes)),
            Self::Maintenances { names } => DrainState::Waiting { on: names.clone() }.fmt(f),
            Self::LaterNodes { drained, later } => {
                write!(f, "{drained} nodes are drained, {later} wait for their turn")
            }
            Self::Pods { limited_by } => DrainState::Evicting { limited_by: limited_by.clone() }.fmt(f),
            Self::NothingEnds { pods } => write!(
                f,
                "Nothing ends {}: keep them off these nodes, or end them by an interceptor or by hand",
                words::some(&pods.iter().map(String::as_str).collect::<Vec<_>>())
            ),
        }
    }
}
