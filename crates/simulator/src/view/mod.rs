//! What the components of the cluster know of it: slim objects and the indexes that decisions need.
//!
//! The view is fed by one list and watch per resource, and by the answers to the components' own writes, so that a
//! decision never misses what was decided just before it.

mod affinity_terms;
mod indexes;
mod node;
mod node_snapshot;
mod pod;
mod pod_groups;
mod scales;
mod silence;
mod wire;
mod workload;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use affinity_terms::{Rule, Spread, TermEffect};
pub(crate) use node::{Node, Room, Taint};
pub(crate) use node_snapshot::NodeInfo;
pub(crate) use pod::{Container, NodeSelector, NodeTerm, Pod, PodSpec, Requests, Toleration};
pub(crate) use pod_groups::Counts;
pub(crate) use scales::Scale;
pub(crate) use wire::{Amount, Condition, Followed, Meta, Owner, condition};
pub(crate) use workload::{
    Autoscaler, Budget, BudgetStatus, Claim, DaemonSet, Deployment, Job, ReplicaSet, ReplicationController,
    Revision, StatefulSet,
};

use crate::scheduler::{QueueingHint, Refusals, help_by_pod, helped_by_node};
use crate::static_pods::StaticPods;
use embedded_apiserver::Key;
use embedded_apiserver::toolkit::metadata_of;
use indexes::Indexes;

/// The resources that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    Nodes,
    Pods,
    ReplicaSets,
    Deployments,
    StatefulSets,
    DaemonSets,
    Jobs,
    Budgets,
    ReplicationControllers,
    Revisions,
    Claims,
    Autoscalers,
    /// Only ever made, as are events, or written, as are leases; nobody follows them.
    Volumes,
    Events,
    Leases,
}

impl Resource {
    /// All that are followed, in the order in which events of them are taken in.
    pub(crate) const FOLLOWED: [Self; 12] = [
        Self::Nodes,
        Self::Pods,
        Self::ReplicaSets,
        Self::Deployments,
        Self::StatefulSets,
        Self::DaemonSets,
        Self::Jobs,
        Self::Budgets,
        Self::ReplicationControllers,
        Self::Revisions,
        Self::Claims,
        Self::Autoscalers,
    ];

    /// The prefix of its paths, its plural, and whether it lives in namespaces.
    pub(crate) fn path(self) -> (&'static str, &'static str, bool) {
        match self {
            Self::Nodes => ("/api/v1", "nodes", false),
            Self::Pods => ("/api/v1", "pods", true),
            Self::ReplicaSets => ("/apis/apps/v1", "replicasets", true),
            Self::Deployments => ("/apis/apps/v1", "deployments", true),
            Self::StatefulSets => ("/apis/apps/v1", "statefulsets", true),
            Self::DaemonSets => ("/apis/apps/v1", "daemonsets", true),
            Self::Jobs => ("/apis/batch/v1", "jobs", true),
            Self::Budgets => ("/apis/policy/v1", "poddisruptionbudgets", true),
            Self::ReplicationControllers => ("/api/v1", "replicationcontrollers", true),
            Self::Revisions => ("/apis/apps/v1", "controllerrevisions", true),
            Self::Claims => ("/api/v1", "persistentvolumeclaims", true),
            Self::Autoscalers => ("/apis/autoscaling/v2", "horizontalpodautoscalers", true),
            Self::Volumes => ("/api/v1", "persistentvolumes", false),
            Self::Events => ("/api/v1", "events", true),
            Self::Leases => ("/apis/coordination.k8s.io/v1", "leases", true),
        }
    }
}

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// The revision up to which the watch has told.
    seen: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), seen: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.objects.get(key)
    }

    /// Takes out an object that is gone, unless it is known in a later state: then it is there again.
    fn take(&mut self, key: &Key, gone_at: u64) -> Option<Arc<T>>
    where
        T: Followed,
    {
        let known = self.objects.get(key)?;
        if known.meta().revision() > gone_at {
            return None;
        }
        self.objects.remove(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        self.objects.iter()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn in_namespace<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
        let from = self.objects.range(Key::first_of(namespace)..);
        from.take_while(move |(key, _)| &*key.namespace == namespace)
    }
}

/// Something in the view changed.
#[derive(Debug)]
pub(crate) enum Change {
    Pod {
        before: Option<Arc<Pod>>,
        after: Option<Arc<Pod>>,
    },
    Node {
        before: Option<Arc<Node>>,
        after: Option<Arc<Node>>,
    },
    ReplicaSet {
        before: Option<Arc<ReplicaSet>>,
        after: Option<Arc<ReplicaSet>>,
    },
    /// Written or gone.
    Revision {
        revision: Arc<Revision>,
    },
    Other {
        resource: Resource,
        key: Key,
    },
}

/// Where a change was heard of: the watch tells all in order, an answer may be ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Watch,
    Answer,
}

#[derive(Debug, Default)]
pub(crate) struct View {
    pub nodes: Table<Node>,
    pub pods: Table<Pod>,
    pub replica_sets: Table<ReplicaSet>,
    pub deployments: Table<Deployment>,
    pub stateful_sets: Table<StatefulSet>,
    pub daemon_sets: Table<DaemonSet>,
    pub jobs: Table<Job>,
    pub budgets: Table<Budget>,
    pub replication_controllers: Table<ReplicationController>,
    pub revisions: Table<Revision>,
    pub claims: Table<Claim>,
    pub autoscalers: Table<Autoscaler>,
    pub static_pods: StaticPods,
    indexes: Indexes,
    since: silence::Since,
    scales: scales::Scales,
    refusals: Refusals,
}

impl View {
    /// What the scheduler has told pods that it found no node for.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn node_changed(&mut self, before: Option<&Arc<Node>>, after: Option<&Arc<Node>>) {
        let (before, now) = (before.map(|node| &**node), after.map(|node| &**node));
        self.indexes.node(before, after, &self.pods);
        if helped_by_node(before, now) {
            self.refusals.there_is_room();
        }
    }

    fn pod_changed(&mut self, before: Option<&Pod>, after: Option<&Arc<Pod>>) {
        self.indexes.pod(before, after, (&self.pods, &self.nodes, &self.budgets));
        match help_by_pod(before, after.map(|pod| &**pod)) {
            QueueingHint::Room => self.refusals.there_is_room(),
            QueueingHint::Company => self.refusals.there_is_company(),
            QueueingHint::No => {}
        }
    }

    /// Takes in an object as it is now; `None` if nothing has changed by that.
    pub(crate) fn written(
        &mut self,
        resource: Resource,
        json: &str,
        source: Source,
    ) -> Result<Option<Change>, serde_json::Error> {
        Ok(match resource {
            Resource::Nodes => {
                let Some((before, after)) = put(&mut self.nodes, json, source)? else { return Ok(None) };
                self.node_changed(before.as_ref(), Some(&after));
                Some(Change::Node { before, after: Some(after) })
            }
            Resource::Pods => {
                let Some((before, after)) = put(&mut self.pods, json, source)? else { return Ok(None) };
                self.pod_changed(before.as_deref(), Some(&after));
                Some(Change::Pod { before, after: Some(after) })
            }
            Resource::ReplicaSets => {
                let Some((before, after)) = put(&mut self.replica_sets, json, source)? else {
                    return Ok(None);
                };
                self.indexes.replica_set(before.as_deref(), Some(&after));
                Some(Change::ReplicaSet { before, after: Some(after) })
            }
            Resource::Budgets => {
                let Some((_, after)) = put(&mut self.budgets, json, source)? else { return Ok(None) };
                self.indexes.budget(&after.key(), Some(&after), &self.pods);
                Some(Change::Other { resource, key: after.key() })
            }
            Resource::Deployments => other(resource, put(&mut self.deployments, json, source)?),
            Resource::StatefulSets => other(resource, put(&mut self.stateful_sets, json, source)?),
            Resource::DaemonSets => other(resource, put(&mut self.daemon_sets, json, source)?),
            Resource::Jobs => other(resource, put(&mut self.jobs, json, source)?),
            Resource::ReplicationControllers => {
                other(resource, put(&mut self.replication_controllers, json, source)?)
            }
            Resource::Claims => other(resource, put(&mut self.claims, json, source)?),
            Resource::Autoscalers => other(resource, put(&mut self.autoscalers, json, source)?),
            Resource::Revisions => {
                let Some((_, after)) = put(&mut self.revisions, json, source)? else { return Ok(None) };
                self.indexes.revision(&after, true);
                Some(Change::Revision { revision: after })
            }
            Resource::Volumes | Resource::Events | Resource::Leases => None,
        })
    }

    /// The watch says that an object is gone.
    pub(crate) fn deleted(
        &mut self,
        resource: Resource,
        json: &str,
    ) -> Result<Option<Change>, serde_json::Error> {
        let name: Name<'_> = metadata_of(json)?;
        self.reached(resource, name.revision());
        Ok(self.forget(resource, &name.key(), name.revision()))
    }

    fn forget(&mut self, resource: Resource, key: &Key, gone_at: u64) -> Option<Change> {
        match resource {
            Resource::Nodes => {
                let before = self.nodes.take(key, gone_at)?;
                self.node_changed(Some(&before), None);
                Some(Change::Node { before: Some(before), after: None })
            }
            Resource::Pods => {
                let before = self.pods.take(key, gone_at)?;
                self.pod_changed(Some(&before), None);
                Some(Change::Pod { before: Some(before), after: None })
            }
            Resource::ReplicaSets => {
                let before = self.replica_sets.take(key, gone_at)?;
                self.indexes.replica_set(Some(&before), None);
                Some(Change::ReplicaSet { before: Some(before), after: None })
            }
            Resource::Budgets => {
                self.budgets.take(key, gone_at)?;
                self.indexes.budget(key, None, &self.pods);
                None
            }
            Resource::Deployments => self
                .deployments
                .take(key, gone_at)
                .map(drop)
                .map(|()| Change::Other { resource, key: key.clone() }),
            Resource::StatefulSets => self.stateful_sets.take(key, gone_at).map(drop).and(None),
            Resource::DaemonSets => self.daemon_sets.take(key, gone_at).map(drop).and(None),
            Resource::Jobs => self.jobs.take(key, gone_at).map(drop).and(None),
            Resource::ReplicationControllers => {
                self.replication_controllers.take(key, gone_at).map(drop).and(None)
            }
            Resource::Claims => self.claims.take(key, gone_at).map(drop).and(None),
            Resource::Autoscalers => self.autoscalers.take(key, gone_at).map(drop).and(None),
            Resource::Revisions => {
                let before = self.revisions.take(key, gone_at)?;
                self.indexes.revision(&before, false);
                Some(Change::Revision { revision: before })
            }
            Resource::Volumes | Resource::Events | Resource::Leases => None,
        }
    }

    /// Takes a whole list: what is not in it is gone.
    pub(crate) fn listed(
        &mut self,
        resource: Resource,
        items: &[&serde_json::value::RawValue],
        revision: u64,
    ) -> Result<Vec<Change>, serde_json::Error> {
        let mut changes = Vec::new();
        let mut there = BTreeSet::new();
        for item in items {
            let json = item.get();
            let name: Name<'_> = metadata_of(json)?;
            there.insert(name.key());
            match self.written(resource, json, Source::Watch) {
                Ok(change) => changes.extend(change),
                // One bad object is nobody else's problem.
                Err(why) => {
                    tracing::warn!(?resource, name = %name.name, %why, "cannot be read, and is ignored")
                }
            }
        }
        for key in self.keys(resource).into_iter().filter(|key| !there.contains(key)) {
            changes.extend(self.forget(resource, &key, revision));
        }
        self.reached(resource, revision);
        Ok(changes)
    }

    fn keys(&self, resource: Resource) -> Vec<Key> {
        match resource {
            Resource::Nodes => self.nodes.objects.keys().cloned().collect(),
            Resource::Pods => self.pods.objects.keys().cloned().collect(),
            Resource::ReplicaSets => self.replica_sets.objects.keys().cloned().collect(),
            Resource::Deployments => self.deployments.objects.keys().cloned().collect(),
            Resource::StatefulSets => self.stateful_sets.objects.keys().cloned().collect(),
            Resource::DaemonSets => self.daemon_sets.objects.keys().cloned().collect(),
            Resource::Jobs => self.jobs.objects.keys().cloned().collect(),
            Resource::Budgets => self.budgets.objects.keys().cloned().collect(),
            Resource::ReplicationControllers => {
                self.replication_controllers.objects.keys().cloned().collect()
            }
            Resource::Revisions => self.revisions.objects.keys().cloned().collect(),
            Resource::Claims => self.claims.objects.keys().cloned().collect(),
            Resource::Autoscalers => self.autoscalers.objects.keys().cloned().collect(),
            Resource::Volumes | Resource::Events | Resource::Leases => Vec::new(),
        }
    }

    fn reached(&mut self, resource: Resource, revision: u64) {
        if let Some(seen) = self.seen(resource) {
            *seen = revision.max(*seen);
        }
    }

    fn seen(&mut self, resource: Resource) -> Option<&mut u64> {
        Some(match resource {
            Resource::Nodes => &mut self.nodes.seen,
            Resource::Pods => &mut self.pods.seen,
            Resource::ReplicaSets => &mut self.replica_sets.seen,
            Resource::Deployments => &mut self.deployments.seen,
            Resource::StatefulSets => &mut self.stateful_sets.seen,
            Resource::DaemonSets => &mut self.daemon_sets.seen,
            Resource::Jobs => &mut self.jobs.seen,
            Resource::Budgets => &mut self.budgets.seen,
            Resource::ReplicationControllers => &mut self.replication_controllers.seen,
            Resource::Revisions => &mut self.revisions.seen,
            Resource::Claims => &mut self.claims.seen,
            Resource::Autoscalers => &mut self.autoscalers.seen,
            Resource::Volumes | Resource::Events | Resource::Leases => return None,
        })
    }
}

/// Which object it is, in which state.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Name<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

impl Name<'_> {
    fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

fn other<O: Followed>(resource: Resource, put: Option<Put<O>>) -> Option<Change> {
    put.map(|(_, after)| Change::Other { resource, key: after.key() })
}

type Put<T> = (Option<Arc<T>>, Arc<T>);

/// An answer counts only while the watch has not told of that revision: afterwards the object may be gone already.
fn put<O: Followed + DeserializeOwned>(
    table: &mut Table<O>,
    json: &str,
    source: Source,
) -> Result<Option<Put<O>>, serde_json::Error> {
    let object = Arc::new(serde_json::from_str::<O>(json)?);
    let (key, revision) = (object.key(), object.meta().revision());
    match source {
        Source::Watch => table.seen = revision.max(table.seen),
        Source::Answer if revision <= table.seen => return Ok(None),
        Source::Answer => {}
    }
    if table.objects.get(&key).is_some_and(|known| known.meta().revision() >= revision) {
        return Ok(None);
    }
    let before = table.objects.insert(key, object.clone());
    Ok(Some((before, object)))
}
