//! From `openAPIV3Schema` as written to nodes of a [`SchemaSet`].

use serde_json::Value;

use super::{text, texts};
use crate::schema::{CelRule, ListType, Node, NodeId, Rules, SchemaSet, Type};

/// Adds the schema and everything below it; a missing schema accepts and keeps every value.
pub(crate) fn build(set: &mut SchemaSet, schema: &Value) -> NodeId {
    let Some(fields) = schema.as_object() else {
        return set.add(Node { preserve_unknown: true, ..Node::default() });
    };
    let ty = node_type(schema);
    let mut node = Node {
        ty,
        required: texts(&schema["required"]),
        list: list_type(schema),
        atomic_map: schema["x-kubernetes-map-type"] == "atomic",
        nullable: schema["nullable"] == true,
        preserve_unknown: schema["x-kubernetes-preserve-unknown-fields"] == true,
        embedded_resource: schema["x-kubernetes-embedded-resource"] == true,
        default: fields.get("default").cloned(),
        format: schema["format"].as_str().filter(|f| super::formats::is_known(ty, f)).map(str::to_string),
        ..Node::default()
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let id = build(set, property);
        node.properties.insert(name.clone(), id);
    }
    node.additional = match fields.get("additionalProperties") {
        Some(additional @ Value::Object(_)) => Some(build(set, additional)),
        Some(Value::Bool(true)) => Some(set.add(Node::default())),
        _ => None,
    };
    node.items = schema.get("items").filter(|items| items.is_object()).map(|items| build(set, items));
    node.rules = rules(set, schema);
    set.add(node)
}

fn node_type(schema: &Value) -> Type {
    if schema["x-kubernetes-int-or-string"] == true {
        return Type::IntOrString;
    }
    match schema["type"].as_str() {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(&schema["x-kubernetes-list-map-keys"])),
        _ => ListType::Atomic,
    }
}

fn rules(set: &mut SchemaSet, schema: &Value) -> Option<Box<Rules>> {
    const KEYWORDS: [&str; 18] = [
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-validations",
        "exclusiveMinimum",
    ];
    if !KEYWORDS.iter().any(|keyword| schema.get(keyword).is_some()) {
        return None;
    }
    let mut branches = |keyword: &str| -> Vec<NodeId> {
        schema[keyword].as_array().into_iter().flatten().map(|branch| build(set, branch)).collect()
    };
    let (all_of, any_of, one_of) = (branches("allOf"), branches("anyOf"), branches("oneOf"));
    let not = schema.get("not").filter(|not| not.is_object()).map(|not| build(set, not));
    Some(Box::new(Rules {
        enum_values: schema["enum"].as_array().cloned().unwrap_or_default(),
        minimum: schema["minimum"].as_f64(),
        exclusive_minimum: schema["exclusiveMinimum"] == true,
        maximum: schema["maximum"].as_f64(),
        exclusive_maximum: schema["exclusiveMaximum"] == true,
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: schema["minLength"].as_u64(),
        max_length: schema["maxLength"].as_u64(),
        pattern: schema["pattern"].as_str().filter(|p| !p.is_empty()).map(str::to_string),
        min_items: schema["minItems"].as_u64(),
        max_items: schema["maxItems"].as_u64(),
        unique_items: schema["uniqueItems"] == true,
        min_properties: schema["minProperties"].as_u64(),
        max_properties: schema["maxProperties"].as_u64(),
        all_of,
        any_of,
        one_of,
        not,
        cel: schema["x-kubernetes-validations"].as_array().into_iter().flatten().map(cel_rule).collect(),
    }))
}

fn cel_rule(rule: &Value) -> CelRule {
    CelRule {
        rule: text(&rule["rule"]),
        message: text(&rule["message"]),
        message_expression: text(&rule["messageExpression"]),
        reason: text(&rule["reason"]),
        field_path: text(&rule["fieldPath"]),
        optional_old_self: rule["optionalOldSelf"].as_bool(),
    }
}
