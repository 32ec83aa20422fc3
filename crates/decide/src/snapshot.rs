//! What decisions look at: slim objects that hold only what somebody decides by, so that 150,000 of them fit in memory.

mod budget;
mod deployment;
mod maintenance;
mod node;
mod pod;
mod request;
mod taints;
mod watch_event;
mod wire;
mod workload;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use budget::{Budget, BudgetRule, UnhealthyPolicy};
pub use deployment::{
    Autoscaler, Deployment, DeploymentUpdate, Part, RaisedLimits, ReplicaSet, SomeAtATime, StaleRecord, Surge,
};
pub use maintenance::{Maintenance, has_begun};
pub use node::{Node, NodeCondition, NodeOnWire, Phase as NodePhase};
pub use pod::{EvictFacts, HandOverPod, Owner, Phase, Pod, PreferredForDeletion, Waiting};
pub use request::{OWN_CONDITIONS, RareOfRequest, Request, is_of_others};
pub use taints::{Taint, TaintedNode, TaintedNodeOnWire, Toleration, driven_off_at};
pub use watch_event::WatchEvent;
pub use wire::{
    AutoscalerOnWire, BudgetOnWire, DaemonSetOnWire, DeploymentOnWire, NamespaceOnWire, PodOnWire, PodStatus,
    ReplicaSetOnWire, RequestOnWire, StatefulSetOnWire,
};
pub use workload::{DaemonSet, Namespace, RollingUpdate, StatefulSet};

/// A name in a namespace. Many maps hold it, so it is a single pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<Name>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Name { namespace: namespace.into(), name: name.into() }))
    }
}

impl Deref for Key {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
