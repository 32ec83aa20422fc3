//! Garbage collection: an object goes when all its owners are gone; foreground and orphan deletions wait for theirs.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{path_of, send};
use crate::kinds::Kind;
use crate::rest::metadata;
use crate::server::Server;
use crate::store::{Key, Object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// A new owner reference may name somebody who is already gone; a deletion may have begun that waits for dependents.
pub async fn written(server: &Arc<Server>, kind: &Kind, object: &Arc<Object>, owned_anew: bool) {
    if owned_anew {
        collect(server, kind, &object.key).await;
    }
    // Most objects are not being deleted, and need not be decoded to see that.
    if std::str::from_utf8(&object.bytes).is_ok_and(|text| text.contains("\"deletionTimestamp\"")) {
        let value = object.value();
        if metadata::is_deleting(&value) {
            see_to_dependents(server, kind, &value).await;
        }
    }
}

/// Dependents of what went may be garbage now; owners that waited for it may go.
pub async fn deleted(server: &Arc<Server>, object: &Arc<Object>) {
    let value = object.value();
    for (kind, key) in dependents(server, metadata::text(&value, "uid")) {
        collect(server, &kind, &key).await;
    }
    for reference in references(&value) {
        if let Some((kind, owner)) = find_owner(server, &reference, &object.key.namespace)
            && metadata::is_deleting(&owner)
        {
            see_to_dependents(server, &kind, &owner).await;
        }
    }
}

fn references(object: &Value) -> Vec<Value> {
    object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
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

/// The owner that a reference names, if it is there and is the same one.
fn find_owner(server: &Server, reference: &Value, namespace: &str) -> Option<(Arc<Kind>, Value)> {
    let api_version = reference["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let registry = server.registry();
    let kind = registry.by_kind(group, version, reference["kind"].as_str()?)?;
    let namespace = if kind.namespaced { namespace } else { "" };
    let owner = server.store.get(&kind.storage, &Key::new(namespace, reference["name"].as_str()?))?.value();
    (metadata::text(&owner, "uid") == reference["uid"].as_str()?).then(|| (kind.clone(), owner))
}

/// Deletes the object if none of its owners is left; else only forgets the missing ones.
async fn collect(server: &Arc<Server>, kind: &Kind, key: &Key) {
    let Some(found) = server.store.get(&kind.storage, key) else { return };
    let object = found.value();
    if metadata::is_deleting(&object) {
        return;
    }
    let all = references(&object);
    let alive: Vec<&Value> =
        all.iter().filter(|reference| find_owner(server, reference, &key.namespace).is_some()).collect();
    if alive.len() == all.len() {
        return;
    }
    let path = path_of(kind, &key.namespace, &key.name);
    let uid = metadata::text(&object, "uid");
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
async fn see_to_dependents(server: &Arc<Server>, kind: &Kind, owner: &Value) {
    let finalizers = metadata::finalizers(owner);
    let uid = metadata::text(owner, "uid");
    let mut waiting = false;
    let done = if finalizers.contains(&FOREGROUND) {
        for (kind, key) in dependents(server, uid) {
            let Some(found) = server.store.get(&kind.storage, &key) else { continue };
            let dependent = found.value();
            let blocks = references(&dependent)
                .iter()
                .any(|reference| reference["uid"] == uid && reference["blockOwnerDeletion"] == true);
            if !metadata::is_deleting(&dependent) {
                let options = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
                    "preconditions": {"uid": metadata::text(&dependent, "uid")},
                });
                let path = path_of(&kind, &key.namespace, &key.name);
                send(server, Method::DELETE, &path, "application/json", &options).await;
            }
            waiting |= blocks && server.store.get(&kind.storage, &key).is_some();
        }
        FOREGROUND
    } else if finalizers.contains(&ORPHAN) {
        for (kind, key) in dependents(server, uid) {
            let Some(found) = server.store.get(&kind.storage, &key) else { continue };
            let dependent = found.value();
            let left: Vec<Value> = references(&dependent).into_iter().filter(|r| r["uid"] != uid).collect();
            let patch =
                json!({"metadata": {"uid": metadata::text(&dependent, "uid"), "ownerReferences": left}});
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
    let left: Vec<&str> = finalizers.into_iter().filter(|f| *f != done).collect();
    let patch = json!({"metadata": {"uid": uid, "finalizers": left}});
    let path = path_of(kind, metadata::text(owner, "namespace"), metadata::text(owner, "name"));
    send(server, Method::PATCH, &path, "application/merge-patch+json", &patch).await;
}
