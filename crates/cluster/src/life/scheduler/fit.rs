//! What speaks against a node for a pod.

use std::collections::{BTreeMap, BTreeSet};

use crate::life::view::{Node, NodeSelector, NodeTerm, Pod, PodTerm, Requests, Taint, Toleration, View};
use crate::selectors::LabelSelector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Unschedulable,
    Tainted,
    NotSelected,
    Cpu,
    Memory,
    Slots,
    Affinity,
    AntiAffinity,
    Repelled,
}

impl Reason {
    pub fn text(self) -> &'static str {
        match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::NotSelected => "node(s) didn't match Pod's node affinity/selector",
            Self::Cpu => "Insufficient cpu",
            Self::Memory => "Insufficient memory",
            Self::Slots => "Too many pods",
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::Repelled => "node(s) didn't satisfy existing pods anti-affinity rules",
        }
    }
}

/// The first rule that fails is the reason; only resources can lack together.
pub fn against(view: &View, pod: &Pod, wants: Requests, neighbours: &Neighbours, node: &Node) -> Vec<Reason> {
    if node.spec.unschedulable {
        let cordon = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
        if !tolerates(&pod.spec.tolerations, &cordon) {
            return vec![Reason::Unschedulable];
        }
    }
    let closed = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    if node.spec.taints.iter().filter(closed).any(|taint| !tolerates(&pod.spec.tolerations, taint)) {
        return vec![Reason::Tainted];
    }
    if !matches_selectors(&pod.spec.node_selector, pod.spec.affinity.node_affinity.required.as_ref(), node) {
        return vec![Reason::NotSelected];
    }
    let (has, used) = (node.allocatable(), view.used_on(&node.metadata.name));
    let mut lacks = Vec::new();
    if used.pods + 1 > node.allocatable_pods() {
        lacks.push(Reason::Slots);
    }
    if wants.cpu > 0 && used.requests.cpu + wants.cpu > has.cpu {
        lacks.push(Reason::Cpu);
    }
    if wants.memory > 0 && used.requests.memory + wants.memory > has.memory {
        lacks.push(Reason::Memory);
    }
    if lacks.is_empty() {
        lacks.extend(neighbours.against(node));
    }
    lacks
}

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
        let key = toleration.key.is_empty() || toleration.key == taint.key;
        let value = toleration.operator == "Exists"
            || (!toleration.key.is_empty() && toleration.value == taint.value);
        effect && key && value
    })
}

/// A plain selector and a required affinity, where given.
pub fn matches_selectors(
    selector: &BTreeMap<String, String>,
    required: Option<&NodeSelector>,
    node: &Node,
) -> bool {
    selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// All requirements of a term hold; a term without any matches nothing.
fn term_matches(term: &NodeTerm, node: &Node) -> bool {
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

/// Where pods are that attract or repel this one: values of topology labels, found once for all nodes.
pub struct Neighbours {
    /// Each term of affinity: its topology key and where it is fulfilled; `None` if the pod may be the first.
    attracted: Vec<(String, Option<BTreeSet<String>>)>,
    avoids: BTreeSet<(String, String)>,
    avoided: BTreeSet<(String, String)>,
}

impl Neighbours {
    pub fn of(view: &View, pod: &Pod) -> Self {
        let affinity = &pod.spec.affinity;
        let mut found = Self { attracted: Vec::new(), avoids: BTreeSet::new(), avoided: BTreeSet::new() };
        for term in &affinity.pod_anti_affinity.required {
            let places = places(view, pod, term).into_iter();
            found.avoids.extend(places.map(|place| (term.topology_key.clone(), place)));
        }
        for term in &affinity.pod_affinity.required {
            let places = places(view, pod, term);
            let first = places.is_empty() && term_selects(term, pod, pod);
            found.attracted.push((term.topology_key.clone(), (!first).then_some(places)));
        }
        for other in view.repelling() {
            for term in &other.spec.affinity.pod_anti_affinity.required {
                if term_selects(term, other, pod)
                    && let Some(place) = place_of(view, other, &term.topology_key)
                {
                    found.avoided.insert((term.topology_key.clone(), place));
                }
            }
        }
        found
    }

    fn against(&self, node: &Node) -> Option<Reason> {
        let labels = &node.metadata.labels;
        let attracted = self.attracted.iter().all(|(key, places)| {
            labels.get(key).is_some_and(|value| places.as_ref().is_none_or(|places| places.contains(value)))
        });
        let in_any =
            |set: &BTreeSet<(String, String)>| set.iter().any(|(key, value)| labels.get(key) == Some(value));
        if !attracted {
            Some(Reason::Affinity)
        } else if in_any(&self.avoids) {
            Some(Reason::AntiAffinity)
        } else if in_any(&self.avoided) {
            Some(Reason::Repelled)
        } else {
            None
        }
    }
}

/// The values of the topology label where pods are that the term of `pod` selects.
fn places(view: &View, pod: &Pod, term: &PodTerm) -> BTreeSet<String> {
    let own = [pod.metadata.namespace.clone()];
    let namespaces = if term.namespaces.is_empty() { &own[..] } else { &term.namespaces[..] };
    let pods = namespaces.iter().flat_map(|namespace| view.pods.in_namespace(namespace));
    pods.filter(|(_, other)| !other.is_terminal() && term_selects(term, pod, other))
        .filter_map(|(_, other)| place_of(view, other, &term.topology_key))
        .collect()
}

fn place_of(view: &View, pod: &Pod, topology_key: &str) -> Option<String> {
    let node = view.nodes.get(&crate::store::Key::new("", &pod.spec.node_name))?;
    node.metadata.labels.get(topology_key).cloned()
}

/// Whether a term of `owner` speaks of `other`. Without a selector it speaks of nobody.
fn term_selects(term: &PodTerm, owner: &Pod, other: &Pod) -> bool {
    let near = if term.namespaces.is_empty() {
        owner.metadata.namespace == other.metadata.namespace
    } else {
        term.namespaces.contains(&other.metadata.namespace)
    };
    near && !term.label_selector.is_null()
        && LabelSelector::from_object(Some(&term.label_selector))
            .is_ok_and(|selector| selector.matches_map(&other.metadata.labels))
}
