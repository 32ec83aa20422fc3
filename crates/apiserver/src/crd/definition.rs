//! Is a CustomResourceDefinition acceptable? The server's answers, in its words and order.

use serde_json::{Value, json};

use super::approval::approval_errors;
use super::definition_version::{columns, deprecation, schema, selectable_fields, subresources};
use super::{status, text, texts};
use crate::error::FieldError;
use crate::validation::{metadata, names};

/// Fills in what a definition may leave out: singular, list kind, conversion strategy.
pub(crate) fn default_definition(crd: &mut Value) {
    let kind = text(&crd["spec"]["names"]["kind"]);
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let is_empty = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
        if is_empty(names.get("singular")) {
            names.insert("singular".to_string(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_string(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_string(), json!({"strategy": "None"}));
    }
}

/// Errors of a new definition, after [`default_definition`].
pub(crate) fn validate_definition(crd: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_create(crd, false, metadata::NameRule::DnsSubdomain);
    let wanted = format!("{}.{}", text(&crd["spec"]["names"]["plural"]), text(&crd["spec"]["group"]));
    let name = text(&crd["metadata"]["name"]);
    if !name.is_empty() && name != wanted {
        let message = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, message));
    }
    errors.extend(spec(&crd["spec"]));
    let versions = crd["spec"]["versions"].as_array();
    if !versions.into_iter().flatten().any(|version| version["storage"] == true) {
        let message = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", Value::Null, message));
    }
    errors.extend(approval_errors(crd, None));
    errors.extend(preserve_unknown(crd, None));
    errors
}

/// Errors of a changed definition.
pub(crate) fn validate_definition_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_update(old, new);
    errors.extend(spec(&new["spec"]));
    let mut immutable = |pointer: &str, field: &str| {
        let value = |crd: &Value| crd["spec"].pointer(pointer).cloned().unwrap_or("".into());
        if value(old) != value(new) {
            errors.push(FieldError::invalid(field, value(new), "field is immutable"));
        }
    };
    if status::is_established(old) {
        immutable("/scope", "spec.scope");
        immutable("/names/kind", "spec.names.kind");
    }
    immutable("/group", "spec.group");
    immutable("/names/plural", "spec.names.plural");
    errors.extend(stored_versions(new));
    errors.extend(approval_errors(new, Some(old)));
    errors.extend(preserve_unknown(new, Some(old)));
    errors
}

fn spec(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = text(&spec["group"]);
    let problems = names::dns_subdomain(&group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    // What all versions agree on is reported once, as a property of the whole definition.
    let shared = |field: &str| versions.iter().all(|v| v[field] == versions[0][field]);
    for (index, version) in versions.iter().enumerate() {
        let here = format!("spec.versions[{index}]");
        let name = text(&version["name"]);
        let problems = names::dns1035_label(&name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{here}.name"), name, problems.join(",")));
        }
        errors.extend(deprecation(version, &here));
        if !shared("schema") {
            errors.extend(schema(version, &format!("{here}.schema")));
        }
        if !shared("subresources") {
            errors.extend(subresources(version, &format!("{here}.subresources")));
        }
        if !shared("additionalPrinterColumns") {
            errors.extend(columns(version, &format!("{here}.additionalPrinterColumns")));
        }
        if !shared("selectableFields") {
            errors.extend(selectable_fields(version, &format!("{here}.selectableFields")));
        }
    }
    let mut seen: Vec<&str> = versions.iter().filter_map(|v| v["name"].as_str()).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        let message = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), message));
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let message = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), message));
    }
    if let Some(first) = versions.first() {
        let name = text(&first["name"]);
        let problems = names::dns1035_label(&name);
        if !name.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid("spec.version", name, problems.join(",")));
        }
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][field]).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    errors.extend(resource_names(&spec["names"]));
    if let Some(first) = versions.first() {
        if shared("schema") {
            errors.extend(schema(first, "spec.validation"));
        }
        if shared("subresources") {
            errors.extend(subresources(first, "spec.subresources"));
        }
        if shared("additionalPrinterColumns") {
            errors.extend(columns(first, "spec.additionalPrinterColumns"));
        }
        if shared("selectableFields") {
            errors.extend(selectable_fields(first, "spec.selectableFields"));
        }
    }
    errors.extend(conversion(&spec["conversion"]));
    errors
}

fn resource_names(names: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["plural", "singular"] {
        let name = text(&names[field]);
        let problems = names::dns1035_label(&name);
        if !name.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid(format!("spec.names.{field}"), name, problems.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let name = text(&names[field]);
        let problems = names::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let message = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(FieldError::invalid(format!("spec.names.{field}"), name, message));
        }
    }
    for (field, path) in [("shortNames", "spec.names.shortNames"), ("categories", "spec.names.categories")] {
        for (index, name) in texts(&names[field]).into_iter().enumerate() {
            let problems = names::dns1035_label(&name);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(format!("{path}[{index}]"), name, problems.join(",")));
            }
        }
        if field == "shortNames" && names["kind"] == names["listKind"] && !text(&names["kind"]).is_empty() {
            let message = "kind and listKind may not be the same";
            errors.push(FieldError::invalid("spec.names.listKind", text(&names["listKind"]), message));
        }
    }
    errors
}

fn conversion(conversion: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if conversion.is_null() {
        return errors;
    }
    let webhook = &conversion["webhook"];
    match conversion["strategy"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" => {
            if webhook.is_object() {
                errors.push(FieldError::forbidden(
                    "spec.conversion.webhookClientConfig",
                    "should not be set when strategy is not set to Webhook",
                ));
            }
        }
        "Webhook" => {
            if !webhook["clientConfig"].is_object() {
                errors.push(FieldError::required(
                    "spec.conversion.webhookClientConfig",
                    "required when strategy is set to Webhook",
                ));
            }
            if texts(&webhook["conversionReviewVersions"]).is_empty() {
                errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
            }
        }
        other => {
            errors.push(FieldError::not_supported("spec.conversion.strategy", other, &["None", "Webhook"]));
        }
    }
    errors
}

/// A version that objects may still be stored in cannot be dropped.
fn stored_versions(crd: &Value) -> Vec<FieldError> {
    let versions: Vec<String> =
        crd["spec"]["versions"].as_array().into_iter().flatten().map(|v| text(&v["name"])).collect();
    let mut errors = Vec::new();
    for (index, stored) in texts(&crd["status"]["storedVersions"]).into_iter().enumerate() {
        if !versions.contains(&stored) {
            let message = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {stored} and removes {stored} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("status.storedVersions[{index}]"), stored, message));
        }
    }
    errors
}

fn preserve_unknown(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let is_set = |crd: &Value| crd["spec"]["preserveUnknownFields"] == true;
    if !is_set(new) || old.is_some_and(is_set) {
        return Vec::new();
    }
    let message = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    vec![FieldError::invalid("spec.preserveUnknownFields", true, message)]
}
