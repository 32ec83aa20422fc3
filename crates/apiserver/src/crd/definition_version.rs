//! What one version of a definition declares: schema, subresources, columns, selectable fields.

use serde_json::Value;

use super::cel::Programs;
use super::{compile_patterns, openapi_rules, pruning, schema_build, structural, text, values};
use crate::error::FieldError;
use crate::schema::SchemaSet;

const MAX_SELECTABLE_FIELDS: usize = 8;
const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

pub(crate) fn deprecation(version: &Value, path: &str) -> Vec<FieldError> {
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

pub(crate) fn schema(version: &Value, path: &str) -> Vec<FieldError> {
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

pub(crate) fn subresources(version: &Value, path: &str) -> Vec<FieldError> {
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

pub(crate) fn columns(version: &Value, path: &str) -> Vec<FieldError> {
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

pub(crate) fn selectable_fields(version: &Value, path: &str) -> Vec<FieldError> {
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
