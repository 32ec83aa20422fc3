//! The move from client-side to server-side apply: `kubectl` may take over, without force, what it applied from
//! the client side, and the annotation that client-side apply relies on is kept up to date.

use serde_json::{Map, Value};

use super::Writer;
use super::compare::compare;
use super::field_set::FieldSet;
use super::set_of::set_of;
use crate::schema::SchemaRef;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations larger than this in total are refused, so the refreshed one is left out.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The only manager that this is done for.
const KUBECTL: &str = "kubectl";

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// The fields that the annotation names and that still have its values.
pub(super) fn allowed(live: Option<&Value>, schema: SchemaRef<'_>, writer: &Writer<'_>) -> Option<FieldSet> {
    if writer.manager != KUBECTL {
        return None;
    }
    let live = live?;
    let last: Value = serde_json::from_str(annotations(live)?.get(ANNOTATION)?.as_str()?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(writer.api_version) {
        return None;
    }
    let mut fields = set_of(&last, schema);
    let change = compare(&last, live, schema);
    fields.subtract(&change.modified);
    fields.subtract(&change.added);
    fields.subtract(&change.removed);
    Some(fields)
}

/// Puts the configuration that was just applied into the annotation, if there is one.
pub(super) fn refresh(applied: &mut Value, config: &Value, writer: &Writer<'_>) {
    let present = annotations(applied)
        .and_then(|a| a.get(ANNOTATION))
        .and_then(Value::as_str)
        .is_some_and(|last| !last.is_empty());
    if writer.manager != KUBECTL || !present {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.remove(ANNOTATION);
    let others: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if others + ANNOTATION.len() + text.len() <= MAX_ANNOTATIONS {
        annotations.insert(ANNOTATION.to_string(), text.into());
    }
}
