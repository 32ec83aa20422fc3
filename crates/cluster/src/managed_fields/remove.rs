//! Taking fields out of an object.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path;
use super::shape::{Shape, shape};
use crate::schema::SchemaRef;

/// `object` without the fields of `set`. Objects and lists of which nothing is left go too.
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
                        if let Some(value) = remove_below(value, &node.below, types.of(name)) {
                            left.insert(name.clone(), value);
                        }
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
