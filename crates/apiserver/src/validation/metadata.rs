//! Rules of `metadata` that hold for every kind.

use serde_json::Value;

use super::fields::{str_at, strings};
use super::names;
use crate::error::FieldError;

const ANNOTATION_LIMIT: usize = 256 * 1024;

/// What names of a kind look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    DnsSubdomain,
    DnsLabel,
    PathSegment,
}

impl NameRule {
    pub(crate) fn check(self, name: &str, is_prefix: bool) -> Vec<String> {
        let masked = if is_prefix { mask_trailing_dash(name) } else { name.to_string() };
        match self {
            Self::DnsSubdomain => names::dns_subdomain(&masked),
            Self::DnsLabel => names::dns_label(&masked),
            Self::PathSegment => names::path_segment(name, is_prefix),
        }
    }
}

/// A prefix may end with a dash, because something will follow it.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            format!("{}a", &rest[..rest.len() - rest.chars().next_back().map_or(0, char::len_utf8)])
        }
        _ => name.to_string(),
    }
}

pub(crate) fn validate_create(object: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    validate_create_at(&object["metadata"], namespaced, rule, "metadata")
}

/// Also for metadata that is not at the root.
pub(crate) fn validate_create_at(
    metadata: &Value,
    namespaced: bool,
    rule: NameRule,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix = str_at(metadata, "generateName");
    if !prefix.is_empty() {
        for message in rule.check(prefix, true) {
            errors.push(FieldError::invalid(format!("{path}.generateName"), prefix, message));
        }
    }
    let name = str_at(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "name or generateName is required"));
    } else {
        for message in rule.check(name, false) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, message));
        }
    }
    let namespace = str_at(metadata, "namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required(format!("{path}.namespace"), ""));
        } else {
            for message in names::dns_label(namespace) {
                errors.push(FieldError::invalid(format!("{path}.namespace"), namespace, message));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(format!("{path}.namespace"), "not allowed on this type"));
    }
    errors.extend(labels(&metadata["labels"], &format!("{path}.labels")));
    errors.extend(annotations(&metadata["annotations"], &format!("{path}.annotations")));
    errors.extend(owner_references(&metadata["ownerReferences"], &format!("{path}.ownerReferences")));
    errors.extend(finalizers(&metadata["finalizers"], &format!("{path}.finalizers")));
    errors
}

pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    let mut errors = Vec::new();
    if old["deletionTimestamp"].is_string() {
        let before = strings(&old["finalizers"]);
        let mut added: Vec<&str> =
            strings(&new["finalizers"]).into_iter().filter(|f| !before.contains(f)).collect();
        added.sort_unstable();
        if !added.is_empty() {
            let listed: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    listed.join(", ")
                ),
            ));
        }
    }
    if str_at(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    let generation = |metadata: &Value| metadata["generation"].as_i64().unwrap_or(0);
    if generation(new) < generation(old) {
        errors.push(FieldError::invalid("metadata.generation", generation(new), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        let (before, after) = (str_at(old, field), str_at(new, field));
        if before != after {
            errors.push(FieldError::invalid(format!("metadata.{field}"), after, "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if old[field] != new[field] {
            let shown = new[field].clone();
            errors.push(FieldError::invalid(format!("metadata.{field}"), shown, "field is immutable"));
        }
    }
    errors.extend(labels(&new["labels"], "metadata.labels"));
    errors.extend(annotations(&new["annotations"], "metadata.annotations"));
    errors.extend(owner_references(&new["ownerReferences"], "metadata.ownerReferences"));
    errors
}

pub(crate) fn labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), message));
        }
        let value = value.as_str().unwrap_or_default();
        for message in names::label_value(value) {
            errors.push(FieldError::invalid(path, value, message));
        }
    }
    errors
}

pub(crate) fn annotations(annotations: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        for message in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), message));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATION_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATION_LIMIT as u64));
    }
    errors
}

fn owner_references(references: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut first_controller: Option<String> = None;
    for (index, reference) in references.as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}[{index}]");
        let api_version = str_at(reference, "apiVersion");
        let mut segments = api_version.split('/');
        let version_is_missing = match (segments.next(), segments.next(), segments.next()) {
            (Some(version), None, _) | (Some(_), Some(version), None) => version.is_empty(),
            _ => true,
        };
        if api_version.is_empty() {
            errors.push(FieldError::required(format!("{here}.apiVersion"), "must not be empty"));
        } else if version_is_missing {
            let message = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(format!("{here}.apiVersion"), api_version, message));
        }
        for field in ["kind", "name", "uid"] {
            if str_at(reference, field).is_empty() {
                errors.push(FieldError::required(format!("{here}.{field}"), "must not be empty"));
            }
        }
        if api_version == "v1" && reference["kind"] == "Event" {
            let message = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(here, reference.clone(), message));
        }
        if reference["controller"] == true {
            let current = format!("{}/{}", str_at(reference, "kind"), str_at(reference, "name"));
            match &first_controller {
                None => first_controller = Some(current),
                Some(first) => errors.push(FieldError::invalid(
                    path,
                    references.clone(),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {current}"
                    ),
                )),
            }
        }
    }
    errors
}

fn finalizers(finalizers: &Value, path: &str) -> Vec<FieldError> {
    let listed = strings(finalizers);
    let mut errors = Vec::new();
    for finalizer in &listed {
        for message in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(path, *finalizer, message));
        }
    }
    if listed.contains(&"orphan") && listed.contains(&"foregroundDeletion") {
        let message = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers.clone(), message));
    }
    errors
}

/// Built-in kinds accept finalizers of Kubernetes itself, or with a domain.
pub(crate) fn finalizer_names(object: &Value) -> Vec<FieldError> {
    let known = |name: &str| matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    let mut errors = Vec::new();
    for (index, finalizer) in strings(&object["metadata"]["finalizers"]).into_iter().enumerate() {
        if !finalizer.contains('/') && !known(finalizer) {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, message));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::words;
    use serde_json::json;

    fn create_errors(metadata: Value) -> Vec<String> {
        let object = json!({"metadata": metadata});
        words(&validate_create(&object, true, NameRule::DnsSubdomain))
    }

    #[test]
    fn metadata_of_new_objects_is_checked() {
        let cases = [
            (json!({"name": "a", "namespace": "n"}), vec![]),
            (
                json!({"namespace": "n"}),
                vec!["metadata.name: Required value: name or generateName is required"],
            ),
            (json!({"name": "a"}), vec!["metadata.namespace: Required value"]),
            (json!({"name": "a", "generateName": "web-", "namespace": "n"}), vec![]),
            (
                json!({"name": "A", "namespace": "n"}),
                vec![
                    "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case \
                     alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
                     (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                ],
            ),
            (
                json!({"name": "a", "namespace": "n", "labels": {"a/b/c": "x"}}),
                vec![
                    "metadata.labels: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric \
                     characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                     'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' \
                     (e.g. 'example.com/MyName')",
                ],
            ),
            (
                json!({"name": "a", "namespace": "n", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod"}]}),
                vec![
                    "metadata.ownerReferences[0].name: Required value: must not be empty",
                    "metadata.ownerReferences[0].uid: Required value: must not be empty",
                ],
            ),
            (
                json!({"name": "a", "namespace": "n", "annotations": {"big": "x".repeat(256 * 1024)}}),
                vec!["metadata.annotations: Too long: may not be more than 262144 bytes"],
            ),
        ];
        for (metadata, expected) in cases {
            assert_eq!(create_errors(metadata), expected);
        }
    }

    #[test]
    fn identity_is_immutable_and_finalizers_are_frozen_by_deletion() {
        let old =
            json!({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let new = json!({"metadata": {"name": "b", "uid": "1", "deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]}});
        assert_eq!(
            words(&validate_update(&old, &new)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                 new finalizers []string{\"c/d\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.name: Invalid value: \"b\": field is immutable",
            ]
        );
    }
}
