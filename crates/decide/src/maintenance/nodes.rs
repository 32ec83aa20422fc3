//! Nodes and maintenances in numbers and words.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::drain_state::DrainState;
use super::progress::Number;
use super::targets::Targets;

/// A node that at least one maintenance drains.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: Arc<str>,
    /// The maintenances that drain it, sorted.
    pub covered_by: Vec<Number>,
    /// Those of them that it joins now. Its pods that are not targeted yet leave in the order of their plans.
    pub joins: Vec<Number>,
    /// It came while they were draining, and nobody has seen a pod on it yet: its first pods make it join.
    pub awaits_pods: bool,
    /// What was targeted before. It stays targeted.
    pub targets: Arc<Targets>,
    /// The pods that are there, by the number of their class: all of them, and those with an eviction request.
    pub pods: BTreeMap<usize, Pods>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pods {
    pub there: u32,
    pub evicting: u32,
}

/// Where a node stands now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeState {
    pub targets: Arc<Targets>,
    pub drain: DrainState,
    pub pending: u32,
    pub evicting: u32,
}

impl NodeState {
    pub fn is_empty(&self) -> bool {
        self.pending + self.evicting == 0
    }
}

/// Where a maintenance stands now.
#[derive(Debug, Clone, PartialEq)]
pub struct MaintenanceState {
    pub position: usize,
    /// No entry of its plan is left.
    pub is_at_the_end: bool,
    /// What is targeted on all of its nodes.
    pub reached: Arc<Targets>,
    pub drain: DrainState,
    pub pending: u32,
    pub evicting: u32,
    pub nodes_drained: u32,
    /// Maintenances that have not reached what this one has.
    pub waits_for: Vec<String>,
}
