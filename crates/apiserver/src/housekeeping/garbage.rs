//! Garbage collection: an object goes when all its owners are gone; foreground and orphan deletions wait for theirs.

use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{path_of, send};
use crate::head::metadata_of;
use crate::kinds::Kind;
use crate::server::Server;
use crate::store::{Key, Object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What is decided by: the larger part of an object is not read.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    namespace: String,
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<Value>>,
}

impl Head {
    fn of(object: &Object) -> Self {
        metadata_of(object.text()).unwrap_or_default()
    }

    fn if_deleting(object: &Object) -> Option<Self> {
        Some(Self::of(object)).filter(Self::is_deleting)
    }

    fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    fn references(&self) -> &[Value] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    fn is_held_by(&self, finalizer: &str) -> bool {
        self.finalizers().any(|held| held == finalizer)
    }

    fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.finalizers.iter().flatten().map(String::as_str)
    }
}

/// A new owner reference may name somebody who is already gone; a deletion may have begun that waits for dependents.
pub(crate) async fn written(server: &Arc<Server>, kind: &Kind, object: &Arc<Object>, owned_anew: bool) {
    if owned_anew {
        collect(server, kind, &object.key).await;
    }
    if let Some(head) = Head::if_deleting(object) {
        see_to_dependents(server, kind, &head).await;
    }
}

/// Dependents of what went may be garbage now; owners that waited for it may go.
pub(crate) async fn deleted(server: &Arc<Server>, object: &Arc<Object>) {
    let head = Head::of(object);
    for (kind, key) in dependents(server, &head.uid) {
        collect(server, &kind, &key).await;
    }
    for reference in head.references() {
        let owner = find_owner(server, reference, &object.key.namespace);
        if let Some((kind, owner)) = owner
            && let Some(owner) = Head::if_deleting(&owner).filter(|owner| reference["uid"] == owner.uid)
        {
            see_to_dependents(server, &kind, &owner).await;
        }
    }
}

fn dependents(server: &Server, uid: &str) -> Vec<(Arc<Kind>, Key)> {
    let registry = server.registry();
    server
        .store
        .dependents(uid)
        .into_iter()
        .filter_map(|(storage, key)| Some((registry.stored_as(&storage)?.clone(), key)))
        .collect()
}

/// The object in the place that a reference names, if there is one; it may be another than was meant.
fn find_owner(server: &Server, reference: &Value, namespace: &str) -> Option<(Arc<Kind>, Arc<Object>)> {
    let api_version = reference["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let registry = server.registry();
    let kind = registry.by_kind(group, version, reference["kind"].as_str()?)?;
    let namespace = if kind.namespaced { namespace } else { "" };
    let owner = server.store.get(&kind.storage, &Key::new(namespace, reference["name"].as_str()?))?;
    Some((kind.clone(), owner))
}

fn is_alive(server: &Server, reference: &Value, namespace: &str) -> bool {
    find_owner(server, reference, namespace)
        .is_some_and(|(_, owner)| reference["uid"] == Head::of(&owner).uid)
}

/// Deletes the object if none of its owners is left; else only forgets the missing ones.
async fn collect(server: &Arc<Server>, kind: &Kind, key: &Key) {
    let Some(found) = server.store.get(&kind.storage, key) else { return };
    let head = Head::of(&found);
    if head.is_deleting() {
        return;
    }
    let all = head.references();
    let alive: Vec<&Value> =
        all.iter().filter(|reference| is_alive(server, reference, &key.namespace)).collect();
    if alive.len() == all.len() {
        return;
    }
    let path = path_of(kind, &key.namespace, &key.name);
    let uid = &head.uid;
    if alive.is_empty() {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        send(server, Method::DELETE, &path, "application/json", &options).await;
    } else {
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": alive}});
        send(server, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
    }
}

/// Foreground: dependents go first. Orphan: dependents lose the reference. Then the owner may go.
async fn see_to_dependents(server: &Arc<Server>, kind: &Kind, owner: &Head) {
    let uid = owner.uid.as_str();
    let mut waiting = false;
    let done = if owner.is_held_by(FOREGROUND) {
        for (kind, key) in dependents(server, uid) {
            let Some(found) = server.store.get(&kind.storage, &key) else { continue };
            let dependent = Head::of(&found);
            let blocks = dependent
                .references()
                .iter()
                .any(|reference| reference["uid"] == uid && reference["blockOwnerDeletion"] == true);
            if !dependent.is_deleting() {
                let options = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
                    "preconditions": {"uid": dependent.uid},
                });
                let path = path_of(&kind, &key.namespace, &key.name);
                send(server, Method::DELETE, &path, "application/json", &options).await;
            }
            waiting |= blocks && server.store.get(&kind.storage, &key).is_some();
        }
        FOREGROUND
    } else if owner.is_held_by(ORPHAN) {
        for (kind, key) in dependents(server, uid) {
            let Some(found) = server.store.get(&kind.storage, &key) else { continue };
            let dependent = Head::of(&found);
            let left: Vec<&Value> = dependent.references().iter().filter(|r| r["uid"] != uid).collect();
            let patch = json!({"metadata": {"uid": dependent.uid, "ownerReferences": left}});
            let path = path_of(&kind, &key.namespace, &key.name);
            let (code, _) = send(server, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
            waiting |= !matches!(code, 200 | 404);
        }
        ORPHAN
    } else {
        return;
    };
    if waiting {
        return;
    }
    let left: Vec<&str> = owner.finalizers().filter(|held| *held != done).collect();
    let patch = json!({"metadata": {"uid": uid, "finalizers": left}});
    let path = path_of(kind, &owner.namespace, &owner.name);
    send(server, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
}
