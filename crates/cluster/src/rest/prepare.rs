//! What every object goes through on its way into the store, per family of kinds: shape, defaults, validation.

use serde_json::Value;

use super::Call;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::{Kind, KindSchema};
use crate::{crd, defaults, validation};

/// Unknown and duplicate fields: dropped silently, dropped with a warning, or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

fn field_validation(call: &Call<'_>) -> ApiResult<FieldValidation> {
    match call.query.get("fieldValidation") {
        Some("Ignore") => Ok(FieldValidation::Ignore),
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some(other) => {
            let error = FieldError::new(
                crate::error::FieldErrorKind::NotSupported,
                "fieldValidation",
                other.into(),
                "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            );
            Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]))
        }
    }
}

/// Checks types and drops what the kind does not know, as decoding into it would.
pub fn shape(call: &mut Call<'_>, object: &mut Value) -> ApiResult<()> {
    let mode = field_validation(call)?;
    let kind = call.kind.clone();
    let unknown: Vec<String> = match &kind.schema {
        KindSchema::Open => Vec::new(),
        KindSchema::Builtin(schema) => {
            defaults::check_types(object, *schema, &kind.kind, &kind.version)?;
            defaults::drop_unknown(object, *schema)
        }
        KindSchema::Custom(custom) => {
            crd::drop_stray_nulls(object, Some(custom.schema_root()));
            crd::prune(object, custom.schema_root())
        }
    };
    if unknown.is_empty() {
        return Ok(());
    }
    let messages = unknown.iter().map(|field| format!("unknown field \"{field}\""));
    match mode {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => call.warnings.extend(messages),
        FieldValidation::Strict => {
            let list = messages.collect::<Vec<_>>().join(", ");
            return Err(ApiError::bad_request(if kind.is_custom() {
                format!("strict decoding error: {list}")
            } else {
                format!(
                    "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {list}",
                    kind.kind, kind.version, kind.kind
                )
            }));
        }
    }
    Ok(())
}

pub fn default(kind: &Kind, object: &mut Value) {
    match &kind.schema {
        KindSchema::Open => {}
        KindSchema::Builtin(schema) => defaults::apply_defaults(object, *schema),
        KindSchema::Custom(custom) => crd::default(object, custom.schema_root()),
    }
}

/// All rules that a new object must keep.
pub fn validate_create(kind: &Kind, object: &Value) -> ApiResult<()> {
    let mut errors = validation::validate_metadata(kind, object);
    errors.extend(match &kind.schema {
        KindSchema::Custom(custom) => custom.validate_create(object),
        _ => validation::validate_create(&kind.group, &kind.kind, object),
    });
    verdict(kind, object, errors)
}

/// All rules that a change must keep.
pub fn validate_update(kind: &Kind, old: &Value, new: &Value, subresource: &str) -> ApiResult<()> {
    let mut errors = validation::validate_metadata_update(kind, old, new);
    errors.extend(match &kind.schema {
        KindSchema::Custom(custom) => custom.validate_update(old, new),
        _ if subresource == "status" => Vec::new(),
        _ => validation::validate_update(&kind.group, &kind.kind, old, new),
    });
    verdict(kind, new, errors)
}

fn verdict(kind: &Kind, object: &Value, errors: Vec<FieldError>) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = super::metadata::text(object, "name");
    Err(ApiError::invalid(&kind.group, &kind.kind, name, &errors))
}
