//! Rules of disruption budgets, autoscalers, leases and priority classes.

use serde_json::Value;

use super::fields::{int_at, list_at, str_at};
use super::selectors::label_selector;
use super::workloads::{at_most_100_percent, int_or_percent};
use super::{NEGATIVE, immutable, names};
use crate::error::FieldError;

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(crate) fn disruption_budget(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let message = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec.clone(), message));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let here = format!("spec.{field}");
        errors.extend(int_or_percent(&spec[field], &here));
        errors.extend(at_most_100_percent(&spec[field], &here));
    }
    errors.extend(label_selector(&spec["selector"], "spec.selector"));
    if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str()
        && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
    {
        let accepted = ["AlwaysAllow", "IfHealthyBudget"];
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy, &accepted));
    }
    errors
}

pub(crate) fn autoscaler(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let min = int_at(spec, "minReplicas").unwrap_or(1);
    if min < 0 {
        errors.push(FieldError::invalid("spec.minReplicas", min, NEGATIVE));
    }
    let max = int_at(spec, "maxReplicas").unwrap_or(0);
    if max < 0 {
        let message = "must be greater than or equal to 1";
        errors.push(FieldError::invalid("spec.maxReplicas", max, message));
    }
    if max < min {
        let message = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", max, message));
    }
    let target = &spec["scaleTargetRef"];
    let api_version = str_at(target, "apiVersion");
    if !api_version.contains('/') && api_version != "v1" {
        let message = "apiVersion must specify API group";
        errors.push(FieldError::invalid("spec.scaleTargetRef.apiVersion", api_version, message));
    }
    let scales_to_zero = |metric: &Value| matches!(str_at(metric, "type"), "Object" | "External");
    if min == 0 && !list_at(spec, "metrics").iter().any(scales_to_zero) {
        errors.push(FieldError::forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        ));
    }
    for field in ["kind", "name"] {
        let value = str_at(target, field);
        let here = format!("spec.scaleTargetRef.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(here, ""));
        } else {
            for message in names::path_segment(value, false) {
                errors.push(FieldError::invalid(here.clone(), value, message));
            }
        }
    }
    if max == 0 {
        errors.push(FieldError::required("spec.maxReplicas", ""));
    }
    errors
}

pub(crate) fn lease(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if let Some(duration) = int_at(spec, "leaseDurationSeconds")
        && duration <= 0
    {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    if let Some(transitions) = int_at(spec, "leaseTransitions")
        && transitions < 0
    {
        errors.push(FieldError::invalid("spec.leaseTransitions", transitions, NEGATIVE));
    }
    errors
}

pub(crate) fn priority_class(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = str_at(&object["metadata"], "name");
    let value = int_at(object, "value").unwrap_or(0);
    let system = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    if name.starts_with("system-") {
        let reason = match system.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, known)) if *known != value => {
                Some(format!("value of {name} PriorityClass must be {known}"))
            }
            Some(_) if object["globalDefault"] == true => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(reason) = reason {
            let message = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {reason}"
            );
            errors.push(FieldError::forbidden("metadata.name", message));
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let message = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.push(FieldError::forbidden("value", message));
    }
    if let Some(policy) = object["preemptionPolicy"].as_str()
        && !matches!(policy, "PreemptLowerPriority" | "Never")
    {
        let accepted = ["PreemptLowerPriority", "Never"];
        errors.push(FieldError::not_supported("preemptionPolicy", policy, &accepted));
    }
    errors
}

pub(crate) fn priority_class_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["value"] != new["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    errors.extend(immutable(old, new, "preemptionPolicy"));
    errors
}
