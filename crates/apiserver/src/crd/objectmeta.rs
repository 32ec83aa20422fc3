//! Metadata of custom resources: it is not in the schema, every field of ObjectMeta is known and no other.

use serde_json::Value;

use crate::error::FieldError;
use crate::schema::SchemaRef;

const FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Removes unknown fields and nulls of the metadata of the root and of embedded resources; returns the
/// paths of the unknown ones.
pub(crate) fn prune(value: &mut Value, schema: SchemaRef<'_>, is_root: bool, path: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    match value {
        Value::Object(fields) => {
            if (is_root || schema.node().embedded_resource)
                && let Some(Value::Object(metadata)) = fields.get_mut("metadata")
            {
                metadata.retain(|name, field| {
                    let known = FIELDS.contains(&name.as_str());
                    if !known {
                        unknown.push(join(path, &format!("metadata.{name}")));
                    }
                    known && !field.is_null()
                });
            }
            for (name, field) in fields.iter_mut() {
                if let Some(child) = schema.field(name) {
                    unknown.extend(prune(field, child, false, &join(path, name)));
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    unknown.extend(prune(item, child, false, &format!("{path}[{index}]")));
                }
            }
        }
        _ => {}
    }
    unknown
}

/// Embedded resources must say what they are.
pub(crate) fn validate_embedded(
    value: &Value,
    schema: SchemaRef<'_>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(fields) => {
            if schema.node().embedded_resource {
                for name in ["apiVersion", "kind"] {
                    if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                        errors.push(FieldError::required(join(path, name), ""));
                    }
                }
            }
            for (name, field) in fields {
                if let Some(child) = schema.field(name) {
                    validate_embedded(field, child, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    validate_embedded(item, child, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}
