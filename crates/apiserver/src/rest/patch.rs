//! patch: JSON, merge, strategic merge and server-side apply.

use serde_json::Value;

use super::create::{WriteResult, create_object};
use super::status_patch::patch_status;
use super::update::Change;
use super::{Call, decode, errors, metadata, prepare};
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::managed_fields::{self, Writer};
use crate::patch;
use crate::response::{ServerResponse, StatusAlone};
use crate::server::reset_fields;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The kind of patch by its content type; custom resources know no strategic merge.
pub(crate) fn patch_kind(call: &Call<'_>) -> ApiResult<PatchKind> {
    match decode::media_type(&call.headers) {
        JSON => Ok(PatchKind::Json),
        MERGE => Ok(PatchKind::Merge),
        STRATEGIC if !call.kind.is_custom() => Ok(PatchKind::Strategic),
        APPLY => Ok(PatchKind::Apply),
        _ if call.kind.is_custom() => Err(errors::unsupported_media_type(&[JSON, MERGE, APPLY])),
        _ => Err(ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(serde_json::json!({}))),
    }
}

pub(crate) async fn patch(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let kind = patch_kind(call)?;
    check_options(call, kind)?;
    let dry_run = call.query.dry_run("PatchOptions")?;
    let subresource = call.subresource().to_string();
    let change = Change {
        key: call.key(),
        subresource,
        dry_run,
        replaces: false,
        admitted: false,
        applied: kind == PatchKind::Apply,
    };
    if kind == PatchKind::Apply {
        return apply(call, change).await;
    }
    let document =
        serde_json::from_slice(&call.body).map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
    if kind == PatchKind::Strategic
        && !dry_run
        && let Some(stored) = patch_status(call, &document)
    {
        let mut answer = WriteResult::Stored(stored).answer(call, 200);
        answer.extensions_mut().insert(StatusAlone);
        return Ok(answer);
    }
    let outcome = change.run(call, |call, current| patched(call, kind, current, &document)).await?;
    Ok(outcome.answer(call, 200))
}

fn check_options(call: &Call<'_>, kind: PatchKind) -> ApiResult<()> {
    let refuse = |error: FieldError| Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    if kind == PatchKind::Apply {
        if call.query.get("fieldManager").is_none() {
            return refuse(FieldError::required("fieldManager", "is required for apply patch"));
        }
    } else if call.query.get("force").is_some() {
        return refuse(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(())
}

/// The current object with the patch on it, decoded again.
pub(crate) fn patched(
    call: &mut Call<'_>,
    kind: PatchKind,
    current: &Value,
    document: &Value,
) -> ApiResult<Value> {
    let row = call.kind.clone();
    let result = || match (kind, row.schema_ref()) {
        (PatchKind::Json, _) => patch::json_patch(current, document),
        (PatchKind::Strategic, Some(schema)) => patch::strategic(current, document, schema),
        _ => patch::merge_patch(current, document),
    };
    let mut new = result()?;
    patch::check_result(&new, &row, (kind == PatchKind::Strategic).then_some(document))?;
    decode::expect_kind(&mut new, &row)?;
    prepare::shape_checked(call, &mut new).map_err(|why| {
        match why.message.split_once(": strict decoding error: ") {
            // What decoding refuses is the patch's fault.
            Some((_, problem)) => {
                let shown = match kind {
                    PatchKind::Strategic => patch::go_value(document),
                    _ => result().unwrap_or_default().to_string(),
                };
                patch::refused(shown, format!("strict decoding error: {problem}"))
            }
            None => why,
        }
    })?;
    metadata::check_name(call, &new)?;
    metadata::settle_namespace(call, &mut new)?;
    Ok(new)
}

async fn apply(call: &mut Call<'_>, change: Change) -> ApiResult<ServerResponse> {
    let config = decode::yaml(&call.body)?;
    if !config.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the body is not an object"));
    }
    let row = call.kind.clone();
    let text = |field: &str| config[field].as_str().unwrap_or_default().to_string();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != row.api_version() || kind != row.kind {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        return Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if !metadata::text(&config, "name").is_empty() {
        metadata::check_name(call, &config)?;
    }
    let exists = call.server.store.get(&row.storage, &call.key()).is_some();
    if !exists && change.subresource.is_empty() {
        if !metadata::text(&config, "uid").is_empty() {
            let why = "uid mismatch: the provided object specified uid, and no existing object was found";
            return Err(errors::conflict(&row, call.name(), why));
        }
        let mut new = applied(call, None, &config, "")?;
        new["metadata"]["name"] = call.name().into();
        metadata::metadata_mut(&mut new).map(|m| m.remove("resourceVersion"));
        return Ok(create_object(call, new, change.dry_run, true).await?.answer(call, 201));
    }
    let subresource = change.subresource.clone();
    let outcome =
        change.run(call, |call, current| applied(call, Some(current), &config, &subresource)).await?;
    Ok(outcome.answer(call, 200))
}

fn applied(call: &mut Call<'_>, live: Option<&Value>, config: &Value, subresource: &str) -> ApiResult<Value> {
    let row = call.kind.clone();
    let Some(schema) = row.schema_ref() else {
        return Err(errors::unsupported_media_type(&[JSON, MERGE, STRATEGIC]));
    };
    let writer = Writer {
        manager: call.query.get("fieldManager").unwrap_or_default(),
        subresource,
        api_version: &row.api_version(),
        now: &rfc3339(call.server.now()),
        reset: reset_fields(&row, subresource),
    };
    let mut new = managed_fields::apply(live, config, schema, &writer, call.query.flag("force"))?;
    prepare::shape(call, &mut new)?;
    metadata::settle_namespace(call, &mut new)?;
    Ok(new)
}
