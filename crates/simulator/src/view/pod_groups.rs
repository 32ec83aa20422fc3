//! Who is where, counted for the rules by which pods choose their neighbours.
//!
//! A rule (a term of affinity or a spread constraint) speaks of a pod group: the pods of some namespaces that a selector
//! selects. PodGroups are counted per node and per value of the topology labels that rules name, from the moment that a
//! pod with such a rule appears until the last one has gone, and kept up with every pod and node. So the scheduler never
//! looks at the pods of a namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::affinity_terms::{PodSelector, Rule, TermEffect};
use super::{Node, Pod, Table};
use embedded_apiserver::Key;
use embedded_apiserver::toolkit::LabelSelector;

/// Pods of a pod group in one place: all, and those that are not on their way out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub all: i64,
    pub staying: i64,
}

impl Count {
    fn add(&mut self, sign: i64, stays: bool) {
        self.all += sign;
        self.staying += if stays { sign } else { 0 };
    }

    fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Counts by node name, or by the value of a topology label.
pub(crate) type Counts = HashMap<String, Count>;

#[derive(Debug)]
pub(crate) struct PodGroup {
    selectors: Vec<LabelSelector>,
    pub on: Counts,
    places: HashMap<String, Counts>,
    /// Pods with a rule about this pod group, by the topology label that it names.
    users: BTreeMap<String, usize>,
}

impl PodGroup {
    /// Counts by the values of a label.
    pub(crate) fn by(&self, topology: &str) -> Option<&Counts> {
        self.places.get(topology)
    }

    fn has(&self, selector: &PodSelector, pod: &Pod) -> bool {
        selector.includes(&pod.metadata.namespace) && self.selects(pod)
    }

    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.selectors.iter().all(|selector| selector.matches_map(&pod.metadata.labels))
    }

    fn add(&mut self, pod: &Pod, node: Option<&Node>, sign: i64) {
        let stays = !pod.is_deleting();
        add(&mut self.on, &pod.spec.node_name, sign, stays);
        for (topology, counts) in &mut self.places {
            if let Some(place) = node.and_then(|node| node.metadata.labels.get(topology)) {
                add(counts, place, sign, stays);
            }
        }
    }
}

fn add(counts: &mut Counts, place: &str, sign: i64, stays: bool) {
    if let Some(count) = counts.get_mut(place) {
        count.add(sign, stays);
        if count.is_nothing() {
            counts.remove(place);
        }
    } else {
        counts.entry(place.to_string()).or_default().add(sign, stays);
    }
}

/// What pods that have their place think of others near them, and in how many places they are.
#[derive(Debug)]
pub(super) struct ExistingAffinity {
    selectors: Vec<LabelSelector>,
    pub places: Counts,
}

impl ExistingAffinity {
    pub(super) fn is_about(&self, pod: &Pod) -> bool {
        self.selectors.iter().all(|selector| selector.matches_map(&pod.metadata.labels))
    }
}

type ExistingAffinities = BTreeMap<(PodSelector, String, TermEffect), ExistingAffinity>;

#[derive(Debug, Default)]
pub(crate) struct PodGroups {
    pod_groups: HashMap<PodSelector, PodGroup>,
    /// The pod groups that pods of a namespace may be in.
    in_namespace: HashMap<Box<str>, BTreeSet<PodSelector>>,
    /// What is thought of pods of a namespace.
    existing: HashMap<Box<str>, ExistingAffinities>,
    /// How many nodes have which value of a label that some rule names.
    values: HashMap<String, BTreeMap<String, usize>>,
}

/// A pod counts where it has a node and has not ended.
fn is_placed(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_terminal()
}

/// Nothing that is counted has changed.
fn is_same(before: &Pod, after: &Pod) -> bool {
    before.metadata.uid == after.metadata.uid
        && before.spec.node_name == after.spec.node_name
        && is_placed(before) == is_placed(after)
        && before.is_deleting() == after.is_deleting()
        && before.metadata.labels == after.metadata.labels
}

impl PodGroups {
    pub(super) fn pod(
        &mut self,
        before: Option<&Pod>,
        after: Option<&Pod>,
        pods: &Table<Pod>,
        nodes: &Table<Node>,
    ) {
        if let (Some(before), Some(after)) = (before, after)
            && is_same(before, after)
        {
            return;
        }
        // The new rules come before the old go, so that a pod group that is still spoken of is not counted anew.
        if let Some(pod) = after {
            for rule in pod.affinity_terms().rules() {
                self.register(rule, (&pod.key(), before), pods, nodes);
            }
        }
        if let Some(pod) = before.filter(|pod| is_placed(pod)) {
            self.count(pod, node_of(pod, nodes), -1);
        }
        if let Some(pod) = after.filter(|pod| is_placed(pod)) {
            self.count(pod, node_of(pod, nodes), 1);
        }
        for rule in before.iter().flat_map(|pod| pod.affinity_terms().rules()) {
            self.release(rule);
        }
    }

    /// The labels of a node changed, or it came or went: its pods are elsewhere now.
    pub(super) fn node<'a>(
        &mut self,
        before: Option<&Node>,
        after: Option<&Node>,
        on_it: impl Iterator<Item = &'a Pod> + Clone,
    ) {
        if before.map(|node| &node.metadata.labels) == after.map(|node| &node.metadata.labels) {
            return;
        }
        for (node, sign) in before.map(|node| (node, -1)).into_iter().chain(after.map(|node| (node, 1))) {
            for (topology, values) in &mut self.values {
                if let Some(value) = node.metadata.labels.get(topology) {
                    let count = values.entry(value.clone()).or_default();
                    *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) };
                    if *count == 0 {
                        values.remove(value);
                    }
                }
            }
        }
        for pod in on_it.filter(|pod| is_placed(pod)) {
            self.count(pod, before, -1);
            self.count(pod, after, 1);
        }
    }

    fn count(&mut self, pod: &Pod, node: Option<&Node>, sign: i64) {
        let namespace = pod.metadata.namespace.as_str();
        for place in [namespace, EVERYWHERE] {
            for selector in self.in_namespace.get(place).into_iter().flatten() {
                if let Some(pod_group) =
                    self.pod_groups.get_mut(selector).filter(|pod_group| pod_group.has(selector, pod))
                {
                    pod_group.add(pod, node, sign);
                }
            }
        }
        for rule in pod.affinity_terms().rules() {
            let (Some(effect), Some(place)) =
                (rule.effect, node.and_then(|node| node.metadata.labels.get(&rule.topology)))
            else {
                continue;
            };
            for namespace in namespaces(&rule.selector) {
                let about = self.existing.entry(namespace.into()).or_default();
                let key = (rule.selector.clone(), rule.topology.clone(), effect);
                let existing_affinity = about.entry(key.clone()).or_insert_with(|| ExistingAffinity {
                    selectors: rule.selector.selectors(),
                    places: Counts::new(),
                });
                add(&mut existing_affinity.places, place, sign, true);
                if existing_affinity.places.is_empty() {
                    about.remove(&key);
                }
            }
        }
    }

    /// One more pod has this rule. A pod group that nobody spoke of yet is counted; the pod that is about to change counts
    /// as it was before, though the table has it as it will be.
    fn register(
        &mut self,
        rule: &Rule,
        (changing, before): (&Key, Option<&Pod>),
        pods: &Table<Pod>,
        nodes: &Table<Node>,
    ) {
        let topology = &rule.topology;
        if !self.values.contains_key(topology) {
            let mut values = BTreeMap::new();
            for value in nodes.iter().filter_map(|(_, node)| node.metadata.labels.get(topology)) {
                *values.entry(value.clone()).or_default() += 1;
            }
            self.values.insert(topology.clone(), values);
        }
        if !self.pod_groups.contains_key(&rule.selector) {
            for namespace in namespaces(&rule.selector) {
                self.in_namespace.entry(namespace.into()).or_default().insert(rule.selector.clone());
            }
            let mut pod_group = PodGroup {
                selectors: rule.selector.selectors(),
                on: Counts::new(),
                places: HashMap::new(),
                users: BTreeMap::new(),
            };
            let selector = &rule.selector;
            let mut look = |key: &Key, pod: &Pod| {
                let pod = if key == changing { before } else { Some(pod) };
                if let Some(pod) = pod.filter(|pod| is_placed(pod) && pod_group.has(selector, pod)) {
                    add(&mut pod_group.on, &pod.spec.node_name, 1, !pod.is_deleting());
                }
            };
            for namespace in namespaces(selector) {
                if namespace == EVERYWHERE {
                    pods.iter().for_each(|(key, pod)| look(key, pod));
                } else {
                    pods.in_namespace(namespace).for_each(|(key, pod)| look(key, pod));
                }
            }
            self.pod_groups.insert(rule.selector.clone(), pod_group);
        }
        let Some(pod_group) = self.pod_groups.get_mut(&rule.selector) else { return };
        if !pod_group.places.contains_key(topology) {
            let mut counts = Counts::new();
            for (node, count) in &pod_group.on {
                let node = nodes.get(&Key::new("", node));
                if let Some(place) = node.and_then(|node| node.metadata.labels.get(topology)) {
                    let there = counts.entry(place.clone()).or_default();
                    there.all += count.all;
                    there.staying += count.staying;
                }
            }
            pod_group.places.insert(topology.clone(), counts);
        }
        *pod_group.users.entry(topology.clone()).or_default() += 1;
    }

    fn release(&mut self, rule: &Rule) {
        let Some(pod_group) = self.pod_groups.get_mut(&rule.selector) else { return };
        if let Some(users) = pod_group.users.get_mut(&rule.topology) {
            *users = users.saturating_sub(1);
            if *users == 0 {
                pod_group.users.remove(&rule.topology);
                pod_group.places.remove(&rule.topology);
            }
        }
        if pod_group.users.is_empty() {
            self.pod_groups.remove(&rule.selector);
            for namespace in namespaces(&rule.selector) {
                if let Some(known) = self.in_namespace.get_mut(namespace) {
                    known.remove(&rule.selector);
                }
            }
        }
    }

    /// The pod group that a rule of some pod in the view speaks of.
    pub(crate) fn of(&self, selector: &PodSelector) -> Option<&PodGroup> {
        self.pod_groups.get(selector)
    }

    /// What pods that have their place think of this one: by which label, how, and where they are.
    pub(crate) fn existing_about<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> impl Iterator<Item = (&'a str, TermEffect, &'a Counts)> + 'a {
        [pod.metadata.namespace.as_str(), EVERYWHERE]
            .into_iter()
            .filter_map(|namespace| self.existing.get(namespace))
            .flatten()
            .filter(|(_, existing_affinity)| existing_affinity.is_about(pod))
            .map(|((_, topology, effect), existing_affinity)| {
                (topology.as_str(), *effect, &existing_affinity.places)
            })
    }

    /// The values that nodes have of a label that a rule names.
    pub(crate) fn values_of(&self, topology: &str) -> impl Iterator<Item = &String> {
        self.values.get(topology).into_iter().flat_map(BTreeMap::keys)
    }
}

fn node_of<'a>(pod: &Pod, nodes: &'a Table<Node>) -> Option<&'a Node> {
    nodes.get(&Key::new("", &pod.spec.node_name)).map(|node| &**node)
}

/// Stands for all namespaces; no namespace has this name.
const EVERYWHERE: &str = "";

/// Where pods of which a rule speaks can be.
fn namespaces(selector: &PodSelector) -> impl Iterator<Item = &str> {
    let named = selector.namespaces().map(|names| names.iter().map(String::as_str));
    let everywhere = named.is_none().then_some(EVERYWHERE);
    named.into_iter().flatten().chain(everywhere)
}
