//! A node, as far as a maintenance is concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use usher_api::names::{
    NODE_HELD_BY_ANNOTATION, NODE_MAINTENANCE_CONDITION, NODE_PHASE_ANNOTATION,
    NODE_WAS_UNSCHEDULABLE_ANNOTATION,
};
use usher_api::stands_for;

use super::wire::slim;

/// What a node goes through while maintenances hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Cordoned,
    Draining,
    Drained,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Cordoned, Self::Draining, Self::Drained];

    /// Any other word says nothing, and is written anew by who holds the node.
    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Cordoned => "Cordoned",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub created: Timestamp,
    pub labels: Arc<BTreeMap<String, String>>,
    pub unschedulable: bool,
    /// The maintenances that keep it cordoned, as it says itself. `None`: no maintenance has touched it.
    pub held_by: Option<BTreeSet<Arc<str>>>,
    /// Somebody had cordoned it before the maintenances came.
    pub was_unschedulable: bool,
    /// Its annotation says what it was before.
    pub remembers: bool,
    /// The phase that its annotation shows.
    pub phase: Option<Phase>,
    /// Status, reason and message of its condition.
    pub condition: Option<(String, String, String)>,
}

impl Node {
    pub fn is_held_by(&self, maintenance: &str) -> bool {
        self.held_by.as_ref().is_some_and(|held| held.contains(maintenance))
    }

    /// A maintenance has cordoned it and not let go of it yet: one of its marks says so, whichever others somebody took away.
    pub fn is_touched(&self) -> bool {
        self.held_by.is_some() || self.remembers || self.shows_maintenance()
    }

    /// Its condition is true.
    pub fn shows_maintenance(&self) -> bool {
        self.condition.as_ref().is_some_and(|(status, ..)| status == "True")
    }

    /// Whether decisions see a difference.
    pub fn is_like(&self, other: &Self) -> bool {
        Self { resource_version: String::new(), ..self.clone() }
            == Self { resource_version: String::new(), ..other.clone() }
    }
}

/// A node as the server sends it. Its images, addresses and sizes are left out.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

impl NodeOnWire {
    /// A node from parts that a caller has read itself.
    pub fn new(metadata: ObjectMeta, unschedulable: bool, conditions: Option<Vec<NodeCondition>>) -> Self {
        Self { metadata, spec: NodeSpec { unschedulable }, status: NodeStatus { conditions } }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Option<Vec<NodeCondition>>,
}

/// A condition of a node as the server sends it, to be handed to [`NodeOnWire::new`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

stands_for!(NodeOnWire, core::Node);

impl From<NodeOnWire> for Node {
    fn from(node: NodeOnWire) -> Self {
        let meta = node.metadata;
        let text = |text: Option<String>| Arc::<str>::from(text.unwrap_or_default());
        let annotations = meta.annotations.unwrap_or_default();
        let names = |list: &String| {
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Arc::from).collect()
        };
        let mut conditions = node.status.conditions.into_iter().flatten();
        Self {
            name: text(meta.name),
            uid: text(meta.uid),
            resource_version: meta.resource_version.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            labels: Arc::new(meta.labels.unwrap_or_default()),
            unschedulable: node.spec.unschedulable,
            held_by: annotations.get(NODE_HELD_BY_ANNOTATION).map(names),
            was_unschedulable: annotations
                .get(NODE_WAS_UNSCHEDULABLE_ANNOTATION)
                .is_some_and(|text| text == "true"),
            remembers: annotations.contains_key(NODE_WAS_UNSCHEDULABLE_ANNOTATION),
            phase: annotations.get(NODE_PHASE_ANNOTATION).and_then(|name| Phase::parse(name)),
            condition: conditions
                .find(|condition| condition.kind == NODE_MAINTENANCE_CONDITION)
                .map(|condition| (condition.status, condition.reason, condition.message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_read_with_who_holds_it() {
        let node: NodeOnWire = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "annotations": {
                "nodemaintenance.k8s.io/held-by": "a, b,", "nodemaintenance.k8s.io/was-unschedulable": "true",
                "nodemaintenance.k8s.io/phase": "Draining",
            }},
            "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
            "status": {"images": [{}], "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "NodeMaintenance", "status": "True", "reason": "Draining", "message": "m"},
            ]},
        }))
        .unwrap();
        let node = Node::from(node);
        assert!(node.unschedulable && node.was_unschedulable && node.is_held_by("a") && node.is_held_by("b"));
        assert_eq!(node.held_by.as_ref().map(BTreeSet::len), Some(2));
        assert_eq!(node.phase, Some(Phase::Draining));
        assert_eq!(node.condition.as_ref().map(|c| c.1.as_str()), Some("Draining"));
        let plain: NodeOnWire = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        let plain = Node::from(plain);
        assert!(!plain.is_touched());
        assert_eq!((plain.unschedulable, plain.held_by), (false, None));
    }

    #[test]
    fn a_phase_is_read_as_it_is_written_and_other_words_say_nothing() {
        for phase in Phase::ALL {
            assert_eq!(Phase::parse(phase.name()), Some(phase));
        }
        assert_eq!((Phase::parse("drained"), Phase::parse("")), (None, None));
    }
}
