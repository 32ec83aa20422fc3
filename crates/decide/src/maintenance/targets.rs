//! The pods that are asked to leave a node.
//!
//! A list of entries is read as a union: a pod is selected if one of them selects it. What several maintenances have all
//! reached is the intersection of their lists, and what was targeted before stays: so [`Targets`] are a union of intersections
//! of lists. That is short however many selectors plans have. Multiplied out, as one list of entries, it would not be: two plans
//! of 30 selectors make 961 entries. It is multiplied out only where that is short, for people to read.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use usher_api::{DrainPlanEntry, PodType};

use super::plan::{Plan, PodClass, Step, order};

/// Targets are one list where that has no more entries than this.
pub const LISTED_ENTRIES: usize = 32;
/// Products of lists beyond this are not even tried.
const TRIED_ENTRIES: usize = 1024;
/// Intersections that what is reached everywhere may be made of.
const TRIED_INTERSECTIONS: usize = 16;

/// Entries with their selectors read.
#[derive(Debug)]
pub struct EntryList {
    entries: Vec<DrainPlanEntry>,
    steps: Vec<Step>,
}

impl EntryList {
    pub fn new(entries: Vec<DrainPlanEntry>) -> Arc<Self> {
        let steps = entries.iter().cloned().map(Step::new).collect();
        Arc::new(Self { entries, steps })
    }

    pub fn entries(&self) -> &[DrainPlanEntry] {
        &self.entries
    }

    fn selects(&self, pod: &PodClass) -> bool {
        self.steps.iter().any(|step| step.selects(pod))
    }

    /// As far as can be told entry by entry.
    pub fn covers(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || covers(&self.entries, &other.entries)
    }
}

impl PartialEq for EntryList {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

/// Entries have no parts that differ from themselves; so lists that are shared are compared at no cost.
impl Eq for EntryList {}

/// Pods that all of these lists select.
pub type Intersection = Vec<Arc<EntryList>>;

/// What is targeted on a node: a pod is, if all lists of one intersection select it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Targets {
    any_of: Vec<Intersection>,
}

impl Targets {
    /// As they were written: an intersection of no lists would be everything, and is nothing here.
    pub fn new(any_of: Vec<Intersection>) -> Arc<Self> {
        Arc::new(Self { any_of: any_of.into_iter().filter(|lists| !lists.is_empty()).collect() })
    }

    pub fn of_entries(entries: Vec<DrainPlanEntry>) -> Arc<Self> {
        let any_of = if entries.is_empty() { Vec::new() } else { vec![vec![EntryList::new(entries)]] };
        Self::new(any_of)
    }

    /// What all of these lists select.
    pub fn in_common(lists: &[Arc<EntryList>]) -> Arc<Self> {
        let mut distinct: Intersection = Vec::new();
        for list in lists {
            if !distinct.contains(list) {
                distinct.push(list.clone());
            }
        }
        match multiplied_out(std::slice::from_ref(&distinct)) {
            Some(entries) if distinct.len() > 1 => Self::of_entries(entries),
            _ => Self::new(vec![without_wider(&distinct)]),
        }
    }

    pub fn any_of(&self) -> &[Intersection] {
        &self.any_of
    }

    pub fn is_empty(&self) -> bool {
        self.any_of.is_empty()
    }

    pub fn selects(&self, pod: &PodClass) -> bool {
        self.any_of.iter().any(|lists| lists.iter().all(|list| list.selects(pod)))
    }

    /// Whether there are entries for pods of this type.
    pub fn reach(&self, kind: PodType) -> bool {
        let has = |list: &Arc<EntryList>| list.entries().iter().any(|entry| entry.pod_type == kind);
        self.any_of.iter().any(|lists| lists.iter().all(has))
    }

    /// Up to which priority pods of this type are targeted, whatever their labels.
    pub fn up_to(&self, kind: PodType) -> Option<i32> {
        let of_list = |list: &Arc<EntryList>| {
            let general =
                list.entries().iter().filter(|entry| entry.pod_type == kind && entry.pod_selector.is_none());
            general.map(|entry| entry.pod_priority).max()
        };
        let of_all = |lists: &Intersection| lists.iter().map(of_list).min().flatten();
        self.any_of.iter().filter_map(of_all).max()
    }

    /// As one list, where it is one.
    pub fn entries(&self) -> Option<&[DrainPlanEntry]> {
        match &self.any_of[..] {
            [] => Some(&[]),
            [lists] => match &lists[..] {
                [list] => Some(list.entries()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the list selects all that is targeted, as far as can be told entry by entry.
    pub fn are_within(&self, list: &[DrainPlanEntry]) -> bool {
        self.any_of.iter().all(|lists| lists.iter().any(|part| covers(list, part.entries())))
    }

    /// With what the others target as well. The same ones, if that is nothing new.
    pub fn grown_by(self: &Arc<Self>, others: &Arc<Self>) -> Arc<Self> {
        if Arc::ptr_eq(self, others) || others.any_of.iter().all(|lists| self.has(lists)) {
            return self.clone();
        }
        // People see lines grow, not go, while they are few.
        if let (Some(lines), Some(more)) = (self.entries(), others.entries()) {
            let lines = either(lines, more);
            if lines.len() <= LISTED_ENTRIES {
                return Self::of_entries(lines);
            }
        }
        if self.any_of.iter().all(|lists| others.has(lists)) {
            return others.clone();
        }
        let grown = Self::shortened(self.any_of.iter().chain(&others.any_of).cloned().collect());
        if grown == *self { self.clone() } else { grown }
    }

    /// What both target; at least so much where that cannot be told in short.
    pub fn lowest(self: &Arc<Self>, other: &Arc<Self>, at_least: &[Arc<EntryList>]) -> Arc<Self> {
        if Arc::ptr_eq(self, other) || self.any_of.iter().all(|lists| other.has(lists)) {
            return self.clone();
        }
        if other.any_of.iter().all(|lists| self.has(lists)) {
            return other.clone();
        }
        if self.any_of.len() * other.any_of.len() > TRIED_INTERSECTIONS {
            return Self::in_common(at_least);
        }
        let both = self.any_of.iter().flat_map(|one| {
            other.any_of.iter().map(|another| {
                let lists: Intersection = one.iter().chain(another).cloned().collect();
                without_wider(&lists)
            })
        });
        Self::shortened(both.collect())
    }

    /// Whether one of the intersections is the same or wider.
    fn has(&self, lists: &Intersection) -> bool {
        self.any_of.iter().any(|whole| contains_intersection(whole, lists))
    }

    /// Without intersections that others contain; as one list where that is short.
    fn shortened(any_of: Vec<Intersection>) -> Arc<Self> {
        let mut kept: Vec<Intersection> = Vec::new();
        let mut single: Vec<DrainPlanEntry> = Vec::new();
        for lists in any_of {
            match &lists[..] {
                [list] if single.is_empty() => single = list.entries().to_vec(),
                [list] => single = either(&single, list.entries()),
                _ => kept.push(lists),
            }
        }
        if !single.is_empty() {
            kept.insert(0, vec![EntryList::new(single)]);
        }
        let all = std::mem::take(&mut kept);
        for (at, lists) in all.iter().enumerate() {
            let is_in = |(other_at, other): (usize, &Intersection)| {
                other_at != at
                    && contains_intersection(other, lists)
                    // Of two that contain each other, the first one stays.
                    && (other_at < at || !contains_intersection(lists, other))
            };
            if !all.iter().enumerate().any(is_in) {
                kept.push(lists.clone());
            }
        }
        let is_one = kept.len() == 1 && kept[0].len() == 1;
        match multiplied_out(&kept).filter(|_| !is_one) {
            Some(entries) => Self::of_entries(entries),
            None => Self::new(kept),
        }
    }
}

/// Every list of the outer is wider than one of the inner: whatever the inner selects, the outer does.
fn contains_intersection(outer: &Intersection, inner: &Intersection) -> bool {
    outer.iter().all(|wide| inner.iter().any(|narrow| wide.covers(narrow)))
}

/// A list that selects all that another does adds nothing to their intersection.
fn without_wider(lists: &[Arc<EntryList>]) -> Intersection {
    let mut kept = Intersection::new();
    for list in lists {
        if kept.iter().any(|narrow| list.covers(narrow)) {
            continue;
        }
        kept.retain(|wide| !wide.covers(list));
        kept.push(list.clone());
    }
    kept
}

/// As one list, if it is short.
fn multiplied_out(any_of: &[Intersection]) -> Option<Vec<DrainPlanEntry>> {
    let mut all: Vec<DrainPlanEntry> = Vec::new();
    for lists in any_of {
        let (first, rest) = lists.split_first()?;
        let mut both = first.entries().to_vec();
        for list in rest {
            if both.len() * list.entries().len() > TRIED_ENTRIES {
                return None;
            }
            both = common(&both, list.entries());
        }
        all = if all.is_empty() { both } else { either(&all, &both) };
        if all.len() > TRIED_ENTRIES {
            return None;
        }
    }
    (all.len() <= LISTED_ENTRIES).then_some(all)
}

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
fn common(a: &[DrainPlanEntry], b: &[DrainPlanEntry]) -> Vec<DrainPlanEntry> {
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
fn either(a: &[DrainPlanEntry], b: &[DrainPlanEntry]) -> Vec<DrainPlanEntry> {
    shortest(a.iter().chain(b).cloned().collect())
}

/// Whether everything that `part` selects is selected by `whole`, as far as can be told entry by entry.
fn covers(whole: &[DrainPlanEntry], part: &[DrainPlanEntry]) -> bool {
    part.iter().all(|entry| whole.iter().any(|other| contains(other, entry)))
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
    let all = std::mem::take(&mut kept);
    for (at, entry) in all.iter().enumerate() {
        // Of two that say the same in another order, the first one stays.
        let is_in = |(other_at, other): (usize, &DrainPlanEntry)| {
            other_at != at && contains(other, entry) && (other_at < at || !contains(entry, other))
        };
        if !made(entry) || !all.iter().enumerate().any(is_in) {
            kept.push(entry.clone());
        }
    }
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
