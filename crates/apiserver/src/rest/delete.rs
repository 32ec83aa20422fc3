//! delete: grace, finalizers, preconditions and propagation.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::namespaces::IMMORTAL;
use super::read::{list_of, selection};
use super::{Call, answer, decode, errors, metadata};
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::Kind;
use crate::patch::json_kind;
use crate::request::dry_run;
use crate::response::{self, ServerResponse};
use crate::server::custom_kinds::mark_for_deletion;
use crate::store::{Key, Object, WriteError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the body, or from the query where there is no body.
    fn of(call: &Call<'_>) -> ApiResult<Self> {
        if call.body.is_empty() {
            let mut object = json!({});
            if let Some(seconds) = call.query.number("gracePeriodSeconds")? {
                object["gracePeriodSeconds"] = seconds.into();
            }
            if let Some(policy) = call.query.get("propagationPolicy") {
                object["propagationPolicy"] = policy.into();
            }
            if call.query.get("orphanDependents").is_some() {
                object["orphanDependents"] = call.query.flag("orphanDependents").into();
            }
            object["dryRun"] = json!(call.query.all("dryRun"));
            return Self::parse(&object);
        }
        let body = decode::body_of(call, "DeleteOptions")?;
        let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let version = body["apiVersion"].as_str().unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let mut options = Self::parse(&body)?;
        options.dry_run |= call.query.dry_run("DeleteOptions")?;
        Ok(options)
    }

    pub(crate) fn parse(object: &Value) -> ApiResult<Self> {
        let invalid = |error: FieldError| ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]);
        let mut options = Self::default();
        match &object["gracePeriodSeconds"] {
            Value::Null => {}
            Value::Number(seconds) if seconds.is_i64() => options.grace_seconds = seconds.as_i64(),
            other => {
                return Err(ApiError::bad_request(format!(
                    "json: cannot unmarshal {} into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
                    json_kind(other)
                )));
            }
        }
        options.uid = object["preconditions"]["uid"].as_str().map(String::from);
        options.resource_version = object["preconditions"]["resourceVersion"].as_str().map(String::from);
        let orphan = object["orphanDependents"].as_bool();
        let policy = object["propagationPolicy"].as_str();
        options.propagation = match (policy, orphan) {
            (Some(_), Some(_)) => {
                return Err(invalid(FieldError::invalid(
                    "propagationPolicy",
                    policy.unwrap_or_default(),
                    "orphanDependents and deletionPropagation cannot be both set",
                )));
            }
            (None, None) => None,
            (None, Some(true)) | (Some("Orphan"), _) => Some(Propagation::Orphan),
            (None, Some(false)) | (Some("Background"), _) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                return Err(invalid(FieldError::new(
                    crate::error::FieldErrorKind::NotSupported,
                    "propagationPolicy",
                    other.into(),
                    "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                )));
            }
        };
        let dry_runs: Vec<String> = object["dryRun"]
            .as_array()
            .map(|list| list.iter().map(|v| v.as_str().unwrap_or_default().to_string()).collect())
            .unwrap_or_default();
        options.dry_run = dry_run(&dry_runs, "DeleteOptions")?;
        Ok(options)
    }

    fn to_value(&self) -> Value {
        let mut value = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(seconds) = self.grace_seconds {
            value["gracePeriodSeconds"] = seconds.into();
        }
        if self.uid.is_some() || self.resource_version.is_some() {
            value["preconditions"] = json!({"uid": self.uid, "resourceVersion": self.resource_version});
        }
        value
    }
}

/// How a delete went.
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Object>),
    /// It is on its way: grace runs, or finalizers hold it.
    Leaving(Arc<Object>),
    DryRun(Value),
}

pub(crate) async fn delete(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let options = DeleteOptions::of(call)?;
    if call.kind.is("batch", "jobs") && options.propagation.is_none() {
        call.warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
             them or set propagationPolicy=Orphan to suppress this warning"
                .to_string(),
        );
    }
    let key = call.key();
    let deleted = delete_object(call, &key, &options, false).await?;
    Ok(answer_deleted(call, deleted))
}

fn answer_deleted(call: &Call<'_>, deleted: Deleted) -> ServerResponse {
    let value = match deleted {
        Deleted::Leaving(object) => return answer::object(call, 200, &object),
        Deleted::Gone(object) if call.kind.returns_deleted => return answer::object(call, 200, &object),
        Deleted::Gone(object) => object.value(),
        Deleted::DryRun(value) => value,
    };
    if call.kind.returns_deleted {
        return answer::value(call, 200, answer::in_version(&call.kind, value));
    }
    let mut details = json!({
        "name": metadata::text(&value, "name"), "kind": call.kind.plural, "uid": metadata::text(&value, "uid"),
    });
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.clone().into();
    }
    response::json(
        200,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }),
    )
}

/// Deletes one object; `admitted` says that webhooks have had their say, on the eviction.
pub(crate) async fn delete_object(
    call: &mut Call<'_>,
    key: &Key,
    options: &DeleteOptions,
    admitted: bool,
) -> ApiResult<Deleted> {
    let kind = call.kind.clone();
    if kind.is("", "namespaces") && IMMORTAL.contains(&&*key.name) {
        return Err(errors::forbidden(&kind, &key.name, "this namespace may not be deleted"));
    }
    loop {
        let Some(current) = call.server.store.get(&kind.storage, key) else {
            return Err(errors::not_found(&kind, &key.name));
        };
        let object = current.value();
        let qualified =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        check_preconditions(&qualified, &kind.kind, &kind.group, &object, options)?;
        if !admitted {
            call.server.admit_delete(call, &object, &options.to_value(), options.dry_run).await?;
        }
        let now = call.server.now();
        let plan = plan(&kind, &object, options, now);
        if options.dry_run {
            return Ok(Deleted::DryRun(object));
        }
        let mark = |marked: Value| call.server.store.update(&kind.storage, key, current.revision, marked);
        let done = match plan {
            Plan::Remove => remove(call, &kind, key, current.revision),
            Plan::MarkAndRemove(marked) => {
                mark(marked).and_then(|marked| remove(call, &kind, key, marked.revision))
            }
            Plan::Nothing => return Ok(Deleted::Leaving(current)),
            Plan::Mark(marked) => mark(marked).map(|stored| {
                call.server.after_write(&kind, Some(&current), &stored);
                Deleted::Leaving(stored)
            }),
        };
        match done {
            Ok(deleted) => return Ok(deleted),
            Err(WriteError::Conflict) => {}
            Err(WriteError::TooLarge(size)) => return Err(errors::too_large(size)),
            Err(_) => return Err(errors::not_found(&kind, &key.name)),
        }
    }
}

fn remove(call: &Call<'_>, kind: &Arc<Kind>, key: &Key, revision: u64) -> Result<Deleted, WriteError> {
    let gone = call.server.store.delete(&kind.storage, key, revision)?;
    call.server.after_delete(kind, &gone);
    Ok(Deleted::Gone(gone))
}

/// The object must be the one, and in the state, that the options name. The rest says how messages name its resource.
pub(crate) fn check_preconditions(
    qualified: &str,
    resource: &str,
    group: &str,
    object: &Value,
    options: &DeleteOptions,
) -> ApiResult<()> {
    let name = metadata::text(object, "name");
    let check = |what: &str, wanted: &Option<String>, field: &str, hint: &str| match wanted {
        Some(wanted) if wanted != metadata::text(object, field) => {
            let mut details = json!({"name": name, "kind": resource});
            if !group.is_empty() {
                details["group"] = group.into();
            }
            let message = format!(
                "Operation cannot be fulfilled on {qualified} \"{name}\": the {what} in the precondition ({wanted}) does \
                 not match the {what} in record ({}). The object might have been {hint}",
                metadata::text(object, field)
            );
            Err(ApiError::new(409, "Conflict", message).with_details(details))
        }
        _ => Ok(()),
    };
    check("UID", &options.uid, "uid", "deleted and then recreated")?;
    check("ResourceVersion", &options.resource_version, "resourceVersion", "modified")
}

#[derive(Debug, PartialEq)]
enum Plan {
    Remove,
    /// Pods are marked even when they go at once, so that watchers see both.
    MarkAndRemove(Value),
    Mark(Value),
    /// Already leaving, and nothing about it changes.
    Nothing,
}

/// What a delete means for this object now. Pure, so that grace and finalizers can be tested as a table.
fn plan(kind: &Kind, object: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let mut marked = object.clone();
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") && !metadata::is_deleting(object) {
        mark_for_deletion(&mut marked, &rfc3339(now));
        return Plan::Mark(marked);
    }
    let propagation_changed = set_propagation_finalizer(
        kind,
        &mut marked,
        options.propagation.or(kind.orphans_by_default.then_some(Propagation::Orphan)),
    );
    let held = !metadata::finalizers(&marked).is_empty()
        || (kind.is("", "namespaces")
            && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()));
    let grace = if kind.is("", "pods") { pod_grace(object, options) } else { 0 };
    if metadata::is_deleting(object) {
        let running = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        if !held && grace == 0 && running == 0 {
            return Plan::Remove;
        }
        if grace >= running {
            return if propagation_changed { Plan::Mark(marked) } else { Plan::Nothing };
        }
        // A shorter grace counts from when the deletion began.
        let deadline: Option<Timestamp> =
            object["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
        let began = deadline.map_or(now, |at| at - SignedDuration::from_secs(running));
        marked["metadata"]["deletionTimestamp"] = rfc3339(began + SignedDuration::from_secs(grace)).into();
        marked["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        return if held || grace > 0 { Plan::Mark(marked) } else { Plan::MarkAndRemove(marked) };
    }
    let is_pod = kind.is("", "pods");
    if grace == 0 && !held && !is_pod {
        return Plan::Remove;
    }
    marked["metadata"]["deletionTimestamp"] = rfc3339(now + SignedDuration::from_secs(grace)).into();
    marked["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    if let Some(generation) = marked["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        marked["metadata"]["generation"] = (generation + 1).into();
    }
    if kind.is("", "namespaces") {
        marked["metadata"].as_object_mut().map(|m| m.remove("deletionGracePeriodSeconds"));
        marked["status"]["phase"] = "Terminating".into();
    }
    if grace == 0 && !held { Plan::MarkAndRemove(marked) } else { Plan::Mark(marked) }
}

/// Seconds a pod gets to end: what was asked, else its own grace; none when nothing runs.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || ended {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    // A negative grace means one second.
    match options.grace_seconds.unwrap_or(own) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// Foreground and orphan deletion hold the object by a finalizer until its dependents are seen to.
fn set_propagation_finalizer(kind: &Kind, object: &mut Value, propagation: Option<Propagation>) -> bool {
    const FOREGROUND: &str = "foregroundDeletion";
    const ORPHAN: &str = "orphan";
    let Some(propagation) = propagation else { return false };
    if kind.is("", "namespaces") {
        return false;
    }
    let before: Vec<String> = metadata::finalizers(object).into_iter().map(String::from).collect();
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let mut after: Vec<String> = before
        .iter()
        .filter(|f| Some(f.as_str()) == wanted || (f.as_str() != FOREGROUND && f.as_str() != ORPHAN))
        .cloned()
        .collect();
    if let Some(wanted) = wanted
        && !after.iter().any(|f| f == wanted)
    {
        after.push(wanted.to_string());
    }
    if after == before {
        return false;
    }
    if let Some(metadata) = metadata::metadata_mut(object) {
        if after.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".into(), json!(after));
        }
    }
    true
}

pub(crate) async fn delete_collection(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let options = DeleteOptions::of(call)?;
    let selection = selection(call)?;
    let kind = call.kind.clone();
    let snapshot = call.server.store.list(&kind.storage, call.path.namespace.as_deref());
    let mut items = Vec::new();
    for object in snapshot.objects.iter().filter(|object| selection.matches(object)) {
        match delete_object(call, &object.key, &options, false).await {
            Ok(_) => items.push(answer::in_version(&kind, object.value())),
            // Somebody else was faster.
            Err(gone) if gone.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    Ok(response::json(200, &list_of(&kind, metadata, items)))
}

#[cfg(test)]
#[path = "delete_tests.rs"]
mod tests;
