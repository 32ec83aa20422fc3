//! update: replacing an object, and the loop that every change of an existing object goes through.

use std::sync::Arc;

use serde_json::Value;

use super::create::{WriteResult, create_object};
use super::metadata::{self, count_generation, keep_server_fields};
use super::{Call, answer, decode, errors, prepare};
use crate::admission::Operation;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::Kind;
use crate::response::ServerResponse;
use crate::store::{Key, Object, WriteError};
use crate::strategy;

pub(crate) async fn replace(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let dry_run = call.query.dry_run("UpdateOptions")?;
    let mut object = decode::object(call)?;
    prepare::shape(call, &mut object)?;
    if metadata::text(&object, "name").is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name()
        )));
    }
    metadata::check_name(call, &object)?;
    metadata::settle_namespace(call, &mut object)?;
    let kind = call.kind.clone();
    let exists = call.server.store.get(&kind.storage, &call.key()).is_some();
    if !exists && kind.create_on_update && call.subresource().is_empty() {
        return Ok(create_object(call, object, dry_run, false).await?.answer(call, 201));
    }
    let revision = metadata::text(&object, "resourceVersion");
    if exists && (revision.is_empty() || revision == "0") && !kind.unconditional_update {
        let error = FieldError::invalid(
            "metadata.resourceVersion",
            revision_value(revision),
            "must be specified for an update",
        );
        return Err(ApiError::invalid(&kind.group, &kind.plural, call.name(), &[error]));
    }
    let subresource = call.subresource().to_string();
    let change =
        Change { key: call.key(), subresource, dry_run, replaces: true, admitted: false, applied: false };
    let outcome = change.run(call, |_, _| Ok(object.clone())).await?;
    Ok(outcome.answer(call, 200))
}

/// The server shows a missing resourceVersion as the number it parses to.
fn revision_value(text: &str) -> Value {
    if text.is_empty() { Value::from(0) } else { Value::from(text) }
}

/// A change of an existing object.
pub(crate) struct Change {
    pub key: Key,
    pub subresource: String,
    pub dry_run: bool,
    /// The new object is a whole one from a client, which must be meant for this very object.
    pub replaces: bool,
    /// Webhooks have already judged the request, by an object of the subresource's own kind.
    pub admitted: bool,
    /// Managed fields are already those of a server-side apply.
    pub applied: bool,
}

/// A change computed on a state that is no longer current is computed again this often.
const TRIES: usize = 10;

impl Change {
    /// Computes the new object from the current one, admits, validates and stores it; again when somebody else was
    /// faster, unless the new object insists on a resourceVersion.
    pub(crate) async fn run<F>(&self, call: &mut Call<'_>, mut make: F) -> ApiResult<WriteResult>
    where
        F: FnMut(&mut Call<'_>, &Value) -> ApiResult<Value>,
    {
        let kind = call.kind.clone();
        for _ in 0..TRIES {
            let Some(current) = call.server.store.get(&kind.storage, &self.key) else {
                return Err(errors::not_found(&kind, &self.key.name));
            };
            let old = answer::in_version(&kind, current.value());
            let new = make(call, &old)?;
            self.check_identity(&kind, &current, &old, &new)?;
            let new = self.settle(call, &kind, &old, new).await?;
            if same_but_managed_times(&old, &new) {
                return Ok(WriteResult::Stored(current));
            }
            if self.dry_run {
                return Ok(WriteResult::DryRun(new));
            }
            match self.store(call, &kind, &current, new) {
                Ok(stored) => return Ok(WriteResult::Stored(stored)),
                Err(WriteError::NotFound) => return Err(errors::not_found(&kind, &self.key.name)),
                Err(WriteError::TooLarge(size)) => return Err(errors::too_large(size)),
                Err(_) => {}
            }
        }
        Err(errors::modified(&kind, &self.key.name))
    }

    /// Everything between the wish and the write.
    async fn settle(&self, call: &mut Call<'_>, kind: &Kind, old: &Value, new: Value) -> ApiResult<Value> {
        let mut new = new;
        prepare::default(kind, &mut new);
        if !self.applied {
            // What admission adds later belongs to nobody.
            let manager = call.field_manager()?;
            call.server.own_fields(kind, Some(old), &mut new, &manager, &self.subresource);
        }
        let mut new = isolate(kind, &self.subresource, old, new);
        keep_server_fields(old, &mut new);
        if self.subresource.is_empty() {
            strategy::updated(kind, old, &mut new);
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if !self.admitted
            && call.server.mutate(call, Operation::Update, &mut new, Some(old), self.dry_run).await?
        {
            prepare::shape(call, &mut new)?;
            prepare::default(kind, &mut new);
            new = isolate(kind, &self.subresource, old, new);
        }
        if !matches!(self.subresource.as_str(), "status" | "binding") {
            count_generation(kind.generation, old, &mut new);
        }
        prepare::validate_update(kind, old, &new, &self.subresource)?;
        if !self.admitted {
            call.server.admit(call, Operation::Update, Some(&new), Some(old), self.dry_run).await?;
        }
        Ok(new)
    }

    /// The new object must be meant for this very object, and for this state of it if it says so.
    fn check_identity(&self, kind: &Kind, current: &Object, old: &Value, new: &Value) -> ApiResult<()> {
        let name = &current.key.name;
        let uid = metadata::text(new, "uid");
        let old_uid = metadata::text(old, "uid");
        if self.replaces && !uid.is_empty() && uid != old_uid {
            return Err(errors::uid_mismatch(kind, &current.key, uid, old_uid));
        }
        let revision = metadata::text(new, "resourceVersion");
        if !revision.is_empty() && revision != "0" {
            let asked: u64 = revision.parse().map_err(|_| {
                ApiError::new(500, "", format!("strconv.ParseUint: parsing \"{revision}\": invalid syntax"))
            })?;
            if asked != current.revision {
                return Err(errors::modified(kind, name));
            }
        }
        Ok(())
    }

    fn store(
        &self,
        call: &Call<'_>,
        kind: &Arc<Kind>,
        current: &Arc<Object>,
        new: Value,
    ) -> Result<Arc<Object>, WriteError> {
        let ends = is_finished(kind, &new);
        let stored = answer::to_stored(kind, new);
        let store = &call.server.store;
        if ends {
            // Watchers see the last state that was stored, at a revision of its own; who caused the end sees what it
            // wrote, at the last revision that could be read.
            let gone = store.delete(&kind.storage, &self.key, current.revision)?;
            call.server.after_delete(kind, &gone);
            return Ok(Arc::new(current.with_value(stored)));
        }
        let stored = store.update(&kind.storage, &self.key, current.revision, stored)?;
        call.server.after_write(kind, Some(current), &stored);
        Ok(stored)
    }
}

/// An object that is being deleted goes once nothing holds it any more.
pub(crate) fn is_finished(kind: &Kind, object: &Value) -> bool {
    metadata::is_deleting(object)
        && metadata::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        && !(kind.is("", "namespaces")
            && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()))
}

/// Lets a write touch only its part: the status subresource the status, everything else all but the status.
fn isolate(kind: &Kind, subresource: &str, old: &Value, mut new: Value) -> Value {
    let take = |from: &Value, field: &str| from.get(field).cloned();
    match subresource {
        "status" => {
            restore(&mut new, old, |field| !matches!(field, "status" | "metadata"));
            match kind.group.as_str() {
                _ if kind.is_custom() => {
                    restore(&mut new["metadata"], &old["metadata"], |field| field != "managedFields");
                }
                "apps" if kind.plural == "deployments" => {
                    restore(&mut new["metadata"], &old["metadata"], |field| field == "labels");
                }
                _ => restore(&mut new["metadata"], &old["metadata"], |field| field == "ownerReferences"),
            }
            new
        }
        "finalize" => {
            set(&mut new, "status", take(old, "status"));
            let left = take(&new["spec"], "finalizers").filter(|list| list != &Value::Array(Vec::new()));
            set(&mut new["spec"], "finalizers", left);
            new
        }
        // A binding also sets the condition that says so.
        "binding" => new,
        _ => {
            if kind.has_status {
                restore(&mut new, old, |field| field == "status");
            }
            new
        }
    }
}

/// Brings the chosen fields back to what they were. Most did not change, and those cost nothing.
fn restore(new: &mut Value, old: &Value, chosen: impl Fn(&str) -> bool) {
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return };
    new.retain(|field, _| !chosen(field) || old.contains_key(field));
    for (field, value) in old.iter().filter(|(field, _)| chosen(field)) {
        if new.get(field) != Some(value) {
            new.insert(field.clone(), value.clone());
        }
    }
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Value::Object(fields) = object {
        match value {
            Some(value) if !value.is_null() => {
                fields.insert(field.to_string(), value);
            }
            _ => {
                fields.remove(field);
            }
        }
    }
}

/// A write that changes nothing is no write; the times in managed fields do not count.
fn same_but_managed_times(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    if old.len() != new.len() || old.iter().any(|(k, v)| k != "metadata" && new.get(k) != Some(v)) {
        return false;
    }
    let (Some(old), Some(new)) = (old["metadata"].as_object(), new["metadata"].as_object()) else {
        return false;
    };
    if old.len() != new.len() || old.iter().any(|(k, v)| k != "managedFields" && new.get(k) != Some(v)) {
        return false;
    }
    let entries = |m: &serde_json::Map<String, Value>| -> Vec<Value> {
        let mut list = m.get("managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in &mut list {
            entry.as_object_mut().map(|e| e.remove("time"));
        }
        list
    };
    old.get("managedFields") == new.get("managedFields") || entries(old) == entries(new)
}
