//! Which nodes a pod may run on, by what it and they say themselves. Rules about other pods are not looked at.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelector, Taint, Toleration};
use usher_decide::maintenance::selector::NodeMatcher;

use super::objects::Node;

/// The taint that a cordoned node has for those who tolerate it.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What a pod asks of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    labels: BTreeMap<String, String>,
    required: Option<NodeMatcher>,
    tolerations: Vec<Tolerated>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Tolerated {
    key: String,
    value: String,
    effect: String,
    any_value: bool,
}

/// Why a pod cannot go to a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hindrance {
    Lacks(String),
    Full,
    Cordoned,
    Taint(String),
    NotSelected,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(what) => write!(f, "too little {what}"),
            Self::Full => f.write_str("no more pods"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::Taint(key) => write!(f, "taint {key}"),
            Self::NotSelected => f.write_str("not selected by the pod"),
        }
    }
}

impl Rules {
    pub fn new(
        labels: BTreeMap<String, String>,
        required: Option<&NodeSelector>,
        tolerations: Vec<Toleration>,
    ) -> Self {
        let tolerated = |toleration: Toleration| Tolerated {
            key: toleration.key.unwrap_or_default(),
            value: toleration.value.unwrap_or_default(),
            effect: toleration.effect.unwrap_or_default(),
            any_value: toleration.operator.as_deref() == Some("Exists"),
        };
        Self {
            labels,
            required: required.map(NodeMatcher::new),
            tolerations: tolerations.into_iter().map(tolerated).collect(),
        }
    }

    /// What speaks against the node, whatever room it has. `is_cordoned` also if it is about to be.
    pub fn against(&self, node: &Node, is_cordoned: bool) -> Option<Hindrance> {
        if is_cordoned && !self.tolerates(UNSCHEDULABLE, "", "NoSchedule") {
            return Some(Hindrance::Cordoned);
        }
        let closed = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                // A cordon is told above, and a node that is uncordoned meanwhile loses this taint.
                && taint.key != UNSCHEDULABLE
                && !self.tolerates(&taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect)
        };
        if let Some(taint) = node.taints.iter().find(closed) {
            return Some(Hindrance::Taint(taint.key.clone()));
        }
        let labels = &node.node.labels;
        let is_selected = self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.required.as_ref().is_none_or(|required| required.matches(&node.node.name, labels));
        (!is_selected).then_some(Hindrance::NotSelected)
    }

    fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        self.tolerations.iter().any(|one| {
            (one.effect.is_empty() || one.effect == effect)
                && (one.key.is_empty() || one.key == key)
                && (one.any_value || (!one.key.is_empty() && one.value == value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlook::objects::{NodeOnWire, Pod, PodOnWire};
    use serde_json::{Value, json};

    #[test]
    fn a_node_is_closed_by_its_cordon_its_taints_and_what_the_pod_selects() {
        let node = |spec: Value| -> Node {
            let node = json!({"metadata": {"name": "n1", "labels": {"pool": "blue"}}, "spec": spec});
            serde_json::from_value::<NodeOnWire>(node).unwrap().into()
        };
        let pod = |spec: Value| -> Pod {
            let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": spec});
            serde_json::from_value::<PodOnWire>(pod).unwrap().into()
        };
        let tainted = |effect: &str| json!({"taints": [{"key": "gpu", "value": "a100", "effect": effect}]});
        let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
        let affinity = |values: &[&str]| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": values}]}],
            }}}})
        };
        let taint = || Some(Hindrance::Taint("gpu".to_string()));
        let cordon = || Some(Hindrance::Cordoned);
        let rows = [
            (json!({}), json!({}), None),
            (json!({"unschedulable": true}), json!({}), cordon()),
            (json!({"unschedulable": true}), tolerates(json!({"operator": "Exists"})), None),
            (
                json!({"unschedulable": true}),
                tolerates(json!({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoExecute"})),
                cordon(),
            ),
            (tainted("NoSchedule"), json!({}), taint()),
            (tainted("NoExecute"), json!({}), taint()),
            (tainted("PreferNoSchedule"), json!({}), None),
            (tainted("NoSchedule"), tolerates(json!({"key": "gpu", "value": "a100"})), None),
            (tainted("NoSchedule"), tolerates(json!({"key": "gpu", "value": "t4"})), taint()),
            (tainted("NoSchedule"), tolerates(json!({"key": "gpu", "operator": "Exists"})), None),
            (json!({}), json!({"nodeSelector": {"pool": "blue"}}), None),
            (json!({}), json!({"nodeSelector": {"pool": "red"}}), Some(Hindrance::NotSelected)),
            (json!({}), affinity(&["red", "blue"]), None),
            (json!({}), affinity(&["red"]), Some(Hindrance::NotSelected)),
        ];
        for (number, (node_spec, pod_spec, wanted)) in rows.into_iter().enumerate() {
            let (node, pod) = (node(node_spec), pod(pod_spec));
            assert_eq!(pod.rules.against(&node, node.node.unschedulable), wanted, "row {number}");
        }
    }
}
