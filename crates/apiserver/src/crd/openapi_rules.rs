//! What the server asks of a definition's schema beyond structure: supported keywords, sound list types,
//! compilable rules.

use serde_json::Value;

use super::cel::CompiledRule;
use super::{schema_build, text, texts};
use crate::error::FieldError;
use crate::schema::SchemaSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Schema errors first, then those of CEL rules; rules are compiled only where the schema is sound and
/// `with_rules` says that it is structural.
pub(crate) fn validate(schema: &Value, path: &str, with_rules: bool) -> Vec<FieldError> {
    let mut found = Found::default();
    let place = SchemaContext { is_root: true, with_rules, ..SchemaContext::default() };
    walk(schema, path, &place, &mut found);
    found.schema.into_iter().chain(found.rules).collect()
}

#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

#[derive(Default, Clone)]
struct SchemaContext {
    is_root: bool,
    with_rules: bool,
    inside_meta: bool,
    /// Why defaults are not allowed here.
    no_defaults: Option<String>,
    /// The ancestor below which old and new values cannot be matched.
    uncorrelatable: Option<String>,
}

fn walk(schema: &Value, path: &str, place: &SchemaContext, found: &mut Found) {
    // Rules of this level are compiled only when nothing at this level or deeper is wrong.
    let mut own = Found::default();
    keywords(schema, path, place, &mut own.schema);
    if schema["uniqueItems"] == true {
        own.schema.push(FieldError::forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    children(schema, path, place, &mut own);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let here = format!("{path}.x-kubernetes-preserve-unknown-fields");
        own.schema.push(FieldError::invalid(here, false, "must be true or undefined"));
    }
    map_type(schema, path, &mut own.schema);
    list_type(schema, path, &mut own.schema);
    list_map_keys(schema, path, &mut own.schema);
    for (index, rule) in rules_of(schema).iter().enumerate() {
        rule_text(rule, &format!("{path}.x-kubernetes-validations[{index}]"), schema, &mut own.schema);
    }
    if own.schema.is_empty() && place.with_rules {
        compile_rules(schema, path, place, &mut own.rules);
    }
    found.schema.append(&mut own.schema);
    found.rules.append(&mut own.rules);
}

fn keywords(schema: &Value, path: &str, place: &SchemaContext, errors: &mut Vec<FieldError>) {
    let ty = text(&schema["type"]);
    if !ty.is_empty() && !TYPES.contains(&ty.as_str()) {
        errors.push(FieldError::not_supported(format!("{path}.type"), ty.as_str(), &TYPES));
    }
    if !schema["default"].is_null()
        && let Some(reason) = &place.no_defaults
    {
        errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {reason}")));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(keyword).is_some() {
            errors.push(FieldError::forbidden(
                format!("{path}.{keyword}"),
                format!("{keyword} is not supported"),
            ));
        }
    }
    if ty == "null" {
        let message = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), message));
    }
    if schema["items"].is_array() {
        let message = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), message));
    }
    if place.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
        let here = format!("{path}.x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(here, "must not be used inside of resource meta"));
    }
}

fn children(schema: &Value, path: &str, place: &SchemaContext, found: &mut Found) {
    let inner = SchemaContext { is_root: false, ..place.clone() };
    let without_rules = SchemaContext { with_rules: false, ..inner.clone() };
    let additional = &schema["additionalProperties"];
    let has_properties = schema["properties"].as_object().is_some_and(|p| !p.is_empty());
    if !additional.is_null() && has_properties && *additional != true {
        let message = "additionalProperties and properties are mutual exclusive";
        found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), message));
    }
    if additional.is_object() {
        let mut next = inner.clone();
        if place.inside_meta {
            next.no_defaults = Some("inside additionalProperties applying to object metadata".to_string());
        }
        walk(additional, &format!("{path}.additionalProperties"), &next, found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mut next = inner.clone();
        let is_resource = place.is_root || schema["x-kubernetes-embedded-resource"] == true;
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            next.inside_meta = true;
            if place.is_root {
                next.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        walk(property, &format!("{path}.properties[{name}]"), &next, found);
    }
    if schema["not"].is_object() {
        walk(&schema["not"], &format!("{path}.not"), &without_rules, found);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in schema[keyword].as_array().into_iter().flatten().enumerate() {
            walk(branch, &format!("{path}.{keyword}[{index}]"), &without_rules, found);
        }
    }
    if schema["items"].is_object() {
        let mut next = inner;
        if schema["x-kubernetes-list-type"] != "map" && next.uncorrelatable.is_none() {
            next.uncorrelatable = Some(path.to_string());
        }
        walk(&schema["items"], &format!("{path}.items"), &next, found);
    }
}

fn wrong_type(schema: &Value, path: &str, message: &str) -> FieldError {
    let ty = text(&schema["type"]);
    let here = format!("{path}.type");
    if ty.is_empty() { FieldError::required(here, message) } else { FieldError::invalid(here, ty, message) }
}

fn map_type(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map_type) = schema["x-kubernetes-map-type"].as_str() else { return };
    if schema["type"] != "object" {
        errors.push(wrong_type(schema, path, "must be object if x-kubernetes-map-type is specified"));
    }
    if !matches!(map_type, "atomic" | "granular") {
        let here = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(here, map_type, &["atomic", "granular"]));
    }
}

fn list_type(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(list_type) = schema["x-kubernetes-list-type"].as_str() else { return };
    let items = &schema["items"];
    if schema["type"] != "array" {
        errors.push(wrong_type(schema, path, "must be array if x-kubernetes-list-type is specified"));
    } else if list_type == "set" {
        let message = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let inner = &items["x-kubernetes-list-type"];
        if items["type"] == "array" && !inner.is_null() && *inner != "atomic" {
            let here = format!("{path}.items.x-kubernetes-list-type");
            errors.push(FieldError::invalid(here, inner.clone(), message));
        }
        if items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            let here = format!("{path}.items.x-kubernetes-map-type");
            errors.push(FieldError::invalid(here, inner.clone(), message));
        }
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        let here = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(here, list_type, &["atomic", "set", "map"]));
    }
}

fn list_map_keys(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys = texts(&schema["x-kubernetes-list-map-keys"]);
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let items = &schema["items"];
    if !keys.is_empty() && list_type != Some("map") {
        let here = format!("{path}.x-kubernetes-list-type");
        let message = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(here, message),
            Some(other) => FieldError::invalid(here, other, message),
        });
    }
    if list_type == Some("map") {
        if keys.is_empty() {
            let here = format!("{path}.x-kubernetes-list-map-keys");
            errors.push(FieldError::required(here, "must not be empty if x-kubernetes-list-type is map"));
        }
        if items.is_null() {
            let message = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(format!("{path}.items"), message));
        } else if items["type"] != "object" {
            let message = "must be object if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{path}.items.type"), text(&items["type"]), message));
        } else {
            map_key_properties(&keys, items, path, errors);
        }
    }
    if matches!(list_type, Some("set" | "map")) && items["nullable"] == true {
        let message =
            format!("cannot be nullable when x-kubernetes-list-type is {}", list_type.unwrap_or_default());
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), message));
    }
    if list_type == Some("map") {
        let required = texts(&items["required"]);
        for key in &keys {
            let Some(property) = items["properties"].get(key) else { continue };
            let here = format!("{path}.items.properties[{key}]");
            if !required.contains(key) && property["default"].is_null() {
                errors.push(FieldError::required(
                    format!("{here}.default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                     property",
                ));
            }
            if property["nullable"] == true {
                let message = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.push(FieldError::forbidden(format!("{here}.nullable"), message));
            }
        }
    }
}

fn map_key_properties(keys: &[String], items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let here = format!("{path}.x-kubernetes-list-map-keys");
    for (index, key) in keys.iter().enumerate() {
        match items["properties"].get(key) {
            Some(property) if matches!(property["type"].as_str(), Some("array" | "object")) => {
                errors.push(FieldError::invalid(
                    format!("{path}.items.properties[{key}].type"),
                    "object",
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                ));
            }
            Some(_) => {}
            None => errors.push(FieldError::invalid(
                here.clone(),
                keys.to_vec(),
                "entries must all be names of item properties",
            )),
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(
                here.clone(),
                keys.to_vec(),
                "must not contain duplicate entries",
            ));
        }
    }
}

fn rules_of(schema: &Value) -> &[Value] {
    schema["x-kubernetes-validations"].as_array().map_or(&[], Vec::as_slice)
}

fn rule_text(rule: &Value, path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let source = text(&rule["rule"]);
    let message = text(&rule["message"]);
    let has_breaks = |s: &str| s.contains(['\n', '\r']);
    if source.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let here = format!("{path}.message");
        errors.push(FieldError::invalid(here, message.as_str(), "must be non-empty if specified"));
    } else if has_breaks(message.trim()) {
        let here = format!("{path}.message");
        errors.push(FieldError::invalid(here, message.as_str(), "must not contain line breaks"));
    } else if has_breaks(source.trim()) && message.is_empty() {
        let here = format!("{path}.message");
        errors.push(FieldError::required(here, "message must be specified if rule contains line breaks"));
    }
    let expression = text(&rule["messageExpression"]);
    if !expression.is_empty() && expression.trim().is_empty() {
        let here = format!("{path}.messageExpression");
        errors.push(FieldError::required(here, "messageExpression must be non-empty if specified"));
    }
    if let Some(reason) = rule["reason"].as_str()
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &REASONS));
    }
    let field_path = text(&rule["fieldPath"]);
    let here = format!("{path}.fieldPath");
    if !field_path.is_empty() {
        if field_path.trim().is_empty() {
            errors.push(FieldError::invalid(
                here.clone(),
                field_path.as_str(),
                "must be non-empty if specified",
            ));
        }
        if has_breaks(&field_path) {
            errors.push(FieldError::invalid(
                here.clone(),
                field_path.as_str(),
                "must not contain line breaks",
            ));
        }
        if resolve(schema, &field_path).is_err() {
            errors.push(FieldError::invalid(here, field_path.as_str(), "must be a valid path"));
        }
    }
}

fn compile_rules(schema: &Value, path: &str, place: &SchemaContext, errors: &mut Vec<FieldError>) {
    let rules = rules_of(schema);
    if rules.is_empty() {
        return;
    }
    let mut set = SchemaSet::default();
    let id = schema_build::build(&mut set, schema);
    let parsed = set.at(id).node().rules.as_ref().map(|r| r.cel.as_slice()).unwrap_or_default();
    for (index, (raw, rule)) in rules.iter().zip(parsed).enumerate() {
        let here = format!("{path}.x-kubernetes-validations[{index}]");
        let compiled = CompiledRule::compile(rule);
        if let Some(error) = compiled.rule_error() {
            errors.push(FieldError::invalid(format!("{here}.rule"), raw.clone(), error));
        }
        if let Some(error) = compiled.message_error() {
            errors.push(FieldError::invalid(format!("{here}.messageExpression"), raw.clone(), error));
        }
        if compiled.uses_old_self {
            if let Some(uncorrelatable) = &place.uncorrelatable {
                errors.push(FieldError::invalid(
                    format!("{here}.rule"),
                    rule.rule.as_str(),
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"),
                ));
            }
        } else if let Some(optional) = rule.optional_old_self {
            let message = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(format!("{here}.optionalOldSelf"), optional, message));
        }
    }
}

/// Follows a field path (`.spec.names['a.b']`) through a schema; the error says where it leads astray.
pub(crate) fn resolve<'a>(schema: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut here = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let end = after.find("']").ok_or("unexpected end of JSON path")?;
            name = &after[..end];
            rest = &after[end + 2..];
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            if end == 0 {
                return Err("unexpected end of JSON path".to_string());
            }
            name = &after[..end];
            rest = &after[end..];
        } else {
            return Err(format!("expected [ or . but got: {rest}"));
        }
        here = match (&here["properties"], &here["additionalProperties"]) {
            (Value::Object(properties), _) => {
                properties.get(name).ok_or("does not refer to a valid field")?
            }
            (_, additional @ Value::Object(_)) => additional,
            _ => return Err("does not refer to a valid field".to_string()),
        };
    }
    Ok(here)
}
