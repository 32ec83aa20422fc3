//! The pods that are asked to leave a node, as entries.
//!
//! What several maintenances have all reached is what each of their entries has in common with an entry of every
//! other. Entries are read as a union: a pod is targeted if one of them selects it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use usher_api::{DrainPlanEntry, PodType};

use super::plan::{Plan, PodClass, Step, order};

/// What a plan has reached at a position, with a line for each selector of the plan: pods that it selects are reached
/// up to the higher of its own and the general priority.
pub fn reached(plan: &Plan, position: usize) -> Vec<DrainPlanEntry> {
    let done = &plan.steps()[..=position.min(plan.last())];
    let mut targets = Vec::new();
    for kind in [PodType::Default, PodType::DaemonSet, PodType::Static] {
        let of_kind = |step: &&Step| step.entry.pod_type == kind;
        let highest = |selector: Option<&LabelSelector>| {
            let same = |step: &&Step| step.entry.pod_selector.as_ref() == selector;
            done.iter().filter(of_kind).filter(same).map(|step| step.entry.pod_priority).max()
        };
        if !done.iter().any(|step| step.entry.pod_type == kind) {
            continue;
        }
        let general = highest(None);
        targets.extend(general.map(|priority| DrainPlanEntry::up_to(priority, kind)));
        let mut named: Vec<&LabelSelector> = Vec::new();
        for selector in
            plan.steps().iter().filter(of_kind).filter_map(|step| step.entry.pod_selector.as_ref())
        {
            if named.contains(&selector) {
                continue;
            }
            named.push(selector);
            if let Some(priority) = highest(Some(selector)).max(general) {
                targets.push(DrainPlanEntry {
                    pod_selector: Some(selector.clone()),
                    ..DrainPlanEntry::up_to(priority, kind)
                });
            }
        }
    }
    targets
}

/// What is selected by both.
pub fn common(a: &[DrainPlanEntry], b: &[DrainPlanEntry]) -> Vec<DrainPlanEntry> {
    let mut both = Vec::new();
    for one in a {
        for other in b.iter().filter(|other| other.pod_type == one.pod_type) {
            both.push(DrainPlanEntry {
                pod_selector: both_selectors(one.pod_selector.as_ref(), other.pod_selector.as_ref()),
                ..DrainPlanEntry::up_to(one.pod_priority.min(other.pod_priority), one.pod_type)
            });
        }
    }
    shortest(both)
}

/// What is selected by one or the other.
pub fn either(a: &[DrainPlanEntry], b: &[DrainPlanEntry]) -> Vec<DrainPlanEntry> {
    shortest(a.iter().chain(b).cloned().collect())
}

/// Whether everything that `part` selects is selected by `whole`, as far as can be told entry by entry.
pub fn covers(whole: &[DrainPlanEntry], part: &[DrainPlanEntry]) -> bool {
    part.iter().all(|entry| whole.iter().any(|other| contains(other, entry)))
}

pub fn selects(targets: &[Step], pod: &PodClass) -> bool {
    targets.iter().any(|target| target.selects(pod))
}

/// One line for each selector, with the highest priority.
fn shortest(entries: Vec<DrainPlanEntry>) -> Vec<DrainPlanEntry> {
    let mut kept: Vec<DrainPlanEntry> = Vec::new();
    for entry in entries {
        let same = |other: &&mut DrainPlanEntry| {
            other.pod_type == entry.pod_type && other.pod_selector == entry.pod_selector
        };
        match kept.iter_mut().find(same) {
            Some(known) => known.pod_priority = known.pod_priority.max(entry.pod_priority),
            None => kept.push(entry),
        }
    }
    // A selector that was made of two adds nothing if either of them alone reaches as far.
    let made = |entry: &DrainPlanEntry| parts(entry.pod_selector.as_ref()).len() > 1;
    let all = kept.clone();
    kept.retain(|entry| !made(entry) || !all.iter().any(|other| other != entry && contains(other, entry)));
    kept.sort_by(|a, b| {
        let rank = |entry: &DrainPlanEntry| (entry.pod_type, entry.pod_selector.is_some());
        rank(a).cmp(&rank(b)).then_with(|| order(a, b))
    });
    kept
}

/// Every requirement of the outer selector is one of the inner: whatever the inner selects, the outer does.
fn contains(outer: &DrainPlanEntry, inner: &DrainPlanEntry) -> bool {
    let inner_parts = parts(inner.pod_selector.as_ref());
    outer.pod_type == inner.pod_type
        && outer.pod_priority >= inner.pod_priority
        && parts(outer.pod_selector.as_ref()).iter().all(|part| inner_parts.contains(part))
}

fn parts(selector: Option<&LabelSelector>) -> Vec<LabelSelectorRequirement> {
    let Some(selector) = selector else { return Vec::new() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_string(),
        values: Some(vec![value.clone()]),
    });
    labels.chain(selector.match_expressions.iter().flatten().cloned()).collect()
}

fn both_selectors(a: Option<&LabelSelector>, b: Option<&LabelSelector>) -> Option<LabelSelector> {
    let (a, b) = match (a, b) {
        (None, other) | (other, None) => return other.cloned(),
        (Some(a), Some(b)) if a == b => return Some(a.clone()),
        (Some(a), Some(b)) => (a, b),
    };
    let mut all = parts(Some(a));
    for part in parts(Some(b)) {
        if !all.contains(&part) {
            all.push(part);
        }
    }
    Some(LabelSelector { match_labels: None, match_expressions: Some(all) })
}
