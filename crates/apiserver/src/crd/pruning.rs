//! Removing what the schema does not know, before anything else looks at the object.

use serde_json::{Map, Value};

use crate::schema::SchemaRef;

/// Fields of a resource (the root or an embedded one) that the schema need not declare.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields and returns their paths, sorted: `spec.a.b`, `spec.list[0].c`.
pub(crate) fn prune(object: &mut Value, root: SchemaRef<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_node(object, Some(root), true, "", &mut unknown);
    unknown.sort();
    unknown
}

/// The same for a value that is not a whole resource.
pub(crate) fn prune_value(value: &mut Value, schema: SchemaRef<'_>) {
    prune_node(value, Some(schema), false, "", &mut Vec::new());
}

fn prune_node(
    value: &mut Value,
    schema: Option<SchemaRef<'_>>,
    is_root: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    if let Some(schema) = schema
        && schema.node().preserve_unknown
    {
        keep_unknown(value, schema, is_root, path, unknown);
        return;
    }
    match value {
        Value::Object(fields) => {
            let resource = is_root || schema.is_some_and(|s| s.node().embedded_resource);
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                if resource && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                let child = schema.and_then(|s| s.field(&name));
                let known = child.is_some();
                let child_path = join(path, &name);
                if known {
                    if let Some(field) = fields.get_mut(&name) {
                        prune_node(field, child, false, &child_path, unknown);
                    }
                } else {
                    fields.remove(&name);
                    unknown.push(child_path);
                }
            }
        }
        Value::Array(items) => {
            let schema = schema.and_then(SchemaRef::items);
            for (index, item) in items.iter_mut().enumerate() {
                prune_node(item, schema, false, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Under `x-kubernetes-preserve-unknown-fields` undeclared fields stay, declared ones are pruned inside.
fn keep_unknown(
    value: &mut Value,
    schema: SchemaRef<'_>,
    is_root: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(fields) => {
            let resource = is_root || schema.node().embedded_resource;
            for (name, field) in fields.iter_mut() {
                if resource && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(child) = schema.field(name) {
                    prune_node(field, Some(child), false, &join(path, name), unknown);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    keep_unknown(item, schema, false, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Removes nulls of fields that are neither nullable nor defaulted; the defaulted ones get their default later.
pub(crate) fn drop_stray_nulls(value: &mut Value, schema: Option<SchemaRef<'_>>) {
    match value {
        Value::Object(fields) => drop_null_fields(fields, schema),
        Value::Array(items) => {
            let schema = schema.and_then(SchemaRef::items);
            for item in items {
                drop_stray_nulls(item, schema);
            }
        }
        _ => {}
    }
}

fn drop_null_fields(fields: &mut Map<String, Value>, schema: Option<SchemaRef<'_>>) {
    fields.retain(|name, field| match schema.and_then(|s| s.field(name)) {
        Some(child) => {
            let node = child.node();
            if field.is_null() && !node.nullable && node.default.is_none() {
                return false;
            }
            drop_stray_nulls(field, Some(child));
            true
        }
        None => true,
    });
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}
