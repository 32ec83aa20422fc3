//! Taking fields out of an object.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path;
use super::shape::{Shape, shape};
use crate::schema::SchemaRef;

/// `object` without the fields of `set`. Where nothing is left of an object or a list, null is left: the field
/// itself was not to be removed, and its owner keeps it. [`forget_emptied`] takes it out in the end.
pub(super) fn remove(object: &Value, set: &FieldSet, schema: SchemaRef<'_>) -> Value {
    remove_below(object, set, Some(schema)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn remove_below(value: &Value, set: &FieldSet, schema: Option<SchemaRef<'_>>) -> Option<Value> {
    match shape(value, schema) {
        Shape::Leaf if value.is_object() || value.is_array() => None,
        Shape::Leaf => Some(value.clone()),
        Shape::Object(fields, types) => {
            let mut left = Map::new();
            for (name, value) in fields {
                match set.node(&path::field(name)) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        let value = remove_below(value, &node.below, types.of(name));
                        left.insert(name.clone(), value.unwrap_or_default());
                    }
                    None => {
                        left.insert(name.clone(), value.clone());
                    }
                }
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Shape::List(values, items) => {
            let mut left = Vec::with_capacity(values.len());
            for value in values {
                let element = path::item(value, items.list, items.schema).ok();
                match element.and_then(|e| set.node(&e)) {
                    Some(node) if node.member => {}
                    Some(node) => left.extend(remove_below(value, &node.below, items.schema)),
                    None => left.push(value.clone()),
                }
            }
            (!left.is_empty()).then_some(Value::Array(left))
        }
    }
}

/// Takes out the nulls that removing left behind: those that neither the live object nor the configuration has.
pub(super) fn forget_emptied(object: &mut Value, live: &Value, config: &Value) {
    let Value::Object(fields) = object else { return };
    let is_null = |value: &Value, name: &str| value.get(name).is_some_and(Value::is_null);
    fields.retain(|name, value| !value.is_null() || is_null(live, name) || is_null(config, name));
    for (name, value) in fields.iter_mut() {
        forget_emptied(value, &live[name], &config[name]);
    }
}
