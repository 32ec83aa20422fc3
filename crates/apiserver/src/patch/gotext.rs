//! JSON values in the words of Go's `fmt`, which the API server's messages are made of.

use std::fmt::Write;

use serde_json::Value;

/// The value as `%v` prints it: `map[image:nginx ports:[80 443]]`.
pub(crate) fn go_value(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::String(s) => text.push_str(s),
        Value::Bool(_) | Value::Number(_) => {
            // Writing into a String cannot fail.
            let _ = write!(text, "{value}");
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(' ');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push_str("map[");
            for (i, (name, field)) in fields.iter().enumerate() {
                if i > 0 {
                    text.push(' ');
                }
                text.push_str(name);
                text.push(':');
                write_value(text, field);
            }
            text.push(']');
        }
    }
}

/// The Go type that a JSON value is decoded into when nothing is known of it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// How `encoding/json` calls the kind of a value that does not fit.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_read_as_go_prints_them() {
        let value = json!({"name": "a", "n": 1, "list": [true, null, "x"], "m": {}});
        assert_eq!(go_value(&value), "map[list:[true <nil> x] m:map[] n:1 name:a]");
    }
}
