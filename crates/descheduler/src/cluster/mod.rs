//! What is known of a cluster, slimly: what pods of a workload share is kept once, resources are integers, and sums are kept as objects
//! come and go. Everything that changed knows when, so that a planner can tell what it has seen.

pub(crate) mod interned;
pub(crate) mod labels;
pub(crate) mod node;
pub(crate) mod node_affinity;
pub(crate) mod pod;
pub(crate) mod resources;
pub(crate) mod shape;
mod stamps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

pub(crate) use foldhash::fast::RandomState;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub use labels::Labels;

use crate::selector::Selector;
use interned::Interned;
use node::{Node, NodeObject};
use node_affinity::Placement;
use pod::{ConditionKind, Pod, Share, UNBOUND};
use resources::{Amounts, ResourceNames};
use shape::{Shape, placement_of};
use stamps::Stamps;

pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
pub(crate) type Set<K> = HashSet<K, RandomState>;

/// The name of a storage class, if a claim has one.
type StorageClass = Option<Box<str>>;

/// Nodes, pods and what else decisions need, kept object by object.
#[derive(Debug, Default)]
pub struct Cluster {
    pods: Vec<Option<Pod>>,
    /// When each slot of a pod changed last, beside the pods because every cycle looks for those that changed.
    pod_versions: Stamps<u64>,
    /// In which second of 1970 each pod was created, for the same reason.
    pod_created: Stamps<i64>,
    free_pods: Vec<u32>,
    by_name: Map<Arc<str>, Map<Arc<str>, u32>>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    nodes_by_name: Map<Box<str>, u32>,
    shapes: Interned<Shape>,
    placements: Interned<Placement>,
    /// How many pods each owner has, by its uid.
    owned: Map<Box<str>, u32>,
    pub(crate) resources: ResourceNames,
    texts: Texts,
    namespaces: Map<Box<str>, Labels>,
    budgets: Map<Box<str>, BTreeMap<String, Option<Selector>>>,
    priority_classes: Map<Box<str>, i32>,
    /// Storage classes of claims, by namespace and name.
    claims: Map<Box<str>, Map<Box<str>, StorageClass>>,
    usage_of_pods: Map<u32, Amounts>,
    version: u64,
    nodes_version: u64,
    budgets_version: u64,
    claims_version: u64,
}

/// What a node or a pod really uses.
#[derive(Debug, Clone, PartialEq)]
pub enum Usage {
    /// Quantities by resource, as metrics.k8s.io gives them; of a pod, the sum over its containers.
    Resources(BTreeMap<String, Quantity>),
    /// What a Prometheus query says of a node, between 0 and 1.
    Fraction { query: String, fraction: f64 },
}

#[derive(Debug, Default)]
struct Texts {
    texts: Set<Arc<str>>,
    conditions: Set<Arc<ConditionKind>>,
}

fn shared<T: ?Sized + Eq + Hash>(kept: &mut Set<Arc<T>>, value: Arc<T>) -> Arc<T> {
    if let Some(kept) = kept.get(&value) {
        return kept.clone();
    }
    if kept.len() >= 4096 && kept.len().is_power_of_two() {
        kept.retain(|one| Arc::strong_count(one) > 1);
    }
    kept.insert(value.clone());
    value
}

impl Share for Texts {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.texts.get(text) {
            return kept.clone();
        }
        shared(&mut self.texts, text.into())
    }

    fn condition(&mut self, kind: ConditionKind) -> Arc<ConditionKind> {
        if let Some(kept) = self.conditions.get(&kind) {
            return kept.clone();
        }
        shared(&mut self.conditions, Arc::new(kind))
    }
}

impl Cluster {
    pub fn set_node(&mut self, node: &core::Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let index = self.node_named(name);
        let object = NodeObject::of(node, &mut self.resources);
        let known = &mut self.nodes[index as usize];
        if known.object.as_ref() == Some(&object) {
            return;
        }
        known.object = Some(object);
        self.node_changed(index);
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.nodes_by_name.get(name).copied() else {
            return;
        };
        let node = &mut self.nodes[index as usize];
        (node.object, node.usage) = (None, None);
        node.fractions.clear();
        self.node_changed(index);
        self.forget_node_if_unused(index);
    }

    pub fn set_pod(&mut self, pod: &core::Pod) {
        let namespace = self.texts.text(pod.metadata.namespace.as_deref().unwrap_or_default());
        let (placement, _) = self.placements.acquire(placement_of(pod));
        let shape = Shape::of(pod, namespace.clone(), placement, &mut self.resources);
        let (shape, is_new) = self.shapes.acquire(shape);
        if !is_new {
            // The shape holds its placement already.
            self.placements.release(placement);
        }
        let bound_to =
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty());
        let node = bound_to.map_or(UNBOUND, |name| self.node_named(name));
        let pod = Pod::of(pod, shape, node, &mut self.texts);
        let known = self.by_name.get(&namespace).and_then(|names| names.get(&pod.name)).copied();
        match known {
            Some(slot) if self.pods[slot as usize].as_ref() == Some(&pod) => self.release_shape(shape),
            Some(slot) => {
                if self.pods[slot as usize].as_ref().is_some_and(|known| known.uid != pod.uid) {
                    self.usage_of_pods.remove(&slot);
                }
                let left = self.take_out(slot);
                self.put_in(slot, pod);
                self.forget_node_if_unused(left);
            }
            None => {
                let slot = self.free_pods.pop().unwrap_or_else(|| {
                    self.pods.push(None);
                    u32::try_from(self.pods.len() - 1).unwrap_or(u32::MAX)
                });
                self.by_name.entry(namespace).or_default().insert(pod.name.clone(), slot);
                self.put_in(slot, pod);
            }
        }
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(names) = self.by_name.get_mut(namespace) else {
            return;
        };
        let Some(slot) = names.remove(name) else {
            return;
        };
        if names.is_empty() {
            self.by_name.remove(namespace);
        }
        let left = self.take_out(slot);
        self.forget_node_if_unused(left);
        self.usage_of_pods.remove(&slot);
        self.free_pods.push(slot);
    }

    pub fn set_namespace(&mut self, namespace: &core::Namespace) {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        self.namespaces.insert(name.into(), Labels::of_object(namespace.metadata.labels.as_ref()));
    }

    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    pub fn set_budget(&mut self, budget: &PodDisruptionBudget) {
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let name = budget.metadata.name.clone().unwrap_or_default();
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        // One without a selector, or with one that is not valid, covers no pod.
        let selector = selector.and_then(|selector| Selector::of(selector).ok());
        let budgets = self.budgets.entry(namespace.into()).or_default();
        if budgets.get(&name) != Some(&selector) {
            budgets.insert(name, selector);
            self.version += 1;
            self.budgets_version = self.version;
        }
    }

    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        let removed = self.budgets.get_mut(namespace).and_then(|budgets| budgets.remove(name));
        if removed.is_some() {
            self.version += 1;
            self.budgets_version = self.version;
        }
    }

    pub fn set_priority_class(&mut self, class: &PriorityClass) {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        self.priority_classes.insert(name.into(), class.value.unwrap_or(0));
    }

    pub fn remove_priority_class(&mut self, name: &str) {
        self.priority_classes.remove(name);
    }

    pub fn set_claim(&mut self, claim: &core::PersistentVolumeClaim) {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let class: Option<Box<str>> = class.filter(|class| !class.is_empty()).map(Box::from);
        let claims = self.claims.entry(namespace.into()).or_default();
        if claims.get(name) != Some(&class) {
            claims.insert(name.into(), class);
            self.version += 1;
            self.claims_version = self.version;
        }
    }

    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        let removed = self.claims.get_mut(namespace).and_then(|claims| claims.remove(name));
        if removed.is_some() {
            self.version += 1;
            self.claims_version = self.version;
        }
    }

    /// Nothing is known of usage any more: what was read before is not what is used now.
    pub fn clear_usage(&mut self) {
        for node in &mut self.nodes {
            node.usage = None;
            node.fractions.clear();
        }
        self.usage_of_pods.clear();
    }

    /// The usage of a node, by metrics.k8s.io or by a query. Both kinds are kept side by side.
    pub fn set_usage_of_node(&mut self, name: &str, usage: &Usage) {
        let Some(index) = self.nodes_by_name.get(name).copied() else {
            return;
        };
        let node = &mut self.nodes[index as usize];
        match usage {
            Usage::Resources(quantities) => {
                node.usage = Some(Amounts::of(Some(quantities), &mut self.resources))
            }
            Usage::Fraction { query, fraction } => {
                node.fractions.insert(query.as_str().into(), *fraction);
            }
        }
    }

    /// The usage of a pod by metrics.k8s.io. Queries say nothing of pods.
    pub fn set_usage_of_pod(&mut self, namespace: &str, name: &str, usage: &Usage) {
        if let (Some(slot), Usage::Resources(quantities)) = (self.find(namespace, name), usage) {
            let amounts = Amounts::of(Some(quantities), &mut self.resources);
            self.usage_of_pods.insert(slot, amounts);
        }
    }

    /// How many pods are known.
    pub fn pod_count(&self) -> usize {
        self.pods.len() - self.free_pods.len()
    }

    /// How many nodes are known.
    pub fn node_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.object.is_some()).count()
    }

    /// Whether there is a node of that name.
    pub fn has_node(&self, name: &str) -> bool {
        let node = self.nodes_by_name.get(name).and_then(|index| self.node(*index));
        node.is_some_and(|node| node.object.is_some())
    }

    /// The node of a pod, if it is on one.
    pub fn node_of(&self, namespace: &str, name: &str) -> Option<&str> {
        let pod = self.pod(self.find(namespace, name)?)?;
        Some(&*self.node(pod.node)?.name)
    }

    pub(crate) fn find_node(&self, name: &str) -> Option<u32> {
        self.nodes_by_name.get(name).copied()
    }

    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<u32> {
        self.by_name.get(namespace)?.get(name).copied()
    }

    pub(crate) fn slots(&self) -> usize {
        self.pods.len()
    }

    /// The slots that changed after a version, of pods that are there and of pods that are gone.
    pub(crate) fn changed_since(&self, version: u64) -> impl Iterator<Item = u32> {
        self.pod_versions.at_least(version + 1)
    }

    pub(crate) fn pod(&self, slot: u32) -> Option<&Pod> {
        self.pods.get(slot as usize)?.as_ref()
    }

    /// The pods that were created in that second of 1970 or later.
    pub(crate) fn created_since(&self, second: i64) -> impl Iterator<Item = (u32, &Pod)> {
        self.pod_created.at_least(second).filter_map(|slot| Some((slot, self.pod(slot)?)))
    }

    pub(crate) fn shape(&self, number: u32) -> Option<&Arc<Shape>> {
        self.shapes.get(number)
    }

    pub(crate) fn shape_generation(&self, number: u32) -> u64 {
        self.shapes.generation(number)
    }

    pub(crate) fn placement(&self, number: u32) -> Option<&Arc<Placement>> {
        self.placements.get(number)
    }

    pub(crate) fn placement_generation(&self, number: u32) -> u64 {
        self.placements.generation(number)
    }

    pub(crate) fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0_u32..).zip(&self.nodes)
    }

    pub(crate) fn node_slots(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn nodes_version(&self) -> u64 {
        self.nodes_version
    }

    pub(crate) fn budgets_version(&self) -> u64 {
        self.budgets_version
    }

    pub(crate) fn claims_version(&self) -> u64 {
        self.claims_version
    }

    pub(crate) fn shape_count(&self) -> usize {
        self.shapes.len()
    }

    pub(crate) fn owned(&self, uid: &str) -> u32 {
        self.owned.get(uid).copied().unwrap_or(0)
    }

    pub(crate) fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    pub(crate) fn is_covered(&self, namespace: &str, labels: &Labels) -> bool {
        let budgets = self.budgets.get(namespace).into_iter().flat_map(|budgets| budgets.values());
        budgets.flatten().any(|selector| selector.matches(labels))
    }

    pub(crate) fn priority_class(&self, name: &str) -> Option<i32> {
        self.priority_classes.get(name).copied()
    }

    /// The storage class of a claim; None if the claim is not known or has none.
    pub(crate) fn storage_class(&self, namespace: &str, claim: &str) -> Option<&str> {
        self.claims.get(namespace)?.get(claim)?.as_deref()
    }

    pub(crate) fn usage_of_pod(&self, slot: u32) -> Option<&Amounts> {
        self.usage_of_pods.get(&slot)
    }

    fn node_changed(&mut self, index: u32) {
        self.version += 1;
        self.nodes_version = self.version;
        self.nodes[index as usize].version = self.version;
    }

    fn node_named(&mut self, name: &str) -> u32 {
        if let Some(index) = self.nodes_by_name.get(name) {
            return *index;
        }
        let index = match self.free_nodes.pop() {
            Some(index) => {
                self.nodes[index as usize] = Node::named(name);
                index
            }
            None => {
                self.nodes.push(Node::named(name));
                u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.nodes_by_name.insert(name.into(), index);
        self.node_changed(index);
        index
    }

    fn forget_node_if_unused(&mut self, index: u32) {
        let Some(node) = self.nodes.get(index as usize) else {
            return;
        };
        if !node.name.is_empty() && node.object.is_none() && node.pods.is_empty() {
            self.nodes_by_name.remove(&node.name);
            self.free_nodes.push(index);
            self.nodes[index as usize].name = Box::from("");
            self.node_changed(index);
        }
    }

    fn release_shape(&mut self, shape: u32) {
        if let Some(shape) = self.shapes.release(shape) {
            self.placements.release(shape.placement);
        }
    }

    fn put_in(&mut self, slot: u32, pod: Pod) {
        self.version += 1;
        let shape = self.shapes.get(pod.shape).cloned();
        if let Some(shape) = &shape {
            for owner in &shape.owners {
                *self.owned.entry(owner.uid.clone()).or_default() += 1;
            }
        }
        if pod.node != UNBOUND {
            let node = &mut self.nodes[pod.node as usize];
            node.pods.push(slot);
            if let Some(shape) = shape.filter(|_| pod.is_active()) {
                node.count(&shape.requests, 1);
            }
        }
        self.pod_created.set(slot, pod.created);
        self.pods[slot as usize] = Some(pod);
        self.pod_versions.set(slot, self.version);
    }

    /// Takes a pod out of its slot, and gives the node that it was on.
    fn take_out(&mut self, slot: u32) -> u32 {
        self.version += 1;
        self.pod_versions.set(slot, self.version);
        let Some(pod) = self.pods[slot as usize].take() else {
            return UNBOUND;
        };
        let shape = self.shapes.get(pod.shape).cloned();
        if pod.node != UNBOUND {
            let node = &mut self.nodes[pod.node as usize];
            if let Some(index) = node.pods.iter().position(|one| *one == slot) {
                node.pods.swap_remove(index);
            }
            if let Some(shape) = shape.as_ref().filter(|_| pod.is_active()) {
                node.count(&shape.requests, -1);
            }
        }
        for owner in shape.iter().flat_map(|shape| &shape.owners) {
            if let Some(count) = self.owned.get_mut(&owner.uid) {
                *count -= 1;
                if *count == 0 {
                    self.owned.remove(&owner.uid);
                }
            }
        }
        self.release_shape(pod.shape);
        pod.node
    }
}
