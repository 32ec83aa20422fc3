//! RemovePodsViolatingInterPodAntiAffinity: pods that share a topology domain with one that they do not want to be with.
//!
//! For each distinct term, the pods that it matches and the pods that carry it are kept by domain, so that a pod is held against others
//! only where there is somebody at all. No pod is compared with all others of its namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::values::Values;
use super::{Plugin, PodInfo, Run};
use crate::cluster::shape::{AntiAffinityTerm, Shape};
use crate::cluster::{Labels, Map, Set};
use crate::cycle::{Cycle, ProposalOutcome};
use crate::matching::Matching;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::InterPodAntiAffinityArgs;
use crate::slots::Slots;

#[derive(Debug)]
pub struct AntiAffinity {
    args: InterPodAntiAffinityArgs,
    matching: Matching,
    terms: Vec<Term>,
    /// How many of them no pod carries any more.
    unused: usize,
    numbers: Map<AntiAffinityTerm, u32>,
    /// The terms of each selector.
    of_selector: Map<u32, Vec<u32>>,
    domains: Map<Domain, Residents>,
    /// Domains in which somebody carries a term that matches somebody else.
    contested: Set<Domain>,
    /// What was learned of each pod.
    known: Slots<CountedPod>,
    members: Map<u64, BTreeSet<u32>>,
    values: Values,
}

#[derive(Debug)]
struct Term {
    topology_key: Box<str>,
    /// The number of its topology key.
    key: usize,
    /// How many pods carry it.
    carriers: usize,
}

/// A topology domain of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Domain {
    term: u32,
    value: DomainValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DomainValue {
    /// The number of the value.
    Value(u32),
    /// A node without the label is a domain by itself.
    Node(u32),
}

#[derive(Debug, Default)]
struct Residents {
    matched: BTreeSet<u32>,
    carriers: BTreeSet<u32>,
}

#[derive(Debug)]
struct CountedPod {
    generation: u64,
    node: u32,
    matched: SmallVec<[Domain; 2]>,
    carried: SmallVec<[Domain; 2]>,
    /// The labels of its node then.
    labels: Option<Arc<Labels>>,
}

impl CountedPod {
    /// It is as it was learned.
    fn is(&self, generation: u64, node: u32, labels: Option<&Arc<Labels>>) -> bool {
        let same_labels = match (&self.labels, labels) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        self.generation == generation && self.node == node && same_labels
    }
}

impl Residents {
    fn is_contested(&self) -> bool {
        match (self.matched.len(), self.carriers.is_empty()) {
            (0, _) | (_, true) => false,
            (1, false) => self.carriers != self.matched,
            _ => true,
        }
    }
}

impl AntiAffinity {
    pub fn new(args: InterPodAntiAffinityArgs) -> Self {
        Self {
            args,
            matching: Matching::default(),
            terms: Vec::new(),
            unused: 0,
            numbers: Map::default(),
            of_selector: Map::default(),
            domains: Map::default(),
            contested: Set::default(),
            known: Slots::default(),
            members: Map::default(),
            values: Values::default(),
        }
    }

    /// The number of a term. One that is new looks at all pods that are known.
    fn term(&mut self, term: &AntiAffinityTerm) -> Option<u32> {
        let selector = term.selector.as_ref()?;
        if let Some(number) = self.numbers.get(term) {
            return Some(*number);
        }
        let number = u32::try_from(self.terms.len()).ok()?;
        let selector = self.matching.selector(&term.namespaces, selector);
        let key = self.values.key(&term.topology_key);
        self.terms.push(Term { topology_key: term.topology_key.clone(), key, carriers: 0 });
        self.unused += 1;
        self.numbers.insert(term.clone(), number);
        self.of_selector.entry(selector).or_default().push(number);
        for generation in self.matching.shapes_of(selector).to_vec() {
            for slot in self.members.get(&generation).cloned().into_iter().flatten() {
                let Some(known) = self.known.get_mut(slot) else {
                    continue;
                };
                let value = domain_value(&mut self.values, known.node, known.labels.as_ref(), key);
                let domain = Domain { term: number, value };
                known.matched.push(domain);
                self.change(domain, |residents| residents.matched.insert(slot));
            }
        }
        Some(number)
    }

    fn change(&mut self, domain: Domain, change: impl FnOnce(&mut Residents) -> bool) {
        let residents = self.domains.entry(domain).or_default();
        change(residents);
        if residents.is_contested() {
            self.contested.insert(domain);
        } else {
            self.contested.remove(&domain);
        }
        if residents.matched.is_empty() && residents.carriers.is_empty() {
            self.domains.remove(&domain);
        }
    }

    /// Another pod in the domain that the term matches. One that is leaving is in nobody's way who stays.
    fn other(&self, cycle: &Cycle<'_>, domain: &Domain, slot: u32) -> Option<u32> {
        let name = &cycle.cluster.pod(slot)?.name;
        let residents = self.domains.get(domain)?;
        let mut others = residents.matched.iter().copied();
        let counts = |other: u32| cycle.is_leaving(slot) || !cycle.is_leaving(other);
        others.find(|other| {
            !cycle.is_gone(*other)
                && counts(*other)
                && cycle.cluster.pod(*other).is_some_and(|pod| pod.name != *name)
        })
    }

    fn violation(&self, cycle: &Cycle<'_>, slot: u32) -> Option<Reason> {
        let known = self.known.get(slot)?;
        known.carried.iter().find_map(|domain| {
            let (namespace, name) = cycle.name_of(self.other(cycle, domain, slot)?);
            let topology_key = self.terms.get(domain.term as usize)?.topology_key.to_string();
            Some(Reason::AntiAffinity { other: format!("{namespace}/{name}"), topology_key })
        })
    }
}

/// Where a node is, by a topology key.
fn domain_value(values: &mut Values, node: u32, labels: Option<&Arc<Labels>>, key: usize) -> DomainValue {
    labels.and_then(|labels| values.of(node, labels, key)).map_or(DomainValue::Node(node), DomainValue::Value)
}

impl Plugin for AntiAffinity {
    fn name(&self) -> PluginName {
        PluginName::RemovePodsViolatingInterPodAntiAffinity
    }

    fn observe(&mut self, info: &PodInfo<'_>, _: &mut Vec<i64>) {
        let (slot, index) = (info.slot, info.pod.node);
        let shape: &Arc<Shape> = info.shape;
        let labels = info.node.object.as_ref().map(|object| object.labels.clone());
        let counts = info.pod.is_active() && self.args.scope.admits(shape);
        if counts && self.known.get(slot).is_some_and(|it| it.is(info.generation, index, labels.as_ref())) {
            return;
        }
        self.forget(slot);
        if !counts {
            return;
        }
        let selectors = self.matching.of_shape(info.generation, shape).to_vec();
        let mut matched = SmallVec::new();
        for term in selectors.iter().filter_map(|one| self.of_selector.get(one)).flatten() {
            let value =
                domain_value(&mut self.values, index, labels.as_ref(), self.terms[*term as usize].key);
            matched.push(Domain { term: *term, value });
        }
        for domain in &matched {
            self.change(*domain, |residents| residents.matched.insert(slot));
        }
        let carried = SmallVec::new();
        let known = CountedPod { generation: info.generation, node: index, matched, carried, labels };
        self.known.insert(slot, known);
        self.members.entry(info.generation).or_default().insert(slot);
        let mut carried = SmallVec::new();
        for term in &shape.anti_affinity {
            if let Some(number) = self.term(term) {
                let labels = info.node.object.as_ref().map(|object| &object.labels);
                let value = domain_value(&mut self.values, index, labels, self.terms[number as usize].key);
                let domain = Domain { term: number, value };
                self.change(domain, |residents| residents.carriers.insert(slot));
                let term = &mut self.terms[number as usize];
                self.unused -= usize::from(term.carriers == 0);
                term.carriers += 1;
                carried.push(domain);
            }
        }
        if let Some(known) = self.known.get_mut(slot) {
            known.carried = carried;
        }
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
        for domain in &known.matched {
            self.change(*domain, |residents| residents.matched.remove(&slot));
        }
        for domain in &known.carried {
            self.change(*domain, |residents| residents.carriers.remove(&slot));
            let term = &mut self.terms[domain.term as usize];
            term.carriers -= 1;
            self.unused += usize::from(term.carriers == 0);
        }
    }

    fn remembered(&self) -> usize {
        self.matching.remembered().max(self.values.remembered()).max(self.unused)
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        let carriers = self.contested.iter().filter_map(|domain| self.domains.get(domain));
        let candidates: BTreeSet<u32> = carriers.flat_map(|residents| &residents.carriers).copied().collect();
        let mut candidates: Vec<(u32, u32)> = candidates
            .into_iter()
            .filter(|slot| !cycle.is_passed_over(*slot))
            .filter_map(|slot| Some((cycle.nodes.rank(cycle.cluster.pod(slot)?.node)?, slot)))
            .collect();
        candidates
            .sort_by_cached_key(|(rank, slot)| (!cycle.is_leaving(*slot), *rank, cycle.by_priority(*slot)));
        for pods in candidates.chunk_by(|a, b| a.0 == b.0) {
            for (_, slot) in pods {
                let Some(reason) = self.violation(cycle, *slot) else {
                    continue;
                };
                let why = (cycle.watched == Some(*slot)).then(|| reason.clone());
                if !cycle.admits(run.evictor, *slot, || why) {
                    continue;
                }
                match cycle.propose(run.evictor, *slot, reason) {
                    ProposalOutcome::Leaves | ProposalOutcome::Refused => {}
                    ProposalOutcome::NodeLimit => break,
                    ProposalOutcome::TotalLimit => return,
                }
            }
        }
    }
}
