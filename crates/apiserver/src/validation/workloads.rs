//! Rules of the kinds that make pods.

use serde_json::Value;

use super::fields::{int_at, same, str_at};
use super::selectors::{is_empty, label_selector, selects};
use super::{NEGATIVE, immutable, names, non_negative, pods};
use crate::error::FieldError;

/// Selector and template, which have to agree. `kind` names the kind in messages.
fn selector_and_template(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        let problems = label_selector(selector, "spec.selector");
        let unreadable = problems.iter().any(|e| e.field.contains(".matchExpressions["));
        errors.extend(problems);
        if is_empty(selector) {
            let kind = if kind == "ReplicaSet" { "deployment" } else { &kind.to_lowercase() };
            let message = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", selector.clone(), message));
        }
        if unreadable {
            let message = if kind == "StatefulSet" { "" } else { "invalid label selector" };
            errors.push(FieldError::invalid("spec.selector", selector.clone(), message));
            return;
        }
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_null() || !is_empty(selector) && !selects(selector, labels) {
        errors.push(mismatch(labels));
    }
    errors.extend(pods::template(&spec["template"], "spec.template"));
    always_restarts(spec, kind, errors);
}

fn mismatch(labels: &Value) -> FieldError {
    FieldError::invalid(
        "spec.template.metadata.labels",
        labels.clone(),
        "`selector` does not match template `labels`",
    )
}

fn always_restarts(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let pod = &spec["template"]["spec"];
    if let Some(policy) = pod["restartPolicy"].as_str()
        && policy != "Always"
    {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if !pod["activeDeadlineSeconds"].is_null() {
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        let message = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", message));
    }
}

/// A count, or a share in percent.
pub(crate) fn int_or_percent(value: &Value, path: &str) -> Vec<FieldError> {
    match value {
        Value::String(text) => {
            names::percent(text).into_iter().map(|m| FieldError::invalid(path, text.as_str(), m)).collect()
        }
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
            vec![FieldError::invalid(path, value.clone(), NEGATIVE)]
        }
        _ => Vec::new(),
    }
}

fn percent_of(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

pub(crate) fn at_most_100_percent(value: &Value, path: &str) -> Option<FieldError> {
    let above = percent_of(value).is_some_and(|percent| percent > 100);
    above.then(|| FieldError::invalid(path, value.clone(), "must not be greater than 100%"))
}

pub(crate) fn deployment(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    errors.extend(non_negative(spec, "replicas", "spec"));
    selector_and_template(spec, "Deployment", &mut errors);
    strategy(&spec["strategy"], &mut errors);
    errors.extend(non_negative(spec, "minReadySeconds", "spec"));
    errors.extend(non_negative(spec, "revisionHistoryLimit", "spec"));
    if let Some(deadline) = int_at(spec, "progressDeadlineSeconds") {
        errors.extend(non_negative(spec, "progressDeadlineSeconds", "spec"));
        if deadline <= int_at(spec, "minReadySeconds").unwrap_or(0) {
            let message = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, message));
        }
    }
    errors
}

fn strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    let rolling = &strategy["rollingUpdate"];
    match str_at(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                let message = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", message));
            }
        }
        "" | "RollingUpdate" => {
            let here = "spec.strategy.rollingUpdate";
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            errors.extend(int_or_percent(unavailable, &format!("{here}.maxUnavailable")));
            errors.extend(int_or_percent(surge, &format!("{here}.maxSurge")));
            let is_zero = |v: &Value| v.as_i64() == Some(0) || percent_of(v) == Some(0);
            if is_zero(unavailable) && is_zero(surge) {
                let message = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(
                    format!("{here}.maxUnavailable"),
                    unavailable.clone(),
                    message,
                ));
            }
            errors.extend(at_most_100_percent(unavailable, &format!("{here}.maxUnavailable")));
        }
        _ => {
            let accepted = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported("spec.strategy", strategy.clone(), &accepted));
        }
    }
}

pub(crate) fn replica_set(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    errors.extend(non_negative(spec, "replicas", "spec"));
    errors.extend(non_negative(spec, "minReadySeconds", "spec"));
    selector_and_template(spec, "ReplicaSet", &mut errors);
    errors
}

pub(crate) fn replication_controller(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    errors.extend(non_negative(spec, "minReadySeconds", "spec"));
    let selector = &spec["selector"];
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    errors.extend(non_negative(spec, "replicas", "spec"));
    let labels = &spec["template"]["metadata"]["labels"];
    if !selects(&serde_json::json!({"matchLabels": selector}), labels) {
        errors.push(mismatch(labels));
    }
    errors.extend(pods::template(&spec["template"], "spec.template"));
    errors
}

pub(crate) fn stateful_set(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let policy = str_at(spec, "podManagementPolicy");
    if !matches!(policy, "" | "OrderedReady" | "Parallel") {
        let message = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", policy, message));
    }
    let update = &spec["updateStrategy"];
    match str_at(update, "type") {
        "" | "RollingUpdate" => {
            errors.extend(non_negative(
                &update["rollingUpdate"],
                "partition",
                "spec.updateStrategy.rollingUpdate",
            ));
        }
        "OnDelete" => {}
        _ => errors.push(FieldError::invalid(
            "spec.updateStrategy",
            update.clone(),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    errors.extend(non_negative(spec, "replicas", "spec"));
    errors.extend(non_negative(spec, "minReadySeconds", "spec"));
    selector_and_template(spec, "StatefulSet", &mut errors);
    errors
}

pub(crate) fn daemon_set(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let labels = &spec["template"]["metadata"]["labels"];
    errors.extend(label_selector(&spec["selector"], "spec.selector"));
    if spec["selector"].is_null() || !selects(&spec["selector"], labels) {
        errors.push(mismatch(labels));
    }
    if spec["selector"].is_object() && is_empty(&spec["selector"]) {
        let message = "empty selector is invalid for daemonset";
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), message));
    }
    errors.extend(pods::template(&spec["template"], "spec.template"));
    always_restarts(spec, "DaemonSet", &mut errors);
    errors.extend(non_negative(spec, "minReadySeconds", "spec"));
    let update = &spec["updateStrategy"];
    if !matches!(str_at(update, "type"), "" | "RollingUpdate" | "OnDelete") {
        let accepted = ["RollingUpdate", "OnDelete"];
        errors.push(FieldError::not_supported("spec.updateStrategy", update.clone(), &accepted));
    }
    errors.extend(non_negative(spec, "revisionHistoryLimit", "spec"));
    errors
}

pub(crate) fn job(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = job_spec(spec, "spec");
    let labels = &spec["template"]["metadata"]["labels"];
    if !spec["selector"].is_null() {
        errors.extend(label_selector(&spec["selector"], "spec.selector"));
        if !selects(&spec["selector"], labels) {
            errors.push(mismatch(labels));
        }
    }
    errors
}

fn job_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        errors.extend(non_negative(spec, field, path));
    }
    let mode = str_at(spec, "completionMode");
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        let accepted = ["NonIndexed", "Indexed"];
        errors.push(FieldError::not_supported(format!("{path}.completionMode"), mode, &accepted));
    } else if mode == "Indexed" && int_at(spec, "completions").is_none() {
        let here = format!("{path}.completions");
        errors.push(FieldError::required(here, "when completion mode is Indexed"));
    }
    errors.extend(pods::template(&spec["template"], &format!("{path}.template")));
    if matches!(str_at(&spec["template"]["spec"], "restartPolicy"), "" | "Always") {
        let here = format!("{path}.template.spec.restartPolicy");
        errors.push(FieldError::required(here, "valid values: \"OnFailure\", \"Never\""));
    }
    errors
}

pub(crate) fn job_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let fields = ["spec.completions", "spec.selector", "spec.completionMode", "spec.podFailurePolicy"];
    let indexed = new["spec"]["completionMode"] == "Indexed";
    let mut errors: Vec<FieldError> = fields
        .iter()
        .filter(|field| !(indexed && **field == "spec.completions"))
        .filter_map(|field| immutable(old, new, field))
        .collect();
    let suspended = old["spec"]["suspend"] == true;
    if !suspended && !same(&old["spec"]["template"], &new["spec"]["template"]) {
        errors.extend(immutable(old, new, "spec.template"));
    }
    errors
}

pub(crate) fn cron_job(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let schedule = str_at(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    let policy = str_at(spec, "concurrencyPolicy");
    if !matches!(policy, "" | "Allow" | "Forbid" | "Replace") {
        let accepted = ["Allow", "Forbid", "Replace"];
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &accepted));
    }
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.extend(non_negative(spec, field, "spec"));
    }
    errors.extend(job_spec(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"));
    errors
}
