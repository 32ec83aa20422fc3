//! Which parts of a pod may change after it was made: hardly any.

use serde_json::Value;

use super::fields::{int_at, list_at, same, str_at};
use super::names;
use crate::error::FieldError;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(crate) fn pod(old: &Value, new: &Value) -> Vec<FieldError> {
    let (before, after) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    for field in ["containers", "initContainers"] {
        if list_at(before, field).len() != list_at(after, field).len() {
            let message = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{field}"), message));
            return errors;
        }
    }
    if let Some(error) = deadline(before, after) {
        errors.push(error);
        return errors;
    }
    if !only_added_tolerations(before, after) {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    let gates = list_at(before, "schedulingGates");
    if let Some(gate) = list_at(after, "schedulingGates").iter().find(|gate| !gates.contains(gate)) {
        let message =
            format!("only deletion is allowed, but found new scheduling gate '{}'", str_at(gate, "name"));
        errors.push(FieldError::forbidden("spec.schedulingGates", message));
    }
    if !same(&comparable(before, before), &comparable(after, before)) {
        let message =
            format!("pod updates may not change fields other than {UPDATABLE}\n{}", changed(before, after));
        errors.push(FieldError::forbidden("spec", message));
    }
    errors
}

fn deadline(before: &Value, after: &Value) -> Option<FieldError> {
    let field = "spec.activeDeadlineSeconds";
    let (old, new) = (int_at(before, "activeDeadlineSeconds"), int_at(after, "activeDeadlineSeconds"));
    match (old, new) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            Some(FieldError::invalid(field, new, names::in_range(0, i64::from(i32::MAX))))
        }
        (Some(old), Some(new)) if old < new => {
            Some(FieldError::invalid(field, new, "must be less than or equal to previous value"))
        }
        (Some(_), None) => {
            let message = "must not update from a positive integer to nil value";
            Some(FieldError::invalid(field, Value::Null, message))
        }
        _ => None,
    }
}

fn only_added_tolerations(before: &Value, after: &Value) -> bool {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let kept: Vec<Value> = list_at(after, "tolerations").iter().map(without_seconds).collect();
    list_at(before, "tolerations").iter().all(|old| kept.iter().any(|new| same(&without_seconds(old), new)))
}

/// The spec with everything that may change set to what it was.
fn comparable(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(fields) = spec.as_object_mut() else { return spec };
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(field);
    }
    // A gated pod is not scheduled yet: where it may go can still be narrowed.
    if !list_at(old, "schedulingGates").is_empty() {
        fields.remove("nodeSelector");
        fields.remove("affinity");
    }
    if int_at(old, "terminationGracePeriodSeconds").is_some_and(|grace| grace < 0)
        && fields.get("terminationGracePeriodSeconds").and_then(Value::as_i64) == Some(1)
    {
        fields.insert(
            "terminationGracePeriodSeconds".to_string(),
            old["terminationGracePeriodSeconds"].clone(),
        );
    }
    for field in ["containers", "initContainers"] {
        for container in fields.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

/// The changed fields, one a line, since the diff of the real server cannot be had from JSON.
fn changed(before: &Value, after: &Value) -> String {
    let mut lines = String::new();
    let (old, new) = (comparable(before, before), comparable(after, before));
    let mut names: Vec<&String> =
        [&old, &new].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        if !same(&old[name.as_str()], &new[name.as_str()]) {
            lines.push_str(&format!(
                "-   {name}: {},\n+   {name}: {},\n",
                old[name.as_str()],
                new[name.as_str()]
            ));
        }
    }
    lines
}
