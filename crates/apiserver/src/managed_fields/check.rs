//! Whether an applied configuration fits the schema: fields that do not exist, values of the wrong kind, list
//! items without a key or with one twice cannot be owned.

use std::collections::HashSet;

use serde_json::Value;

use super::path;
use super::shape::{Shape, shape};
use crate::patch::{go_type, go_value};
use crate::schema::{SchemaRef, Type};

/// What is wrong with `config`, in the server's words; nothing if it fits.
pub(crate) fn misfits(config: &Value, schema: SchemaRef<'_>) -> Option<String> {
    let mut errors = Vec::new();
    walk(config, Some(schema), &mut String::new(), &mut errors);
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn walk(value: &Value, schema: Option<SchemaRef<'_>>, at: &mut String, errors: &mut Vec<String>) {
    if let Some(problem) = schema.and_then(|schema| wrong_kind(value, schema)) {
        errors.push(format!("{at}: {problem}"));
        return;
    }
    let here = at.len();
    match shape(value, schema) {
        Shape::Leaf => {}
        Shape::Object(fields, types) => {
            for (name, value) in fields {
                at.push('.');
                at.push_str(name);
                if types.closed() && !types.declares(name) {
                    errors.push(format!("{at}: field not declared in schema"));
                    at.truncate(here);
                    return;
                }
                walk(value, types.of(name), at, errors);
                at.truncate(here);
            }
        }
        Shape::List(values, items) => {
            let mut seen = HashSet::new();
            for (i, value) in values.iter().enumerate() {
                let element = match path::item(value, items.list, items.schema) {
                    Ok(element) => element,
                    Err(problem) => {
                        errors.push(format!("{at}: element {i}: {problem}"));
                        return;
                    }
                };
                let shown = path::display_element(&element);
                if !seen.insert(element) {
                    errors.push(format!("{at}: duplicate entries for key {shown}"));
                }
                at.push_str(&shown);
                walk(value, items.schema, at, errors);
                at.truncate(here);
            }
        }
    }
}

fn wrong_kind(value: &Value, schema: SchemaRef<'_>) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let node = schema.node();
    match node.ty {
        Type::Any => None,
        Type::Object if node.preserve_unknown || value.is_object() => None,
        Type::Object => Some(format!("expected map, got &{{{}}}", go_value(value))),
        Type::Array => (!value.is_array()).then(|| format!("expected list, got &{{{}}}", go_value(value))),
        Type::String => {
            let got = || format!("&value.valueUnstructured{{Value:{value}}}");
            // Times are any scalar to the server.
            let scalar_will_do = node.format.as_deref().is_some_and(|f| f.ends_with("time"));
            let fits = value.is_string() || (scalar_will_do && !value.is_object() && !value.is_array());
            (!fits).then(|| format!("expected string, got {}", got()))
        }
        Type::Integer | Type::Number => {
            (!value.is_number()).then(|| format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Type::Boolean => {
            (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", go_value(value)))
        }
        Type::IntOrString => (value.is_object() || value.is_array())
            .then(|| format!("expected any scalar, got &{{{}}}", go_value(value))),
    }
}
