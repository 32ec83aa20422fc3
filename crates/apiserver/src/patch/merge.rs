//! JSON merge patch (RFC 7386), as the API server's library does it.

use serde_json::{Map, Value};

use super::gotext::json_kind;
use crate::error::{ApiError, ApiResult};

/// `original` with `patch` merged in.
pub(crate) fn merge_patch(original: &Value, patch: &Value) -> ApiResult<Value> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(match patch {
            Value::Null => "Invalid JSON Patch".to_string(),
            other => format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_kind(other)
            ),
        }));
    };
    let mut merged = original.as_object().cloned().unwrap_or_default();
    merge_objects(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge_objects(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
            continue;
        }
        match (into.get_mut(key), value) {
            (Some(Value::Object(current)), Value::Object(patch)) => merge_objects(current, patch),
            // Only here nulls survive: a list or scalar that takes the place of an object is not looked into.
            (Some(current @ Value::Object(_)), value) => *current = value.clone(),
            (_, value) => {
                let mut value = value.clone();
                drop_nulls(&mut value);
                into.insert(key.clone(), value);
            }
        }
    }
}

/// Removes null fields at every depth. Null items of lists stay.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 7386, appendix A, whose target and patch are objects.
    #[test]
    fn the_examples_of_the_rfc() {
        for (target, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(merge_patch(&target, &patch).expect("merges"), want, "{target} + {patch}");
        }
    }

    #[test]
    fn nulls_inside_new_lists_of_objects_are_dropped() {
        let merged = merge_patch(&json!({"l": [1]}), &json!({"l": [{"a": null, "b": 1}]})).expect("merges");
        assert_eq!(merged, json!({"l": [{"b": 1}]}));
    }

    #[test]
    fn a_patch_that_is_no_object_is_a_bad_request() {
        let error = merge_patch(&json!({}), &json!([1])).expect_err("refused");
        assert_eq!(error.code, 400);
        assert_eq!(
            error.message,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }
}
