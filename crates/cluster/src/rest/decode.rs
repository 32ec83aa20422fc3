//! Reading bodies: content types, JSON and YAML, and whether the object is of the kind the path names.

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::{Call, errors};
use crate::error::{ApiError, ApiResult};
use crate::kinds::Kind;

/// The media type of the body without its parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

const ACCEPTED: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];

/// The body as an object of any kind; protobuf only of built-in kinds.
pub fn body(call: &Call<'_>) -> ApiResult<Value> {
    let value = match media_type(&call.headers) {
        "" | "application/json" | "*/*" => json(&call.body)?,
        "application/yaml" => yaml(&call.body)?,
        "application/vnd.kubernetes.protobuf" => match crate::protobuf::decode(&call.body)? {
            Some(value) => value,
            None => return Err(errors::unsupported_media_type(&ACCEPTED[..2])),
        },
        _ => return Err(errors::unsupported_media_type(ACCEPTED)),
    };
    if !value.is_object() {
        return Err(ApiError::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal the body into an object",
        ));
    }
    Ok(value)
}

pub fn json(bytes: &[u8]) -> ApiResult<Value> {
    serde_json::from_slice(bytes)
        .map_err(|why| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}")))
}

/// YAML, and so JSON too.
pub fn yaml(bytes: &[u8]) -> ApiResult<Value> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|why| ApiError::bad_request(why.to_string()))?;
    serde_saphyr::from_str(text)
        .map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))
}

/// An object of the request's kind, with apiVersion and kind filled in and metadata an object.
pub fn object(call: &Call<'_>) -> ApiResult<Value> {
    let mut value = body(call)?;
    expect_kind(&mut value, &call.kind)?;
    Ok(value)
}

/// apiVersion and kind must be those of `kind`; built-in kinds may leave them out.
pub fn expect_kind(value: &mut Value, kind: &Kind) -> ApiResult<()> {
    expect_gvk(value, &kind.api_version(), &kind.kind, kind.is_custom())
}

pub fn expect_gvk(value: &mut Value, api_version: &str, kind: &str, must_be_given: bool) -> ApiResult<()> {
    let text = |value: &Value, field: &str| -> ApiResult<String> {
        match value.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field \
                 .{field} of type string",
                json_type(other)
            ))),
        }
    };
    let given_version = text(value, "apiVersion")?;
    let given_kind = text(value, "kind")?;
    if must_be_given && given_kind.is_empty() {
        return Err(ApiError::bad_request(format!(
            "error decoding: Object 'Kind' is missing in '{value}'"
        )));
    }
    if !given_kind.is_empty() && given_kind != kind {
        let version = if given_version.is_empty() { api_version } else { &given_version };
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{}\" cannot be handled as a {kind}: the kind of the object does not match \
             the resource",
            version.rsplit('/').next().unwrap_or_default()
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
                json_type(other)
            )));
        }
    }
    Ok(())
}

/// How Go names a JSON value's type in decoding errors.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
