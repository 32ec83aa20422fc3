//! Partial matching: what an expectation names must be so, the rest may be anything.

use serde_json::Value;

/// The first place where `found` is not as expected, in words. Of a map, the named fields must match; null means that
/// there is nothing; of a list, each expected item must match another item. `$contains`, `$not`, `$atLeast`, `$atMost`
/// and `$size` say more than equality.
pub fn mismatch(expected: &Value, found: &Value) -> Option<String> {
    at("", expected, found)
}

fn at(path: &str, expected: &Value, found: &Value) -> Option<String> {
    let differs = |wanted: String| {
        let place = if path.is_empty() { "it" } else { path.trim_start_matches('.') };
        Some(format!("{place} should be {wanted}, but is {found}"))
    };
    match expected {
        Value::Object(fields) => {
            if let Some((operator, operand)) = fields.iter().next().filter(|(key, _)| key.starts_with('$')) {
                return match holds(operator, operand, found) {
                    Some(true) => None,
                    Some(false) => differs(format!("{operator} {operand}")),
                    None => differs(format!(
                        "{operator}, which is not known: $contains, $not, $atLeast, $atMost and $size are"
                    )),
                };
            }
            if !found.is_object() {
                return differs(expected.to_string());
            }
            fields.iter().find_map(|(key, value)| at(&format!("{path}.{key}"), value, &found[key]))
        }
        Value::Array(items) => {
            let Some(there) = found.as_array() else { return differs(expected.to_string()) };
            let without = unmatched(items, there)?;
            differs(format!("a list with {without}"))
        }
        _ if expected == found => None,
        _ => differs(expected.to_string()),
    }
}

/// The first of `wanted` for which no other one of `there` is left. Each takes the first that matches, so the pickier
/// ones stand first.
pub fn unmatched<'a>(wanted: &'a [Value], there: &[Value]) -> Option<&'a Value> {
    let mut left: Vec<&Value> = there.iter().collect();
    wanted.iter().find(|wanted| match left.iter().position(|item| mismatch(wanted, item).is_none()) {
        Some(position) => {
            left.remove(position);
            false
        }
        None => true,
    })
}

fn holds(operator: &str, operand: &Value, found: &Value) -> Option<bool> {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    Some(match operator {
        "$contains" => found.as_str().zip(operand.as_str()).is_some_and(|(text, part)| text.contains(part)),
        "$not" => mismatch(operand, found).is_some(),
        "$atLeast" => number(found) >= number(operand),
        "$atMost" => number(found) <= number(operand),
        "$size" => {
            let size = match found {
                Value::Array(items) => items.len(),
                Value::Object(fields) => fields.len(),
                _ => 0,
            };
            mismatch(operand, &Value::from(size)).is_none()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_named_must_match_and_the_rest_may_be_anything() {
        let pod = json!({
            "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "message": "0/3 nodes"},
        });
        for (expected, holds) in [
            (json!({"status": {"phase": "Running"}}), true),
            (json!({"status": {"phase": "Pending"}}), false),
            (json!({"metadata": null}), true),
            (json!({"spec": null}), false),
            (json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}), true),
            (json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}), false),
            (json!({"status": {"message": {"$contains": "3 nodes"}}}), true),
            (json!({"spec": {"nodeName": {"$not": "n1"}}}), false),
            (json!({"spec": {"containers": {"$size": 2}}}), true),
            (json!({"spec": {"containers": {"$size": {"$atLeast": 3}}}}), false),
            (json!({"spec": {"$is": 1}}), false),
        ] {
            assert_eq!(mismatch(&expected, &pod).is_none(), holds, "{expected}");
        }
    }

    #[test]
    fn the_place_is_told() {
        let why = mismatch(&json!({"a": {"b": 1}}), &json!({"a": {"b": 2}}));
        assert_eq!(why.as_deref(), Some("a.b should be 1, but is 2"));
    }
}
