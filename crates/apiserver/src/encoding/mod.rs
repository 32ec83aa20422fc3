//! Objects of built-in kinds as Go writes them. The real server reads bodies into structs and writes structs out
//! again: what is optional and zero falls away, what is not optional appears with its zero value, and quantities and
//! times take their canonical form. Which fields do what is in the schemas' data, read from the Go types.

mod quantity;
mod time;

use serde_json::{Map, Value};

pub(crate) use time::is_plain;

use crate::schema::{SchemaRef, Type};

/// Gives the object the form in which Go would write it. Doing it twice changes nothing.
pub(crate) fn as_go(object: &mut Value, schema: SchemaRef<'_>) {
    let node = schema.node();
    match (object, node.ty) {
        (Value::Object(fields), Type::Object) if !node.preserve_unknown => as_struct(fields, schema),
        (Value::Array(items), Type::Array) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| as_go(item, schema));
            }
        }
        (value, Type::String | Type::IntOrString) => {
            if let Some(canonical) = node.format.as_deref().and_then(|format| canonical(value, format)) {
                *value = canonical;
            }
        }
        _ => {}
    }
}

fn as_struct(fields: &mut Map<String, Value>, schema: SchemaRef<'_>) {
    let node = schema.node();
    let mut has_zeros = false;
    for (name, value) in fields.iter_mut() {
        if let Some(field) = schema.field(name) {
            as_go(value, field);
        }
        has_zeros |= is_zero(value);
    }
    if has_zeros {
        fields.retain(|name, value| !is_zero(value) || !node.omit_zero.contains(name));
    }
    for (name, zero) in &node.write_zero {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            // Lists and maps without content come back from storage as if they had not been there.
            Some(value) if zero.is_null() && is_empty(value) && in_protobuf(schema, name) => {}
            Some(_) => continue,
        }
        let mut zero = zero.clone();
        if let (Value::Object(inner), Some(field)) = (&mut zero, schema.field(name)) {
            as_struct(inner, field);
        }
        fields.insert(name.clone(), zero);
    }
}

/// Custom resource definitions are stored as JSON, which keeps empty lists; pointers to structs are kept as well.
fn in_protobuf(schema: SchemaRef<'_>, field: &str) -> bool {
    let of_extensions = |definition: &String| definition.starts_with("io.k8s.apiextensions-apiserver.");
    let is_struct = schema.field(field).is_some_and(|f| f.node().definition.is_some());
    !is_struct && !schema.node().definition.as_ref().is_some_and(of_extensions)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(_) | Value::Array(_) => is_empty(value),
    }
}

/// The canonical form of a value whose type has one, if it is another than the value's.
fn canonical(value: &Value, format: &str) -> Option<Value> {
    match (format, value) {
        ("quantity", Value::String(text)) => quantity::canonical(text).map(Value::from),
        ("quantity", Value::Number(number)) => {
            let text = number.to_string();
            Some(quantity::canonical(&text).unwrap_or(text).into())
        }
        ("date-time", Value::String(text)) => time::canonical(text, false),
        ("micro-time", Value::String(text)) => time::canonical(text, true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
