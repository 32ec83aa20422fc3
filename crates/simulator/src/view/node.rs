//! Nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::pod::{Requests, millis, whole};
use super::wire::{Condition, Object, condition, or_default, time};

pub(crate) type Node = Object<NodeSpec, NodeStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    #[serde(rename = "timeAdded", deserialize_with = "time")]
    pub time_added: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "room")]
    pub allocatable: Room,
}

/// What a node offers, read once: the scheduler asks every node about every pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub requests: Requests,
    pub pods: i64,
}

fn room<'de, D: Deserializer<'de>>(from: D) -> Result<Room, D::Error> {
    let given = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
    let requests = Requests { cpu: millis(given.get("cpu")), memory: whole(given.get("memory")) };
    Ok(Room { requests, pods: whole(given.get("pods")) })
}

impl Node {
    pub(crate) fn is_ready(&self) -> bool {
        condition(&self.status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    }
}
