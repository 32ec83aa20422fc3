//! JSON patch (RFC 6902) as the API server's library reads it. It is more lenient than the standard: a test for
//! null passes on a missing field, replacing a missing field adds it, and negative indices count from the end.

use serde_json::{Value, json};

use super::gotext::json_kind;
use crate::error::{ApiError, ApiResult};

const MAX_OPERATIONS: usize = 10_000;

/// Why an operation cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A test found another value.
    TestFailed,
    /// Something that the operation needs is not there, or not of that form.
    DoesNotApply,
}

use Failure::{DoesNotApply, TestFailed};

type Applied<T> = Result<T, Failure>;

/// `original` after all operations of `patch`, or the error of the first that fails.
pub(crate) fn json_patch(original: &Value, patch: &Value) -> ApiResult<Value> {
    let operations = decode(patch)?;
    let mut document = original.clone();
    for operation in operations {
        if apply(&mut document, &operation).is_err() {
            // The server does not tell which operation it was.
            let message = "the server rejected our request due to an error in our request";
            return Err(ApiError::new(422, "Invalid", message).with_details(json!({})));
        }
    }
    Ok(document)
}

/// One operation on a document. For webhooks, whose patches are reported operation by operation.
pub(crate) fn apply_operation(document: &mut Value, operation: &Value) -> Applied<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let operation = Operation {
        op: text("op").unwrap_or_default(),
        path: text("path"),
        from: text("from"),
        value: operation.get("value"),
    };
    apply(document, &operation)
}

#[derive(Default)]
struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

fn decode(patch: &Value) -> ApiResult<Vec<Operation<'_>>> {
    let bad = |value: &Value, into: &str| {
        let kind = json_kind(value);
        ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {kind} into Go {into}"))
    };
    let Some(items) = patch.as_array() else {
        return Err(bad(patch, "value of type []handlers.jsonPatchOp"));
    };
    if items.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            items.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", message));
    }
    let mut operations = Vec::with_capacity(items.len());
    for item in items {
        let Some(fields) = item.as_object() else {
            return Err(bad(item, "value of type handlers.jsonPatchOp"));
        };
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.as_str())),
            Some(other) => Err(bad(other, &format!("struct field jsonPatchOp.{name} of type string"))),
        };
        operations.push(Operation {
            op: text("op")?.unwrap_or_default(),
            path: text("path")?,
            from: text("from")?,
            value: fields.get("value"),
        });
    }
    Ok(operations)
}

fn apply(document: &mut Value, operation: &Operation<'_>) -> Applied<()> {
    let path = operation.path.ok_or(DoesNotApply)?;
    let value = || operation.value.cloned().unwrap_or(Value::Null);
    match operation.op {
        "add" => add(document, path, value()),
        "remove" => remove(document, path).map(drop),
        "replace" => replace(document, path, value()),
        "test" => test(document, path, operation.value.unwrap_or(&Value::Null)),
        "move" => {
            let moved = remove(document, operation.from.ok_or(DoesNotApply)?)?;
            add(document, path, moved)
        }
        "copy" => {
            let (parent, key) = parent(document, operation.from.ok_or(DoesNotApply)?)?;
            let copied = get(parent, &key)?.cloned().unwrap_or(Value::Null);
            add(document, path, copied)
        }
        _ => Err(DoesNotApply),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Applied<()> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
            Ok(())
        }
        Value::Array(items) if key == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err(DoesNotApply),
    }
}

fn remove(document: &mut Value, path: &str) -> Applied<Value> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&key).ok_or(DoesNotApply),
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err(DoesNotApply),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Applied<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(DoesNotApply);
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
            Ok(())
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            items[at] = value;
            Ok(())
        }
        _ => Err(DoesNotApply),
    }
}

fn test(document: &mut Value, path: &str, want: &Value) -> Applied<()> {
    let is = if path.is_empty() {
        Some(&*document)
    } else {
        let (parent, key) = parent(document, path)?;
        get(parent, &key)?
    };
    if is.unwrap_or(&Value::Null) == want { Ok(()) } else { Err(TestFailed) }
}

/// The container that the path's last step is taken in, and that step.
fn parent<'a>(document: &'a mut Value, path: &str) -> Applied<(&'a mut Value, String)> {
    let mut steps = path.split('/');
    steps.next();
    let mut steps: Vec<String> = steps.map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop().ok_or(DoesNotApply)?;
    let mut at = document;
    for step in steps {
        at = match at {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(items) => {
                let i = index(&step, items.len())?;
                items.get_mut(i)
            }
            _ => None,
        }
        .ok_or(DoesNotApply)?;
    }
    if at.is_object() || at.is_array() { Ok((at, last)) } else { Err(DoesNotApply) }
}

/// A missing field is no error, a missing index is.
fn get<'a>(parent: &'a Value, key: &str) -> Applied<Option<&'a Value>> {
    match parent {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => Ok(items.get(index(key, items.len())?)),
        _ => Err(DoesNotApply),
    }
}

fn index(key: &str, len: usize) -> Applied<usize> {
    let index: i64 = key.parse().map_err(|_| DoesNotApply)?;
    let from_start = if index < 0 { index + len as i64 } else { index };
    usize::try_from(from_start).ok().filter(|i| *i < len).ok_or(DoesNotApply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_tildes_of_a_path_are_escaped() {
        let patch = json!([{"op": "remove", "path": "/a~1b/~0"}]);
        let patched = json_patch(&json!({"a/b": {"~": 1}}), &patch).expect("applies");
        assert_eq!(patched, json!({"a/b": {}}));
    }

    #[test]
    fn what_does_not_apply_is_invalid() {
        for patch in [
            json!([{"op": "test", "path": "/x/y", "value": null}]),
            json!([{"op": "remove", "path": "/l/7"}]),
            json!([{"op": "add", "value": 1}]),
            json!([{"op": "move", "path": "/b"}]),
            json!([{"op": "jump", "path": "/a"}]),
        ] {
            let error = json_patch(&json!({"a": 1, "l": [1]}), &patch).expect_err("refused");
            assert_eq!((error.code, error.reason), (422, "Invalid"), "{patch}");
            assert_eq!(error.message, "the server rejected our request due to an error in our request");
        }
    }

    #[test]
    fn what_is_no_patch_is_a_bad_request() {
        for (patch, want) in [
            (json!({}), "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            (json!(["x"]), "cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
            (
                json!([{"op": "add", "path": 1}]),
                "cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
            ),
        ] {
            let error = json_patch(&json!({}), &patch).expect_err("refused");
            assert_eq!((error.code, error.reason), (400, "BadRequest"));
            assert_eq!(error.message, format!("error decoding patch: json: {want}"));
        }
    }
}
