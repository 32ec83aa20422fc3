//! The life of a request on a custom resource: decode, then validate as create, update or status update.

use serde_json::Value;

use super::{CustomKind, defaulting, lists, objectmeta, pruning, scale, values};
use crate::error::{FieldError, FieldErrorKind};
use crate::validation::metadata;

impl CustomKind {
    /// Removes unknown fields and meaningless nulls; returns the sorted paths of the unknown fields.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let root = self.schema_root();
        let mut unknown = objectmeta::prune(object, root, true, "");
        if !self.preserve_unknown_fields {
            unknown.extend(pruning::prune(object, root));
            pruning::drop_stray_nulls(object, Some(root));
        }
        unknown.sort();
        unknown
    }

    /// Fills in the schema's defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        defaulting::default(object, self.schema_root());
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type_meta(object);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(metadata::validate_create(object, self.namespaced, metadata::NameRule::DnsSubdomain));
        errors.extend(values::validate(&self.patterns, self.schema_root(), object, None, ""));
        self.validate_scale(object, true, &mut errors);
        objectmeta::validate_embedded(object, self.schema_root(), "", &mut errors);
        errors.extend(lists::validate(object, self.schema_root()));
        self.validate_rules(object, None, &mut errors);
        errors
    }

    /// An update through the main resource.
    pub(crate) fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type_meta(new);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(metadata::validate_update(old, new));
        errors.extend(values::validate(&self.patterns, self.schema_root(), new, Some(old), ""));
        self.validate_scale(new, true, &mut errors);
        objectmeta::validate_embedded(new, self.schema_root(), "", &mut errors);
        self.validate_lists_update(old, new, &mut errors);
        self.validate_rules(new, Some(old), &mut errors);
        errors
    }

    /// An update through the status subresource: only the status is checked against the schema, all rules run.
    pub(crate) fn validate_status_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type_meta(new);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(metadata::validate_update(old, new));
        if let (Some(status), Some(schema)) = (new.get("status"), self.schema_root().field("status")) {
            errors.extend(values::validate(&self.patterns, schema, status, old.get("status"), "status"));
        }
        self.validate_scale(new, false, &mut errors);
        self.validate_lists_update(old, new, &mut errors);
        self.validate_rules(new, Some(old), &mut errors);
        errors
    }

    fn validate_type_meta(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let api_version = self.api_version();
        for (field, wanted) in [("kind", &self.kind), ("apiVersion", &api_version)] {
            let actual = object[field].as_str().unwrap_or_default();
            if actual != wanted {
                errors.push(FieldError::invalid(field, actual, format!("must be {wanted}")));
            }
        }
        errors
    }

    fn validate_scale(&self, object: &Value, with_spec: bool, errors: &mut Vec<FieldError>) {
        if let Some(paths) = &self.scale {
            errors.extend(scale::validate(paths, object, with_spec));
        }
    }

    /// Objects that already broke a list's uniqueness may keep doing so.
    fn validate_lists_update(&self, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
        let found = lists::validate(new, self.schema_root());
        if !found.is_empty() && lists::validate(old, self.schema_root()).is_empty() {
            errors.extend(found);
        }
    }

    /// Rules are not run on objects whose shape they could not rely on.
    fn validate_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if self.programs.is_empty() {
            return;
        }
        let blocked = errors.iter().any(|e| {
            use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(e.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        });
        if blocked {
            errors.push(FieldError::invalid(
                "<nil>",
                Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing \
                 errors to complete validation",
            ));
        } else {
            errors.extend(self.programs.validate(self.schema_root(), new, old));
        }
    }
}
