//! Where a pod may go by its node selector, its node affinity and its tolerations.

use k8s_openapi::api::core::v1 as core;

use super::labels::Labels;
use super::node::Taint;
use crate::selector::{Requirement, Selector, Test};

/// What decides on which nodes a pod may be, apart from their room. Pods of the same placement fit on the same nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    pub nodes: RequiredNodes,
    pub tolerations: Box<[Toleration]>,
}

/// The node selector and the required node affinity of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RequiredNodes {
    selector: Selector,
    /// One of them must match; none does if there are none.
    terms: Option<Box<[NodeTerm]>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Box<[Requirement]>,
    names: Box<[NameTest]>,
    /// Something in it is not valid, and it matches nothing.
    is_broken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NameTest {
    /// Another field than the name has no value.
    is_name: bool,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

impl NodeTerm {
    /// None if it is empty: then it selects nothing.
    pub fn of(term: &core::NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mut is_broken = false;
        let mut labels = Vec::new();
        for one in expressions {
            match Requirement::new(&one.key, &one.operator, one.values.as_deref().unwrap_or_default()) {
                Ok(requirement) => labels.push(requirement),
                Err(_) => is_broken = true,
            }
        }
        let mut names = Vec::new();
        for one in fields {
            match (one.operator.as_str(), one.values.as_deref().unwrap_or_default()) {
                (operator @ ("In" | "NotIn"), [value]) => names.push(NameTest {
                    is_name: one.key == "metadata.name",
                    value: value.clone(),
                    equal: operator == "In",
                }),
                _ => is_broken = true,
            }
        }
        Some(Self { labels: labels.into(), names: names.into(), is_broken })
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        !self.is_broken
            && self.labels.iter().all(|one| one.test.admits(labels.get(&one.key)))
            && self.names.iter().all(|one| (if one.is_name { name } else { "" } == one.value) == one.equal)
    }
}

impl RequiredNodes {
    pub fn of(spec: &core::PodSpec) -> Self {
        let labels = spec.node_selector.iter().flatten();
        let selector =
            labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: Selector::new(selector.collect()),
            terms: required.map(|one| one.node_selector_terms.iter().filter_map(NodeTerm::of).collect()),
        }
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let term = |terms: &[NodeTerm]| terms.iter().any(|term| term.matches(name, labels));
        self.selector.matches(labels) && self.terms.as_deref().is_none_or(term)
    }

    /// There is a required node affinity, beside a node selector.
    pub fn has_affinity(&self) -> bool {
        self.terms.is_some()
    }
}

impl Toleration {
    pub fn of(toleration: &core::Toleration) -> Self {
        Self {
            key: toleration.key.clone().unwrap_or_default(),
            operator: toleration.operator.clone().unwrap_or_default(),
            value: toleration.value.clone().unwrap_or_default(),
            effect: toleration.effect.clone().unwrap_or_default(),
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect.as_str()
            || !self.key.is_empty() && self.key != taint.key
        {
            return false;
        }
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Lt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(taint, own)| taint < own),
            "Gt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(taint, own)| taint > own),
            _ => false,
        }
    }
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerate(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|one| one.tolerates(taint))
}

impl Placement {
    /// Neither labels nor taints keep the pod off the node.
    pub fn admits(&self, name: &str, labels: &Labels, taints: &[Taint]) -> bool {
        let hard = |taint: &&Taint| taint.is_hard();
        self.nodes.matches(name, labels)
            && taints.iter().filter(hard).all(|taint| tolerate(&self.tolerations, taint))
    }
}
