//! What every object goes through on its way into the store, per family of kinds: shape, defaults, validation.

use serde_json::Value;

use super::{Call, options_kind};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::{Kind, KindSchema};
use crate::{crd, defaults, encoding, schema, strategy, validation};

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
            Err(ApiError::invalid("meta.k8s.io", options_kind(&call.attributes.verb), "", &[error]))
        }
    }
}

/// Checks types and drops what the kind does not know, as decoding into it would.
pub(crate) fn shape(call: &mut Call<'_>, object: &mut Value) -> ApiResult<()> {
    if let KindSchema::Builtin(schema) = &call.kind.schema {
        defaults::check_types(object, *schema)?;
    }
    shape_checked(call, object)
}

/// The same for an object whose types are known to be right, as those of a patch's result.
pub(crate) fn shape_checked(call: &mut Call<'_>, object: &mut Value) -> ApiResult<()> {
    let mode = field_validation(call)?;
    let kind = call.kind.clone();
    let unknown: Vec<String> = match &kind.schema {
        KindSchema::Open => Vec::new(),
        KindSchema::Builtin(schema) => {
            let unknown = defaults::drop_unknown(object, *schema);
            encoding::as_go(object, *schema);
            unknown
        }
        KindSchema::Custom(custom) => {
            check_metadata(object)?;
            custom.prune(object).into_iter().map(|field| format!("unknown field \"{field}\"")).collect()
        }
    };
    match mode {
        _ if unknown.is_empty() => {}
        FieldValidation::Ignore => {}
        FieldValidation::Warn => call.warnings.extend(unknown),
        FieldValidation::Strict => return Err(defaults::strict_error(object, &unknown)),
    }
    Ok(())
}

/// Metadata has the same shape everywhere, also where the definition says nothing about it.
fn check_metadata(object: &mut Value) -> ApiResult<()> {
    let Some(schema) = schema::builtin().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else {
        return Ok(());
    };
    if let Some(problem) = defaults::type_problem(&object["metadata"], schema) {
        return Err(defaults::refused(object, &problem));
    }
    encoding::as_go(&mut object["metadata"], schema);
    Ok(())
}

pub(crate) fn default(kind: &Kind, object: &mut Value) {
    match &kind.schema {
        KindSchema::Open => {}
        KindSchema::Builtin(schema) => {
            strategy::decoded(kind, object);
            defaults::apply_defaults(object, *schema);
            if is_definition(kind) {
                crd::default_definition(object);
            }
        }
        KindSchema::Custom(custom) => custom.default(object),
    }
}

fn is_definition(kind: &Kind) -> bool {
    kind.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// All rules that a new object must keep.
pub(crate) fn validate_create(kind: &Kind, object: &Value) -> ApiResult<()> {
    let errors = match &kind.schema {
        KindSchema::Custom(custom) => custom.validate_create(object),
        _ if is_definition(kind) => crd::validate_definition(object),
        _ => validation::validate_create(&kind.group, &kind.kind, object, kind.namespaced),
    };
    verdict(kind, object, &errors)
}

/// All rules that a change must keep.
pub(crate) fn validate_update(kind: &Kind, old: &Value, new: &Value, subresource: &str) -> ApiResult<()> {
    let errors = match &kind.schema {
        KindSchema::Custom(custom) if subresource == "status" => custom.validate_status_update(old, new),
        KindSchema::Custom(custom) => custom.validate_update(old, new),
        _ if !matches!(subresource, "" | "scale") => {
            let mut errors = validation::metadata::validate_update(old, new);
            errors.extend(validation::status::validate(&kind.group, &kind.kind, new));
            errors
        }
        _ if is_definition(kind) => crd::validate_definition_update(old, new),
        _ => validation::validate_update(&kind.group, &kind.kind, old, new),
    };
    verdict(kind, new, &errors)
}

fn verdict(kind: &Kind, object: &Value, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = super::metadata::text(object, "name");
    let group = if kind.kind == "Event" { "" } else { &kind.group };
    // Named as the object names itself, which is part of what may be wrong with it.
    Err(ApiError::invalid(group, object["kind"].as_str().unwrap_or(&kind.kind), name, errors))
}
