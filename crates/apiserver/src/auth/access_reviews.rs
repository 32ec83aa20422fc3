//! "May I?" and "may they?": SubjectAccessReview and its relatives, answered from [`Rbac`].

use serde_json::{Map, Value, json};

use super::rbac::Rbac;
use super::rule::PolicyRule;
use crate::attributes::{Attributes, User};
use crate::error::{ApiError, ApiResult, FieldError};

const GROUP: &str = "authorization.k8s.io";

/// May the user named in the review do this?
pub(crate) fn subject_access_review(review: &Value, rbac: &Rbac) -> ApiResult<Value> {
    let spec = &review["spec"];
    let mut errors = subject_errors(spec);
    errors.extend(metadata_errors(review, &[], "must be empty"));
    refuse(errors)?;
    Ok(answer("SubjectAccessReview", review, rbac, &subject(spec)))
}

/// May the caller do this?
pub(crate) fn self_subject_access_review(review: &Value, caller: &User, rbac: &Rbac) -> ApiResult<Value> {
    let mut errors = attributes_errors(&review["spec"]);
    errors.extend(metadata_errors(review, &[], "must be empty"));
    refuse(errors)?;
    Ok(answer("SelfSubjectAccessReview", review, rbac, caller))
}

/// May the user named in the review do this in `namespace`, that of the URL?
pub(crate) fn local_subject_access_review(review: &Value, namespace: &str, rbac: &Rbac) -> ApiResult<Value> {
    let spec = &review["spec"];
    let own = review.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(namespace);
    let mut errors = subject_errors(spec);
    errors.extend(metadata_errors(review, &["namespace"], "must be empty except for namespace"));
    let wanted = text(&spec["resourceAttributes"], "namespace");
    if is_set(&spec["resourceAttributes"]) && wanted != own {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, wanted, "must match metadata.namespace"));
    }
    if is_set(&spec["nonResourceAttributes"]) {
        let value = shown_path_attributes(&spec["nonResourceAttributes"]);
        let detail = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", value, detail));
    }
    refuse(errors)?;
    if namespace != own {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(ApiError::bad_request(message));
    }
    let mut answer = answer("LocalSubjectAccessReview", review, rbac, &subject(spec));
    answer["metadata"]["namespace"] = namespace.into();
    Ok(answer)
}

/// What may the caller do in the namespace of the review?
pub(crate) fn self_subject_rules_review(review: &Value, caller: &User, rbac: &Rbac) -> ApiResult<Value> {
    let namespace = text(&review["spec"], "namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (rules, problem) = rbac.rules_for(caller, namespace);
    let resource_rules: Vec<PolicyRule> = rules
        .iter()
        .filter(|r| !r.resources.is_empty())
        .map(|r| PolicyRule { non_resource_urls: Vec::new(), ..r.clone() })
        .collect();
    let path_rules: Vec<Value> = rules
        .iter()
        .filter(|r| !r.non_resource_urls.is_empty())
        .map(|r| json!({"verbs": r.verbs, "nonResourceURLs": r.non_resource_urls}))
        .collect();
    let mut status =
        json!({"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false});
    if let Some(problem) = problem {
        status["evaluationError"] = problem.into();
    }
    Ok(json!({"kind": "SelfSubjectRulesReview", "apiVersion": format!("{GROUP}/v1"),
        "metadata": {}, "spec": {}, "status": status}))
}

fn answer(kind: &str, review: &Value, rbac: &Rbac, user: &User) -> Value {
    let spec = &review["spec"];
    let decision = rbac.authorize(user, &attributes(spec));
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    let metadata = review.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    json!({"kind": kind, "apiVersion": format!("{GROUP}/v1"), "metadata": metadata, "spec": spec, "status": status})
}

fn subject(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten();
    User {
        name: text(spec, "user").to_string(),
        uid: text(spec, "uid").to_string(),
        groups: groups.filter_map(|g| g.as_str().map(str::to_string)).collect(),
    }
}

fn attributes(spec: &Value) -> Attributes {
    let resource = &spec["resourceAttributes"];
    if is_set(resource) {
        let field = |name: &str| text(resource, name).to_string();
        Attributes {
            verb: field("verb"),
            group: field("group"),
            version: field("version"),
            resource: field("resource"),
            subresource: field("subresource"),
            namespace: field("namespace"),
            name: field("name"),
            path: String::new(),
        }
    } else {
        let path = &spec["nonResourceAttributes"];
        Attributes {
            verb: text(path, "verb").to_string(),
            path: text(path, "path").to_string(),
            ..Default::default()
        }
    }
}

fn subject_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = union_errors(spec);
    let no_groups = spec["groups"].as_array().is_none_or(Vec::is_empty);
    if text(spec, "user").is_empty() && no_groups {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    errors.extend(selector_errors(spec));
    errors
}

fn attributes_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = union_errors(spec);
    errors.extend(selector_errors(spec));
    errors
}

fn union_errors(spec: &Value) -> Vec<FieldError> {
    let path = &spec["nonResourceAttributes"];
    if is_set(&spec["resourceAttributes"]) != is_set(path) {
        return Vec::new();
    }
    let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    vec![FieldError::invalid("spec", shown_path_attributes(path), detail)]
}

fn selector_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["fieldSelector", "labelSelector"] {
        let selector = &spec["resourceAttributes"][field];
        if !is_set(selector) {
            continue;
        }
        let path = format!("spec.resourceAttributes.{field}");
        let raw = text(selector, "rawSelector");
        let has_requirements = selector["requirements"].as_array().is_some_and(|r| !r.is_empty());
        if !raw.is_empty() && has_requirements {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, detail));
        }
        if raw.is_empty() && !has_requirements {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), detail));
        }
    }
    errors
}

/// Reviews are questions, not objects: they have no name and no labels.
fn metadata_errors(review: &Value, allowed: &[&str], detail: &str) -> Option<FieldError> {
    let metadata = review.get("metadata")?.as_object()?;
    let mut given: Map<String, Value> = metadata.clone();
    given.retain(|key, value| key != "managedFields" && !is_zero(value));
    given
        .keys()
        .any(|key| !allowed.contains(&key.as_str()))
        .then(|| FieldError::invalid("metadata", Value::Object(given.clone()), detail))
}

/// As the value is shown in errors: the API server's own field names, not those of JSON.
fn shown_path_attributes(path: &Value) -> Value {
    if is_set(path) { json!({"Path": text(path, "path"), "Verb": text(path, "verb")}) } else { Value::Null }
}

fn refuse(errors: Vec<FieldError>) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    // The API server does not know the kind any more at this point and leaves it out.
    let mut error = ApiError::invalid(GROUP, "", "", &errors);
    error.details.as_object_mut().map(|details| details.remove("kind"));
    Err(error)
}

fn is_set(value: &Value) -> bool {
    value.is_object()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[path = "access_reviews_tests.rs"]
mod tests;
