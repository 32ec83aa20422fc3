//! Label selectors: their form, and whether they select a set of labels.

use serde_json::Value;

use super::fields::{list_at, str_at, strings};
use super::{metadata, names};
use crate::error::FieldError;

/// Errors of a selector with matchLabels and matchExpressions.
pub(crate) fn label_selector(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = metadata::labels(&selector["matchLabels"], &format!("{path}.matchLabels"));
    for (index, expression) in list_at(selector, "matchExpressions").iter().enumerate() {
        let here = format!("{path}.matchExpressions[{index}]");
        let values = strings(&expression["values"]);
        match str_at(expression, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let message = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(FieldError::required(format!("{here}.values"), message));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(format!("{here}.values"), message));
                }
            }
            other => {
                let message = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{here}.operator"), other, message));
            }
        }
        let key = str_at(expression, "key");
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(format!("{here}.key"), key, message));
        }
        for (position, value) in values.into_iter().enumerate() {
            for message in names::label_value(value) {
                errors.push(FieldError::invalid(format!("{here}.values[{position}]"), value, message));
            }
        }
    }
    errors
}

pub(crate) fn is_empty(selector: &Value) -> bool {
    let has_labels = selector["matchLabels"].as_object().is_some_and(|l| !l.is_empty());
    !has_labels && list_at(selector, "matchExpressions").is_empty()
}

/// Whether a sound selector selects the labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let by_label =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    by_label
        && list_at(selector, "matchExpressions").iter().all(|expression| {
            let value = labels.get(str_at(expression, "key")).and_then(Value::as_str);
            let listed = value.is_some_and(|v| strings(&expression["values"]).contains(&v));
            match str_at(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}
