//! RemovePodsViolatingTopologySpreadConstraint: moves pods from the largest domains to the smallest, until the skew holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::values::Values;
use super::{Plugin, PodInfo, Run};
use crate::cluster::node::NodeObject;
use crate::cluster::node_affinity::{RequiredNodes, Toleration, tolerate};
use crate::cluster::shape::{Shape, SpreadConstraint};
use crate::cluster::{Labels, Map, Set};
use crate::cycle::{Cycle, ProposalOutcome};
use crate::matching::Matching;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::TopologySpreadArgs;
use crate::selector::Selector;
use crate::slots::Slots;

#[derive(Debug)]
pub struct TopologySpread {
    args: TopologySpreadArgs,
    matching: Matching,
    constraints: Vec<Constraint>,
    /// How many of them no pod carries any more.
    unused: usize,
    /// Their numbers, in the order in which they are looked at.
    in_order: BTreeMap<String, u32>,
    numbers: Map<Identity, u32>,
    of_selector: Map<u32, Vec<u32>>,
    of_shape: Map<u64, Vec<u32>>,
    members: Map<u64, BTreeSet<u32>>,
    known: Slots<CountedPod>,
    values: Values,
    /// The domains that are there, by what decides on them, until nodes change.
    domains: Map<DomainRule, Set<u32>>,
    domains_at: u64,
}

/// The topology key, and which nodes count.
type DomainRule = (Box<str>, Option<RequiredNodes>, Option<Box<[Toleration]>>);

/// Constraints that are the same for all pods of a namespace are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    namespace: Box<str>,
    max_skew: i32,
    topology_key: Box<str>,
    selector: Option<Selector>,
    /// What the pod asks of nodes, if nodes that do not match it do not count.
    nodes: Option<RequiredNodes>,
    tolerations: Option<Box<[Toleration]>>,
}

#[derive(Debug)]
struct Constraint {
    identity: Arc<Identity>,
    domain_rule: DomainRule,
    /// How many pods carry it.
    carriers: usize,
    /// The number of its topology key.
    key: usize,
    /// The pods that it counts, by the value of the topology key.
    pods: Map<u32, BTreeSet<u32>>,
}

#[derive(Debug)]
struct CountedPod {
    generation: u64,
    node: u32,
    labels: Arc<Labels>,
    /// The constraints that count it, and in which domain.
    counted: SmallVec<[(u32, u32); 2]>,
}

/// A domain while it is balanced.
struct Domain {
    value: Arc<str>,
    pods: Vec<u32>,
}

impl Identity {
    fn admits(&self, name: &str, object: &NodeObject) -> bool {
        let hard = |taint: &&crate::cluster::node::Taint| taint.is_hard();
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches(name, &object.labels))
            && self
                .tolerations
                .as_deref()
                .is_none_or(|all| object.taints.iter().filter(hard).all(|one| tolerate(all, one)))
    }
}

impl TopologySpread {
    pub fn new(args: TopologySpreadArgs) -> Self {
        Self {
            args,
            matching: Matching::default(),
            constraints: Vec::new(),
            unused: 0,
            in_order: BTreeMap::new(),
            numbers: Map::default(),
            of_selector: Map::default(),
            of_shape: Map::default(),
            members: Map::default(),
            known: Slots::default(),
            values: Values::default(),
            domains: Map::default(),
            domains_at: 0,
        }
    }

    /// The constraints that pods of a shape carry and the plugin looks at.
    fn carried(&mut self, info: &PodInfo<'_>) -> Vec<u32> {
        if let Some(carried) = self.of_shape.get(&info.generation) {
            return carried.clone();
        }
        let mut carried = Vec::new();
        for one in &info.shape.spread {
            let looked_at =
                if one.do_not_schedule { self.args.do_not_schedule } else { self.args.schedule_anyway };
            if looked_at {
                carried.push(self.constraint(info, info.shape, one));
            }
        }
        carried.sort_unstable();
        carried.dedup();
        self.of_shape.insert(info.generation, carried.clone());
        carried
    }

    fn constraint(&mut self, info: &PodInfo<'_>, shape: &Shape, constraint: &SpreadConstraint) -> u32 {
        let placement = info.cluster.placement(shape.placement);
        let identity = Identity {
            namespace: shape.namespace.as_ref().into(),
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            selector: constraint.selector.clone(),
            nodes: placement.filter(|_| constraint.honors_affinity).map(|one| one.nodes.clone()),
            tolerations: placement.filter(|_| constraint.honors_taints).map(|one| one.tolerations.clone()),
        };
        if let Some(number) = self.numbers.get(&identity) {
            return *number;
        }
        let number = u32::try_from(self.constraints.len()).unwrap_or(u32::MAX);
        let key = self.values.key(&identity.topology_key);
        let mut pods: Map<u32, BTreeSet<u32>> = Map::default();
        if let Some(selector) = &identity.selector {
            let selector = self.matching.selector(std::slice::from_ref(&identity.namespace), selector);
            self.of_selector.entry(selector).or_default().push(number);
            let shapes = self.matching.shapes_of(selector);
            for slot in shapes.iter().filter_map(|generation| self.members.get(generation)).flatten() {
                if let Some(known) = self.known.get_mut(*slot)
                    && let Some(value) = self.values.of(known.node, &known.labels, key)
                {
                    known.counted.push((number, value));
                    pods.entry(value).or_default().insert(*slot);
                }
            }
        }
        let identity = Arc::new(identity);
        self.numbers.insert(identity.as_ref().clone(), number);
        let domain_rule =
            (identity.topology_key.clone(), identity.nodes.clone(), identity.tolerations.clone());
        self.in_order.insert(format!("{identity:?}"), number);
        self.constraints.push(Constraint { identity, domain_rule, carriers: 0, key, pods });
        self.unused += 1;
        number
    }

    /// Finds the domains of nodes that count for a constraint, which there are even if they have no pod.
    fn find_domains(&mut self, cycle: &Cycle<'_>, number: u32) {
        if self.domains_at != cycle.cluster.nodes_version() {
            self.domains.clear();
            self.domains_at = cycle.cluster.nodes_version();
        }
        let Constraint { identity, domain_rule, key, .. } = &self.constraints[number as usize];
        if self.domains.contains_key(domain_rule) {
            return;
        }
        let mut found: Set<u32> = Set::default();
        for index in &cycle.nodes.nodes {
            let node = cycle.node(*index);
            let Some((node, object)) = node.and_then(|node| Some((node, node.object.as_ref()?))) else {
                continue;
            };
            let value = self.values.of(*index, &object.labels, *key);
            if let Some(value) = value.filter(|value| !found.contains(value))
                && identity.admits(&node.name, object)
            {
                found.insert(value);
            }
        }
        self.domains.insert(domain_rule.clone(), found);
    }

    /// Whether the domains are within the skew: what most constraints are, found out without looking at empty domains.
    fn is_balanced(constraint: &Constraint, domains: &Set<u32>) -> bool {
        let most = constraint.pods.values().map(BTreeSet::len).max().unwrap_or(0);
        let with_pods = constraint.pods.keys().filter(|value| domains.contains(*value)).count();
        let least = match with_pods < domains.len() {
            true => 0,
            false => constraint.pods.values().map(BTreeSet::len).min().unwrap_or(0),
        };
        as_i64(most - least) <= i64::from(constraint.identity.max_skew)
    }

    /// The order in which pods of a domain are moved is from the end.
    fn sorted(cycle: &Cycle<'_>, pods: &BTreeSet<u32>, moved: &Set<u32>) -> Vec<u32> {
        let mut pods: Vec<u32> = pods.iter().copied().collect();
        pods.sort_by_cached_key(|slot| {
            let shape = cycle.pod(*slot).map(|(_, shape)| shape);
            let priority = shape.and_then(|shape| shape.priority);
            (
                cycle.is_leaving(*slot),
                cycle.differences.spread_shares_moves && moved.contains(slot),
                !shape.is_some_and(|shape| shape.traits.chooses_nodes),
                priority,
                cycle.by_name(*slot),
            )
        });
        pods
    }

    /// Picks the pods to move so that the domains of one constraint come within its skew.
    fn balance(&self, cycle: &Cycle<'_>, run: &mut Run<'_>, number: u32, picked: &mut Picked) {
        let constraint = &self.constraints[number as usize];
        let identity = &constraint.identity;
        let Some(all_domains) = self.domains.get(&constraint.domain_rule) else {
            return;
        };
        if Self::is_balanced(constraint, all_domains) {
            return;
        }
        let max_skew = i64::from(identity.max_skew);
        let none = BTreeSet::new();
        let name = |value: &u32| self.values.name(*value).map(|name| (name.clone(), *value));
        let values = all_domains.iter().chain(constraint.pods.keys());
        let values: BTreeSet<(Arc<str>, u32)> = values.filter_map(name).collect();
        let mut domains: Vec<Domain> = values
            .into_iter()
            .map(|(value, number)| {
                let pods = constraint.pods.get(&number).unwrap_or(&none);
                Domain { pods: Self::sorted(cycle, pods, &picked.slots), value }
            })
            .collect();
        domains.sort_by_key(|domain| domain.pods.len());
        let total: usize = domains.iter().map(|domain| domain.pods.len()).sum();
        let average = as_f64(total) / as_f64(domains.len());
        let small: Set<Arc<str>> = domains
            .iter()
            .filter(|domain| as_f64(domain.pods.len()) < average)
            .map(|domain| domain.value.clone())
            .collect();
        let needs_more = |index: u32| {
            let node = cycle.node(index);
            let object = node.and_then(|node| Some((node, node.object.as_ref()?)));
            object.is_some_and(|(node, object)| {
                node.label(&identity.topology_key).is_some_and(|value| small.contains(value))
                    && identity.admits(&node.name, object)
            })
        };
        let mut fits: Map<u32, bool> = Map::default();
        let mut fits_small = |run: &mut Run<'_>, slot: u32| {
            // The replacement of a pod that is leaving may have taken the room already.
            if cycle.is_leaving(slot) {
                return true;
            }
            // Pods of one shape fit alike, as none of them is on a node of a small domain.
            let shape = cycle.cluster.pod(slot).map_or(u32::MAX, |pod| pod.shape);
            *fits.entry(shape).or_insert_with(|| run.fit.any_of(cycle, slot, needs_more))
        };
        if domains.is_empty() {
            // A skew below zero is not even held by no domains.
            return;
        }
        let sizes: Vec<usize> = domains.iter().map(|domain| domain.pods.len()).collect();
        let (mut low, mut high) = (0, domains.len() - 1);
        while low < high {
            if as_f64(domains[high].pods.len()) <= average {
                high -= 1;
            }
            let (above, below) = (domains[high].pods.len(), domains[low].pods.len());
            let skew = as_i64(above) - as_i64(below);
            if skew <= max_skew {
                low += 1;
                continue;
            }
            let spare = (as_f64(above) - average).ceil();
            let missing = (average - as_f64(below)).ceil();
            #[allow(clippy::cast_precision_loss)]
            let half = ((skew - max_skew) as f64 / 2.0).ceil();
            let count = spare.min(missing).min(half);
            if count <= 0.0 {
                low += 1;
                continue;
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let count = (count as usize).min(above);
            domains[high].pods.sort_by_cached_key(|slot| fits_small(run, *slot));
            let moved = domains[high].pods.split_off(above - count);
            for slot in &moved {
                if self.args.topology_balance_node_fit && !fits_small(run, *slot) {
                    continue;
                }
                if picked.slots.insert(*slot) {
                    let (domain, pods) = (domains[high].value.clone(), sizes[high]);
                    picked.order.push(Pick { slot: *slot, identity: identity.clone(), domain, pods });
                }
            }
            domains[low].pods.extend(moved);
        }
    }
}

/// Pods to move, in the order in which they were picked.
#[derive(Default)]
struct Picked {
    slots: Set<u32>,
    order: Vec<Pick>,
}

/// A pod to move, and the domain that has too many, with how many it had.
struct Pick {
    slot: u32,
    identity: Arc<Identity>,
    domain: Arc<str>,
    pods: usize,
}

impl Pick {
    fn reason(&self) -> Reason {
        Reason::TopologySpread {
            topology_key: self.identity.topology_key.to_string(),
            domain: self.domain.to_string(),
            pods: self.pods,
            max_skew: self.identity.max_skew,
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Plugin for TopologySpread {
    fn name(&self) -> PluginName {
        PluginName::RemovePodsViolatingTopologySpreadConstraint
    }

    fn observe(&mut self, info: &PodInfo<'_>, _: &mut Vec<i64>) {
        let slot = info.slot;
        let counts = info.passes
            && info.pod.is_active()
            && !info.pod.terminating
            && self.args.scope.admits(info.shape);
        let Some(object) = info.node.object.as_ref().filter(|_| counts) else {
            return self.forget(slot);
        };
        let is_same =
            |it: &CountedPod| it.generation == info.generation && Arc::ptr_eq(&it.labels, &object.labels);
        if self.known.get(slot).is_some_and(is_same) {
            return;
        }
        self.forget(slot);
        let carried = self.carried(info);
        for number in &carried {
            let constraint = &mut self.constraints[*number as usize];
            self.unused -= usize::from(constraint.carriers == 0);
            constraint.carriers += 1;
        }
        let (mut counted, node) = (SmallVec::new(), info.pod.node);
        let selectors = self.matching.of_shape(info.generation, info.shape);
        for number in selectors.iter().filter_map(|one| self.of_selector.get(one)).flatten() {
            let constraint = &mut self.constraints[*number as usize];
            if let Some(value) = self.values.of(node, &object.labels, constraint.key) {
                constraint.pods.entry(value).or_default().insert(slot);
                counted.push((*number, value));
            }
        }
        self.members.entry(info.generation).or_default().insert(slot);
        let (generation, labels) = (info.generation, object.labels.clone());
        self.known.insert(slot, CountedPod { generation, node, labels, counted });
    }

    fn forget(&mut self, slot: u32) {
        let Some(known) = self.known.remove(slot) else {
            return;
        };
        if let Some(members) = self.members.get_mut(&known.generation) {
            members.remove(&slot);
            if members.is_empty() {
                self.members.remove(&known.generation);
            }
        }
        for number in self.of_shape.get(&known.generation).into_iter().flatten() {
            let constraint = &mut self.constraints[*number as usize];
            constraint.carriers -= 1;
            self.unused += usize::from(constraint.carriers == 0);
        }
        for (number, value) in known.counted {
            let pods = &mut self.constraints[number as usize].pods;
            if let Some(slots) = pods.get_mut(&value) {
                slots.remove(&slot);
                if slots.is_empty() {
                    pods.remove(&value);
                }
            }
        }
    }

    fn remembered(&self) -> usize {
        self.matching.remembered().max(self.values.remembered()).max(self.unused)
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        cycle.note_kept(run.evictor);
        let in_order = self.in_order.values().copied();
        let live: Vec<u32> =
            in_order.filter(|number| self.constraints[*number as usize].carriers > 0).collect();
        let mut picked = Picked::default();
        for number in live {
            self.find_domains(cycle, number);
            self.balance(cycle, run, number, &mut picked);
        }
        let mut full: Set<u32> = Set::default();
        for pick in picked.order {
            let slot = pick.slot;
            let node = cycle.cluster.pod(slot).map_or(u32::MAX, |pod| pod.node);
            if full.contains(&node) || !cycle.admits(run.evictor, slot, || Some(pick.reason())) {
                continue;
            }
            if cycle.goes_on_leaving(slot) {
                continue;
            }
            match cycle.propose(run.evictor, slot, pick.reason()) {
                ProposalOutcome::Leaves | ProposalOutcome::Refused => {}
                ProposalOutcome::NodeLimit => {
                    full.insert(node);
                }
                ProposalOutcome::TotalLimit => return,
            }
        }
    }
}
