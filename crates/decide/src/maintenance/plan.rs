//! A drain plan, and the step at which it reaches a pod.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use usher_api::node_maintenance::default_drain_plan;
use usher_api::{DrainPlanEntry, PodType};

/// What a drain plan tells pods apart by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodClass {
    pub kind: PodType,
    pub priority: i32,
    pub labels: Arc<BTreeMap<String, String>>,
}

/// An entry of a plan with its selector read.
#[derive(Debug, Clone)]
pub struct Step {
    pub entry: DrainPlanEntry,
    /// `Err` if the selector cannot be read; then it selects nothing.
    selector: Option<Result<Selector, ()>>,
}

impl Step {
    pub fn new(entry: DrainPlanEntry) -> Self {
        let selector = entry.pod_selector.clone().map(|selector| Selector::try_from(selector).map_err(drop));
        Self { entry, selector }
    }

    pub fn selects(&self, pod: &PodClass) -> bool {
        let by_label = match &self.selector {
            None => true,
            Some(Ok(selector)) => selector.matches(&pod.labels),
            Some(Err(())) => false,
        };
        pod.kind == self.entry.pod_type && pod.priority <= self.entry.pod_priority && by_label
    }
}

/// The entries in the order in which they are worked off. Every pod is selected by one of them.
#[derive(Debug, Clone)]
pub struct Plan(Vec<Step>);

impl Plan {
    /// The plan as given, with the entries that every plan has.
    pub fn new(entries: &[DrainPlanEntry]) -> Self {
        Self(with_defaults(entries).into_iter().map(Step::new).collect())
    }

    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    pub fn last(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// The first step that selects the pod.
    pub fn step_of(&self, pod: &PodClass) -> usize {
        self.0.iter().position(|step| step.selects(pod)).unwrap_or(usize::MAX)
    }
}

/// The given entries and the twelve that every plan contains, each once and in order.
pub fn with_defaults(entries: &[DrainPlanEntry]) -> Vec<DrainPlanEntry> {
    let mut all = entries.to_vec();
    for entry in default_drain_plan() {
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    // Stable: entries of equal rank keep the order in which they were given.
    all.sort_by(order);
    all
}

/// Pod types in their order, then ascending priorities; entries with a selector before the one without.
pub fn order(a: &DrainPlanEntry, b: &DrainPlanEntry) -> Ordering {
    let rank = |entry: &DrainPlanEntry| (entry.pod_type, entry.pod_priority, entry.pod_selector.is_none());
    rank(a).cmp(&rank(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    fn labelled(priority: i32, app: &str) -> DrainPlanEntry {
        let selector = LabelSelector {
            match_labels: Some([("app".to_string(), app.to_string())].into()),
            ..LabelSelector::default()
        };
        DrainPlanEntry { pod_selector: Some(selector), ..DrainPlanEntry::up_to(priority, PodType::Default) }
    }

    #[test]
    fn a_plan_always_contains_the_twelve_default_entries_in_order() {
        assert_eq!(with_defaults(&[]), default_drain_plan());
        let given = [labelled(i32::MAX, "db"), DrainPlanEntry::up_to(5000, PodType::DaemonSet)];
        let all = with_defaults(&given);
        assert_eq!(all.len(), 14);
        assert!(all.is_sorted_by(|a, b| order(a, b) != Ordering::Greater));
        assert_eq!((&all[3], &all[5]), (&given[0], &given[1]), "the selector comes before the same without");
        assert_eq!(with_defaults(&all), all);
    }

    #[test]
    fn a_pod_is_reached_by_the_first_entry_of_its_type_priority_and_labels() {
        let plan = Plan::new(&[DrainPlanEntry::up_to(1000, PodType::Default), labelled(2000, "postgres")]);
        let pod = |kind, priority, app: &str| PodClass {
            kind,
            priority,
            labels: Arc::new([("app".to_string(), app.to_string())].into()),
        };
        let rows = [
            (pod(PodType::Default, -5, "web"), 0),
            (pod(PodType::Default, 1000, "postgres"), 0),
            (pod(PodType::Default, 1001, "postgres"), 1),
            (pod(PodType::Default, 1001, "web"), 2),
            (pod(PodType::Default, i32::MAX, "web"), 5),
            (pod(PodType::DaemonSet, 0, "web"), 6),
            (pod(PodType::Static, 2_000_001_000, "web"), 12),
        ];
        for (pod, step) in rows {
            assert_eq!(plan.step_of(&pod), step, "{pod:?}");
        }
    }
}
