//! Reading messages by their schemas into the JSON form. Types with a JSON form of their own (times, quantities,
//! numbers that may be texts, raw objects) have a protobuf form of their own too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::numbers::{self, Field, Message};
use super::wire::{Payload, Reader};
use crate::schema::{SchemaRef, Type};

/// Adds the fields of a message to an object of the schema; unknown fields are skipped, as protobuf has it.
pub(super) fn read(bytes: &[u8], schema: SchemaRef<'_>, into: &mut Map<String, Value>) -> Result<(), String> {
    let definition = schema.node().definition.as_deref().unwrap_or_default();
    let message = numbers::message(definition).ok_or_else(|| format!("{definition} has no protobuf form"))?;
    read_fields(bytes, message, schema, into)
}

fn read_fields(
    bytes: &[u8],
    message: &Message,
    schema: SchemaRef<'_>,
    into: &mut Map<String, Value>,
) -> Result<(), String> {
    for field in Reader::new(bytes) {
        let (number, payload) = field?;
        match (message.get(&number), payload) {
            (None, _) => {}
            (Some(Field::Inlined(inlined)), Payload::Bytes(bytes)) => {
                read_fields(bytes, inlined, schema, into)?;
            }
            (Some(Field::Inlined(_)), _) => return Err(format!("field {number} is of the wrong wire type")),
            (Some(Field::Named(name)), payload) => {
                let Some(field) = schema.field(name) else { continue };
                add(into, name, payload, field).map_err(|why| format!("{name}: {why}"))?;
            }
        }
    }
    Ok(())
}

/// Lists and maps come one item at a time.
fn add(
    into: &mut Map<String, Value>,
    name: &str,
    payload: Payload<'_>,
    schema: SchemaRef<'_>,
) -> Result<(), String> {
    let node = schema.node();
    match (node.ty, payload) {
        (Type::Array, payload) => {
            let list = into.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let (Value::Array(list), Some(item)) = (list, schema.items()) else { return Ok(()) };
            match payload {
                // Numbers may be packed together.
                Payload::Bytes(bytes) if item.node().ty == Type::Integer => {
                    for number in Reader::new(bytes).varints() {
                        list.push(integer(number?, item));
                    }
                }
                payload => list.push(value(payload, item)?),
            }
        }
        (Type::Object, Payload::Bytes(bytes)) if is_map(schema) => {
            let map = into.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let (Value::Object(map), Some(id)) = (map, node.additional) {
                let (key, value) = entry(bytes, schema.set.at(id))?;
                map.insert(key, value);
            }
        }
        (_, payload) => {
            into.insert(name.to_string(), value(payload, schema)?);
        }
    }
    Ok(())
}

fn is_map(schema: SchemaRef<'_>) -> bool {
    schema.node().properties.is_empty() && schema.node().additional.is_some()
}

/// Maps are lists of messages with a key and a value.
fn entry(bytes: &[u8], schema: SchemaRef<'_>) -> Result<(String, Value), String> {
    let empty = match schema.node().ty {
        Type::Integer | Type::Boolean => Payload::Varint(0),
        _ => Payload::Bytes(&[]),
    };
    let (mut key, mut content) = (String::new(), empty);
    for field in Reader::new(bytes) {
        match field? {
            (1, Payload::Bytes(bytes)) => key = text(bytes)?,
            (2, payload) => content = payload,
            _ => {}
        }
    }
    let value = match (schema.items(), content) {
        // A list as the value of a map is a message with the list in it.
        (Some(item), Payload::Bytes(bytes)) => {
            let mut items = Vec::new();
            for field in Reader::new(bytes) {
                if let (1, payload) = field? {
                    items.push(value(payload, item)?);
                }
            }
            Value::Array(items)
        }
        (_, content) => value(content, schema)?,
    };
    Ok((key, value))
}

fn value(payload: Payload<'_>, schema: SchemaRef<'_>) -> Result<Value, String> {
    let node = schema.node();
    let format = node.format.as_deref().unwrap_or_default();
    Ok(match (node.ty, payload) {
        (Type::Boolean, Payload::Varint(number)) => (number != 0).into(),
        (Type::Integer, Payload::Varint(number)) => integer(number, schema),
        (Type::String, Payload::Bytes(bytes)) => match format {
            "byte" => STANDARD.encode(bytes).into(),
            "date-time" | "micro-time" => time(bytes)?,
            _ => text(bytes)?.into(),
        },
        (Type::IntOrString, Payload::Bytes(bytes)) if format == "quantity" => quantity(bytes)?,
        (Type::IntOrString, Payload::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Any, Payload::Bytes(bytes)) => raw(bytes)?,
        (Type::Object, Payload::Bytes(bytes)) if node.preserve_unknown => raw(bytes)?,
        (Type::Object, Payload::Bytes(bytes)) => {
            let mut fields = Map::new();
            read(bytes, schema, &mut fields)?;
            Value::Object(fields)
        }
        _ => return Err("a field of the wrong wire type".to_string()),
    })
}

/// Negative numbers are sent as the same 64 bits without sign; an int32 has the lower half.
fn integer(number: u64, schema: SchemaRef<'_>) -> Value {
    match schema.node().format.as_deref() {
        Some("int32") => (number as u32).cast_signed().into(),
        _ => number.cast_signed().into(),
    }
}

/// Seconds and nanoseconds; nothing at all is Go's zero time.
fn time(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Reader::new(bytes) {
        match field? {
            (1, Payload::Varint(number)) => seconds = number.cast_signed(),
            (2, Payload::Varint(number)) => nanos = (number as u32).cast_signed(),
            _ => {}
        }
    }
    match Timestamp::new(seconds, nanos) {
        Ok(at) => Ok(at.to_string().into()),
        Err(_) => Err("a time that no calendar has".to_string()),
    }
}

fn quantity(bytes: &[u8]) -> Result<Value, String> {
    for field in Reader::new(bytes) {
        if let (1, Payload::Bytes(bytes)) = field? {
            return Ok(text(bytes)?.into());
        }
    }
    Ok("0".into())
}

/// Which of the two it is, the number, and the text.
fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut content) = (false, 0, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, Payload::Varint(kind)) => is_text = kind == 1,
            (2, Payload::Varint(bits)) => number = (bits as u32).cast_signed(),
            (3, Payload::Bytes(bytes)) => content = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { content.into() } else { number.into() })
}

/// An object of any kind, or a field set: JSON in a message.
fn raw(bytes: &[u8]) -> Result<Value, String> {
    for field in Reader::new(bytes) {
        if let (1, Payload::Bytes(json)) = field? {
            return serde_json::from_slice(json)
                .map_err(|why| format!("a raw object that is not JSON: {why}"));
        }
    }
    Ok(Value::Null)
}

pub(super) fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "text that is not UTF-8".to_string())
}
