//! Walking an object to default it: outer structs before inner ones.

use serde_json::{Map, Value};

use super::{rules, table};
use crate::encoding;
use crate::schema::{SchemaRef, Type};

/// Gives the object its kind's defaults. Fields that are there stay as they are, but for a few that Kubernetes
/// always recomputes. Doing it twice changes nothing.
pub(crate) fn apply_defaults(object: &mut Value, schema: SchemaRef<'_>) {
    fill_in(object, schema);
    encoding::as_go(object, schema);
}

/// The same without giving the object the form that Go gives it. Whether something may have changed.
pub(crate) fn fill_in(value: &mut Value, schema: SchemaRef<'_>) -> bool {
    let node = schema.node();
    let mut changed = false;
    match value {
        Value::Object(fields) => {
            if let Some(definition) = node.definition.as_deref() {
                changed |= default_struct(fields, schema, definition);
            }
            for (name, value) in fields.iter_mut() {
                if let Some(field) = schema.field(name) {
                    changed |= fill_in(value, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items().filter(|s| s.node().ty == Type::Object) {
                items.iter_mut().for_each(|item| changed |= fill_in(item, schema));
            }
        }
        _ => {}
    }
    changed
}

fn default_struct(fields: &mut Map<String, Value>, schema: SchemaRef<'_>, definition: &str) -> bool {
    let mut changed = false;
    for (name, zero) in schema.node().write_zero.iter().filter(|(_, zero)| zero.is_object()) {
        if !fields.contains_key(name) {
            fields.insert(name.clone(), zero.clone());
            changed = true;
        }
    }
    for (name, constant) in table::constants(definition) {
        if is_unset(fields.get(*name)) {
            fields.insert((*name).to_string(), constant.value());
            changed = true;
        }
    }
    rules::apply(fields, definition) || changed
}

/// Unset in Go's sense: absent or the empty string. Pointers to numbers and flags may well be zero.
fn is_unset(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(s)) => s.is_empty(),
        Some(_) => false,
    }
}
