//! What is special about namespaces: content needs a living one.

use serde_json::json;

use super::{Call, errors, metadata};
use crate::error::ApiResult;
use crate::kinds::Kind;
use crate::store::Key;

/// Namespaces that hold the cluster together cannot be deleted.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// New content needs a namespace that exists and is not going away.
pub(crate) fn check_alive(call: &Call<'_>, kind: &Kind) -> ApiResult<()> {
    if !kind.namespaced {
        return Ok(());
    }
    let namespace = call.namespace();
    let registry = call.server.registry();
    let Some(row) = registry.find("", "v1", "namespaces") else { return Ok(()) };
    let Some(found) = call.server.store.get(&row.storage, &Key::new("", namespace)) else {
        return Err(errors::not_found(row, namespace));
    };
    // Parsing a namespace on each create would cost more than the create: its phase is a selectable field.
    if found.meta.fields.first().is_none_or(|phase| &**phase != "Terminating") {
        return Ok(());
    }
    let value = found.value();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = errors::forbidden(kind, &new_name(call), &why);
    error.details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {} is being terminated", metadata::text(&value, "name")),
        "field": "metadata.namespace",
    }]);
    Err(error)
}

fn new_name(call: &Call<'_>) -> String {
    serde_json::from_slice::<serde_json::Value>(&call.body)
        .map(|object| {
            let name = metadata::text(&object, "name");
            if name.is_empty() { metadata::text(&object, "generateName") } else { name }.to_string()
        })
        .unwrap_or_default()
}
