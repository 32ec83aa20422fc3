//! Protobuf bodies, by hand and only the few that clients insist on: access reviews, DeleteOptions and requests for
//! tokens (kubectl), evictions (other client-go programs). Everything else is asked for as JSON instead (415).
//!
//! The envelope is the four bytes `k8s\0` and a `runtime.Unknown` message: what the object is, and its bytes.

mod messages;
mod wire;

use serde_json::{Map, Value};

use crate::error::{ApiError, ApiResult};
use messages::{Field, Message};
use wire::{Payload, Reader};

/// How every Kubernetes protobuf body begins.
pub const MAGIC: &[u8] = b"k8s\0";
/// Its content type.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The object in a protobuf body, or `None` if it is of a kind not known here.
pub fn decode(body: &[u8]) -> ApiResult<Option<Value>> {
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
                        (1, Payload::Bytes(text)) => api_version = utf8(text).map_err(malformed)?,
                        (2, Payload::Bytes(text)) => kind = utf8(text).map_err(malformed)?,
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let Some(message) = messages::for_kind(&api_version, &kind) else { return Ok(None) };
    let mut object = Map::new();
    object.insert("kind".to_string(), kind.into());
    object.insert("apiVersion".to_string(), api_version.into());
    read(raw, message, &mut object).map_err(malformed)?;
    Ok(Some(Value::Object(object)))
}

/// Fields as JSON would have them: empty text and lists are left out, optional numbers and messages are kept.
fn read(bytes: &[u8], message: Message, into: &mut Map<String, Value>) -> Result<(), String> {
    for field in Reader::new(bytes) {
        let (number, payload) = field?;
        let Some((_, name, field)) = message.iter().find(|(n, _, _)| *n == number) else { continue };
        match (field, payload) {
            (Field::Text, Payload::Bytes(text)) => {
                let text = utf8(text)?;
                if !text.is_empty() {
                    into.insert(name.to_string(), text.into());
                }
            }
            (Field::Texts, Payload::Bytes(text)) => push(into, name, utf8(text)?.into()),
            (Field::Bool, Payload::Varint(number)) => {
                into.insert(name.to_string(), (number != 0).into());
            }
            // Negative numbers are sent as the same 64 bits without sign.
            (Field::Int, Payload::Varint(number)) => {
                into.insert(name.to_string(), number.cast_signed().into());
            }
            (Field::Message(inner), Payload::Bytes(bytes)) => {
                let mut object = Map::new();
                read(bytes, inner, &mut object)?;
                into.insert(name.to_string(), Value::Object(object));
            }
            (Field::Messages(inner), Payload::Bytes(bytes)) => {
                let mut object = Map::new();
                read(bytes, inner, &mut object)?;
                push(into, name, Value::Object(object));
            }
            (Field::TextMap, Payload::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                insert(into, name, key, utf8(value)?.into());
            }
            (Field::TextsMap, Payload::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                let mut list = Map::new();
                read(value, &[(1, "items", Field::Texts)], &mut list)?;
                insert(into, name, key, list.remove("items").unwrap_or_else(|| Value::Array(Vec::new())));
            }
            _ => return Err(format!("field {number} ({name}) is of the wrong wire type")),
        }
    }
    Ok(())
}

fn push(into: &mut Map<String, Value>, name: &str, value: Value) {
    if let Value::Array(list) = into.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
        list.push(value);
    }
}

fn insert(into: &mut Map<String, Value>, name: &str, key: String, value: Value) {
    if let Value::Object(map) = into.entry(name).or_insert_with(|| Value::Object(Map::new())) {
        map.insert(key, value);
    }
}

/// Maps are lists of messages with a key and a value.
fn entry(bytes: &[u8]) -> Result<(String, &[u8]), String> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in Reader::new(bytes) {
        match field? {
            (1, Payload::Bytes(text)) => key = utf8(text)?,
            (2, Payload::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "text that is not UTF-8".to_string())
}

#[cfg(test)]
mod tests;
