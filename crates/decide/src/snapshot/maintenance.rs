//! A node maintenance, with its selector and plan read once.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::{
    KEEP_NODES_ANNOTATION, MAINTENANCE_COMPLETION_FINALIZER, MOVE_CONTROL_PLANE_ANNOTATION,
};
use usher_api::{DrainLimit, NodeMaintenance, NodeMaintenanceStage, NodeMaintenanceStatus, StageStatus};

use super::Node;
use crate::admission::node_rights::{Needed, needed};
use crate::maintenance::plan::Plan;
use crate::maintenance::selector::NodeMatcher;
use crate::maintenance::written::{Written, json_bytes};

#[derive(Debug, Clone)]
pub struct Maintenance {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub generation: i64,
    pub created: Timestamp,
    pub is_deleting: bool,
    pub finalizers: Vec<String>,
    pub selector: Arc<NodeMatcher>,
    /// The nodes that it names, if it can mean no others.
    pub names: Option<Arc<BTreeSet<String>>>,
    /// A node that was selected once stays, whatever becomes of its labels.
    pub keeps_nodes: bool,
    /// Static pods of the control plane leave too.
    pub moves_control_plane: bool,
    /// The stage that is asked for.
    pub wanted: NodeMaintenanceStage,
    pub plan: Arc<Plan>,
    pub limit: Option<DrainLimit>,
    pub reason: String,
    pub status: NodeMaintenanceStatus,
    /// What its status says is targeted.
    pub targets: Arc<Written>,
    /// The bytes of all but its status, as JSON.
    pub rest_bytes: usize,
}

impl Maintenance {
    /// The stage that it is in: one that is deleted is about to be completed, unless it never began.
    pub fn stage(&self) -> NodeMaintenanceStage {
        match self.wanted {
            NodeMaintenanceStage::Idle if !self.has_begun() => NodeMaintenanceStage::Idle,
            _ if self.is_deleting => NodeMaintenanceStage::Complete,
            stage => stage,
        }
    }

    /// It may have touched nodes or pods: its finalizer says so.
    pub fn has_begun(&self) -> bool {
        has_begun(&self.finalizers)
    }

    /// It has begun, also where somebody took its finalizer away: that comes back, and nothing is let go of meanwhile.
    fn is_under_way(&self) -> bool {
        let has_cordoned = |stage: &StageStatus| stage.name == NodeMaintenanceStage::Cordon;
        self.has_begun() || self.status.stage_statuses.iter().any(has_cordoned)
    }

    /// It keeps its nodes cordoned. Not before its finalizer is there, which makes sure that they are uncordoned.
    pub fn holds(&self) -> bool {
        self.is_under_way()
            && matches!(self.stage(), NodeMaintenanceStage::Cordon | NodeMaintenanceStage::Drain)
    }

    pub fn drains(&self) -> bool {
        self.is_under_way() && self.stage() == NodeMaintenanceStage::Drain
    }

    /// Whether it selects the node; `was_selected` is whether it did before.
    pub fn selects(&self, node: &Node, was_selected: bool) -> bool {
        let was_held = || was_selected || node.is_held_by(&self.name) || self.lists(&node.name);
        self.selector.matches(&node.name, &node.labels)
            || (self.keeps_nodes && self.holds() && self.may_mean(&node.name) && was_held())
    }

    /// Whoever made it may delete all nodes, or those that it names: no mark or status makes it mean another.
    fn may_mean(&self, node: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(node))
    }

    /// Its status has the node.
    pub fn lists(&self, node: &str) -> bool {
        self.status.node_statuses.iter().any(|status| status.node_ref.name == node)
    }

    /// Its status is about the spec that it has now.
    pub fn is_observed(&self) -> bool {
        self.status.conditions.iter().any(|it| it.observed_generation == Some(self.generation))
    }

    pub fn position(&self) -> usize {
        let position = self.status.drain_status.as_ref().map_or(0, |drain| drain.plan_position);
        usize::try_from(position).unwrap_or(0).min(self.plan.last())
    }

    /// When it began to drain.
    pub fn drain_start(&self) -> Option<Timestamp> {
        let mut stages = self.status.stage_statuses.iter();
        stages
            .find(|stage| stage.name == NodeMaintenanceStage::Drain)?
            .start_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// Whether it began to drain: then it does not wait for nodes that join later.
    pub fn drain_has_begun(&self) -> bool {
        self.status.drain_status.is_some()
    }
}

/// The finalizers of a maintenance say that it may have touched nodes or pods, and has not let go of all of them yet.
pub fn has_begun(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == MAINTENANCE_COMPLETION_FINALIZER)
}

impl From<NodeMaintenance> for Maintenance {
    fn from(maintenance: NodeMaintenance) -> Self {
        let names = match needed(None, Some(&maintenance)) {
            Needed::All { .. } => None,
            Needed::Named(names) => Some(Arc::new(names.into_iter().collect())),
        };
        let (meta, spec) = (maintenance.metadata, maintenance.spec);
        let annotations = meta.annotations.clone().unwrap_or_default();
        let says = |name: &str| annotations.get(name).is_some_and(|value| value == "true");
        let rest_bytes = json_bytes(&meta) + json_bytes(&spec);
        let status = maintenance.status.unwrap_or_default();
        let text = |text: Option<String>| Arc::<str>::from(text.unwrap_or_default());
        Self {
            name: text(meta.name),
            uid: text(meta.uid),
            resource_version: meta.resource_version.unwrap_or_default(),
            generation: meta.generation.unwrap_or(0),
            created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.unwrap_or_default(),
            names,
            selector: Arc::new(NodeMatcher::new(&spec.node_selector)),
            keeps_nodes: says(KEEP_NODES_ANNOTATION),
            moves_control_plane: says(MOVE_CONTROL_PLANE_ANNOTATION),
            wanted: spec.stage,
            plan: Arc::new(Plan::new(&spec.drain_plan)),
            limit: spec.drain_limit,
            reason: spec.reason,
            targets: Arc::new(Written::read(&status)),
            status,
            rest_bytes,
        }
    }
}
