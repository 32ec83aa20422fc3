//! Rules of webhook configurations.

use serde_json::Value;

use super::fields::{int_at, list_at, str_at, strings};
use super::names;
use super::policies::match_conditions;
use super::selectors::label_selector;
use crate::admission::cel::Declared;
use crate::error::FieldError;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(crate) fn configuration(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (index, hook) in list_at(object, "webhooks").iter().enumerate() {
        let here = format!("webhooks[{index}]");
        let name = str_at(hook, "name");
        qualified(name, &format!("{here}.name"), &mut errors);
        for (position, rule) in list_at(hook, "rules").iter().enumerate() {
            self::rule(rule, &format!("{here}.rules[{position}]"), &mut errors);
        }
        self::hook(hook, &here, &mut errors);
        review_versions(hook, &format!("{here}.admissionReviewVersions"), &mut errors);
        if !name.is_empty() && seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{here}.name"), name));
        }
        seen.push(name);
    }
    errors
}

fn qualified(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    let problems = names::dns_subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        let message = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, message));
    }
}

pub(super) fn rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (field, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let values = strings(&rule[field]);
        let here = format!("{path}.{field}");
        if values.is_empty() {
            errors.push(FieldError::required(here.clone(), ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            let message = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(here.clone(), rule[field].clone(), message));
        }
        if field == "operations" {
            for (index, operation) in values.iter().enumerate().filter(|(_, o)| !OPERATIONS.contains(o)) {
                errors.push(FieldError::not_supported(format!("{here}[{index}]"), *operation, &OPERATIONS));
            }
        }
    }
    if strings(&rule["resources"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.resources"), ""));
    }
    if let Some(scope) = rule["scope"].as_str()
        && !matches!(scope, "*" | "Cluster" | "Namespaced")
    {
        let accepted = ["*", "Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(format!("{path}.scope"), scope, &accepted));
    }
}

fn hook(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (field, accepted) in [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ] {
        match hook[field].as_str() {
            Some(value) if !accepted.contains(&value) => {
                errors.push(FieldError::not_supported(format!("{path}.{field}"), value, accepted));
            }
            None if field == "sideEffects" => {
                let message = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(format!("{path}.sideEffects"), message));
            }
            _ => {}
        }
    }
    if let Some(seconds) = int_at(hook, "timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        let message = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, message));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        errors.extend(label_selector(&hook[field], &format!("{path}.{field}")));
    }
    if let Some(policy) = hook["reinvocationPolicy"].as_str()
        && !matches!(policy, "Never" | "IfNeeded")
    {
        let accepted = ["IfNeeded", "Never"];
        errors.push(FieldError::not_supported(format!("{path}.reinvocationPolicy"), policy, &accepted));
    }
    let declared = Declared { authorizer: true, ..Declared::default() };
    match_conditions(hook, &declared, &format!("{path}.matchConditions"), errors);
    let client = &hook["clientConfig"];
    let here = format!("{path}.clientConfig");
    match (client["url"].as_str(), client["service"].is_object()) {
        (Some(url), false) => self::url(url, &format!("{here}.url"), errors),
        (None, true) => service(&client["service"], &format!("{here}.service"), errors),
        _ => errors.push(FieldError::required(here, "exactly one of url or service is required")),
    }
}

fn url(url: &str, path: &str, errors: &mut Vec<FieldError>) {
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let message = format!("'https' is the only allowed URL scheme{form}");
        errors.push(FieldError::invalid(path, scheme, message));
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{form}")));
    }
    if let Some((user, _)) = host.split_once('@') {
        let message = "user information is not permitted in the URL";
        errors.push(FieldError::invalid(path, user, message));
    }
    if let Some((_, fragment)) = rest.split_once('#') {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if let Some((_, query)) = rest.split('#').next().unwrap_or_default().split_once('?') {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

fn service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace"] {
        if str_at(service, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
    if let Some(port) = int_at(service, "port") {
        let problems = names::port_number(port);
        if !problems.is_empty() {
            let message = format!("port is not valid: {}", problems.join(", "));
            errors.push(FieldError::invalid(format!("{path}.port"), port, message));
        }
    }
    let url_path = str_at(service, "path");
    if !matches!(url_path, "" | "/") {
        self::url_path(url_path, &format!("{path}.path"), errors);
    }
}

fn url_path(url_path: &str, path: &str, errors: &mut Vec<FieldError>) {
    if !url_path.starts_with('/') {
        errors.push(FieldError::invalid(path, url_path, "must start with a '/'"));
    }
    let mut characters = url_path.chars();
    characters.next();
    let rest = characters.as_str();
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            let message = format!("segment[{index}] may not be empty");
            errors.push(FieldError::invalid(path, url_path, message));
            continue;
        }
        for problem in names::dns_subdomain(segment) {
            errors.push(FieldError::invalid(path, url_path, format!("segment[{index}]: {problem}")));
        }
    }
}

fn review_versions(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let versions = strings(&hook["admissionReviewVersions"]);
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(format!("{path}[{index}]"), *version, "duplicate version"));
        }
    }
    if !versions.iter().any(|v| matches!(*v, "v1" | "v1beta1")) {
        let message = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, hook["admissionReviewVersions"].clone(), message));
    }
}
