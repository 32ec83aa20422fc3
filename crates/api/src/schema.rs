//! Schemas of Kubernetes' own types, made as strict here as Kubernetes makes them where it uses them itself.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::CONDITIONS_MAX;

/// A node selector needs a term and known operators; a typo must not become a selector that matches nothing.
pub fn node_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = NodeSelector::json_schema(generator);
    schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    let operators = json!(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
    at(&mut schema, "/properties/nodeSelectorTerms", "minItems", json!(1));
    for requirements in ["matchExpressions", "matchFields"] {
        let operator = format!(
            "/properties/nodeSelectorTerms/items/properties/{requirements}/items/properties/operator"
        );
        at(&mut schema, &operator, "enum", operators.clone());
    }
    schema
}

/// A label selector with known operators.
pub fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = LabelSelector::json_schema(generator);
    schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    at(
        &mut schema,
        "/properties/matchExpressions/items/properties/operator",
        "enum",
        json!(["In", "NotIn", "Exists", "DoesNotExist"]),
    );
    schema
}

/// Conditions within the limits that Kubernetes has for its own, and no more than somebody reads: whoever may write a status cannot
/// fill the object.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Vec::<Condition>::json_schema(generator);
    schema.insert("maxItems".to_owned(), json!(CONDITIONS_MAX));
    let mut limit = |name: &str, keyword: &str, value: Value| {
        at(&mut schema, &format!("/items/properties/{name}"), keyword, value);
    };
    limit("type", "maxLength", json!(316));
    limit("type", "minLength", json!(1));
    limit("status", "enum", json!(["True", "False", "Unknown"]));
    limit("reason", "minLength", json!(1));
    limit("reason", "maxLength", json!(1024));
    limit("reason", "pattern", json!("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"));
    limit("message", "maxLength", json!(32768));
    limit("observedGeneration", "minimum", json!(0));
    schema
}

fn at(schema: &mut Schema, pointer: &str, keyword: &str, value: Value) {
    if let Some(Value::Object(place)) = schema.pointer_mut(pointer) {
        place.insert(keyword.to_owned(), value);
    }
}
