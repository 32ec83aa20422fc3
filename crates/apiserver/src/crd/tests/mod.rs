//! The rules of custom resources, each with the server's words.

mod definitions;
mod properties;
mod resources;
mod rules;

use serde_json::{Value, json};

use super::*;
use crate::error::words;

/// What a request does first: unknown fields and stray nulls go, defaults come. The paths of the unknown fields.
fn decode(kind: &CustomKind, object: &mut Value) -> Vec<String> {
    let unknown = kind.prune(object);
    kind.default(object);
    unknown
}

/// A definition of kind Widget whose spec has the given schema.
fn definition(spec: Value) -> Value {
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
                "subresources": {"status": {}},
            }],
        },
    });
    default_definition(&mut crd);
    crd
}

fn kind_of(spec: Value) -> CustomKind {
    let crd = definition(spec);
    assert_eq!(words(&validate_definition(&crd)), Vec::<String>::new());
    CustomKind::parse(&crd).remove(0)
}

fn widget(spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": spec,
    })
}

fn create_errors(schema: Value, spec: Value) -> Vec<String> {
    words(&kind_of(schema).validate_create(&widget(spec)))
}
