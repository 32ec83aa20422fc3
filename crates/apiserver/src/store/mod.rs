//! The store: every object once, as serialised bytes, under one global resourceVersion, with a bounded log of
//! events per resource that watches read from.
//!
//! Writers are optimistic: they hand in the revision they started from and learn of a conflict. Watches are pull-based:
//! each keeps a cursor into the log and is woken when the log grows, so a slow watch costs nothing but its own lag and
//! is told to start again (410) once the log has moved past it.

mod draft;
mod growth;
mod interner;
mod log;
mod object;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub(crate) use draft::Draft;
pub use growth::Growth;
pub(crate) use interner::Interner;
pub use log::{EventKind, LogEvent};
pub use object::{Key, Meta, Object};
pub use snapshots::Snapshot;

use growth::Grower;
use log::Log;
use snapshots::Snapshots;

/// Why a write was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteError {
    Exists,
    NotFound,
    /// The object changed since it was read.
    Conflict,
    /// The object is larger than etcd takes, by so many bytes as text.
    TooLarge(usize),
}

/// The log no longer reaches back to the revision asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub(crate) oldest: u64,
}

struct Resource {
    objects: BTreeMap<Key, Arc<Object>>,
    log: Log,
    grown: Grower,
    /// JSON pointers of the fields that selectors may name, in the order of `Meta::fields`.
    selectable: Arc<[String]>,
}

/// Where an object is: its resource and its key in it.
type ObjectAddress = (Arc<str>, Key);

struct Inner {
    revision: u64,
    resources: HashMap<Arc<str>, Resource>,
    /// Objects by the uids of their owners.
    dependents: HashMap<Arc<str>, BTreeSet<ObjectAddress>>,
}

impl Inner {
    /// Keeps the index of owners in line with a change.
    fn index_owners(&mut self, resource: &str, key: &Key, before: &[Arc<str>], after: &[Arc<str>]) {
        if before == after {
            return;
        }
        let Some((resource, _)) = self.resources.get_key_value(resource) else { return };
        let place = (resource.clone(), key.clone());
        for owner in before.iter().filter(|owner| !after.contains(owner)) {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(&place);
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for owner in after.iter().filter(|owner| !before.contains(owner)) {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
    }
}

/// How much memory the event log of one resource may hold before it forgets the oldest events.
const LOG_BYTES: usize = 48 << 20;

/// What etcd takes in one request, unless told otherwise. The key and the frame of the request count as well, and are left out
/// here: that is some hundred bytes.
const REQUEST_BYTES: usize = 3 << 19;

pub struct Store {
    inner: RwLock<Inner>,
    interner: Mutex<Interner>,
    snapshots: Mutex<Snapshots>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            // Revision 0 means "any" and 1 is what an empty cluster answers, as etcd does.
            inner: RwLock::new(Inner { revision: 1, resources: HashMap::new(), dependents: HashMap::new() }),
            interner: Mutex::default(),
            snapshots: Mutex::default(),
        }
    }
}

impl Store {
    /// Makes room for a resource. Selectable fields are JSON pointers; registering again only changes those.
    pub(crate) fn register(&self, resource: &str, selectable: Vec<String>) {
        let mut inner = self.inner.write();
        let selectable: Arc<[String]> = selectable.into();
        match inner.resources.get_mut(resource) {
            Some(known) => known.selectable = selectable,
            None => {
                inner.resources.insert(
                    resource.into(),
                    Resource {
                        objects: BTreeMap::new(),
                        log: Log::default(),
                        grown: Grower::default(),
                        selectable,
                    },
                );
            }
        }
    }

    /// The newest revision of the whole store.
    pub fn revision(&self) -> u64 {
        self.inner.read().revision
    }

    pub fn get(&self, resource: &str, key: &Key) -> Option<Arc<Object>> {
        self.inner.read().resources.get(resource)?.objects.get(key).cloned()
    }

    /// All objects of a resource, or of one namespace of it, in key order, at one revision.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let inner = self.inner.read();
        let objects = match inner.resources.get(resource) {
            None => Vec::new(),
            Some(found) => match namespace {
                None => found.objects.values().cloned().collect(),
                Some(namespace) => found
                    .objects
                    .range((Bound::Included(Key::first_of(namespace)), Bound::Unbounded))
                    .take_while(|(key, _)| &*key.namespace == namespace)
                    .map(|(_, object)| object.clone())
                    .collect(),
            },
        };
        Snapshot { revision: inner.revision, objects: objects.into() }
    }

    /// The list as it was at an earlier revision, as far as the log reaches back.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Snapshot, Compacted> {
        let inner = self.inner.read();
        let Some(found) = inner.resources.get(resource) else {
            return Ok(Snapshot { revision, objects: Vec::new().into() });
        };
        let mut objects = found.objects.clone();
        for event in found.log.after(revision, usize::MAX)?.into_iter().rev() {
            let key = event.object.key.clone();
            match event.before {
                Some(before) => objects.insert(key, before),
                None => objects.remove(&key),
            };
        }
        let of_namespace =
            |object: &Arc<Object>| namespace.is_none_or(|wanted| &*object.key.namespace == wanted);
        let objects: Vec<Arc<Object>> = objects.into_values().filter(of_namespace).collect();
        Ok(Snapshot { revision, objects: objects.into() })
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectAddress> {
        self.inner
            .read()
            .dependents
            .get(uid)
            .map(|places| places.iter().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn is_empty(&self, resource: &str, namespace: &str) -> bool {
        let inner = self.inner.read();
        let Some(found) = inner.resources.get(resource) else { return true };
        let mut from = found.objects.range((Bound::Included(Key::first_of(namespace)), Bound::Unbounded));
        from.next().is_none_or(|(key, _)| &*key.namespace != namespace)
    }

    pub(crate) fn count(&self, resource: &str) -> usize {
        self.inner.read().resources.get(resource).map_or(0, |r| r.objects.len())
    }

    /// Keeps a snapshot for the following pages of a list.
    pub(crate) fn keep_snapshot(&self, resource: &str, namespace: Option<&str>, snapshot: Snapshot) {
        self.snapshots.lock().keep(resource, namespace, snapshot);
    }

    pub(crate) fn kept_snapshot(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Option<Snapshot> {
        self.snapshots.lock().find(resource, namespace, revision)
    }

    /// Takes what it needs from the value, unless there is such an object already.
    pub(crate) fn create(
        &self,
        resource: &str,
        key: Key,
        value: &mut Value,
    ) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.inner.write();
        let revision = inner.revision + 1;
        let found = inner.resources.get_mut(resource).ok_or(WriteError::NotFound)?;
        if found.objects.contains_key(&key) {
            return Err(WriteError::Exists);
        }
        let object = fitting(self.seal(found, key, revision, value))?;
        found.objects.insert(object.key.clone(), object.clone());
        found.record(EventKind::Added, object.clone(), None);
        inner.revision = revision;
        inner.index_owners(resource, &object.key, &[], &object.meta.owners);
        Ok(object)
    }

    /// Replaces the object if it is still at `expected`.
    pub(crate) fn update(
        &self,
        resource: &str,
        key: &Key,
        expected: u64,
        mut value: Value,
    ) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.inner.write();
        let revision = inner.revision + 1;
        let found = inner.resources.get_mut(resource).ok_or(WriteError::NotFound)?;
        let old = found.current(key, expected)?;
        let object = fitting(self.seal(found, key.clone(), revision, &mut value))?;
        found.replace(old.clone(), object.clone());
        inner.revision = revision;
        inner.index_owners(resource, key, &old.meta.owners, &object.meta.owners);
        Ok(object)
    }

    /// Replaces the object, if it is still that one, by a text that differs in its managed fields and its status.
    pub(crate) fn update_text(
        &self,
        resource: &str,
        current: &Object,
        draft: &Draft,
        status: &Value,
    ) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.inner.write();
        let revision = inner.revision + 1;
        let found = inner.resources.get_mut(resource).ok_or(WriteError::NotFound)?;
        let old = found.current(&current.key, current.revision)?;
        let text = draft.at(revision).ok_or(WriteError::Conflict)?;
        let interner = &mut self.interner.lock();
        let object = fitting(old.with_status(revision, text, status, &found.selectable, interner))?;
        found.replace(old, object.clone());
        inner.revision = revision;
        Ok(object)
    }

    /// Removes the object if it is still at `expected`. Watchers see its last state, at a fresh revision.
    pub(crate) fn delete(&self, resource: &str, key: &Key, expected: u64) -> Result<Arc<Object>, WriteError> {
        let mut inner = self.inner.write();
        let revision = inner.revision + 1;
        let found = inner.resources.get_mut(resource).ok_or(WriteError::NotFound)?;
        let old = found.current(key, expected)?;
        let object = Arc::new(old.at_revision(revision));
        found.objects.remove(key);
        found.record(EventKind::Deleted, object.clone(), Some(old.clone()));
        inner.revision = revision;
        inner.index_owners(resource, key, &old.meta.owners, &[]);
        Ok(object)
    }

    /// Events after `revision`, at most `limit`, with the revision reached.
    pub fn events_after(
        &self,
        resource: &str,
        revision: u64,
        limit: usize,
    ) -> Result<(Vec<LogEvent>, u64), Compacted> {
        let inner = self.inner.read();
        let Some(found) = inner.resources.get(resource) else {
            return Ok((Vec::new(), inner.revision));
        };
        let events = found.log.after(revision, limit)?;
        let reached = if events.len() < limit { inner.revision } else { events[limit - 1].object.revision };
        Ok((events, reached))
    }

    /// Is woken whenever the resource's log grows; it ends when the resource is dropped.
    pub fn grown(&self, resource: &str) -> Option<Growth> {
        Some(self.inner.read().resources.get(resource)?.grown.follow())
    }

    /// The revision of the resource's last change; caches built from its objects compare against it.
    pub(crate) fn changed_at(&self, resource: &str) -> u64 {
        self.inner.read().resources.get(resource).map_or(0, |r| r.grown.reached())
    }

    /// Forgets every event so far: a watch that starts below the present revision gets 410, as after etcd compaction.
    pub fn compact(&self) {
        let mut inner = self.inner.write();
        let revision = inner.revision;
        for resource in inner.resources.values_mut() {
            resource.log.forget_up_to(revision);
        }
        self.snapshots.lock().clear();
    }

    /// Drops a resource and everything in it (its definition was deleted).
    pub(crate) fn unregister(&self, resource: &str) {
        self.inner.write().resources.remove(resource);
    }

    fn seal(&self, resource: &Resource, key: Key, revision: u64, value: &mut Value) -> Arc<Object> {
        Object::seal(key, revision, value, &resource.selectable, &mut self.interner.lock())
    }
}

fn fitting(object: Arc<Object>) -> Result<Arc<Object>, WriteError> {
    match object.text().len() {
        size if size > REQUEST_BYTES => Err(WriteError::TooLarge(size)),
        _ => Ok(object),
    }
}

impl Resource {
    fn current(&self, key: &Key, expected: u64) -> Result<Arc<Object>, WriteError> {
        let old = self.objects.get(key).ok_or(WriteError::NotFound)?;
        if old.revision == expected { Ok(old.clone()) } else { Err(WriteError::Conflict) }
    }

    fn replace(&mut self, old: Arc<Object>, object: Arc<Object>) {
        self.objects.insert(object.key.clone(), object.clone());
        self.record(EventKind::Modified, object, Some(old));
    }

    fn record(&mut self, kind: EventKind, object: Arc<Object>, before: Option<Arc<Object>>) {
        let revision = object.revision;
        self.log.push(LogEvent { kind, object, before }, LOG_BYTES);
        self.grown.grow(revision);
    }
}
