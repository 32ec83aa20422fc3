//! What speaks against a node for a pod, as far as the node itself goes.

use std::collections::BTreeMap;

use crate::view::{Node, NodeInfo, NodeSelector, NodeTerm, Pod, Requests, Taint, Toleration};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Unschedulable,
    Tainted,
    NotSelected,
    NotNamed,
    Cpu,
    Memory,
    Slots,
    Spread,
    SpreadLabel,
    Affinity,
    AntiAffinity,
    Repelled,
}

impl Reason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::NotSelected => "node(s) didn't match Pod's node affinity/selector",
            Self::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::Cpu => "Insufficient cpu",
            Self::Memory => "Insufficient memory",
            Self::Slots => "Too many pods",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::Repelled => "node(s) didn't satisfy existing pods anti-affinity rules",
        }
    }
}

/// A pod and what is found out about it once, before nodes are looked at.
pub(super) struct Guest<'a> {
    pub pod: &'a Pod,
    pub wants: Requests,
    /// It has a say in which nodes it goes to.
    selects: bool,
}

impl<'a> Guest<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        let required = pod.spec.affinity.node_affinity.required.is_some();
        Self { pod, wants: pod.requests(), selects: required || !pod.spec.node_selector.is_empty() }
    }

    /// The first rule that fails is the reason; only room can lack in several ways, and what lacks is told one by one.
    pub(super) fn against(&self, node_info: &NodeInfo, mut lacks: impl FnMut(Reason)) -> Option<Reason> {
        if !node_info.is_open
            && let Some(reason) = self.kept_out(&node_info.node)
        {
            return Some(reason);
        }
        if self.selects && !self.is_for(&node_info.node) {
            return Some(Reason::NotSelected);
        }
        let (has, used, wants) = (&node_info.has, &node_info.used, self.wants);
        let checks = [
            (used.pods + 1 > has.pods, Reason::Slots),
            (wants.cpu > 0 && used.requests.cpu + wants.cpu > has.requests.cpu, Reason::Cpu),
            (wants.memory > 0 && used.requests.memory + wants.memory > has.requests.memory, Reason::Memory),
        ];
        let mut first = None;
        for (_, reason) in checks.into_iter().filter(|(lacking, _)| *lacking) {
            match first {
                None => first = Some(reason),
                Some(_) => lacks(reason),
            }
        }
        first
    }

    /// Whether there would be a way if other pods went.
    pub(super) fn is_about_others(&self, reason: Reason, node_info: &NodeInfo) -> bool {
        match reason {
            Reason::Cpu | Reason::Memory | Reason::Slots => {
                let (has, wants) = (node_info.has.requests, self.wants);
                wants.cpu <= has.cpu && wants.memory <= has.memory
            }
            Reason::Spread | Reason::AntiAffinity | Reason::Repelled => true,
            _ => false,
        }
    }

    fn kept_out(&self, node: &Node) -> Option<Reason> {
        if node.spec.unschedulable {
            let cordon = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
            if !tolerates(&self.pod.spec.tolerations, &cordon) {
                return Some(Reason::Unschedulable);
            }
        }
        (!self.tolerates_all(node)).then_some(Reason::Tainted)
    }

    pub(super) fn tolerates_all(&self, node: &Node) -> bool {
        let closed = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        node.spec.taints.iter().filter(closed).all(|taint| tolerates(&self.pod.spec.tolerations, taint))
    }

    /// Its node selector and required affinity allow the node.
    pub(super) fn is_for(&self, node: &Node) -> bool {
        let spec = &self.pod.spec;
        matches_selectors(&spec.node_selector, spec.affinity.node_affinity.required.as_ref(), node)
    }

    pub(super) fn selects(&self) -> bool {
        self.selects
    }

    /// The only nodes that can be, where all terms name theirs.
    pub(super) fn named_nodes(&self) -> Option<Vec<&'a str>> {
        let terms = &self.pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms;
        let mut names = Vec::new();
        for term in terms {
            let named = term.match_fields.iter().find(|r| r.key == "metadata.name" && r.operator == "In")?;
            names.extend(named.values.iter().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then_some(names)
    }
}

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

pub(crate) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
        let key = toleration.key.is_empty() || toleration.key == taint.key;
        let value = toleration.operator == "Exists"
            || (!toleration.key.is_empty() && toleration.value == taint.value);
        effect && key && value
    })
}

/// A node selector and a required affinity, where given.
pub(crate) fn matches_selectors(
    selector: &BTreeMap<String, String>,
    required: Option<&NodeSelector>,
    node: &Node,
) -> bool {
    selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// All requirements of a term hold; a term without any matches nothing.
pub(super) fn term_matches(term: &NodeTerm, node: &Node) -> bool {
    let requirement = |value: Option<&str>, operator: &str, values: &[String]| {
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        let bound = || values.first().and_then(|text| text.parse::<i64>().ok());
        match operator {
            "In" => value.is_some_and(|value| values.iter().any(|v| v == value)),
            "NotIn" => value.is_none_or(|value| values.iter().all(|v| v != value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => number().zip(bound()).is_some_and(|(value, bound)| value > bound),
            "Lt" => number().zip(bound()).is_some_and(|(value, bound)| value < bound),
            _ => false,
        }
    };
    let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
    let field = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_str());
    !(term.match_expressions.is_empty() && term.match_fields.is_empty())
        && term.match_expressions.iter().all(|r| requirement(label(&r.key), &r.operator, &r.values))
        && term.match_fields.iter().all(|r| requirement(field(&r.key), &r.operator, &r.values))
}
