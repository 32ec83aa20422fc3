//! Topology spread constraints.

use std::collections::{BTreeMap, BTreeSet};

use super::fit::{Guest, Reason};
use crate::view::{Counts, Node, NodeInfo, Spread, View};

/// One constraint with what is known before nodes are looked at.
struct Constraint<'a> {
    spread: &'a Spread,
    /// Pods of the pod group by the value of the label, where only some nodes count.
    counted: Option<BTreeMap<&'a str, i64>>,
    everywhere: Option<&'a Counts>,
    /// The fewest in any place that counts.
    least: i64,
    /// Whether the pod itself is one of the pod group.
    own: i64,
}

impl Constraint<'_> {
    fn count(&self, value: &str) -> i64 {
        match &self.counted {
            Some(counted) => counted.get(value).copied().unwrap_or_default(),
            None => self.everywhere.and_then(|counts| counts.get(value)).map_or(0, |count| count.staying),
        }
    }
}

/// The constraints of a pod.
pub(super) struct Spreading<'a> {
    required: Vec<Constraint<'a>>,
    preferred: Vec<Constraint<'a>>,
}

impl<'a> Spreading<'a> {
    pub(super) fn of(view: &'a View, guest: &Guest<'a>) -> Self {
        let all = &guest.pod.affinity_terms().spread;
        let of = |required: bool| -> Vec<Constraint<'a>> {
            let these: Vec<&Spread> = all.iter().filter(|spread| spread.is_required == required).collect();
            let labels: BTreeSet<&str> = these.iter().map(|spread| spread.rule.topology.as_str()).collect();
            these.iter().map(|spread| constraint(view, guest, spread, &labels)).collect()
        };
        if all.is_empty() {
            return Self { required: Vec::new(), preferred: Vec::new() };
        }
        Self { required: of(true), preferred: of(false) }
    }

    pub(super) fn against(&self, node: &Node) -> Option<Reason> {
        for constraint in &self.required {
            let Some(value) = node.metadata.labels.get(&constraint.spread.rule.topology) else {
                return Some(Reason::SpreadLabel);
            };
            let skew = constraint.count(value) + constraint.own - constraint.least;
            if skew > constraint.spread.max_skew {
                return Some(Reason::Spread);
            }
        }
        None
    }

    pub(super) fn has_preferences(&self) -> bool {
        !self.preferred.is_empty()
    }

    /// How many pods each node would share its domains with by the constraints that are only preferred; nothing for a node that lacks a label.
    pub(super) fn raw_scores(&self, nodes: &[&NodeInfo]) -> Vec<Option<i64>> {
        let weights: Vec<f64> = self
            .preferred
            .iter()
            .map(|constraint| {
                let topology = &constraint.spread.rule.topology;
                let values: BTreeSet<&String> = nodes
                    .iter()
                    .filter_map(|node_info| node_info.node.metadata.labels.get(topology))
                    .collect();
                (values.len() as f64 + 2.0).ln()
            })
            .collect();
        let one = |node_info: &&NodeInfo| {
            let mut sum = 0.0;
            for (constraint, weight) in self.preferred.iter().zip(&weights) {
                let value = node_info.node.metadata.labels.get(&constraint.spread.rule.topology)?;
                let skew = (constraint.spread.max_skew - 1) as f64;
                sum += constraint.count(value) as f64 * weight + skew;
            }
            Some(sum.round() as i64)
        };
        nodes.iter().map(one).collect()
    }
}

/// A node counts if it has the labels of all constraints of the same strength, and as far as the constraint says so,
/// if the pod could go there by its node selector and taints.
fn constraint<'a>(
    view: &'a View,
    guest: &Guest<'a>,
    spread: &'a Spread,
    labels: &BTreeSet<&str>,
) -> Constraint<'a> {
    let topology = &spread.rule.topology;
    let pod_group = view.pod_groups().of(&spread.rule.selector);
    let own = i64::from(spread.rule.selector.has(guest.pod));
    let everywhere = pod_group.and_then(|pod_group| pod_group.by(topology));
    let all_count =
        labels.len() == 1 && !spread.honors_taints && !(spread.honors_affinity && guest.selects());
    let mut domains = 0;
    let mut least = i64::MAX;
    let counted = if all_count {
        for value in view.pod_groups().values_of(topology) {
            domains += 1;
            let there = everywhere.and_then(|counts| counts.get(value)).map_or(0, |count| count.staying);
            least = least.min(there);
        }
        None
    } else {
        let mut counted: BTreeMap<&str, i64> = BTreeMap::new();
        for node_info in view.node_snapshot().iter() {
            let node = &node_info.node;
            let counts = labels.iter().all(|label| node.metadata.labels.contains_key(*label))
                && (!spread.honors_affinity || !guest.selects() || guest.is_for(node))
                && (!spread.honors_taints || guest.tolerates_all(node));
            if let Some(value) = node.metadata.labels.get(topology).filter(|_| counts) {
                let there = pod_group.and_then(|pod_group| pod_group.on.get(&node.metadata.name));
                *counted.entry(value).or_default() += there.map_or(0, |count| count.staying);
            }
        }
        domains += counted.len() as i64;
        least = counted.values().copied().min().unwrap_or(i64::MAX);
        Some(counted)
    };
    // With too few places, an empty one is imagined.
    if domains < spread.min_domains {
        least = 0;
    }
    let least = if least == i64::MAX { 0 } else { least };
    Constraint { spread, counted, everywhere, least, own }
}
