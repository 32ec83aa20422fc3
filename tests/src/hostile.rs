//! Values that an API server may take and that their readers may not like, and the places to put them.

use serde_json::{Value, json};

/// The API server takes it, and `jiff::Timestamp` does not.
pub const LAST_SECOND: &str = "9999-12-31T23:59:59Z";

/// Values that are of the right type in JSON, and all the same not what one expects.
#[must_use]
pub fn values(value: &Value) -> Vec<Value> {
    let mut all = match value {
        Value::String(_) => vec![
            json!(""),
            json!(LAST_SECOND),
            json!("9999-12-31T23:59:59.999999999Z"),
            json!("0000-01-01T00:00:00Z"),
            json!("0001-01-01T00:00:00+23:59"),
            json!("2016-12-31T23:59:60Z"),
            json!("2026-01-01T24:00:00Z"),
            json!("2026-01-01t00:00:00z"),
            json!("\u{202e}\u{0}\u{1b}[2J\u{feff}💥"),
            json!("x".repeat(40_000)),
            json!("9e999"),
            json!("-1"),
        ],
        Value::Number(_) => [i64::MAX, i64::MIN, i64::from(i32::MAX) + 1, i64::from(i32::MIN), -1, 0]
            .into_iter()
            .map(Value::from)
            .chain([json!(1.5), json!(1e300), json!("50%"), json!("-7%"), json!("999999999999%")])
            .collect(),
        Value::Bool(given) => vec![json!(!given)],
        Value::Array(_) => vec![json!([])],
        Value::Object(_) => vec![json!({}), nested(200)],
        Value::Null => vec![],
    };
    all.push(Value::Null);
    all
}

/// Fields of a manager of fields, as deep as this: the API server takes more than readers of JSON usually do.
#[must_use]
pub fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |below, _| json!({"f:a": below}))
}

/// Every place in the object, as JSON pointers.
#[must_use]
pub fn places(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(object, "", &mut found);
    found
}

fn collect(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                found.push(at.clone());
                collect(value, &at, found);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                let at = format!("{at}/{number}");
                found.push(at.clone());
                collect(value, &at, found);
            }
        }
        _ => {}
    }
}
