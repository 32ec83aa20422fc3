//! get and list.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::answer::{self, View};
use super::{Call, errors};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::Kind;
use crate::negotiate::Form;
use crate::response::{self, ServerResponse};
use crate::selectors::{FieldSelector, LabelSelector, Selection};
use crate::store::{Key, Object, Snapshot};

pub(crate) fn get(call: &Call<'_>) -> ApiResult<ServerResponse> {
    revision_parameter(call)?;
    let found = call.server.store.get(&call.kind.storage, &call.key());
    match found {
        Some(object) => Ok(answer::object(call, 200, &object)),
        None => Err(errors::not_found(&call.kind, call.name())),
    }
}

/// The label and field selectors of the query.
pub(crate) fn selection(call: &Call<'_>) -> ApiResult<Selection> {
    let labels = call.query.get("labelSelector").map(LabelSelector::parse).transpose()?.unwrap_or_default();
    let fields = call
        .query
        .get("fieldSelector")
        .map(|text| FieldSelector::parse(text, &call.kind))
        .transpose()?
        .unwrap_or_default();
    Ok(Selection { labels, fields })
}

/// A resourceVersion parameter; unset and "0" both say that anything will do.
pub(crate) fn revision_parameter(call: &Call<'_>) -> ApiResult<Option<u64>> {
    match call.query.get("resourceVersion") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| ApiError::new(500, "", bad_revision(text))),
    }
}

fn bad_revision(text: &str) -> String {
    let detail = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
    FieldError::invalid("resourceVersion", text, detail).to_string()
}

/// Which page comes next: the snapshot's revision and the last key that was sent.
struct Continue {
    revision: u64,
    after: Key,
}

impl Continue {
    fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": [&*self.after.namespace, &*self.after.name]});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Option<Self> {
        let token: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        Some(Self {
            revision: token["rv"].as_u64()?,
            after: Key::new(token["start"][0].as_str()?, token["start"][1].as_str()?),
        })
    }
}

struct Page {
    revision: u64,
    objects: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

fn page(call: &Call<'_>) -> ApiResult<Page> {
    let selection = selection(call)?;
    call.query.number("timeoutSeconds")?;
    let limit = call.query.number("limit")?.filter(|n| *n > 0).map(|n| n as usize);
    let namespace = call.path.namespace.as_deref();
    let storage = &call.kind.storage;
    let store = &call.server.store;

    let (snapshot, start) = match call.query.get("continue") {
        None => {
            check_revision(call)?;
            (first_page(call)?, 0)
        }
        Some(token) => {
            let token = Continue::decode(token).ok_or_else(|| {
                ApiError::bad_request(
                    "invalid continue token: continue key is not valid: the token was not issued by this server",
                )
            })?;
            if call.query.get("resourceVersion").is_some_and(|rv| rv != "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let snapshot = store.kept_snapshot(storage, namespace, token.revision).ok_or_else(|| {
                errors::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a \
                     new list without the continue parameter.",
                )
            })?;
            let start = snapshot.objects.partition_point(|o| o.key <= token.after);
            (snapshot, start)
        }
    };
    Ok(cut(call, &selection, snapshot, start, limit))
}

/// The state that the list starts from: the present one, or exactly the one asked for.
fn first_page(call: &Call<'_>) -> ApiResult<Snapshot> {
    let namespace = call.path.namespace.as_deref();
    match (call.query.get("resourceVersionMatch"), revision_parameter(call)?) {
        (Some("Exact"), Some(revision)) => call
            .server
            .store
            .list_at(&call.kind.storage, namespace, revision)
            .map_err(|_| errors::expired("The resourceVersion for the provided list is too old.")),
        _ => Ok(call.server.store.list(&call.kind.storage, namespace)),
    }
}

/// Takes one page out of a snapshot and keeps the rest of it for the next.
fn cut(
    call: &Call<'_>,
    selection: &Selection,
    snapshot: Snapshot,
    start: usize,
    limit: Option<usize>,
) -> Page {
    let namespace = call.path.namespace.as_deref();
    let storage = &call.kind.storage;
    let store = &call.server.store;
    let revision = snapshot.revision;
    let matching = snapshot.objects[start..].iter().filter(|o| selection.matches(o));
    let objects: Vec<Arc<Object>> = match limit {
        None => matching.cloned().collect(),
        Some(limit) => matching.take(limit).cloned().collect(),
    };
    // Whether a selector would still find something is not looked at, as the real server does not: the last page may
    // be empty.
    let seen = objects.last().map_or(0, |last| snapshot.objects.partition_point(|o| o.key <= last.key));
    let left = if limit == Some(objects.len()) { snapshot.objects.len() - seen } else { 0 };
    let next = objects
        .last()
        .filter(|_| left > 0)
        .map(|last| Continue { revision, after: last.key.clone() }.encode());
    let remaining = (left > 0 && selection.is_everything()).then_some(left);
    if left > 0 {
        store.keep_snapshot(storage, namespace, snapshot);
    }
    Page { revision, objects, next, remaining }
}

/// resourceVersion and resourceVersionMatch must make sense together, and the server must have got that far.
fn check_revision(call: &Call<'_>) -> ApiResult<()> {
    let revision = revision_parameter(call)
        .map_err(|why| ApiError::bad_request(format!("invalid resource version: {}", why.message)))?;
    let rule = call.query.get("resourceVersionMatch");
    let refuse = |error: FieldError| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    if call.query.get("sendInitialEvents").is_some() {
        return refuse(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match (rule, revision) {
        (Some(_), None) => {
            return refuse(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        (Some("Exact"), Some(0)) => {
            return refuse(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        (Some("Exact" | "NotOlderThan") | None, _) => {}
        (Some(other), _) => {
            return refuse(FieldError::new(
                crate::error::FieldErrorKind::NotSupported,
                "resourceVersionMatch",
                other.into(),
                "supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ));
        }
    }
    let current = call.server.store.revision();
    match revision {
        Some(asked) if asked > current => Err(errors::too_large_revision(asked, current)),
        _ => Ok(()),
    }
}

/// A list as one value; items of built-in kinds come without kind and apiVersion.
pub(crate) fn list_of(kind: &Kind, mut metadata: Value, mut items: Vec<Value>) -> Value {
    if kind.is_custom() {
        add_continue(&mut metadata);
    } else {
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
    }
    json!({"kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": items})
}

/// Lists of custom kinds always say where to continue, if only with nothing.
fn add_continue(metadata: &mut Value) {
    if metadata["continue"].is_null() {
        metadata["continue"] = "".into();
    }
}

pub(crate) fn list(call: &Call<'_>) -> ApiResult<ServerResponse> {
    let view = View::of(call);
    let page = page(call)?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = page.next {
        metadata["continue"] = next.into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let kind = &call.kind;
    if view.is_stored_form() {
        if kind.is_custom() {
            add_continue(&mut metadata);
        }
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            Value::from(kind.list_kind.as_str()),
            Value::from(kind.api_version()),
        );
        return Ok(response::list(head, page.objects, kind.is_custom()));
    }
    let values = page.objects.iter().map(|object| answer::in_version(kind, object.value()));
    Ok(match call.form {
        Form::Object => response::json(200, &list_of(kind, metadata, values.collect())),
        Form::Metadata(version) => {
            let items: Vec<Value> = values.map(|value| answer::metadata_only(&value, version)).collect();
            response::json(
                200,
                &json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": metadata, "items": items,
                }),
            )
        }
        Form::Table(version) => {
            response::json(200, &view.table(version, &values.collect::<Vec<_>>(), metadata, true))
        }
    })
}
