//! Affinity and anti-affinity between pods.

use super::fit::Reason;
use crate::view::{Counts, Node, Pod, Rule, TermEffect, View};

/// Where pods are that attract or repel this one: by values of topology labels, looked up once for all nodes.
pub(super) struct Neighbours<'a> {
    /// Each term of required affinity.
    near: Vec<(&'a str, Option<&'a Counts>)>,
    /// Nobody is anywhere whom the pod wants to be near, and it may be the first of its kind.
    is_first: bool,
    apart: Vec<(&'a str, &'a Counts)>,
    repelled: Vec<(&'a str, &'a Counts)>,
    /// How much each pod there counts for or against the place.
    liked: Vec<(&'a str, i64, &'a Counts)>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn of(view: &'a View, pod: &'a Pod) -> Self {
        let affinity_terms = pod.affinity_terms();
        let counts = |rule: &'a Rule| {
            Some((rule.topology.as_str(), view.pod_groups().of(&rule.selector)?.by(&rule.topology)?))
        };
        // Only who finds nobody anywhere may be the first, and only if it fits its own terms.
        let is_first = affinity_terms
            .near
            .iter()
            .all(|rule| counts(rule).is_none_or(|(_, places)| places.is_empty()) && rule.selector.has(pod));
        let near = affinity_terms
            .near
            .iter()
            .map(|rule| (rule.topology.as_str(), counts(rule).map(|(_, places)| places)));
        let mut found = Self {
            near: near.collect(),
            is_first,
            apart: affinity_terms.apart.iter().filter_map(counts).collect(),
            repelled: Vec::new(),
            liked: Vec::new(),
        };
        for (rule, weight) in &affinity_terms.liked {
            found.liked.extend(counts(rule).map(|(topology, places)| (topology, *weight, places)));
        }
        for (topology, effect, places) in view.pod_groups().existing_about(pod) {
            match effect {
                TermEffect::Repels => found.repelled.push((topology, places)),
                TermEffect::Likes(weight) => found.liked.push((topology, weight, places)),
            }
        }
        found
    }

    pub(super) fn against(&self, node: &Node) -> Option<Reason> {
        let labels = &node.metadata.labels;
        let near = self.near.iter().all(|(topology, places)| {
            let there = |value: &String| places.is_some_and(|places| places.contains_key(value));
            labels.get(*topology).is_some_and(|value| self.is_first || there(value))
        });
        let in_any = |all: &[(&str, &Counts)]| {
            all.iter().any(|(topology, places)| {
                labels.get(*topology).is_some_and(|value| places.contains_key(value))
            })
        };
        if !near {
            Some(Reason::Affinity)
        } else if in_any(&self.apart) {
            Some(Reason::AntiAffinity)
        } else if in_any(&self.repelled) {
            Some(Reason::Repelled)
        } else {
            None
        }
    }

    pub(super) fn have_likes(&self) -> bool {
        !self.liked.is_empty()
    }

    /// What all who are near the node say together.
    pub(super) fn liking(&self, node: &Node) -> i64 {
        let one = |(topology, weight, places): &(&str, i64, &Counts)| {
            let there = node.metadata.labels.get(*topology).and_then(|value| places.get(value));
            there.map_or(0, |count| weight * count.all)
        };
        self.liked.iter().map(one).sum()
    }
}
