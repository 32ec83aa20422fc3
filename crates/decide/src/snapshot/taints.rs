//! Taints that drive pods off a node, and what pods tolerate of them, as the taint eviction controller reads both.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use usher_api::stands_for;

use super::wire::slim;

const NO_EXECUTE: &str = "NoExecute";

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub time_added: Option<Time>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    fn is_of(&self, taint: &Taint) -> bool {
        let same_effect = self.effect.is_empty() || self.effect == taint.effect;
        let same_key = self.key.is_empty() || self.key == taint.key;
        let same_value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            // Of an operator that is not known here nobody can say that it does not fit: the pod may stay.
            _ => true,
        };
        same_effect && same_key && same_value
    }
}

/// A node, with the taints that drive pods off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaintedNode {
    pub name: Arc<str>,
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct TaintedNodeOnWire {
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Option<Vec<Taint>>,
}

stands_for!(TaintedNodeOnWire, core::Node);

impl From<TaintedNodeOnWire> for TaintedNode {
    fn from(node: TaintedNodeOnWire) -> Self {
        let taints = node.spec.taints.unwrap_or_default();
        Self {
            name: node.metadata.name.unwrap_or_default().into(),
            taints: taints.into_iter().filter(|taint| taint.effect == NO_EXECUTE).collect(),
        }
    }
}

/// From when on the taints drive off a pod with these tolerations; nothing if it may stay for as long as they are there.
pub fn driven_off_at(taints: &[Taint], tolerations: &[Toleration]) -> Option<Timestamp> {
    let at = |taint: &Taint| {
        let since = taint.time_added.as_ref().map_or(Timestamp::MIN, |time| time.0);
        // The first toleration that matches is the one that counts.
        let Some(toleration) = tolerations.iter().find(|toleration| toleration.is_of(taint)) else {
            return Some(since);
        };
        let patience = SignedDuration::from_secs(toleration.toleration_seconds?.max(0));
        Some(since.saturating_add(patience).unwrap_or(Timestamp::MAX))
    };
    taints.iter().filter(|taint| taint.effect == NO_EXECUTE).filter_map(at).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(taints: Value, tolerations: Value) -> Option<String> {
        let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": taints}});
        let node = TaintedNode::from(serde_json::from_value::<TaintedNodeOnWire>(node).unwrap());
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
        driven_off_at(&node.taints, &tolerations).map(|at| at.to_string())
    }

    #[test]
    fn a_pod_is_driven_off_when_it_tolerates_a_taint_no_longer() {
        let unreachable = json!({
            "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z",
        });
        let tolerate = |seconds: Value| json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let one = || json!([unreachable]);
        assert_eq!(at(one(), json!([])).as_deref(), Some("2026-01-01T12:00:00Z"));
        assert_eq!(at(one(), tolerate(json!(300))).as_deref(), Some("2026-01-01T12:05:00Z"));
        assert_eq!(at(one(), tolerate(json!(-1))).as_deref(), Some("2026-01-01T12:00:00Z"));
        assert_eq!(at(one(), tolerate(json!(null))), None, "for ever");
        assert_eq!(at(one(), json!([{"operator": "Exists"}])), None, "everything");
        assert_eq!(at(json!([]), json!([])), None);
        let closed = json!([{"key": "k", "effect": "NoSchedule"}]);
        assert_eq!(at(closed, json!([])), None, "only NoExecute drives off");
        let dedicated = json!({"key": "team", "value": "a", "effect": "NoExecute"});
        let of_team = |value: &str| json!([{"key": "team", "value": value}]);
        assert_eq!(at(json!([dedicated]), of_team("a")), None);
        assert!(at(json!([dedicated]), of_team("b")).is_some());
        let both = json!([dedicated, unreachable]);
        assert_eq!(
            at(both, of_team("a")).as_deref(),
            Some("2026-01-01T12:00:00Z"),
            "the first that drives it off"
        );
        let newer = json!([{"key": "team", "operator": "Gt", "value": "1", "effect": "NoExecute"}]);
        assert_eq!(at(json!([dedicated]), newer), None, "nobody knows");
    }
}
