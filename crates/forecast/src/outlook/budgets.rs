//! Disruption budgets with what they say in their own words, found quickly by the pods that they select.

use std::collections::HashMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use usher_decide::snapshot::{self, Pod};

#[derive(Debug, Clone)]
pub struct Budget {
    pub budget: snapshot::Budget,
    pub uncounted: Option<Uncounted>,
    /// One of the labels that every pod of it has, to find it by.
    label: Option<(String, String)>,
}

/// Why the figures of a budget are not to be relied on; the server refuses evictions until they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncounted {
    /// The disruption controller has not seen it, or its last change.
    Behind,
    /// The disruption controller cannot count its pods.
    Failed(String),
}

impl Budget {
    /// Nobody may go, now or later, unless the application or the budget is changed.
    pub fn is_closed(&self) -> bool {
        let budget = &self.budget;
        budget.can_never_free()
    }

    /// How many may be gone at once when all of its pods are healthy.
    pub fn at_once(&self) -> i32 {
        self.budget.allowed.max(self.budget.expected_pods - self.budget.desired_healthy)
    }
}

impl From<PodDisruptionBudget> for Budget {
    fn from(budget: PodDisruptionBudget) -> Self {
        let (spec, status) = (budget.spec.as_ref(), budget.status.as_ref());
        let seen = status.and_then(|status| status.observed_generation).unwrap_or(0);
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let failure = conditions
            .filter(|condition| condition.type_ == "DisruptionAllowed" && condition.reason == "SyncFailed")
            .map(|condition| condition.message.clone())
            .next();
        let labels =
            spec.and_then(|spec| spec.selector.as_ref()).and_then(|selector| selector.match_labels.as_ref());
        Self {
            uncounted: if status.is_none() || seen < budget.metadata.generation.unwrap_or(0) {
                Some(Uncounted::Behind)
            } else {
                failure.map(Uncounted::Failed)
            },
            label: labels
                .and_then(|labels| labels.iter().next())
                .map(|(key, value)| (key.clone(), value.clone())),
            budget: snapshot::Budget::from(&budget),
        }
    }
}

/// Budgets by their namespace, and by one of their labels where they have any.
#[derive(Debug, Default)]
pub struct Shelf<'a> {
    by_label: HashMap<(&'a str, &'a str, &'a str), Vec<&'a Budget>>,
    others: HashMap<&'a str, Vec<&'a Budget>>,
}

impl<'a> Shelf<'a> {
    pub fn of(budgets: &'a [Budget]) -> Self {
        let mut shelf = Self::default();
        for budget in budgets {
            let namespace = &*budget.budget.key.namespace;
            match &budget.label {
                Some((key, value)) => shelf.by_label.entry((namespace, key, value)).or_default().push(budget),
                None => shelf.others.entry(namespace).or_default().push(budget),
            }
        }
        shelf
    }

    /// The budgets that select the pod, by name.
    pub fn of_pod(&self, pod: &Pod) -> Vec<&'a Budget> {
        let namespace = &*pod.key.namespace;
        let labelled =
            pod.labels.iter().filter_map(|(key, value)| self.by_label.get(&(namespace, key, value)));
        let all = labelled.chain(self.others.get(namespace)).flatten().copied();
        let mut found: Vec<&Budget> = all.filter(|budget| budget.budget.selects(pod)).collect();
        found.sort_by(|a, b| a.budget.key.cmp(&b.budget.key));
        found
    }
}
