//! What makes a schema structural: every value's type is known without looking at the value.

use regex::Regex;
use serde_json::{Value, json};

use crate::error::FieldError;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All violations, sorted by their text as the server does.
pub(crate) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    branch_completeness(schema, schema, path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn set(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

fn type_of(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or_default()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn branches<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn invariants(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let ty = type_of(schema);
    if ty == "array" && schema["items"].is_null() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if schema["items"].is_object() {
        invariants(&schema["items"], Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(schema) {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = &schema["additionalProperties"];
    if !additional.is_null() {
        let here = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(here.clone(), "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &here, errors);
        }
    }
    let int_or_string = set(schema, "x-kubernetes-int-or-string");
    if int_or_string {
        for keyword in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if set(schema, keyword) {
                let message = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(format!("{path}.{keyword}"), true, message));
            }
        }
    }
    value_validation(
        schema,
        is_int_or_string_choice(&schema["anyOf"]),
        is_int_or_string_choice(&schema["allOf"][0]["anyOf"]),
        path,
        errors,
    );
    let embedded = set(schema, "x-kubernetes-embedded-resource");
    if embedded && ty != "object" {
        let message = "must be object if x-kubernetes-embedded-resource is true";
        let here = format!("{path}.type");
        errors.push(if ty.is_empty() {
            FieldError::required(here, message)
        } else {
            FieldError::invalid(here, ty, message)
        });
    } else if ty.is_empty() && !int_or_string && !set(schema, "x-kubernetes-preserve-unknown-fields") {
        let message = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(format!("{path}.type"), message));
    }
    if embedded && !additional.is_null() {
        let message = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), message));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), ty, "must be object at the root"));
    }
    metadata_invariants(schema, level, embedded, path, errors);
    let is_empty = schema["properties"].as_object().is_none_or(serde_json::Map::is_empty);
    if embedded && !set(schema, "x-kubernetes-preserve-unknown-fields") && is_empty {
        errors.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// Of a resource's own fields the schema may restrict the names only.
fn metadata_invariants(
    schema: &Value,
    level: Level,
    embedded: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if level != Level::Root && !embedded {
        return;
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        if let Some(property) = schema["properties"].get(name)
            && type_of(property) != wanted
        {
            let here = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(here, type_of(property), format!("must be {wanted}")));
        }
    }
    let Some(metadata) = schema["properties"].get("metadata").and_then(Value::as_object) else { return };
    if level != Level::Root {
        return;
    }
    let only_names = metadata.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" | "default" | "x-kubernetes-validations" => true,
        "properties" => value
            .as_object()
            .is_some_and(|p| p.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))),
        _ => false,
    });
    if !only_names {
        errors.push(FieldError::forbidden(
            format!("{path}.properties[metadata]"),
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

fn is_int_or_string_choice(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn value_validation(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, branch) in branches(schema, "anyOf").iter().enumerate() {
            nested(branch, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, branch) in branches(schema, "allOf").iter().enumerate() {
        nested(branch, skip_first_all_of && index == 0, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in branches(schema, "oneOf").iter().enumerate() {
        nested(branch, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &format!("{path}.not"), errors);
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Err(error) = Regex::new(pattern)
    {
        let message = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, message));
    }
}

/// Inside allOf, anyOf, oneOf and not, a schema may only restrict values.
fn nested(schema: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    value_validation(schema, skip_any_of, false, path, errors);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(schema) {
        nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let mut forbid = |keyword: &str, message: &str| {
        let value = &schema[keyword];
        let absent = match value {
            Value::Null => true,
            Value::Bool(set) => !set && keyword != "additionalProperties",
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        if !absent {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), message));
        }
    };
    forbid("type", "must be empty to be structural");
    forbid("additionalProperties", "must be undefined to be structural");
    forbid("default", "must be undefined to be structural");
    forbid("title", "must be empty to be structural");
    forbid("description", "must be empty to be structural");
    forbid("nullable", "must be false to be structural");
    forbid("x-kubernetes-preserve-unknown-fields", "must be false to be structural");
    forbid("x-kubernetes-embedded-resource", "must be false to be structural");
    forbid("x-kubernetes-int-or-string", "must be false to be structural");
    forbid("x-kubernetes-list-map-keys", "must be empty to be structural");
    forbid("x-kubernetes-list-type", "must be undefined to be structural");
    forbid("x-kubernetes-map-type", "must be undefined to be structural");
    forbid("x-kubernetes-validations", "must be empty to be structural");
    if schema["properties"].get("metadata").is_some() {
        let here = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(here, "must not be specified in a nested context"));
    }
}

/// Whatever a branch restricts must be declared outside of it. The server looks at the branches of the root only.
fn branch_completeness(
    values: &Value,
    schema: &Value,
    schema_path: &str,
    values_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut all: Vec<(&Value, String)> = Vec::new();
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for (index, branch) in branches(values, keyword).iter().enumerate() {
            all.push((branch, format!("{values_path}.{keyword}[{index}]")));
        }
    }
    if values["not"].is_object() {
        all.push((&values["not"], format!("{values_path}.not")));
    }
    for (branch, branch_path) in all {
        nested_completeness(branch, schema, schema_path, &branch_path, errors);
    }
}

fn nested_completeness(
    values: &Value,
    schema: &Value,
    schema_path: &str,
    values_path: &str,
    errors: &mut Vec<FieldError>,
) {
    branch_completeness(values, schema, schema_path, values_path, errors);
    if values["items"].is_object() {
        let (below, from) = (format!("{schema_path}.items"), format!("{values_path}.items"));
        if schema["items"].is_object() {
            nested_completeness(&values["items"], &schema["items"], &below, &from, errors);
        } else {
            errors.push(FieldError::required(below, format!("because it is defined in {from}")));
        }
    }
    for (name, property) in properties(values) {
        let below = format!("{schema_path}.properties[{name}]");
        let from = format!("{values_path}.properties[{name}]");
        match schema["properties"].get(name) {
            Some(declared) => nested_completeness(property, declared, &below, &from, errors),
            None => errors.push(FieldError::required(below, format!("because it is defined in {from}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_of_the_root_restrict_declared_fields_only() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "object"}}},
            "anyOf": [{"properties": {"a": {"items": {"properties": {"b": {"minimum": 1}}}}, "c": {"minimum": 1}}}],
        });
        let found: Vec<String> = validate(&schema, "s").iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "s.properties[a].items.properties[b]: Required value: because it is defined in \
                 s.anyOf[0].properties[a].items.properties[b]",
                "s.properties[c]: Required value: because it is defined in s.anyOf[0].properties[c]",
            ]
        );
    }
}
