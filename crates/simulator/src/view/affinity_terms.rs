//! The affinity terms of a pod, in the form in which it is counted and compared.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::pod::{Pod, PodTerm, SpreadConstraint};
use embedded_apiserver::toolkit::LabelSelector;

/// The pods that a rule speaks of: of these namespaces (of all if there are none), selected by all these selectors.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodSelector {
    namespaces: Option<Vec<String>>,
    /// As JSON.
    selectors: Vec<String>,
}

impl PodSelector {
    /// `None` stands for all.
    pub(crate) fn namespaces(&self) -> Option<&[String]> {
        self.namespaces.as_deref()
    }

    pub(crate) fn includes(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
    }

    pub(crate) fn selectors(&self) -> Vec<LabelSelector> {
        self.selectors.iter().map(|text| selector(text)).collect()
    }

    pub(crate) fn has(&self, pod: &Pod) -> bool {
        self.includes(&pod.metadata.namespace)
            && self.selectors().iter().all(|selector| selector.matches_map(&pod.metadata.labels))
    }

    /// Those that both speak of.
    fn and(self, other: Self) -> Self {
        let namespaces = match (self.namespaces, other.namespaces) {
            (Some(mut names), Some(others)) => {
                names.retain(|name| others.contains(name));
                Some(names)
            }
            (names, others) => names.or(others),
        };
        let mut selectors = self.selectors;
        selectors.extend(other.selectors);
        Self { namespaces, selectors }
    }
}

/// A selector that is absent or invalid selects nobody.
fn selector(text: &str) -> LabelSelector {
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    let nobody = || {
        // No label has an empty key.
        let never = json!({"matchExpressions": [{"key": "", "operator": "Exists"}]});
        LabelSelector::from_object(Some(&never)).unwrap_or_default()
    };
    if object.is_null() {
        nobody()
    } else {
        LabelSelector::from_object(Some(&object)).unwrap_or_else(|_| nobody())
    }
}

/// How a pod that has its place thinks of certain others near it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TermEffect {
    /// They must not come.
    Repels,
    /// They are welcome so much, or not if it is negative.
    Likes(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub selector: PodSelector,
    pub topology: String,
    /// What it means for pods that come later.
    pub effect: Option<TermEffect>,
}

#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub rule: Rule,
    pub max_skew: i64,
    pub min_domains: i64,
    pub is_required: bool,
    /// Only nodes count that the pod's node selector and affinity allow.
    pub honors_affinity: bool,
    /// Only nodes count whose taints the pod tolerates.
    pub honors_taints: bool,
}

/// The rules of one pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct AffinityTerms {
    /// In each of these places there must be somebody who fits all of them.
    pub near: Vec<Rule>,
    pub apart: Vec<Rule>,
    /// Wished for so much, or against if it is negative.
    pub liked: Vec<(Rule, i64)>,
    pub spread: Vec<Spread>,
    /// What required affinity means for those who come later, where that is not said by `near`.
    others: Vec<Rule>,
}

/// How much a pod that needs company likes those who come later.
const NEEDED: TermEffect = TermEffect::Likes(1);

impl AffinityTerms {
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.near
            .iter()
            .chain(&self.apart)
            .chain(self.liked.iter().map(|(rule, _)| rule))
            .chain(self.spread.iter().map(|spread| &spread.rule))
            .chain(&self.others)
    }

    fn of(pod: &Pod) -> Self {
        let affinity = &pod.spec.affinity;
        let rule = |term: &PodTerm, effect| Rule {
            selector: pod_selector(pod, term),
            topology: term.topology_key.clone(),
            effect: Some(effect),
        };
        let needed = &affinity.pod_affinity.required;
        let together = needed.iter().map(|term| pod_selector(pod, term)).reduce(PodSelector::and);
        let (mut near, mut others) = (Vec::new(), Vec::new());
        for term in needed {
            let alone = rule(term, NEEDED);
            match &together {
                Some(selector) if needed.len() > 1 => {
                    near.push(Rule {
                        selector: selector.clone(),
                        topology: term.topology_key.clone(),
                        effect: None,
                    });
                    others.push(alone);
                }
                _ => near.push(alone),
            }
        }
        let apart =
            affinity.pod_anti_affinity.required.iter().map(|term| rule(term, TermEffect::Repels)).collect();
        let preferred = affinity.pod_affinity.preferred.iter().map(|term| (term, term.weight));
        let preferred = preferred.chain(affinity.pod_anti_affinity.preferred.iter().map(|t| (t, -t.weight)));
        let liked = preferred
            .map(|(term, weight)| (rule(&term.pod_affinity_term, TermEffect::Likes(weight)), weight))
            .collect();
        let spread = pod.spec.topology_spread_constraints.iter().map(|given| spread(pod, given)).collect();
        Self { near, apart, liked, spread, others }
    }
}

fn spread(pod: &Pod, given: &SpreadConstraint) -> Spread {
    let mut selector = given.label_selector.clone();
    if !selector.is_null() {
        for key in &given.match_label_keys {
            if let Some(value) = pod.metadata.labels.get(key) {
                selector["matchLabels"][key] = value.clone().into();
            }
        }
    }
    let selector = PodSelector {
        namespaces: Some(vec![pod.metadata.namespace.clone()]),
        selectors: vec![selector.to_string()],
    };
    Spread {
        rule: Rule { selector, topology: given.topology_key.clone(), effect: None },
        max_skew: given.max_skew,
        min_domains: given.min_domains.unwrap_or(1),
        is_required: given.when_unsatisfiable != "ScheduleAnyway",
        honors_affinity: given.node_affinity_policy != "Ignore",
        honors_taints: given.node_taints_policy == "Honor",
    }
}

/// Without namespaces, a term speaks of the pod's own. Namespaces by label are known only by the label that is their
/// name; an empty selector means all.
fn pod_selector(pod: &Pod, term: &PodTerm) -> PodSelector {
    let mut names = term.namespaces.clone();
    let by_label = term.namespace_selector.as_object();
    let selectors = vec![term.label_selector.to_string()];
    if by_label.is_some_and(|by_label| by_label.values().all(|part| *part == json!({}) || *part == json!([])))
    {
        return PodSelector { namespaces: None, selectors };
    }
    let named = &term.namespace_selector["matchLabels"]["kubernetes.io/metadata.name"];
    names.extend(named.as_str().map(str::to_string));
    if names.is_empty() && by_label.is_none() {
        names.push(pod.metadata.namespace.clone());
    }
    names.sort_unstable();
    names.dedup();
    PodSelector { namespaces: Some(names), selectors }
}

static NONE: OnceLock<AffinityTerms> = OnceLock::new();

impl Pod {
    pub(crate) fn affinity_terms(&self) -> &AffinityTerms {
        let found = self.spec.affinity_terms.get_or_init(|| {
            let affinity = &self.spec.affinity;
            let has_any = !self.spec.topology_spread_constraints.is_empty()
                || [&affinity.pod_affinity, &affinity.pod_anti_affinity]
                    .iter()
                    .any(|terms| !terms.required.is_empty() || !terms.preferred.is_empty());
            has_any.then(|| Box::new(AffinityTerms::of(self)))
        });
        found.as_deref().unwrap_or_else(|| NONE.get_or_init(AffinityTerms::default))
    }
}
