//! The fast path of patches of nothing but a status, which are most of what happens in a cluster. Whatever needs more (a refusal, a
//! webhook, a warning, a deletion that ends with it) is left to the path that all writes can take, so there is one place
//! that words it.
//!
//! What it gains (2026-11): without it the `seeds` bench takes 36 % more instructions and the `life` bench 25 % more; user time
//! was 27 to 52 % and 23 to 34 % more in three rounds.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::Call;
use super::parts::{Metadata, Parts};
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::kinds::KindSchema;
use crate::managed_fields::{self, Writer};
use crate::schema::SchemaRef;
use crate::server::reset_fields;
use crate::store::Object;
use crate::{defaults, encoding, patch, validation};

/// Patches the status strategically; `None` if nothing was done and the patch cannot take the fast path.
pub(crate) fn patch_status(call: &mut Call<'_>, document: &Value) -> Option<Arc<Object>> {
    let kind = call.kind.clone();
    let KindSchema::Builtin(schema) = &kind.schema else { return None };
    let may_be_fast = call.subresource() == "status"
        && kind.api_version() == kind.storage_api_version
        && !kind.is("apiextensions.k8s.io", "customresourcedefinitions")
        && kind.group != "rbac.authorization.k8s.io"
        && call.query.get("fieldValidation").is_none();
    if !may_be_fast || call.server.is_asked_about(call, Operation::Update) {
        return None;
    }
    let current = call.server.store.get(&kind.storage, &call.key())?;
    let mut parts = Parts::of(&current)?;
    let wanted = wanted_of(document, &parts.metadata, current.revision)?;
    let status_schema = schema.field("status")?;
    let before = parts.status.take()?;
    let status = status_of(&before, wanted, status_schema)?;
    let (old, new) = (patch::only("status", before), patch::only("status", status));
    if !validation::status::validate(&kind.group, &kind.kind, &new).is_empty() {
        return None;
    }
    let manager = call.field_manager().ok()?;
    let writer = Writer {
        manager: &manager,
        subresource: "status",
        api_version: &kind.api_version(),
        now: &rfc3339(call.server.now()),
        reset: reset_fields(&kind, "status"),
    };
    let entries = parts.metadata.entries.as_ref()?;
    let entries = managed_fields::update_text(entries, (&old, &new), *schema, &writer)?;
    let status = &new["status"];
    let draft = parts.draft(&entries, status)?;
    let stored = call.server.store.update_text(&kind.storage, &current, &draft, status).ok()?;
    call.server.after_write(&kind, Some(&current), &stored);
    Some(stored)
}

/// The status with the patch on it, in the form in which it is stored.
fn status_of(before: &Value, wanted: &Value, schema: SchemaRef<'_>) -> Option<Value> {
    let mut status = patch::strategic(before, wanted, schema).ok()?;
    if patch::misfit(&status, schema).is_some() || !defaults::drop_unknown(&mut status, schema).is_empty() {
        return None;
    }
    encoding::as_go(&mut status, schema);
    if defaults::fill_in(&mut status, schema) {
        encoding::as_go(&mut status, schema);
    }
    status.as_object().is_some_and(|fields| !fields.is_empty()).then_some(status)
}

/// What the patch says of the status, if it says nothing else but for which object it is meant.
fn wanted_of<'d>(document: &'d Value, metadata: &Metadata<'_>, revision: u64) -> Option<&'d Value> {
    let fields = document.as_object()?;
    let is_meant = |name: &str, value: &Value| match name {
        "uid" => value.as_str().is_some_and(|uid| metadata.has_uid(uid)),
        "resourceVersion" => *value == revision.to_string().as_str(),
        _ => false,
    };
    for (name, value) in fields {
        let is_of_status = match name.as_str() {
            "metadata" => value.as_object()?.iter().all(|(name, value)| is_meant(name, value)),
            "status" => value.is_object(),
            _ => false,
        };
        if !is_of_status {
            return None;
        }
    }
    // With the last grace gone and nothing that holds it, any write ends the object.
    let grace = metadata.get("deletionGracePeriodSeconds").map_or("0", RawValue::get);
    let ends = metadata.get("deletionTimestamp").is_some() && grace == "0";
    fields.get("status").filter(|_| !ends)
}

#[cfg(test)]
#[path = "status_patch_tests.rs"]
mod tests;
