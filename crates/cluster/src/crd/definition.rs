//! Is a CustomResourceDefinition acceptable? The server's answers, in its words and order.

use serde_json::{Value, json};

use super::cel::Programs;
use super::{
    compile_patterns, openapi_rules, pruning, schema_build, status, structural, text, texts, values,
};
use crate::error::FieldError;
use crate::schema::SchemaSet;
use crate::validation::{metadata, names};

const APPROVAL: &str = "api-approved.kubernetes.io";
const MAX_SELECTABLE_FIELDS: usize = 8;
const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

/// Fills in what a definition may leave out: singular, list kind, conversion strategy.
pub fn default_definition(crd: &mut Value) {
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
pub fn validate_definition(crd: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_create(crd, false, metadata::NameRule::DnsSubdomain);
    let wanted = format!("{}.{}", text(&crd["spec"]["names"]["plural"]), text(&crd["spec"]["group"]));
    let name = text(&crd["metadata"]["name"]);
    if !name.is_empty() && name != wanted {
        let message = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, message));
    }
    errors.extend(spec(&crd["spec"]));
    errors.extend(approval_errors(crd, None));
    errors.extend(preserve_unknown(crd, None));
    errors
}

/// Errors of a changed definition.
pub fn validate_definition_update(old: &Value, new: &Value) -> Vec<FieldError> {
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

fn deprecation(version: &Value, path: &str) -> Vec<FieldError> {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let mut messages = Vec::new();
    if version["deprecated"] != true {
        messages.push("can only be set for deprecated versions");
    } else if warning.len() > 256 {
        messages.push("must be <= 256 characters long");
    } else if warning.is_empty() {
        messages.push("must not be an empty string");
    }
    messages
        .into_iter()
        .map(|m| FieldError::invalid(format!("{path}.deprecationWarning"), warning, m))
        .collect()
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

fn schema(version: &Value, path: &str) -> Vec<FieldError> {
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut errors = Vec::new();
    let Some(fields) = schema.as_object() else { return errors };
    let here = format!("{path}.openAPIV3Schema");
    if version["subresources"]["status"].is_object() {
        const ALLOWED: [(&str, &str); 22] = [
            ("Description", "description"),
            ("Type", "type"),
            ("Format", "format"),
            ("Title", "title"),
            ("Maximum", "maximum"),
            ("ExclusiveMaximum", "exclusiveMaximum"),
            ("Minimum", "minimum"),
            ("ExclusiveMinimum", "exclusiveMinimum"),
            ("MaxLength", "maxLength"),
            ("MinLength", "minLength"),
            ("Pattern", "pattern"),
            ("MaxItems", "maxItems"),
            ("MinItems", "minItems"),
            ("UniqueItems", "uniqueItems"),
            ("MultipleOf", "multipleOf"),
            ("Required", "required"),
            ("Items", "items"),
            ("Properties", "properties"),
            ("ExternalDocs", "externalDocs"),
            ("Example", "example"),
            ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
            ("XValidations", "x-kubernetes-validations"),
        ];
        if let Some(ty) = schema["type"].as_str()
            && ty != "object"
        {
            let message = "only \"object\" is allowed as the type at the root of the schema if the status subresource \
                           is enabled";
            errors.push(FieldError::invalid(format!("{here}.type"), ty, message));
        } else if fields.keys().any(|keyword| !ALLOWED.iter().any(|(_, allowed)| allowed == keyword)) {
            let listed: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
            errors.push(FieldError::invalid(
                here.clone(),
                schema.clone(),
                format!(
                    "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                    listed.join(" ")
                ),
            ));
        }
    }
    if schema["nullable"] == true {
        errors.push(FieldError::forbidden(format!("{here}.nullable"), "nullable cannot be true at the root"));
    }
    let mut unsound = structural::validate(schema, &here);
    if unsound.is_empty() {
        defaults(schema, &here, &mut unsound);
    }
    let with_rules = unsound.is_empty();
    errors.extend(unsound);
    errors.extend(openapi_rules::validate(schema, &here, with_rules));
    errors
}

/// Every default must be a valid value of its schema, with nothing in it to prune.
fn defaults(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
        let here = format!("{path}.default");
        let mut set = SchemaSet::default();
        let id = schema_build::build(&mut set, schema);
        let mut pruned = default.clone();
        pruning::prune_value(&mut pruned, set.at(id));
        if pruned != *default {
            errors.push(FieldError::invalid(here, default.clone(), "must not have unknown fields"));
        } else {
            let found = values::validate(&compile_patterns(&set), set.at(id), default, None, &here);
            if found.is_empty() {
                errors.extend(Programs::compile(&set).validate_value(set.at(id), default, &here));
            } else {
                errors.extend(found);
            }
        }
    }
    if schema["items"].is_object() {
        defaults(&schema["items"], &format!("{path}.items"), errors);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        defaults(property, &format!("{path}.properties[{name}]"), errors);
    }
    if schema["additionalProperties"].is_object() {
        defaults(&schema["additionalProperties"], &format!("{path}.additionalProperties"), errors);
    }
}

fn subresources(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let scale = &version["subresources"]["scale"];
    if !scale.is_object() {
        return errors;
    }
    let rules = [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."][..], "should be a json path under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (field, roots, message) in rules {
        let value = text(&scale[field]);
        let here = format!("{path}.scale.{field}");
        if value.is_empty() {
            if field != "labelSelectorPath" {
                errors.push(FieldError::required(here, ""));
            }
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(here, value, "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(here, value, message));
        }
    }
    errors
}

fn columns(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}[{index}]");
        if text(&column["name"]).is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        }
        let ty = text(&column["type"]);
        let message = format!("must be one of {COLUMN_TYPES}");
        if ty.is_empty() {
            errors.push(FieldError::required(format!("{here}.type"), message));
        } else if !COLUMN_TYPES.split(',').any(|known| known == ty) {
            errors.push(FieldError::invalid(format!("{here}.type"), ty, message));
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !COLUMN_FORMATS.split(',').any(|known| known == format) {
            let message = format!("must be one of {COLUMN_FORMATS}");
            errors.push(FieldError::invalid(format!("{here}.format"), format, message));
        }
        let json_path = text(&column["jsonPath"]);
        if json_path.is_empty() {
            errors.push(FieldError::required(format!("{here}.JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            let message = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(format!("{here}.JSONPath"), json_path, message));
        }
    }
    errors
}

fn selectable_fields(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (index, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}[{index}].jsonPath");
        let json_path = text(&field["jsonPath"]);
        if json_path.is_empty() {
            errors.push(FieldError::required(here, ""));
            continue;
        }
        let resolved = if json_path.contains('[') {
            Err("array notation is not allowed".to_string())
        } else {
            openapi_rules::resolve(&version["schema"]["openAPIV3Schema"], &json_path)
        };
        match resolved {
            Err(error) => {
                errors.push(FieldError::invalid(here, json_path, format!("is an invalid path: {error}")));
                continue;
            }
            Ok(schema) if !matches!(schema["type"].as_str(), Some("string" | "boolean" | "integer")) => {
                errors.push(FieldError::invalid(
                    here.clone(),
                    json_path.as_str(),
                    "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                     formats are allowed.",
                ));
            }
            Ok(_) if json_path.starts_with(".metadata") => {
                let message = "must not point to fields in metadata";
                errors.push(FieldError::invalid(here.clone(), json_path.as_str(), message));
            }
            Ok(_) => {}
        }
        if seen.contains(&json_path) {
            errors.push(FieldError::duplicate(here, json_path));
        } else {
            seen.push(json_path);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, seen.len() as u64, MAX_SELECTABLE_FIELDS as u64));
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    Approved,
    Bypassed,
    Missing,
    Invalid,
}

/// Groups that belong to the Kubernetes project.
pub(super) fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// The state of the approval annotation, and the reason shown for it.
pub(super) fn approval(crd: &Value) -> (Approval, String) {
    let annotation = text(&crd["metadata"]["annotations"][APPROVAL]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if annotation.is_empty() {
        let reason = format!("protected groups must have approval annotation \"{APPROVAL}\", {see}");
        return (Approval::Missing, reason);
    }
    if annotation.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: \"{annotation}\""));
    }
    let host = annotation.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    if host.is_some_and(|host| !host.is_empty()) {
        return (Approval::Approved, format!("approved in {annotation}"));
    }
    let reason = format!(
        "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \
         \"unapproved\", {see}"
    );
    (Approval::Invalid, reason)
}

/// An unchanged state of approval is never an error.
fn approval_errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !is_protected_group(&text(&new["spec"]["group"])) {
        return Vec::new();
    }
    let (state, reason) = approval(new);
    if old.is_some_and(|old| approval(old).0 == state) {
        return Vec::new();
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    match state {
        Approval::Missing => vec![FieldError::required(field, reason)],
        Approval::Invalid => {
            vec![FieldError::invalid(field, text(&new["metadata"]["annotations"][APPROVAL]), reason)]
        }
        Approval::Approved | Approval::Bypassed => Vec::new(),
    }
}

fn preserve_unknown(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let is_set = |crd: &Value| crd["spec"]["preserveUnknownFields"] == true;
    if !is_set(new) || old.is_some_and(is_set) {
        return Vec::new();
    }
    let message = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    vec![FieldError::invalid("spec.preserveUnknownFields", true, message)]
}
