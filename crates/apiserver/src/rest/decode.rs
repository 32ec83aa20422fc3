//! Reading bodies: content types, JSON and YAML, and whether the object is of the kind the path names.

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::{Call, errors};
use crate::error::{ApiError, ApiResult};
use crate::kinds::Kind;
use crate::patch::json_kind;
use crate::schema;

/// The media type of the body without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

const ACCEPTED: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The body as an object of any kind; protobuf only of built-in kinds.
pub(crate) fn body(call: &Call<'_>) -> ApiResult<Value> {
    body_of(call, &call.kind.kind)
}

/// The same where messages name another kind, as for some subresources.
pub(crate) fn body_of(call: &Call<'_>, kind: &str) -> ApiResult<Value> {
    let unrecognized = |why: ApiError| unrecognized(kind, &call.body, &why);
    let value = match media_type(&call.headers) {
        "" | "application/json" | "*/*" => json(&call.body).map_err(unrecognized)?,
        "application/yaml" => yaml(&call.body).map_err(unrecognized)?,
        "application/vnd.kubernetes.protobuf" => match crate::protobuf::decode(&call.body)? {
            Some(value) => value,
            None => return Err(errors::unsupported_media_type(&ACCEPTED[..2])),
        },
        _ => return Err(errors::unsupported_media_type(ACCEPTED)),
    };
    match value {
        Value::Object(_) => Ok(value),
        // Nothing at all is an object without fields.
        Value::Null => Ok(Value::Object(Map::new())),
        other => Err(unrecognized(ApiError::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            json_kind(&other)
        )))),
    }
}

/// The body was not even an object of some kind.
fn unrecognized(kind: &str, body: &[u8], why: &ApiError) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {} ({})",
        why.message,
        excerpt(body)
    ))
}

/// The start of a body as messages show it: text if it looks like an object, else in hexadecimal.
fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_string();
    }
    let start = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match std::str::from_utf8(start) {
        Ok(text) if text.starts_with('{') => format!("{text}{more}"),
        _ => format!("{}{more}", start.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

pub(crate) fn json(bytes: &[u8]) -> ApiResult<Value> {
    serde_json::from_slice(bytes)
        .map_err(|why| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}")))
}

/// YAML, and so JSON too.
pub(crate) fn yaml(bytes: &[u8]) -> ApiResult<Value> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|why| ApiError::bad_request(why.to_string()))?;
    serde_saphyr::from_str(text).map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))
}

/// An object of the request's kind, with apiVersion and kind filled in and metadata an object.
pub(crate) fn object(call: &Call<'_>) -> ApiResult<Value> {
    let mut value = body(call)?;
    expect_kind(&mut value, &call.kind).map_err(|why| {
        let early =
            ["couldn't get", "unexpected GroupVersion"].iter().any(|start| why.message.starts_with(start));
        if early { unrecognized(&call.kind.kind, &call.body, &why) } else { why }
    })?;
    Ok(value)
}

/// apiVersion and kind must be those of `kind`; built-in kinds may leave them out.
pub(crate) fn expect_kind(value: &mut Value, kind: &Kind) -> ApiResult<()> {
    if kind.is_custom() {
        // Validation says what is wrong with the kind of a custom object, but there must be one.
        let text = value.to_string();
        if value["kind"].as_str().unwrap_or_default().is_empty() {
            let why = ApiError::bad_request(format!("Object 'Kind' is missing in '{text}'"));
            return Err(unrecognized(&kind.kind, text.as_bytes(), &why));
        }
        let given = value["kind"].clone();
        value["kind"] = kind.kind.clone().into();
        expect_gvk(value, &kind.api_version(), &kind.kind)?;
        value["kind"] = given;
        return Ok(());
    }
    expect_gvk(value, &kind.api_version(), &kind.kind)
}

pub(crate) fn expect_gvk(value: &mut Value, api_version: &str, kind: &str) -> ApiResult<()> {
    let text = |value: &Value, field: &str| -> ApiResult<String> {
        match value.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field \
                 .{field} of type string",
                json_kind(other)
            ))),
        }
    };
    let given_version = text(value, "apiVersion")?;
    let given_kind = text(value, "kind")?;
    if given_version.matches('/').count() > 1 {
        return Err(ApiError::bad_request(format!("unexpected GroupVersion string: {given_version}")));
    }
    let full = if given_version.is_empty() { api_version } else { &given_version };
    let (group, version) = full.split_once('/').unwrap_or(("", full));
    let named = if given_kind.is_empty() { kind } else { &given_kind };
    // Older versions of built-in kinds are still known by name, and so are lists.
    let item = named.strip_suffix("List").unwrap_or(named);
    let known = version.contains("beta") || schema::builtin_kind(group, version, item).is_some();
    let is_custom = schema::builtin_kind(group_of(api_version), version_of(api_version), kind).is_none();
    if (full != api_version || named != kind) && !known && !is_custom {
        return Err(ApiError::bad_request(format!(
            "{named} in version \"{version}\" cannot be handled as a {kind}: no kind \"{named}\" is registered for \
             version \"{full}\" in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    if !given_kind.is_empty() && given_kind != kind {
        let group =
            group_of(api_version).split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{given_kind}) to \
             ({group}.{kind}): unknown conversion"
        )));
    }
    if !given_version.is_empty() && given_version != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        )));
    }
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    match value.get_mut("metadata") {
        Some(Value::Object(_)) => {}
        None | Some(Value::Null) => value["metadata"] = Value::Object(Map::new()),
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: json: cannot unmarshal {} into Go struct \
                 field {kind}.metadata of type v1.ObjectMeta",
                api_version.rsplit('/').next().unwrap_or_default(),
                json_kind(other)
            )));
        }
    }
    Ok(())
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}
