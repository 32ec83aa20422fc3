//! Between JSON and CEL.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::{Number, Value};

/// Where an `Object{}` literal keeps the name of its type; no field can be called so.
pub(super) const TYPE: &str = "@type";

/// Objects become maps with their keys as they are, as expressions on untyped objects expect.
pub(super) fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number
            .as_i64()
            .map(Cel::Int)
            .or_else(|| number.as_u64().map(Cel::UInt))
            .unwrap_or_else(|| Cel::Float(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let map: HashMap<Key, Cel> =
                fields.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), to_cel(v))).collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The value of an expression as JSON. Literals of `Object` and the types below it must stand at the field that their
/// type names; the error says which does not.
pub(in crate::admission) fn to_json(value: &Cel) -> Result<Value, String> {
    let root = match value {
        Cel::Map(map) => type_name(map).unwrap_or_default().to_string(),
        _ => String::new(),
    };
    let mut problems = Vec::new();
    let json = convert(value, &root, &mut problems)?;
    if problems.is_empty() { Ok(json) } else { Err(format!("type mismatch: {}", problems.join("\n"))) }
}

fn type_name(map: &Map) -> Option<&str> {
    match map.map.get(&Key::String(Arc::new(TYPE.to_string()))) {
        Some(Cel::String(name)) => Some(name),
        _ => None,
    }
}

fn convert(value: &Cel, at: &str, problems: &mut Vec<String>) -> Result<Value, String> {
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(flag) => Value::Bool(*flag),
        Cel::Int(number) => Value::from(*number),
        Cel::UInt(number) => Value::from(*number),
        // Whole numbers are written without a fraction.
        Cel::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => Value::from(*number as i64),
        Cel::Float(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Cel::String(text) => Value::from(text.as_str()),
        Cel::Bytes(bytes) => Value::from(BASE64_STANDARD.encode(bytes.as_slice())),
        Cel::Timestamp(time) => Value::from(time.to_rfc3339()),
        Cel::Duration(duration) => Value::from(format!("{}s", duration.num_seconds())),
        Cel::List(items) => {
            Value::Array(items.iter().map(|item| convert(item, at, problems)).collect::<Result<_, _>>()?)
        }
        Cel::Map(map) => {
            let own = type_name(map);
            if let Some(own) = own.filter(|own| *own != at) {
                problems.push(format!(
                    "unexpected type name {own:?}, expected {at:?}, which matches field name path from root Object type"
                ));
            }
            let mut fields = serde_json::Map::new();
            for (key, field) in map.map.iter() {
                let Key::String(name) = key else {
                    return Err(format!("map key {key:?} is not a string"));
                };
                if name.as_str() == TYPE {
                    continue;
                }
                let below = if own.is_some() { format!("{at}.{name}") } else { at.to_string() };
                fields.insert(name.to_string(), convert(field, &below, problems)?);
            }
            Value::Object(fields)
        }
        other => return Err(format!("a value of type {} has no JSON form", other.type_of())),
    })
}
