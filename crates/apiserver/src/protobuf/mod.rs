//! Protobuf bodies, as kubectl and other client-go programs send them, read into the JSON form of the built-in kinds.
//! Custom resource definitions are asked for as JSON instead (415).
//!
//! The envelope is the four bytes `k8s\0` and a `runtime.Unknown` message: what the object is, and its bytes.

mod message;
mod numbers;
mod wire;

use serde_json::{Map, Value};

use crate::encoding;
use crate::error::{ApiError, ApiResult};
use crate::schema::{SchemaRef, builtin, builtin_kind};
use message::text;
use wire::{Payload, Reader};

/// How every Kubernetes protobuf body begins.
const MAGIC: &[u8] = b"k8s\0";

/// The object in a protobuf body, as Go would write it in JSON, or `None` if it is of a kind not known here.
pub(crate) fn decode(body: &[u8]) -> ApiResult<Option<Value>> {
    let malformed =
        |problem: String| ApiError::bad_request(format!("unable to decode protobuf body: {problem}"));
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Err(malformed("it does not begin with the Kubernetes prefix".to_string()));
    };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(envelope) {
        match field.map_err(malformed)? {
            (1, Payload::Bytes(type_meta)) => {
                for field in Reader::new(type_meta) {
                    match field.map_err(malformed)? {
                        (1, Payload::Bytes(bytes)) => api_version = text(bytes).map_err(malformed)?,
                        (2, Payload::Bytes(bytes)) => kind = text(bytes).map_err(malformed)?,
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let Some(schema) = schema_of(&api_version, &kind) else { return Ok(None) };
    let mut fields = Map::new();
    message::read(raw, schema, &mut fields).map_err(malformed)?;
    fields.insert("kind".to_string(), kind.into());
    fields.insert("apiVersion".to_string(), api_version.into());
    let mut object = Value::Object(fields);
    encoding::as_go(&mut object, schema);
    Ok(Some(object))
}

fn schema_of(api_version: &str, kind: &str) -> Option<SchemaRef<'static>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let schema = match kind {
        // The version is that of the group of the resource to delete, or a generic one.
        "DeleteOptions" => builtin().named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
        _ => builtin_kind(group, version, kind),
    };
    schema.filter(|schema| schema.node().definition.as_deref().is_some_and(|d| numbers::message(d).is_some()))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::envelope;
