//! Walking an object to default it: outer structs before inner ones.

use serde_json::{Map, Value};

use super::{rules, table};
use crate::schema::{SchemaRef, Type};

/// Gives the object its kind's defaults. Fields that are there stay as they are, but for a few that Kubernetes
/// always recomputes. Doing it twice changes nothing.
pub fn apply_defaults(object: &mut Value, schema: SchemaRef<'_>) {
    walk(object, schema, true);
}

fn walk(value: &mut Value, schema: SchemaRef<'_>, root: bool) {
    let node = schema.node();
    match value {
        Value::Object(fields) => {
            if let Some(definition) = node.definition.as_deref() {
                default_struct(fields, schema, definition, root);
            }
            for (name, value) in fields.iter_mut() {
                if let Some(field) = schema.field(name) {
                    walk(value, field, false);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items().filter(|s| s.node().ty == Type::Object) {
                items.iter_mut().for_each(|item| walk(item, schema, false));
            }
        }
        _ => {}
    }
}

fn default_struct(fields: &mut Map<String, Value>, schema: SchemaRef<'_>, definition: &str, root: bool) {
    for name in schema.node().properties.keys() {
        if fields.contains_key(name) || (root && name == "metadata") {
            continue;
        }
        if let Some(field) = schema.field(name).filter(|f| is_struct(*f)) {
            fields.insert(name.clone(), zero(field));
        }
    }
    for (name, constant) in table::constants(definition) {
        if is_unset(fields.get(*name)) {
            fields.insert((*name).to_string(), constant.value());
        }
    }
    rules::apply(fields, definition);
}

/// Unset in Go's sense: absent or the empty string. Pointers to numbers and flags may well be zero.
fn is_unset(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(s)) => s.is_empty(),
        Some(_) => false,
    }
}

fn is_struct(schema: SchemaRef<'_>) -> bool {
    let node = schema.node();
    node.always_present && node.ty == Type::Object && node.definition.is_some()
}

/// A struct that nobody set, as Go writes it: without what is optional.
fn zero(schema: SchemaRef<'_>) -> Value {
    let mut fields = Map::new();
    for name in schema.node().properties.keys() {
        let Some(field) = schema.field(name) else { continue };
        let node = field.node();
        if is_struct(field) {
            fields.insert(name.clone(), zero(field));
        } else if schema.node().required.contains(name) {
            let zero = match node.ty {
                Type::String if node.format.is_none() => "".into(),
                Type::Integer | Type::Number => 0.into(),
                Type::Boolean => false.into(),
                _ => continue,
            };
            fields.insert(name.clone(), zero);
        }
    }
    Value::Object(fields)
}
