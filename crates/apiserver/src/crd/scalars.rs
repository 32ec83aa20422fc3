//! Checks of single values: type, enumeration, range.

use serde_json::{Number, Value};

use super::values::{Failure, Validation, ValueError};
use crate::error::{go_float, go_quote};
use crate::schema::{Node, Rules, Type};

pub(crate) fn check_enum(rules: Option<&Rules>, value: &Value, path: &str, outcome: &mut Validation) {
    let Some(rules) = rules else { return };
    if !rules.enum_values.is_empty() && !rules.enum_values.iter().any(|accepted| same(accepted, value)) {
        let failure = Failure::Enum(value.clone(), rules.enum_values.clone());
        outcome.add(ValueError::new(path, failure, "should be one of the listed values"));
    }
}

/// Equality of JSON values in which 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn type_names(ty: Type) -> &'static [&'static str] {
    match ty {
        Type::Any => &[],
        Type::Object => &["object"],
        Type::Array => &["array"],
        Type::String => &["string"],
        Type::Integer => &["integer"],
        Type::Number => &["number"],
        Type::Boolean => &["boolean"],
        Type::IntOrString => &["integer", "string"],
    }
}

pub(crate) fn check_type(node: &Node, value: &Value, path: &str, outcome: &mut Validation) {
    let names = type_names(node.ty);
    let format = node.format.as_deref().unwrap_or_default();
    let mut fail = |wanted: &str, got: &str| {
        let rest = format!("must be of type {wanted}: {}", go_quote(got));
        outcome.add(ValueError::new(path, Failure::Type(got.into()), &rest));
    };
    if names.is_empty() && format.is_empty() {
        return;
    }
    let (actual, actual_format) = match value {
        Value::Null => {
            if !names.is_empty() && !node.nullable {
                fail(&names.join(","), "null");
            } else {
                outcome.matched += 1;
            }
            return;
        }
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(n) if n.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let numeric = names.contains(&"integer") || names.contains(&"number");
    let integral = actual == "number"
        && names.contains(&"integer")
        && value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9.007_199_254_740_992e15);
    let widened = actual == "integer" && names.contains(&"number");
    let fits = names.contains(&actual) || integral || widened;
    let text_like = matches!(value, Value::String(_) | Value::Array(_));
    if !text_like && !format.is_empty() && !fits && actual_format != format {
        fail(format, actual_format);
    } else if !numeric && !format.is_empty() && text_like || fits {
        outcome.matched += 2;
    } else {
        fail(&names.join(","), actual);
    }
}

pub(crate) fn check_number(
    node: &Node,
    rules: Option<&Rules>,
    number: &Number,
    path: &str,
    outcome: &mut Validation,
) {
    let value = number.as_f64().unwrap_or_default();
    let out_of_range = match (node.ty, node.format.as_deref()) {
        (Type::Integer, _) if value.fract() != 0.0 => true,
        (Type::Integer, Some("int32")) => !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value),
        (Type::Integer, _) => number.is_u64() && number.as_i64().is_none(),
        (Type::Number, Some("float")) => value.abs() > f64::from(f32::MAX),
        _ => false,
    };
    if out_of_range {
        let name = type_names(node.ty).join(",");
        let form =
            node.format.as_ref().map_or("(default format)".to_string(), |f| format!("with format {f}"));
        outcome.add(ValueError::composite(format!("Checked value must be of type {name} {form} in {path}")));
    }
    let Some(rules) = rules else { return };
    let integer = number.is_i64() || number.is_u64();
    let bound = |limit: f64| if integer { (limit as i64).to_string() } else { go_float(limit) };
    let limited = |limit: f64| if integer { limit.trunc() } else { limit };
    let mut fail = |rest: String| {
        outcome.add(ValueError::new(path, Failure::Invalid(Value::Number(number.clone())), &rest));
    };
    if let Some(factor) = rules.multiple_of
        && factor > 0.0
        && (value / factor).fract() != 0.0
    {
        fail(format!("should be a multiple of {}", bound(factor)));
    }
    if let Some(min) = rules.minimum {
        let limit = limited(min);
        if rules.exclusive_minimum && value <= limit {
            fail(format!("should be greater than {}", bound(min)));
        } else if value < limit {
            fail(format!("should be greater than or equal to {}", bound(min)));
        }
    }
    if let Some(max) = rules.maximum {
        let limit = limited(max);
        if rules.exclusive_maximum && value >= limit {
            fail(format!("should be less than {}", bound(max)));
        } else if value > limit {
            fail(format!("should be less than or equal to {}", bound(max)));
        }
    }
}
