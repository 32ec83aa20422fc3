//! Strategic merge patch: a merge patch that knows which lists are keyed, and that can carry directives:
//! `$patch`, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.

use serde_json::{Map, Value};

use super::gotext::{go_type, go_value, json_kind};
use super::lists;
use super::merge::drop_nulls;
use crate::error::{ApiError, ApiResult};
use crate::schema::SchemaRef;

pub(super) const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// `original` with the strategic merge `patch` applied. Directives that the patch hides in items it adds are
/// kept, as the server keeps them: they fall when unknown fields are dropped.
pub(crate) fn strategic(original: &Value, patch: &Value, schema: SchemaRef<'_>) -> ApiResult<Value> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(patch)
        )));
    };
    let original = original.as_object().cloned().unwrap_or_default();
    merge_object(original, patch.clone(), Some(schema)).map(Value::Object)
}

/// An error that the server did not foresee: it answers 500 with the bare text.
pub(super) fn unforeseen(message: impl Into<String>) -> ApiError {
    ApiError::new(500, "", message)
}

pub(super) fn no_merge_key(item: &Value, key: &str) -> ApiError {
    unforeseen(format!("map: {} does not contain declared merge key: {key}", go_value(item)))
}

pub(super) fn bad_type(expected: &str, actual: &Value) -> ApiError {
    unforeseen(format!("expected a {expected}, but received a {}", go_type(actual)))
}

pub(super) fn unknown_directive(directive: &Value, item: Value) -> ApiError {
    unforeseen(format!("unknown patch type: {} in map: {}", go_value(directive), go_value(&item)))
}

pub(super) fn bad_order_list() -> ApiError {
    ApiError::bad_request("invalid patch format of setElementOrder list")
}

pub(super) fn merge_object(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<SchemaRef<'_>>,
) -> ApiResult<Map<String, Value>> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&directive, Value::Object(patch))),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        merge_field(&mut original, key, value, schema)?;
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    schema: Option<SchemaRef<'_>>,
) -> ApiResult<()> {
    let (key, deletes) = match key.strip_prefix(DELETE_FROM_LIST) {
        Some(rest) => match rest.strip_prefix('/') {
            Some(list) => (list.to_string(), true),
            None => return Err(ApiError::bad_request("invalid patch format of primitive list")),
        },
        None => (key, false),
    };
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let field = schema.and_then(|s| s.field(&key));
    match (original.get_mut(&key), value) {
        (Some(Value::Object(current)), Value::Object(patch))
            if field.is_some_and(|f| f.node().patch_replace) =>
        {
            *current = patch;
        }
        (Some(Value::Object(current)), Value::Object(patch)) => {
            *current = merge_object(std::mem::take(current), patch, field)?;
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            if deletes || field.is_some_and(|f| f.node().patch_merge) {
                *current = lists::merge(std::mem::take(current), patch, field, deletes)?;
            } else {
                *current = patch;
            }
        }
        _ if deletes => {}
        (_, mut value) => {
            drop_nulls(&mut value);
            match without_directives(value) {
                Some(value) => original.insert(key, value),
                None => original.remove(&key),
            };
        }
    }
    Ok(())
}

/// The value without the objects that carry `$patch`; nothing if it is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(
            fields.into_iter().filter_map(|(name, v)| without_directives(v).map(|v| (name, v))).collect(),
        ),
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

/// `$retainKeys`: of the original, only the named fields stay; the patch may not set others.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> ApiResult<()> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad_format = || ApiError::bad_request("invalid patch format of retainKeys");
    let Value::Array(keep) = directive else { return Err(bad_format()) };
    let kept = |name: &str| keep.iter().any(|k| k.as_str() == Some(name));
    let stray = patch.iter().any(|(name, value)| {
        !value.is_null() && !name.starts_with(DELETE_FROM_LIST) && !name.starts_with(SET_ORDER) && !kept(name)
    });
    if stray {
        return Err(bad_format());
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

/// `$setElementOrder/<list>`: merges that list, then puts it into the given order. Items that only the server
/// knows keep their place relative to each other, and go where they stood relative to the others.
fn merge_ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Option<SchemaRef<'_>>,
) -> ApiResult<()> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(bad_type("[]interface {}", &order)) };
        let Some(list) = directive.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/')) else {
            return Err(bad_order_list());
        };
        let array = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(bad_type("[]interface {}", &other)),
        };
        let live = array(original.get(list).cloned())?;
        let wanted = array(patch.get(list).cloned())?;
        let Some(field) = schema.and_then(|s| s.field(list)) else {
            return Err(unforeseen(format!("unable to find api field for the json field {list:?}")));
        };
        let key = field.node().patch_merge_key.as_deref();
        lists::check_order(wanted.as_deref().unwrap_or_default(), &order, key)?;
        let server_order = lists::identities(live.as_deref().unwrap_or_default(), key)?;
        let merged = match (live, wanted) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(wanted)) => wanted.into_iter().filter_map(without_directives).collect(),
            (Some(live), Some(wanted)) if field.node().patch_merge => {
                lists::merge(live, wanted, Some(field), false)?
            }
            (Some(_), Some(wanted)) => wanted,
        };
        let ordered = lists::order(merged, &order, &server_order, key)?;
        original.insert(list.to_string(), Value::Array(ordered));
        patch.remove(list);
    }
    Ok(())
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
