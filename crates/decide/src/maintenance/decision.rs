//! What decisions on maintenances, their nodes and their pods are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use usher_api::NodeMaintenanceStatus;

use super::waiting::{MaintenanceWait, NodeWait, PodWait};
use crate::decision::Decision;
use crate::snapshot::{NodePhase, Owner};

pub type MaintenanceDecision = Decision<Effect, MaintenanceWait>;
pub type NodeDecision = Decision<NodeEffect, NodeWait>;
pub type PodDecision = Decision<PodEffect, PodWait>;

/// A write to the maintenance that was looked at: its UID and resourceVersion are preconditions.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// From now on it is not removed before its nodes and pods are let go.
    AddFinalizer,
    /// It has let go of everything.
    RemoveFinalizer,
    /// A maintenance that is deleted is completed first.
    SetStageComplete,
    WriteStatus(Box<NodeMaintenanceStatus>),
    /// The status cannot be written: nothing but its conditions is.
    WriteConditions(Vec<Condition>),
    RecordEvent(Notice),
}

/// A write to the node that was looked at: its UID and resourceVersion are preconditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEffect {
    /// Cordon it, and write on it who holds it and what it was before: one write, so that nothing is forgotten.
    Hold {
        held_by: BTreeSet<Arc<str>>,
        was_unschedulable: bool,
        phase: NodePhase,
    },
    /// Take all marks off, and leave it as it was before the first maintenance.
    Release {
        unschedulable: bool,
    },
    /// Show the condition.
    Show {
        status: &'static str,
        reason: &'static str,
        message: String,
    },
    RecordEvent(Notice),
    /// Somebody keeps uncordoning it: who is told of that is not told again before the next time.
    RecordConflict(Notice),
}

/// A write to the eviction request of a pod, or word of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodEffect {
    /// Create it, with the finalizer of node maintenance.
    Request,
    /// Put the finalizer onto the request that is there.
    Join,
    /// Take the finalizer off; what becomes of the request is up to the others.
    Withdraw,
    /// Records an event on the workload of the pod and not on the pod itself, which has done nothing.
    RecordOnWorkload(Arc<Owner>, Notice),
}

/// An event on the subject of the decision, and on these maintenances too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub is_warning: bool,
    /// One word, for machines.
    pub reason: &'static str,
    pub message: String,
    /// By name, with their UIDs.
    pub maintenances: BTreeMap<Arc<str>, Arc<str>>,
}

impl Notice {
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { is_warning: false, reason, message, maintenances: BTreeMap::new() }
    }

    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { is_warning: true, ..Self::normal(reason, message) }
    }
}
