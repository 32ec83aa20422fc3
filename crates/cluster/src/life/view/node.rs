//! Nodes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::pod::{Requests, millis, whole};
use super::wire::{Condition, Object, condition, or_default};

pub type Node = Object<NodeSpec, NodeStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub allocatable: BTreeMap<String, String>,
}

impl Node {
    pub fn is_ready(&self) -> bool {
        condition(&self.status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    }

    pub fn allocatable(&self) -> Requests {
        Requests {
            cpu: millis(self.status.allocatable.get("cpu")),
            memory: whole(self.status.allocatable.get("memory")),
        }
    }

    /// How many pods fit.
    pub fn allocatable_pods(&self) -> i64 {
        whole(self.status.allocatable.get("pods"))
    }
}
