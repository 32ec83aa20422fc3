//! Filling in the schema's defaults.

use serde_json::Value;

use crate::schema::SchemaRef;

/// Sets every default whose field is absent, or null where null is not allowed; then goes deeper, so that
/// defaults apply inside objects that were defaulted themselves.
pub(crate) fn default(value: &mut Value, schema: SchemaRef<'_>) {
    match value {
        Value::Object(fields) => {
            let node = schema.node();
            for (name, id) in &node.properties {
                let child = schema.set.at(*id);
                let Some(wanted) = &child.node().default else { continue };
                if fields.get(name).is_none_or(|field| field.is_null() && !child.node().nullable) {
                    fields.insert(name.clone(), wanted.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                let Some(child) = schema.field(name) else { continue };
                default_null(field, child);
                default(field, child);
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return };
            for item in items {
                default_null(item, schema);
                default(item, schema);
            }
        }
        _ => {}
    }
}

fn default_null(value: &mut Value, schema: SchemaRef<'_>) {
    let node = schema.node();
    if value.is_null()
        && !node.nullable
        && let Some(wanted) = &node.default
    {
        *value = wanted.clone();
    }
}
