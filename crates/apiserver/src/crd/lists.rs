//! `x-kubernetes-list-type`: items of sets and keys of map lists are unique.

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::schema::{ListType, SchemaRef};

pub(crate) fn validate(object: &Value, root: SchemaRef<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(object, root, "", &mut errors);
    errors
}

fn walk(value: &Value, schema: SchemaRef<'_>, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            check_list(items, schema, path, errors);
            if let Some(item_schema) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(item, item_schema, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let node = schema.node();
                if let Some(id) = node.properties.get(name) {
                    let child_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(field, schema.set.at(*id), &child_path, errors);
                } else if let Some(id) = node.additional {
                    walk(field, schema.set.at(id), &format!("{path}[{name}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_list(items: &[Value], schema: SchemaRef<'_>, path: &str, errors: &mut Vec<FieldError>) {
    match &schema.node().list {
        ListType::Atomic => {}
        ListType::Set => {
            for index in second_appearances(items) {
                errors.push(FieldError::duplicate(format!("{path}[{index}]"), items[index].clone()));
            }
        }
        ListType::Map(keys) => {
            for (index, item) in items.iter().enumerate() {
                if !item.is_null() && !item.is_object() {
                    errors.push(FieldError::invalid(
                        format!("{path}[{index}]"),
                        item.clone(),
                        "must be an object for an array of list-type map",
                    ));
                    return;
                }
            }
            let keyed: Vec<Value> = items.iter().map(|item| Value::Object(key_fields(item, keys))).collect();
            for index in second_appearances(&keyed) {
                errors.push(FieldError::duplicate(format!("{path}[{index}]"), keyed[index].clone()));
            }
        }
    }
}

fn key_fields(item: &Value, keys: &[String]) -> Map<String, Value> {
    keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone()))).collect()
}

/// The server reports each duplicated value once, at its second appearance.
fn second_appearances(items: &[Value]) -> Vec<usize> {
    (0..items.len())
        .filter(|&i| items[..i].iter().filter(|earlier| **earlier == items[i]).count() == 1)
        .collect()
}
