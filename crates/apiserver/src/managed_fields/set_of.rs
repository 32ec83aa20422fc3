//! The fields that a configuration names: what its applier will own.

use std::collections::HashMap;

use serde_json::Value;

use super::field_set::{FieldSet, Node};
use super::path;
use super::shape::{Items, Shape, shape};
use crate::schema::SchemaRef;

/// The field set of `object`: leaves, list items, keys of maps and empty objects; not the structs between.
pub(crate) fn set_of(object: &Value, schema: SchemaRef<'_>) -> FieldSet {
    below(object, Some(schema))
}

fn below(value: &Value, schema: Option<SchemaRef<'_>>) -> FieldSet {
    let mut set = FieldSet::default();
    match shape(value, schema) {
        Shape::Leaf => {}
        Shape::Object(fields, types) => {
            for (name, value) in fields {
                let field = types.of(name);
                let member = is_leaf(value, field)
                    || value.as_object().is_some_and(|o| o.is_empty())
                    || !types.declares(name);
                set.put(path::field(name), Node { member, below: below(value, field) });
            }
        }
        Shape::List(values, items) => {
            let (elements, counts) = elements(values, items);
            for (element, value) in elements.into_iter().zip(values) {
                let Some(element) = element else { continue };
                // Items that share their name can only be owned together.
                let alone = counts.get(&element).is_none_or(|count| *count == 1);
                let below = if alone { below(value, items.schema) } else { FieldSet::default() };
                set.put(element, Node { member: true, below });
            }
        }
    }
    set
}

fn is_leaf(value: &Value, schema: Option<SchemaRef<'_>>) -> bool {
    matches!(shape(value, schema), Shape::Leaf)
}

type Elements = (Vec<Option<String>>, HashMap<String, usize>);

/// The items' names, and how often each occurs.
fn elements(values: &[Value], items: Items<'_>) -> Elements {
    let elements: Vec<Option<String>> =
        values.iter().map(|v| path::item(v, items.list, items.schema).ok()).collect();
    let mut counts = HashMap::with_capacity(elements.len());
    for element in elements.iter().flatten() {
        *counts.entry(element.clone()).or_insert(0) += 1;
    }
    (elements, counts)
}

/// The set with every declared field that has something below it made a member. Removing and comparing whole
/// subtrees needs the structs between, which [`set_of`] leaves out.
pub(super) fn with_structs(set: &FieldSet, schema: Option<SchemaRef<'_>>) -> FieldSet {
    let mut out = FieldSet::default();
    for (element, node) in set.nodes() {
        let (declared, below) = match (element.strip_prefix("f:"), schema) {
            (Some(name), Some(schema)) => (schema.node().properties.contains_key(name), schema.field(name)),
            (None, Some(schema)) if element.starts_with("k:") => (false, schema.items()),
            _ => (false, None),
        };
        let member = node.member || (declared && !node.below.is_empty());
        out.put(element.clone(), Node { member, below: with_structs(&node.below, below) });
    }
    out
}
