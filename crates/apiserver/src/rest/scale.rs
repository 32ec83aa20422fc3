//! The scale subresource: a small object that stands for the replicas of a larger one.

use serde_json::{Value, json};

use super::patch::{PatchKind, patch_kind};
use super::update::Change;
use super::{Call, decode, errors, metadata};
use crate::admission::Operation;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::KindSchema;
use crate::patch::{self, json_kind};
use crate::response::{self, ServerResponse};
use crate::table::selector_text;

pub(crate) async fn handle(call: &mut Call<'_>, verb: &str) -> ApiResult<ServerResponse> {
    let Some(found) = call.server.store.get(&call.kind.storage, &call.key()) else {
        return Err(errors::not_found(&call.kind, call.name()));
    };
    let object = found.value();
    if verb == "get" {
        return Ok(response::json(200, &scale_of(call, &object)?));
    }
    let dry_run = call.query.dry_run("UpdateOptions")?;
    let change = Change {
        key: call.key(),
        subresource: "scale".into(),
        dry_run,
        replaces: false,
        admitted: true,
        applied: false,
    };
    let document = match verb {
        "update" => decode::body_of(call, "Scale")?,
        _ => decode::json(&call.body)?,
    };
    let patches = (verb == "patch").then(|| patch_kind(call)).transpose()?;
    let before = scale_of(call, &object)?;
    let mut wanted = wanted_scale(call, &before, &document, patches)?;
    call.server.mutate(call, Operation::Update, &mut wanted, Some(&before), dry_run).await?;
    call.server.admit(call, Operation::Update, Some(&wanted), Some(&before), dry_run).await?;
    let outcome = change.run(call, |call, current| scaled(call, current, &wanted)).await?;
    let after = match outcome {
        super::create::WriteResult::Stored(object) => object.value(),
        super::create::WriteResult::DryRun(value) => value,
    };
    Ok(response::json(200, &scale_of(call, &after)?))
}

/// The scale that the request asks for.
fn wanted_scale(
    call: &Call<'_>,
    before: &Value,
    document: &Value,
    patches: Option<PatchKind>,
) -> ApiResult<Value> {
    let mut after = match patches {
        None => document.clone(),
        Some(PatchKind::Json) => patch::json_patch(before, document)?,
        Some(PatchKind::Apply) => {
            return Err(errors::unsupported_media_type(&["application/merge-patch+json"]));
        }
        Some(_) => patch::merge_patch(before, document)?,
    };
    decode::expect_gvk(&mut after, "autoscaling/v1", "Scale")?;
    if !metadata::text(&after, "name").is_empty() {
        metadata::check_name(call, &after)?;
    }
    if patches.is_some()
        && metadata::text(&after, "resourceVersion") == metadata::text(before, "resourceVersion")
    {
        // A patch that does not name a state applies to whatever is there.
        metadata::metadata_mut(&mut after).map(|m| m.remove("resourceVersion"));
    }
    if !call.kind.is_custom() {
        replicas(call, &after)?;
    }
    Ok(after)
}

fn replicas(call: &Call<'_>, scale: &Value) -> ApiResult<i64> {
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        Value::Number(n) if n.is_i64() => n.as_i64().unwrap_or_default(),
        other => {
            return Err(ApiError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field \
                 ScaleSpec.spec.replicas of type int32",
                json_kind(other)
            )));
        }
    };
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(ApiError::invalid("autoscaling", "Scale", call.name(), &[error]));
    }
    Ok(replicas)
}

/// The object with the replicas that the scale asks for.
fn scaled(call: &Call<'_>, current: &Value, scale: &Value) -> ApiResult<Value> {
    let mut object = current.clone();
    match &call.kind.schema {
        KindSchema::Custom(custom) => {
            let kind = &call.kind;
            let path = custom.scale.as_ref().map_or("", |paths| paths.spec_replicas.as_str());
            let refuse =
                |errors: &[FieldError]| ApiError::invalid(&kind.group, &kind.kind, call.name(), errors);
            if let Some(wanted) = scale["spec"]["replicas"].as_i64().filter(|wanted| *wanted < 0) {
                return Err(refuse(&[FieldError::invalid(path, wanted, "should be a non-negative integer")]));
            }
            custom.apply_scale(&mut object, scale).map_err(|errors| refuse(&errors))?;
        }
        _ => object["spec"]["replicas"] = replicas(call, scale)?.into(),
    }
    object["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
    Ok(object)
}

fn scale_of(call: &Call<'_>, object: &Value) -> ApiResult<Value> {
    if let KindSchema::Custom(custom) = &call.kind.schema {
        let path = custom.scale.as_ref().map_or("", |paths| paths.spec_replicas.as_str());
        let known = object.pointer(&path.replace('.', "/")).is_some();
        return custom
            .scale_of(object)
            .filter(|_| known)
            .ok_or_else(|| errors::internal(format!("the spec replicas field \"{path}\" does not exist")));
    }
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let replicas = |part: &str| object[part]["replicas"].as_i64().unwrap_or_default();
    let mut status = json!({"replicas": replicas("status")});
    // A bare map is the selector of replication controllers.
    let selector = &object["spec"]["selector"];
    let bare = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let selector =
        if bare { selector_text(&json!({"matchLabels": selector})) } else { selector_text(selector) };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if replicas("spec") != 0 {
        spec["replicas"] = replicas("spec").into();
    }
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}
