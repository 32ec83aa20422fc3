//! Who belongs to whom, kept up with every change so that no decision has to look at all pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Budget, Followed, Pod, ReplicaSet, Requests, Revision, Table, View};
use crate::selectors::LabelSelector;
use crate::store::Key;

/// What the pods of a node take of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub requests: Requests,
    pub pods: i64,
}

#[derive(Debug, Default)]
pub(super) struct Indexes {
    pods_by_owner: HashMap<String, BTreeSet<Key>>,
    pods_by_node: HashMap<String, BTreeSet<Key>>,
    used: HashMap<String, Used>,
    unscheduled: BTreeSet<Key>,
    /// Scheduled pods that do not want certain others near them.
    repelling: BTreeSet<Key>,
    replica_sets_by_owner: HashMap<String, BTreeSet<Key>>,
    revisions_by_owner: HashMap<String, BTreeSet<Key>>,
    /// The pods that a budget speaks for.
    members: BTreeMap<Key, BTreeSet<Key>>,
    selectors: BTreeMap<Key, LabelSelector>,
    addresses: HashMap<String, usize>,
}

fn add(index: &mut HashMap<String, BTreeSet<Key>>, of: &str, key: &Key) {
    index.entry(of.to_string()).or_default().insert(key.clone());
}

fn take(index: &mut HashMap<String, BTreeSet<Key>>, of: &str, key: &Key) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}

impl Indexes {
    pub fn pod(&mut self, before: Option<&Pod>, after: Option<&Pod>, budgets: &Table<Budget>) {
        if let Some(pod) = before {
            self.leave(pod);
        }
        if let Some(pod) = after {
            self.enter(pod);
        }
        let Some(pod) = after.or(before) else { return };
        let key = pod.key();
        if before.is_some()
            && after.is_some_and(|after| before.is_some_and(|b| b.metadata.labels == after.metadata.labels))
        {
            return;
        }
        for (budget, _) in budgets.in_namespace(&key.namespace) {
            let Some(members) = self.members.get_mut(budget) else { continue };
            let selected = after
                .is_some_and(|pod| self.selectors.get(budget).is_some_and(|selector| matches(selector, pod)));
            if selected {
                members.insert(key.clone());
            } else {
                members.remove(&key);
            }
        }
    }

    fn enter(&mut self, pod: &Pod) {
        let key = pod.key();
        if let Some(owner) = pod.metadata.controller() {
            add(&mut self.pods_by_owner, &owner.uid, &key);
        }
        if !pod.status.pod_ip.is_empty() {
            *self.addresses.entry(pod.status.pod_ip.clone()).or_default() += 1;
        }
        if pod.is_unscheduled() {
            self.unscheduled.insert(key.clone());
        }
        if !pod.spec.node_name.is_empty() {
            add(&mut self.pods_by_node, &pod.spec.node_name, &key);
            if !pod.is_terminal() {
                let used = self.used.entry(pod.spec.node_name.clone()).or_default();
                used.requests.add(pod.requests());
                used.pods += 1;
                if !pod.spec.affinity.pod_anti_affinity.required.is_empty() {
                    self.repelling.insert(key);
                }
            }
        }
    }

    fn leave(&mut self, pod: &Pod) {
        let key = pod.key();
        if let Some(owner) = pod.metadata.controller() {
            take(&mut self.pods_by_owner, &owner.uid, &key);
        }
        if let Some(count) = self.addresses.get_mut(&pod.status.pod_ip) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&pod.status.pod_ip);
            }
        }
        self.unscheduled.remove(&key);
        self.repelling.remove(&key);
        if !pod.spec.node_name.is_empty() {
            take(&mut self.pods_by_node, &pod.spec.node_name, &key);
            if !pod.is_terminal()
                && let Some(used) = self.used.get_mut(&pod.spec.node_name)
            {
                used.requests.subtract(pod.requests());
                used.pods -= 1;
            }
        }
    }

    pub fn replica_set(&mut self, before: Option<&ReplicaSet>, after: Option<&ReplicaSet>) {
        if let Some(set) = before
            && let Some(owner) = set.metadata.controller()
        {
            take(&mut self.replica_sets_by_owner, &owner.uid, &set.key());
        }
        if let Some(set) = after
            && let Some(owner) = set.metadata.controller()
        {
            add(&mut self.replica_sets_by_owner, &owner.uid, &set.key());
        }
    }

    pub fn revision(&mut self, revision: &Revision, there: bool) {
        if let Some(owner) = revision.metadata.controller() {
            let change = if there { add } else { take };
            change(&mut self.revisions_by_owner, &owner.uid, &revision.key());
        }
    }

    /// A budget with an invalid or absent selector speaks for nobody.
    pub fn budget(&mut self, key: &Key, budget: Option<&Budget>, pods: &Table<Pod>) {
        let Some(budget) = budget else {
            self.members.remove(key);
            self.selectors.remove(key);
            return;
        };
        let selector = &budget.spec.selector;
        let selector =
            if selector.is_null() { None } else { LabelSelector::from_object(Some(selector)).ok() };
        if selector.is_some() && self.selectors.get(key) == selector.as_ref() {
            return;
        }
        let selected = pods
            .in_namespace(&key.namespace)
            .filter(|(_, pod)| selector.as_ref().is_some_and(|selector| matches(selector, pod)));
        self.members.insert(key.clone(), selected.map(|(key, _)| key.clone()).collect());
        match selector {
            Some(selector) => self.selectors.insert(key.clone(), selector),
            None => self.selectors.remove(key),
        };
    }
}

fn matches(selector: &LabelSelector, pod: &Pod) -> bool {
    selector.matches_map(&pod.metadata.labels)
}

impl View {
    /// The pods that an object manages, by name.
    pub fn pods_of(&self, uid: &str) -> Vec<&Arc<Pod>> {
        let keys = self.indexes.pods_by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key)).collect()
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.indexes.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }

    pub fn used_on(&self, node: &str) -> Used {
        self.indexes.used.get(node).copied().unwrap_or_default()
    }

    /// Pods that wait for a node.
    pub fn unscheduled(&self) -> impl Iterator<Item = &Key> {
        self.indexes.unscheduled.iter()
    }

    /// Scheduled pods with anti-affinity of their own.
    pub fn repelling(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.indexes.repelling.iter().filter_map(|key| self.pods.get(key))
    }

    pub fn replica_sets_of(&self, uid: &str) -> Vec<&Arc<ReplicaSet>> {
        let keys = self.indexes.replica_sets_by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.replica_sets.get(key)).collect()
    }

    /// The templates that a workload has and had, oldest first.
    pub fn revisions_of(&self, uid: &str) -> Vec<&Arc<Revision>> {
        let keys = self.indexes.revisions_by_owner.get(uid).into_iter().flatten();
        let mut found: Vec<&Arc<Revision>> = keys.filter_map(|key| self.revisions.get(key)).collect();
        found.sort_by_key(|revision| {
            (revision.revision, revision.metadata.created(), &revision.metadata.name)
        });
        found
    }

    /// The pods that a budget speaks for.
    pub fn members(&self, budget: &Key) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.indexes.members.get(budget).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }

    /// The budgets of the namespace that select these labels.
    pub fn budgets_for<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Key> {
        self.budgets
            .in_namespace(&pod.metadata.namespace)
            .map(|(key, _)| key)
            .filter(|key| self.indexes.selectors.get(key).is_some_and(|selector| matches(selector, pod)))
    }

    pub fn is_address_taken(&self, address: &str) -> bool {
        self.indexes.addresses.contains_key(address)
    }
}
