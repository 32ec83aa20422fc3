//! Schemas of Kubernetes' own types, as strict here as Kubernetes makes them where it uses them itself.
//!
//! They are written by hand, because the schemas of all Kubernetes types that k8s-openapi can generate take longer to compile than this whole crate.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::CONDITIONS_MAX;

/// The schema of a Kubernetes time, for `#[schemars(with = "Time")]`.
pub struct Time;

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A number, or a text such as `10%`.
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A list of requirements with these operators.
fn requirements(description: &str, operators: &[&str], values: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "items": {
            "description": "A requirement: a key, an operator, and the values that the operator compares with.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {"description": "The key that the requirement is about.", "type": "string"},
                "operator": {
                    "description": "How the value of the key relates to the values.",
                    "type": "string",
                    "enum": operators,
                },
                "values": {"description": values, "type": "array", "items": {"type": "string"}},
            },
        },
    })
}

/// A node selector needs a term and known operators; a typo must not become a selector that matches nothing.
pub fn node_selector(_: &mut SchemaGenerator) -> Schema {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let values = "At least one value for In and NotIn, one whole number for Gt and Lt, none for Exists and DoesNotExist.";
    json_schema!({
        "type": "object",
        "required": ["nodeSelectorTerms"],
        "properties": {
            "nodeSelectorTerms": {
                "description": "Terms of which a node must match at least one.",
                "type": "array",
                "minItems": 1,
                "items": {
                    "description": "Requirements that a node must match, all of them. An empty term matches no node.",
                    "type": "object",
                    "properties": {
                        "matchExpressions": requirements("Requirements on the labels of a node.", &operators, values),
                        "matchFields": requirements("Requirements on the fields of a node.", &operators, values),
                    },
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// A label selector with known operators.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
    let values = "At least one value for In and NotIn, none for Exists and DoesNotExist.";
    json_schema!({
        "type": "object",
        "properties": {
            "matchExpressions": requirements("Requirements on the labels, all of which must hold.", &operators, values),
            "matchLabels": {
                "description": "Labels that an object must have, with these values.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// Conditions within the limits that Kubernetes has for its own, and no more of them than a person reads: a user who may write a status
/// cannot fill the object.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": CONDITIONS_MAX,
        "items": {
            "description": "One aspect of the current state.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "What the condition is about, such as Drained or example.com/Copied.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 316,
                },
                "status": {
                    "description": "Whether the condition holds: True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, in one CamelCase word.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Details for people. May be empty.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The generation of the object that the condition was set for.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}
