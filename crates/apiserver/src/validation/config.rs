//! Rules of config maps and secrets.

use base64::Engine;
use serde_json::Value;

use super::fields::{same, str_at};
use super::names;
use crate::error::FieldError;

const MAX_BYTES: usize = 1024 * 1024;

fn keys(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for key in object[field].as_object().into_iter().flatten().map(|(key, _)| key) {
        for message in names::config_key(key) {
            errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), message));
        }
        if field == "data" && object["binaryData"].get(key).is_some() {
            let message = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), message));
        }
    }
}

fn decoded_size(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len())
}

pub(crate) fn config_map(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    keys(object, "data", &mut errors);
    keys(object, "binaryData", &mut errors);
    let texts = object["data"].as_object().into_iter().flatten().map(|(_, v)| v.as_str().map_or(0, str::len));
    let bytes = object["binaryData"].as_object().into_iter().flatten().map(|(_, v)| decoded_size(v));
    if texts.chain(bytes).sum::<usize>() > MAX_BYTES {
        errors.push(FieldError::too_long("", MAX_BYTES as u64));
    }
    errors
}

pub(crate) fn secret(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    keys(object, "data", &mut errors);
    let size: usize = object["data"].as_object().into_iter().flatten().map(|(_, v)| decoded_size(v)).sum();
    if size > MAX_BYTES {
        errors.push(FieldError::too_long("data", MAX_BYTES as u64));
    }
    let mut require = |needed: &[&str]| {
        for key in needed {
            if object["data"].get(key).is_none() {
                errors.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
    };
    match str_at(object, "type") {
        "kubernetes.io/dockercfg" => require(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => require(&[".dockerconfigjson"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/basic-auth"
            if object["data"].get("username").is_none() && object["data"].get("password").is_none() =>
        {
            require(&["username", "password"]);
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if str_at(&object["metadata"]["annotations"], name).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        _ => {}
    }
    errors
}

/// What `immutable: true` and a secret's type forbid.
pub(crate) fn update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = super::immutable(old, new, "type").into_iter().collect();
    if old["immutable"] == true {
        let message = "field is immutable when `immutable` is set";
        if new["immutable"] != true {
            errors.push(FieldError::forbidden("immutable", message));
        }
        for field in ["data", "binaryData"] {
            if !same(&old[field], &new[field]) {
                errors.push(FieldError::forbidden(field, message));
            }
        }
    }
    errors
}
