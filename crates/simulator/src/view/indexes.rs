//! Who belongs to whom, kept up with every change so that no decision has to look at all pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::node_snapshot::{NodeSnapshot, Used};
use super::pod_groups::PodGroups;
use super::{Budget, Followed, Node, Pod, ReplicaSet, Revision, Table, View};
use embedded_apiserver::Key;
use embedded_apiserver::toolkit::LabelSelector;

#[derive(Debug, Default)]
pub(super) struct Indexes {
    pods_by_owner: Groups<Arc<Pod>>,
    pods_by_node: Groups,
    /// Pods that nothing controls.
    orphans: BTreeSet<Key>,
    node_snapshot: NodeSnapshot,
    pod_groups: PodGroups,
    /// Pods that were told that there is no node for them.
    refused: BTreeSet<Key>,
    replica_sets_by_owner: Groups,
    revisions_by_owner: Groups,
    /// The pods that a budget speaks for.
    members: BTreeMap<Key, BTreeMap<Key, Arc<Pod>>>,
    selectors: BTreeMap<Key, LabelSelector>,
    addresses: HashMap<String, usize>,
}

/// Objects by what they belong to.
type Groups<V = ()> = HashMap<String, BTreeMap<Key, V>>;

/// Adds, or replaces what is there.
fn add<V>(index: &mut Groups<V>, of: &str, key: &Key, value: V) {
    match index.get_mut(of) {
        Some(group) => _ = group.insert(key.clone(), value),
        None => _ = index.insert(of.to_string(), BTreeMap::from([(key.clone(), value)])),
    }
}

fn take<V>(index: &mut Groups<V>, of: &str, key: &Key) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}

/// What the pod is indexed by, but for its labels.
fn indexed_by(pod: &Pod) -> (&str, &str, &str, bool, bool) {
    let owner = pod.metadata.controller().map_or("", |owner| owner.uid.as_str());
    (owner, &pod.spec.node_name, &pod.status.pod_ip, pod.is_terminal(), pod.is_refused())
}

impl Indexes {
    pub(super) fn pod(
        &mut self,
        before: Option<&Pod>,
        after: Option<&Arc<Pod>>,
        (pods, nodes, budgets): (&Table<Pod>, &Table<Node>, &Table<Budget>),
    ) {
        let is_same_being = |(before, after): (&Pod, &Pod)| before.metadata.uid == after.metadata.uid;
        let now = after.map(|pod| &**pod);
        let both = before.zip(now).filter(|both| is_same_being(*both));
        if both.is_none_or(|(before, after)| indexed_by(before) != indexed_by(after)) {
            if let Some(pod) = before {
                self.leave(pod);
            }
            if let Some(pod) = now {
                self.enter(pod);
            }
        }
        self.pod_groups.pod(before, now, pods, nodes);
        let Some(pod) = now.or(before) else { return };
        let key = pod.key();
        if let Some(pod) = after
            && let Some(owner) = pod.metadata.controller()
        {
            add(&mut self.pods_by_owner, &owner.uid, &key, pod.clone());
        }
        let same_labels = both.is_some_and(|(before, after)| before.metadata.labels == after.metadata.labels);
        for (budget, _) in budgets.in_namespace(&key.namespace) {
            let Some(members) = self.members.get_mut(budget) else { continue };
            let is_selected =
                |pod: &Pod| self.selectors.get(budget).is_some_and(|selector| matches(selector, pod));
            match after {
                Some(pod) if same_labels => {
                    if let Some(member) = members.get_mut(&key) {
                        *member = pod.clone();
                    }
                }
                Some(pod) if is_selected(pod) => _ = members.insert(key.clone(), pod.clone()),
                _ => _ = members.remove(&key),
            }
        }
    }

    pub(super) fn node(&mut self, before: Option<&Node>, after: Option<&Arc<Node>>, pods: &Table<Pod>) {
        let Some(name) = before.or(after.map(|node| &**node)).map(|node| &node.metadata.name) else { return };
        let on_it = self.pods_by_node.get(name).into_iter().flat_map(BTreeMap::keys);
        let on_it = on_it.filter_map(|key| pods.get(key)).map(|pod| &**pod);
        self.pod_groups.node(before, after.map(|node| &**node), on_it.clone());
        match after {
            Some(node) => self.node_snapshot.put(node, || used_by(on_it)),
            None => self.node_snapshot.remove(name),
        }
    }

    fn enter(&mut self, pod: &Pod) {
        let key = pod.key();
        if pod.metadata.controller().is_none() {
            self.orphans.insert(key.clone());
        }
        if !pod.status.pod_ip.is_empty() {
            *self.addresses.entry(pod.status.pod_ip.clone()).or_default() += 1;
        }
        if pod.is_refused() {
            self.refused.insert(key.clone());
        }
        if !pod.spec.node_name.is_empty() {
            add(&mut self.pods_by_node, &pod.spec.node_name, &key, ());
            if !pod.is_terminal() {
                self.node_snapshot.change(&pod.spec.node_name, |used| {
                    used.requests.add(pod.requests());
                    used.pods += 1;
                });
            }
        }
    }

    fn leave(&mut self, pod: &Pod) {
        let key = pod.key();
        if let Some(owner) = pod.metadata.controller() {
            take(&mut self.pods_by_owner, &owner.uid, &key);
        } else {
            self.orphans.remove(&key);
        }
        if let Some(count) = self.addresses.get_mut(&pod.status.pod_ip) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&pod.status.pod_ip);
            }
        }
        self.refused.remove(&key);
        if !pod.spec.node_name.is_empty() {
            take(&mut self.pods_by_node, &pod.spec.node_name, &key);
            if !pod.is_terminal() {
                self.node_snapshot.change(&pod.spec.node_name, |used| {
                    used.requests.subtract(pod.requests());
                    used.pods -= 1;
                });
            }
        }
    }

    pub(super) fn replica_set(&mut self, before: Option<&ReplicaSet>, after: Option<&ReplicaSet>) {
        if let Some(set) = before
            && let Some(owner) = set.metadata.controller()
        {
            take(&mut self.replica_sets_by_owner, &owner.uid, &set.key());
        }
        if let Some(set) = after
            && let Some(owner) = set.metadata.controller()
        {
            add(&mut self.replica_sets_by_owner, &owner.uid, &set.key(), ());
        }
    }

    pub(super) fn revision(&mut self, revision: &Revision, there: bool) {
        if let Some(owner) = revision.metadata.controller() {
            let (index, key) = (&mut self.revisions_by_owner, revision.key());
            if there { add(index, &owner.uid, &key, ()) } else { take(index, &owner.uid, &key) }
        }
    }

    /// A budget with an invalid or absent selector speaks for nobody.
    pub(super) fn budget(&mut self, key: &Key, budget: Option<&Budget>, pods: &Table<Pod>) {
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
        self.members.insert(key.clone(), selected.map(|(key, pod)| (key.clone(), pod.clone())).collect());
        match selector {
            Some(selector) => self.selectors.insert(key.clone(), selector),
            None => self.selectors.remove(key),
        };
    }
}

fn used_by<'a>(pods: impl Iterator<Item = &'a Pod>) -> Used {
    pods.filter(|pod| !pod.is_terminal()).fold(Used::default(), |mut used, pod| {
        used.requests.add(pod.requests());
        used.pods += 1;
        used
    })
}

fn matches(selector: &LabelSelector, pod: &Pod) -> bool {
    selector.matches_map(&pod.metadata.labels)
}

impl View {
    /// The pods that an object manages, by name.
    pub(crate) fn pods_of(&self, uid: &str) -> Vec<&Arc<Pod>> {
        self.indexes.pods_by_owner.get(uid).into_iter().flat_map(BTreeMap::values).collect()
    }

    /// The pods of a namespace that nothing controls.
    pub(crate) fn orphans<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        let from = self.indexes.orphans.range(Key::first_of(namespace)..);
        from.take_while(move |key| &*key.namespace == namespace).filter_map(|key| self.pods.get(key))
    }

    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.indexes.pods_by_node.get(node).into_iter().flat_map(BTreeMap::keys);
        keys.filter_map(|key| self.pods.get(key))
    }

    /// The nodes with their room.
    pub(crate) fn node_snapshot(&self) -> &NodeSnapshot {
        &self.indexes.node_snapshot
    }

    /// Who is where, for the rules that pods have about each other.
    pub(crate) fn pod_groups(&self) -> &PodGroups {
        &self.indexes.pod_groups
    }

    /// Pods that wait for a node after they were told that there is none.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.indexes.refused.iter().filter_map(|key| self.pods.get(key))
    }

    pub(crate) fn replica_sets_of(&self, uid: &str) -> Vec<&Arc<ReplicaSet>> {
        let keys = self.indexes.replica_sets_by_owner.get(uid).into_iter().flat_map(BTreeMap::keys);
        keys.filter_map(|key| self.replica_sets.get(key)).collect()
    }

    /// The templates that a workload has and had, oldest first.
    pub(crate) fn revisions_of(&self, uid: &str) -> Vec<&Arc<Revision>> {
        let keys = self.indexes.revisions_by_owner.get(uid).into_iter().flat_map(BTreeMap::keys);
        let mut found: Vec<&Arc<Revision>> = keys.filter_map(|key| self.revisions.get(key)).collect();
        found.sort_by_key(|revision| {
            (revision.revision, revision.metadata.created(), &revision.metadata.name)
        });
        found
    }

    /// The pods that a budget speaks for.
    pub(crate) fn members(&self, budget: &Key) -> impl Iterator<Item = &Arc<Pod>> {
        self.indexes.members.get(budget).into_iter().flat_map(BTreeMap::values)
    }

    /// The budgets of the namespace that select these labels.
    pub(crate) fn budgets_for<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Key> {
        self.budgets
            .in_namespace(&pod.metadata.namespace)
            .map(|(key, _)| key)
            .filter(|key| self.indexes.selectors.get(key).is_some_and(|selector| matches(selector, pod)))
    }

    pub(crate) fn is_address_taken(&self, address: &str) -> bool {
        self.indexes.addresses.contains_key(address)
    }
}
