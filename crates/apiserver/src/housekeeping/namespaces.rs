//! A namespace that is being deleted is emptied, and goes when nothing is left in it.

use std::sync::Arc;

use http::Method;
use serde_json::json;

use super::{path_of, send};
use crate::kinds::Kind;
use crate::rest::metadata;
use crate::server::Server;
use crate::store::{Key, Object};

pub(crate) async fn written(server: &Arc<Server>, kind: &Kind, object: &Arc<Object>) {
    if kind.is("", "namespaces") && metadata::is_deleting(&object.value()) {
        empty(server, &object.key.name).await;
        finish(server, &object.key.name).await;
    }
}

pub(crate) async fn deleted(server: &Arc<Server>, kind: &Kind, object: &Arc<Object>) {
    if kind.namespaced {
        finish(server, &object.key.namespace).await;
    }
}

/// Deletes whatever lives in the namespace; pods get their grace.
async fn empty(server: &Arc<Server>, namespace: &str) {
    for kind in server.registry().iter().filter(|kind| kind.namespaced && kind.verbs.contains(&"delete")) {
        for object in server.store.list(&kind.storage, Some(namespace)).objects.iter() {
            let options =
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
            let path = path_of(kind, namespace, &object.key.name);
            send(server, Method::DELETE, &path, "application/json", &options).await;
        }
    }
}

/// Lets the namespace go once it is empty.
async fn finish(server: &Arc<Server>, namespace: &str) {
    let Some(found) = server.store.get("namespaces", &Key::new("", namespace)) else { return };
    let mut value = found.value();
    if !metadata::is_deleting(&value) {
        return;
    }
    let registry = server.registry();
    let left = registry
        .iter()
        .filter(|kind| kind.namespaced)
        .any(|kind| !server.store.is_empty(&kind.storage, namespace));
    if left {
        return;
    }
    value["spec"]["finalizers"] = json!([]);
    let path = format!("/api/v1/namespaces/{namespace}/finalize");
    send(server, Method::PUT, &path, "application/json", &value).await;
}
