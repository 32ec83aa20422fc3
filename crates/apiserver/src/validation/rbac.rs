//! Rules of roles and their bindings.

use serde_json::Value;

use super::fields::{list_at, str_at, strings};
use super::names;
use crate::error::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) fn role(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in list_at(object, "rules").iter().enumerate() {
        let here = format!("rules[{index}]");
        let given = |field: &str| !strings(&rule[field]).is_empty();
        if given("nonResourceURLs") {
            let mut refuse = |message: &str| {
                let field = format!("{here}.nonResourceURLs");
                errors.push(FieldError::invalid(field, rule["nonResourceURLs"].clone(), message));
            };
            if namespaced {
                refuse("namespaced rules cannot apply to non-resource URLs");
            }
            if given("apiGroups") || given("resources") || given("resourceNames") {
                refuse("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if !given("apiGroups") {
            let message = "resource rules must supply at least one api group";
            errors.push(FieldError::required(format!("{here}.apiGroups"), message));
        }
        if !given("resources") {
            let message = "resource rules must supply at least one resource";
            errors.push(FieldError::required(format!("{here}.resources"), message));
        }
    }
    for (index, rule) in list_at(object, "rules").iter().enumerate() {
        if strings(&rule["verbs"]).is_empty() {
            errors.push(FieldError::required(format!("rules[{index}].verbs"), ""));
        }
    }
    errors
}

pub(crate) fn binding(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &object["roleRef"];
    let group = str_at(role, "apiGroup");
    if !matches!(group, "" | GROUP) {
        errors.push(FieldError::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = str_at(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
    }
    let name = str_at(role, "name");
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        for message in names::path_segment(name, false) {
            errors.push(FieldError::invalid("roleRef.name", name, message));
        }
    }
    for (index, subject) in list_at(object, "subjects").iter().enumerate() {
        self::subject(subject, namespaced, &format!("subjects[{index}]"), &mut errors);
    }
    errors
}

fn subject(subject: &Value, namespaced: bool, path: &str, errors: &mut Vec<FieldError>) {
    let (name, group) = (str_at(subject, "name"), str_at(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match str_at(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                for message in names::dns_subdomain(name) {
                    errors.push(FieldError::invalid(format!("{path}.name"), name, message));
                }
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[""]));
            }
            if !namespaced && str_at(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if !matches!(group, "" | GROUP) {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[GROUP]));
            }
        }
        kind => {
            let accepted = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{path}.kind"), kind, &accepted));
        }
    }
}
