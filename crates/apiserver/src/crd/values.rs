//! Value validation against a schema, with the messages and the order of the server's OpenAPI validator.
//!
//! On updates, errors inside a value that did not change are tolerated (ratcheting), so that a tightened
//! schema does not lock existing objects.

use serde_json::Value;

use super::correlate::{old_field, old_item};
use super::scalars::{check_enum, check_number, check_type};
use super::{Patterns, formats};
use crate::error::{FieldError, go_quote};
use crate::schema::{Rules, SchemaRef, Type};

/// Errors of `value` against `schema`; `base` is put in front of field paths (`status`), messages stay
/// relative to the value as in the real server.
pub(crate) fn validate(
    patterns: &Patterns,
    schema: SchemaRef<'_>,
    value: &Value,
    old: Option<&Value>,
    base: &str,
) -> Vec<FieldError> {
    let outcome = Validator { patterns }.ratcheted(schema, value, old, "");
    outcome.errors.into_iter().map(|error| error.into_field_error(base)).collect()
}

/// What a failed check becomes; composite failures belong to no field.
pub(super) enum Failure {
    Required,
    Enum(Value, Vec<Value>),
    TooLong(u64),
    TooMany(u64, u64),
    Type(Value),
    Invalid(Value),
    Composite,
}

pub(super) struct ValueError {
    path: String,
    message: String,
    failure: Failure,
}

impl ValueError {
    pub(super) fn new(path: &str, failure: Failure, rest: &str) -> Self {
        Self { path: path.to_string(), message: format!("{path} in body {rest}"), failure }
    }

    pub(super) fn composite(message: String) -> Self {
        Self { path: String::new(), message, failure: Failure::Composite }
    }

    fn into_field_error(self, base: &str) -> FieldError {
        let name = self.path.strip_prefix('.').unwrap_or(&self.path);
        let field = match (base, name) {
            ("", "") => "<nil>".to_string(),
            ("", name) => name.to_string(),
            (base, "") => base.to_string(),
            (base, name) => format!("{base}.{name}"),
        };
        match self.failure {
            Failure::Required => FieldError::required(field, ""),
            Failure::Enum(value, accepted) => {
                let accepted: Vec<String> = accepted
                    .iter()
                    .map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_string))
                    .collect();
                FieldError::not_supported(field, value, &accepted)
            }
            Failure::TooLong(max) => FieldError::too_long(field, max),
            Failure::TooMany(actual, max) => FieldError::too_many(field, actual, max),
            Failure::Type(value) => FieldError::type_invalid(field, value, self.message),
            Failure::Invalid(value) => FieldError::invalid(field, value, self.message),
            Failure::Composite => {
                FieldError::invalid(if base.is_empty() { "<nil>" } else { base }, "", self.message)
            }
        }
    }
}

/// Errors found, and how many checks passed: of several failed alternatives the best match is reported.
#[derive(Default)]
pub(super) struct Validation {
    errors: Vec<ValueError>,
    pub(super) matched: usize,
}

impl Validation {
    pub(super) fn add(&mut self, error: ValueError) {
        if !self.errors.iter().any(|e| e.message == error.message) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Validation) {
        self.matched += other.matched;
        for error in other.errors {
            self.add(error);
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

struct Validator<'k> {
    patterns: &'k Patterns,
}

impl Validator<'_> {
    fn ratcheted(&self, schema: SchemaRef<'_>, value: &Value, old: Option<&Value>, path: &str) -> Validation {
        let mut outcome = self.check(schema, value, old, path);
        if !outcome.is_valid() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn check(&self, schema: SchemaRef<'_>, value: &Value, old: Option<&Value>, path: &str) -> Validation {
        let node = schema.node();
        let rules = node.rules.as_deref();
        let mut outcome = Validation::default();
        check_type(node, value, path, &mut outcome);
        if value.is_null() {
            check_enum(rules, value, path, &mut outcome);
            return outcome;
        }
        if let Some(rules) = rules {
            self.check_branches(schema, rules, value, old, path, &mut outcome);
        }
        match value {
            Value::String(text) => {
                if let Some(rules) = rules {
                    self.check_string(schema, rules, text, path, &mut outcome);
                }
                if let Some(format) = &node.format
                    && matches!(node.ty, Type::String | Type::Any)
                    && !formats::matches(format, text)
                {
                    let rest = format!("must be of type {format}: {}", go_quote(text));
                    outcome.add(ValueError::new(path, Failure::Type(text.as_str().into()), &rest));
                }
                outcome.matched += 2;
            }
            Value::Number(number) => {
                check_number(node, rules, number, path, &mut outcome);
                outcome.matched += 2;
            }
            Value::Array(items) => {
                self.check_array(schema, rules, items, old, path, &mut outcome);
                outcome.matched += 2;
            }
            _ => {}
        }
        check_enum(rules, value, path, &mut outcome);
        outcome.matched += 1;
        if let Value::Object(fields) = value {
            self.check_object(schema, rules, fields, old, path, &mut outcome);
            outcome.matched += 1;
        }
        outcome.matched += 1;
        outcome
    }

    fn check_branches(
        &self,
        schema: SchemaRef<'_>,
        rules: &Rules,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        outcome: &mut Validation,
    ) {
        let run = |id: &crate::schema::NodeId| self.check(schema.set.at(*id), value, old, path);
        let quoted = go_quote(path);
        if !rules.any_of.is_empty() {
            let mut best: Option<Validation> = None;
            let mut passed = false;
            for branch in rules.any_of.iter().map(run) {
                if branch.is_valid() {
                    outcome.matched += branch.matched;
                    passed = true;
                    break;
                }
                if best.as_ref().is_none_or(|b| branch.matched > b.matched) {
                    best = Some(branch);
                }
            }
            if !passed {
                outcome.add(ValueError::composite(format!(
                    "{quoted} must validate at least one schema (anyOf)"
                )));
                outcome.merge(best.unwrap_or_default());
            }
        }
        if !rules.one_of.is_empty() {
            let mut best: Option<Validation> = None;
            let mut passed = 0;
            for branch in rules.one_of.iter().map(run) {
                if branch.is_valid() {
                    if passed == 0 {
                        outcome.matched += branch.matched;
                    }
                    passed += 1;
                    best = None;
                } else if passed == 0 && best.as_ref().is_none_or(|b| branch.matched > b.matched) {
                    best = Some(branch);
                }
            }
            if passed != 1 {
                let found = match passed {
                    0 => "Found none valid".to_string(),
                    n => format!("Found {n} valid alternatives"),
                };
                outcome.add(ValueError::composite(format!(
                    "{quoted} must validate one and only one schema (oneOf). {found}"
                )));
                outcome.merge(best.unwrap_or_default());
            }
        }
        if !rules.all_of.is_empty() {
            let mut passed = 0;
            for branch in rules.all_of.iter().map(run) {
                passed += usize::from(branch.is_valid());
                outcome.merge(branch);
            }
            if passed != rules.all_of.len() {
                let none = if passed == 0 { ". None validated" } else { "" };
                outcome.add(ValueError::composite(format!(
                    "{quoted} must validate all the schemas (allOf){none}"
                )));
            }
        }
        if let Some(not) = &rules.not
            && run(not).is_valid()
        {
            outcome.add(ValueError::composite(format!("{quoted} must not validate the schema (not)")));
        }
    }

    fn check_string(
        &self,
        schema: SchemaRef<'_>,
        rules: &Rules,
        text: &str,
        path: &str,
        outcome: &mut Validation,
    ) {
        let length = text.chars().count() as u64;
        if let Some(max) = rules.max_length
            && length > max
        {
            outcome.add(ValueError::new(
                path,
                Failure::TooLong(max),
                &format!("should be at most {max} chars long"),
            ));
        } else if let Some(min) = rules.min_length
            && length < min
        {
            let rest = format!("should be at least {min} chars long");
            outcome.add(ValueError::new(path, Failure::Invalid(text.into()), &rest));
        } else if let Some(regex) = self.patterns.get(&schema.id)
            && !regex.is_match(text)
        {
            let rest = format!("should match '{}'", regex.as_str());
            outcome.add(ValueError::new(path, Failure::Invalid(text.into()), &rest));
        }
    }

    fn check_array(
        &self,
        schema: SchemaRef<'_>,
        rules: Option<&Rules>,
        items: &[Value],
        old: Option<&Value>,
        path: &str,
        outcome: &mut Validation,
    ) {
        if let Some(item_schema) = schema.items() {
            for (index, item) in items.iter().enumerate() {
                let old = old_item(schema, old, item);
                outcome.merge(self.ratcheted(item_schema, item, old, &format!("{path}[{index}]")));
            }
        }
        let Some(rules) = rules else { return };
        let size = items.len() as u64;
        if let Some(min) = rules.min_items
            && size < min
        {
            let rest = format!("should have at least {min} items");
            outcome.add(ValueError::new(path, Failure::Invalid(size.into()), &rest));
        }
        if let Some(max) = rules.max_items
            && size > max
        {
            let rest = format!("should have at most {max} items");
            outcome.add(ValueError::new(path, Failure::TooMany(size, max), &rest));
        }
        if rules.unique_items && (1..items.len()).any(|i| items[..i].contains(&items[i])) {
            outcome.add(ValueError::new(path, Failure::Invalid("".into()), "shouldn't contain duplicates"));
        }
    }

    fn check_object(
        &self,
        schema: SchemaRef<'_>,
        rules: Option<&Rules>,
        fields: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        path: &str,
        outcome: &mut Validation,
    ) {
        let node = schema.node();
        let size = fields.len() as u64;
        if let Some(min) = rules.and_then(|r| r.min_properties)
            && size < min
        {
            let rest = format!("should have at least {min} properties");
            outcome.add(ValueError::new(path, Failure::Invalid(size.into()), &rest));
        }
        if let Some(max) = rules.and_then(|r| r.max_properties)
            && size > max
        {
            let rest = format!("should have at most {max} properties");
            outcome.add(ValueError::new(path, Failure::TooMany(size, max), &rest));
        }
        for (name, field) in fields {
            let Some(child) = schema.field(name) else { continue };
            let declared = node.properties.contains_key(name);
            let child_path =
                if path.is_empty() && declared { name.clone() } else { format!("{path}.{name}") };
            // The type of a resource is set by the request path, so its change cannot be seen here.
            let invisible = path.is_empty() && (name == "kind" || name == "apiVersion");
            let old = if invisible { None } else { old_field(old, name) };
            outcome.merge(self.ratcheted(child, field, old, &child_path));
        }
        for name in &node.required {
            if !fields.contains_key(name) {
                outcome.add(ValueError::new(&format!("{path}.{name}"), Failure::Required, "is required"));
            }
        }
    }
}
