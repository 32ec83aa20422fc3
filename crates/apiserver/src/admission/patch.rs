//! JSON patches of mutating webhooks.

use serde_json::Value;

use crate::patch::{Failure, apply_operation};

/// A patch that could not be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is no list of operations: a fault of the webhook, so its failure policy decides.
    Undecodable(String),
    /// It does not fit the object: the request fails.
    DoesNotApply(String),
    /// One of its tests failed.
    TestFailed(String),
}

/// The operations of a patch.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Value>, Problem> {
    serde_json::from_slice(bytes).map_err(|problem| Problem::Undecodable(problem.to_string()))
}

/// Applies all operations, or none, and says whether that changed anything.
pub(super) fn apply(object: &mut Value, operations: &[Value]) -> Result<bool, Problem> {
    let mut patched = object.clone();
    for operation in operations {
        let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default();
        let (op, path) = (text("op"), text("path"));
        if !matches!(op, "add" | "remove" | "replace" | "move" | "copy" | "test") {
            return Err(Problem::DoesNotApply(format!("Unexpected kind: {op}")));
        }
        apply_operation(&mut patched, operation).map_err(|failure| match failure {
            Failure::TestFailed => Problem::TestFailed(format!("testing value {path} failed: test failed")),
            _ => Problem::DoesNotApply(explain(op, path, &patched)),
        })?;
    }
    let changed = *object != patched;
    *object = patched;
    Ok(changed)
}

fn explain(op: &str, path: &str, object: &Value) -> String {
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let has_parent = object.pointer(parent).is_some();
    match (op, has_parent) {
        ("remove", true) => {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            )
        }
        ("replace", true) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        ("replace", false) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        ("test", _) => format!("error in test for path: '{path}': missing value"),
        (op, _) => format!("{op} operation does not apply: doc is missing path: {path:?}: missing value"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_and_their_problems() {
        let cases = [
            (
                "add",
                json!([{"op": "add", "path": "/data/z", "value": "1"}]),
                Ok(json!({"data": {"k": "v", "z": "1"}})),
            ),
            (
                "null is where nothing is",
                json!([{"op": "test", "path": "/nope", "value": null}, {"op": "remove", "path": "/data/k"}]),
                Ok(json!({"data": {}})),
            ),
            (
                "add without a parent",
                json!([{"op": "add", "path": "/data/x/y", "value": "1"}]),
                Err(r#"add operation does not apply: doc is missing path: "/data/x/y": missing value"#),
            ),
            (
                "remove what is not there",
                json!([{"op": "remove", "path": "/data/nope"}]),
                Err(
                    "error in remove for path: '/data/nope': Unable to remove nonexistent key: nope: missing value",
                ),
            ),
            (
                "replace without a parent",
                json!([{"op": "replace", "path": "/nope/x", "value": 1}]),
                Err("replace operation does not apply: doc is missing path: /nope/x: missing value"),
            ),
            (
                "a test that fails",
                json!([{"op": "test", "path": "/data/k", "value": "zzz"}]),
                Err("testing value /data/k failed: test failed"),
            ),
            ("no such operation", json!([{"op": "frob", "path": "/data"}]), Err("Unexpected kind: frob")),
        ];
        for (rule, patch, expected) in cases {
            let mut object = json!({"data": {"k": "v"}});
            let result = apply(&mut object, patch.as_array().unwrap());
            match expected {
                Ok(after) => assert_eq!((result, object), (Ok(true), after), "{rule}"),
                Err(text) => {
                    let said = match result.unwrap_err() {
                        Problem::DoesNotApply(why) | Problem::TestFailed(why) | Problem::Undecodable(why) => {
                            why
                        }
                    };
                    assert_eq!(said, text, "{rule}");
                    assert_eq!(object, json!({"data": {"k": "v"}}), "{rule}: nothing is changed");
                }
            }
        }
    }

    #[test]
    fn a_patch_is_a_list() {
        assert!(matches!(decode(b"{not json"), Err(Problem::Undecodable(_))));
        assert_eq!(decode(b"[]").unwrap().len(), 0);
    }
}
