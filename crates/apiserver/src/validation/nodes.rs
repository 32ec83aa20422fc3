//! Rules of nodes.

use serde_json::Value;

use super::fields::str_at;
use super::names;
use crate::error::{FieldError, FieldErrorKind};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) fn taint_effect(effect: &str, path: &str) -> Option<FieldError> {
    (!EFFECTS.contains(&effect)).then(|| FieldError::not_supported(path, effect, &EFFECTS))
}

/// The server reports taints under `metadata`, where it looks at them.
pub(crate) fn taints(taints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in taints.as_array().into_iter().flatten().enumerate() {
        let here = format!("metadata.taints[{index}]");
        let (key, value, effect) = (str_at(taint, "key"), str_at(taint, "value"), str_at(taint, "effect"));
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(format!("{here}.key"), key, message));
        }
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{here}.value"), value, problems.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{here}.effect"), ""));
        } else {
            errors.extend(taint_effect(effect, &format!("{here}.effect")));
        }
        if seen.contains(&(key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::new(FieldErrorKind::Duplicate, here, taint.clone(), detail));
        } else {
            seen.push((key, effect));
        }
    }
    errors
}

pub(crate) fn update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = |node: &Value, field: &str| node["spec"][field].clone();
    if !spec(old, "podCIDRs").is_null() && spec(old, "podCIDRs") != spec(new, "podCIDRs") {
        let message = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", message));
    }
    let (before, after) = (str_at(&old["spec"], "providerID"), str_at(&new["spec"], "providerID"));
    if !before.is_empty() && before != after {
        let message = match after {
            "" => "field cannot be cleared once set",
            _ => "field cannot be modified once set",
        };
        errors.push(FieldError::invalid("spec.providerID", Value::Null, message));
    }
    errors
}
