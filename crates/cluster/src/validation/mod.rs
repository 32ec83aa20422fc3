//! Semantic validation of objects, with the wording of Kubernetes.

mod fields;
pub mod metadata;
pub mod names;
use serde_json::Value; use crate::error::FieldError;
pub fn validate_create(_g: &str, _k: &str, n: bool, o: &Value) -> Vec<FieldError> { metadata::validate_create(o, n, metadata::NameRule::PathSegment) }
pub fn validate_update(_g: &str, _k: &str, o: &Value, n: &Value) -> Vec<FieldError> { metadata::validate_update(o, n) }
