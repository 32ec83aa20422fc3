//! What the components of the cluster know of it: slim objects and the indexes that decisions need.
//!
//! The view is fed by one list and watch per resource, and by the answers to the components' own writes, so that a
//! decision never misses what was decided just before it.

mod indexes;
mod node;
mod pod;
mod scales;
mod silence;
mod wire;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use indexes::Used;
pub use node::{Node, Room, Taint};
pub use pod::{Container, NodeSelector, NodeTerm, Pod, PodSpec, PodTerm, Requests, Toleration};
pub use scales::Scale;
pub use wire::{Amount, Condition, Followed, Meta, Object, Owner, condition};
pub use workload::{
    Budget, BudgetStatus, Claim, DaemonSet, Deployment, Job, ReplicaSet, ReplicationController, Revision,
    StatefulSet,
};

use crate::store::Key;
use indexes::Indexes;

/// The resources that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
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
    /// Only ever made, as are events; nobody follows them.
    Volumes,
    Events,
}

impl Resource {
    /// All that are followed, in the order in which news of them are taken in.
    pub const FOLLOWED: [Self; 11] = [
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
    ];

    /// The prefix of its paths, its plural, and whether it lives in namespaces.
    pub fn path(self) -> (&'static str, &'static str, bool) {
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
            Self::Volumes => ("/api/v1", "persistentvolumes", false),
            Self::Events => ("/api/v1", "events", true),
        }
    }
}

/// The objects of one resource.
#[derive(Debug)]
pub struct Table<T> {
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
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.objects.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        self.objects.iter()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
        let from = self.objects.range(Key::first_of(namespace)..);
        from.take_while(move |(key, _)| &*key.namespace == namespace)
    }
}

/// Something in the view changed.
#[derive(Debug)]
pub enum Change {
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

/// Where news come from: the watch tells all in order, an answer may be ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Watch,
    Answer,
}

#[derive(Debug, Default)]
pub struct View {
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
    indexes: Indexes,
    since: silence::Since,
    scales: scales::Scales,
}

impl View {
    /// Takes in an object as it is now; `None` if that is no news.
    pub fn written(
        &mut self,
        resource: Resource,
        json: &[u8],
        source: Source,
    ) -> Result<Option<Change>, serde_json::Error> {
        Ok(match resource {
            Resource::Nodes => {
                let Some((before, after)) = put(&mut self.nodes, json, source)? else { return Ok(None) };
                Some(Change::Node { before, after: Some(after) })
            }
            Resource::Pods => {
                let Some((before, after)) = put(&mut self.pods, json, source)? else { return Ok(None) };
                self.indexes.pod(before.as_deref(), Some(&after), &self.budgets);
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
            Resource::Revisions => {
                let Some((_, after)) = put(&mut self.revisions, json, source)? else { return Ok(None) };
                self.indexes.revision(&after, true);
                Some(Change::Revision { revision: after })
            }
            Resource::Volumes | Resource::Events => None,
        })
    }

    /// The watch says that an object is gone.
    pub fn deleted(&mut self, resource: Resource, json: &[u8]) -> Result<Option<Change>, serde_json::Error> {
        let meta = serde_json::from_slice::<OnlyMeta>(json)?.metadata;
        self.reached(resource, meta.revision());
        Ok(self.forget(resource, &Key::new(&meta.namespace, &meta.name)))
    }

    fn forget(&mut self, resource: Resource, key: &Key) -> Option<Change> {
        match resource {
            Resource::Nodes => {
                let before = self.nodes.objects.remove(key)?;
                Some(Change::Node { before: Some(before), after: None })
            }
            Resource::Pods => {
                let before = self.pods.objects.remove(key)?;
                self.indexes.pod(Some(&before), None, &self.budgets);
                Some(Change::Pod { before: Some(before), after: None })
            }
            Resource::ReplicaSets => {
                let before = self.replica_sets.objects.remove(key)?;
                self.indexes.replica_set(Some(&before), None);
                Some(Change::ReplicaSet { before: Some(before), after: None })
            }
            Resource::Budgets => {
                self.budgets.objects.remove(key)?;
                self.indexes.budget(key, None, &self.pods);
                None
            }
            Resource::Deployments => self
                .deployments
                .objects
                .remove(key)
                .map(drop)
                .map(|()| Change::Other { resource, key: key.clone() }),
            Resource::StatefulSets => self.stateful_sets.objects.remove(key).map(drop).and(None),
            Resource::DaemonSets => self.daemon_sets.objects.remove(key).map(drop).and(None),
            Resource::Jobs => self.jobs.objects.remove(key).map(drop).and(None),
            Resource::ReplicationControllers => {
                self.replication_controllers.objects.remove(key).map(drop).and(None)
            }
            Resource::Claims => self.claims.objects.remove(key).map(drop).and(None),
            Resource::Revisions => {
                let before = self.revisions.objects.remove(key)?;
                self.indexes.revision(&before, false);
                Some(Change::Revision { revision: before })
            }
            Resource::Volumes | Resource::Events => None,
        }
    }

    /// Takes a whole list: what is not in it is gone.
    pub fn listed(
        &mut self,
        resource: Resource,
        items: &[&serde_json::value::RawValue],
        revision: u64,
    ) -> Result<Vec<Change>, serde_json::Error> {
        let mut changes = Vec::new();
        let mut there = BTreeSet::new();
        for item in items {
            let json = item.get().as_bytes();
            let meta = serde_json::from_slice::<OnlyMeta>(json)?.metadata;
            there.insert(Key::new(&meta.namespace, &meta.name));
            match self.written(resource, json, Source::Watch) {
                Ok(change) => changes.extend(change),
                // One bad object is nobody else's problem.
                Err(why) => {
                    tracing::warn!(?resource, name = meta.name, %why, "cannot be read, and is ignored")
                }
            }
        }
        for key in self.keys(resource).into_iter().filter(|key| !there.contains(key)) {
            changes.extend(self.forget(resource, &key));
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
            Resource::Volumes | Resource::Events => Vec::new(),
        }
    }

    fn reached(&mut self, resource: Resource, revision: u64) {
        let seen = match resource {
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
            Resource::Volumes | Resource::Events => return,
        };
        *seen = revision.max(*seen);
    }
}

#[derive(Deserialize)]
struct OnlyMeta {
    metadata: Meta,
}

fn other<O: Followed>(resource: Resource, put: Option<Put<O>>) -> Option<Change> {
    put.map(|(_, after)| Change::Other { resource, key: after.key() })
}

type Put<T> = (Option<Arc<T>>, Arc<T>);

/// An answer counts only while the watch has not told of that revision: afterwards the object may be gone already.
fn put<O: Followed + DeserializeOwned>(
    table: &mut Table<O>,
    json: &[u8],
    source: Source,
) -> Result<Option<Put<O>>, serde_json::Error> {
    let object: O = serde_json::from_slice(json)?;
    let revision = object.meta().revision();
    let known = table.objects.get(&object.key()).map(|known| known.meta().revision());
    match source {
        Source::Watch => table.seen = revision.max(table.seen),
        Source::Answer if revision <= table.seen => return Ok(None),
        Source::Answer => {}
    }
    if known.is_some_and(|known| known >= revision) {
        return Ok(None);
    }
    let object = Arc::new(object);
    let before = table.objects.insert(object.key(), object.clone());
    Ok(Some((before, object)))
}
