//! What decisions look at: slim objects that hold only what somebody decides by, so that 150,000 of them fit in memory.

mod budget;
mod maintenance;
mod node;
mod pod;
mod request;
mod wire;

use std::fmt;
use std::sync::Arc;

pub use budget::{Budget, UnhealthyPolicy};
pub use maintenance::Maintenance;
pub use node::{Node, NodeOnWire, Phase as NodePhase};
pub(crate) use node::{NodeCondition, NodeSpec, NodeStatus};
pub use pod::{Owner, Phase, Pod};
pub use request::Request;
pub(crate) use wire::{MIRROR_ANNOTATION, PodSpec, PodStatus, stands_for};
pub use wire::{PodOnWire, RequestOnWire};

/// A name in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
