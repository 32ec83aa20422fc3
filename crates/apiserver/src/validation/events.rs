//! Rules of events.

use serde_json::Value;

use super::fields::str_at;
use crate::error::FieldError;

/// An event lives in the namespace of its object; those of objects without one live in `default`.
pub(crate) fn event(event: &Value) -> Vec<FieldError> {
    let object = if event["involvedObject"].is_object() { "involvedObject" } else { "regarding" };
    let of_object = str_at(&event[object], "namespace");
    let own = str_at(&event["metadata"], "namespace");
    let fits = if of_object.is_empty() { own == "default" } else { of_object == own };
    if fits {
        return Vec::new();
    }
    vec![FieldError::invalid("involvedObject.namespace", of_object, "does not match event.namespace")]
}
