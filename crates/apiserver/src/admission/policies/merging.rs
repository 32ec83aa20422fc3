//! Applying an `ApplyConfiguration`: a merge as of server-side apply, without owners.

use serde_json::Value;

use crate::managed_fields;
use crate::schema::{ListType, SchemaRef, Type};

/// The object with the configuration merged in.
pub(super) fn apply(
    object: &Value,
    mut configuration: Value,
    schema: SchemaRef<'_>,
) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        configuration[field] = object[field].clone();
    }
    if let Some(problem) = managed_fields::misfits(&configuration, schema) {
        return Err(format!("failed to convert patch object to typed object: {problem}"));
    }
    let mut atoms = Vec::new();
    find_atoms(&configuration, schema, &mut String::new(), &mut atoms);
    if !atoms.is_empty() {
        let atoms = atoms.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atoms}"
        ));
    }
    Ok(managed_fields::merge(object, &configuration, schema))
}

/// Lists and maps that would be replaced whole, which is seldom meant.
fn find_atoms(value: &Value, schema: SchemaRef<'_>, at: &mut String, atoms: &mut Vec<String>) {
    let (node, here) = (schema.node(), at.len());
    match value {
        Value::Object(fields) => {
            if node.atomic_map {
                atoms.push(at.clone());
            }
            for (name, field) in fields {
                if let Some(child) = node.properties.get(name) {
                    at.push('.');
                    at.push_str(name);
                    find_atoms(field, schema.set.at(*child), at, atoms);
                    at.truncate(here);
                }
            }
        }
        Value::Array(items) if node.ty == Type::Array => {
            if node.list == ListType::Atomic {
                atoms.push(at.clone());
            }
            for (index, item) in items.iter().enumerate() {
                if let Some(child) = schema.items() {
                    at.push_str(&format!("[{index}]"));
                    find_atoms(item, child, at, atoms);
                    at.truncate(here);
                }
            }
        }
        _ => {}
    }
}
