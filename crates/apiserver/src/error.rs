//! Errors as the API server words them: a `Status` with code, reason, message and details.

use serde_json::{Value, json};

/// What went wrong with one field, in the wording of Kubernetes' field errors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    pub kind: FieldErrorKind,
    /// Path as users read it: `spec.containers[0].name`.
    pub field: String,
    /// The offending value, where the wording shows it.
    pub value: Option<Value>,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
}

impl FieldErrorKind {
    /// The machine-readable cause, `details.causes[].reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

impl FieldError {
    pub(crate) fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value: Some(value), detail: detail.into() }
    }

    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Required, field: field.into(), value: None, detail: detail.into() }
    }

    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), detail)
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// A value outside of an enumeration; `accepted` is listed in the order given.
    pub(crate) fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<Value>,
        accepted: &[S],
    ) -> Self {
        let quoted: Vec<String> = accepted.iter().map(|a| go_quote(a.as_ref())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, value.into(), detail)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value.into(), "")
    }

    pub(crate) fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value.into(), "")
    }

    /// The value itself is never shown: it is too long.
    pub(crate) fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self {
            kind: FieldErrorKind::TooLong,
            field: field.into(),
            value: None,
            detail: format!("may not be more than {max} {unit}"),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(FieldErrorKind::TooMany, field, actual.into(), format!("must have at most {max} {unit}"))
    }

    pub(crate) fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value.into(), detail)
    }

    /// The message without the field's name: `Invalid value: "x": must be ...`.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.words().to_string();
        if self.kind.shows_value()
            && let Some(value) = &self.value
        {
            text.push_str(": ");
            text.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// A value as the field errors print it: scalars the way Go prints them, anything else as Go's JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => go_quote(s),
        Value::Number(n) if n.is_f64() => go_float(n.as_f64().unwrap_or_default()),
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        other => other.to_string(),
    }
}

/// A string in double quotes with Go's escapes.
pub(crate) fn go_quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A float as Go's `%v` prints it: shortest form, exponent from 1e21 on and below 1e-4.
pub(crate) fn go_float(f: f64) -> String {
    let size = f.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{f:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => ('-', digits),
                    None => ('+', exponent),
                };
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    format!("{f}")
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A failed request, as the `Status` object that clients read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// `details`, complete, or null.
    pub details: Value,
    pub retry_after: Option<u32>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, retry_after: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// 422: the object named `name` of `kind` (in `group`) breaks the listed rules.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let list = match errors {
            [one] => one.to_string(),
            many => {
                format!("[{}]", many.iter().map(FieldError::to_string).collect::<Vec<_>>().join(", "))
            }
        };
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.kind.reason(), "message": e.body(), "field": e.field}))
            .collect();
        let mut details = json!({"name": name, "kind": kind, "causes": causes});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        if name.is_empty() {
            details.as_object_mut().map(|d| d.remove("name"));
        }
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}")).with_details(details)
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self.reason.is_empty() {
            status.as_object_mut().map(|s| s.remove("reason"));
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(seconds) = self.retry_after {
            status["details"]["retryAfterSeconds"] = seconds.into();
        }
        status
    }
}

/// Errors as messages show them.
#[cfg(test)]
pub(crate) fn words(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_errors_print_values_as_go_does() {
        let cases: Vec<(FieldError, &str)> = vec![
            (FieldError::invalid("a", "x\"y", "no"), r#"a: Invalid value: "x\"y": no"#),
            (FieldError::invalid("a", 2.0, "no"), "a: Invalid value: 2: no"),
            (FieldError::invalid("a", 1e21, "no"), "a: Invalid value: 1e+21: no"),
            (FieldError::invalid("a", 0.00001, "no"), "a: Invalid value: 1e-05: no"),
            (FieldError::invalid("a", Value::Null, "no"), "a: Invalid value: null: no"),
            (
                FieldError::invalid("a", json!({"k": "<v>"}), "no"),
                r#"a: Invalid value: {"k":"\u003cv\u003e"}: no"#,
            ),
            (FieldError::required("a", ""), "a: Required value"),
            (FieldError::too_long("a", 1), "a: Too long: may not be more than 1 byte"),
            (FieldError::too_many("a", 3, 2), "a: Too many: 3: must have at most 2 items"),
            (FieldError::duplicate("a", "x"), r#"a: Duplicate value: "x""#),
            (
                FieldError::not_supported("a", "x", &["b", "c"]),
                r#"a: Unsupported value: "x": supported values: "b", "c""#,
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
