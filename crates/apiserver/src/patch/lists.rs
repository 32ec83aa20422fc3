//! Lists under strategic merge: merged by key or as sets of scalars, then put into order.

use serde_json::Value;

use super::gotext::go_value;
use super::strategic::{DIRECTIVE, bad_type, merge_object, no_merge_key, unforeseen, unknown_directive};
use crate::error::{ApiError, ApiResult};
use crate::schema::SchemaRef;

/// Merges a list that the schema calls a merging one; `deletes` when the patch lists scalars to remove.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    field: Option<SchemaRef<'_>>,
    deletes: bool,
) -> ApiResult<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !holds_objects(&original, &patch)? {
        if deletes {
            return Ok(original.into_iter().filter(|v| !patch.contains(v)).collect());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        for value in original.iter().chain(&patch) {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return order(merged, &patch, &original, None);
    }
    let Some(key) = field.and_then(|f| f.node().patch_merge_key.as_deref()) else {
        let definition = field.and_then(|f| f.items()).and_then(|i| i.node().definition.as_deref());
        let name = definition.and_then(|d| d.rsplit('.').next()).unwrap_or_default();
        return Err(unforeseen(format!("cannot merge lists without merge key for {name}")));
    };
    let (original, patch) = apply_directives(original, patch, key)?;
    let server = identities(&original, Some(key))?;
    let merged = merge_items(original, &patch, key, field.and_then(|f| f.items()))?;
    order(merged, &patch, &server, Some(key))
}

/// Whether the items are objects. Lists of lists and mixed lists cannot be merged.
fn holds_objects(original: &[Value], patch: &[Value]) -> ApiResult<bool> {
    let mut first: Option<&Value> = None;
    for value in original.iter().chain(patch) {
        match first {
            None if value.is_array() => {
                let message = "the server rejected our request due to an error in our request";
                return Err(ApiError::new(422, "Invalid", message).with_details(serde_json::json!({})));
            }
            None => first = Some(value),
            Some(one) if std::mem::discriminant(one) != std::mem::discriminant(value) => {
                let both = [Value::from(original.to_vec()), Value::from(patch.to_vec())];
                let both = go_value(&Value::from(both.to_vec()));
                return Err(unforeseen(format!("list element types are not identical: {both}")));
            }
            Some(_) => {}
        }
    }
    match first {
        Some(value) => Ok(value.is_object()),
        None => Err(unforeseen("no elements in any of the given slices")),
    }
}

/// Carries out the items that are `$patch` directives; returns the rest of both lists.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> ApiResult<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let Some(value) = item.get(key) else { return Err(no_merge_key(&item, key)) };
                    original.retain(|o| o.get(key) != Some(value));
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(unforeseen("merging lists cannot yet be specified in the patch"));
                }
                _ => return Err(unknown_directive(directive, item.clone())),
            },
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

fn merge_items(
    mut merged: Vec<Value>,
    patch: &[Value],
    key: &str,
    items: Option<SchemaRef<'_>>,
) -> ApiResult<Vec<Value>> {
    for item in patch {
        let Value::Object(fields) = item else { continue };
        let Some(value) = fields.get(key) else { return Err(no_merge_key(item, key)) };
        match merged.iter().position(|m| m.get(key) == Some(value)) {
            Some(at) => {
                if let Value::Object(current) = merged[at].take() {
                    merged[at] = Value::Object(merge_object(current, fields.clone(), items)?);
                }
            }
            None => merged.push(item.clone()),
        }
    }
    Ok(merged)
}

/// Checks that the patch's items follow the order that is asked for and are all named in it.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> ApiResult<()> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut wanted = Vec::with_capacity(patch.len());
    for item in patch {
        if key.is_some() && !item.is_object() {
            return Err(bad_type("map[string]interface {}", item));
        }
        if item.get(DIRECTIVE).is_none() {
            wanted.push(item);
        }
    }
    let mut at = 0;
    for step in order {
        let Some(item) = wanted.get(at) else { break };
        if identity(item, key)? == identity(step, key)? {
            at += 1;
        }
    }
    if at < wanted.len() {
        return Err(unforeseen(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            go_value(&Value::from(patch.to_vec())),
            go_value(&Value::from(order.to_vec()))
        )));
    }
    Ok(())
}

/// What tells an item from others: the value of its merge key, or the scalar itself.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> ApiResult<&'a Value> {
    match key {
        None => Ok(item),
        Some(_) if !item.is_object() => Err(bad_type("map[string]interface {}", item)),
        Some(key) => item.get(key).ok_or_else(|| no_merge_key(item, key)),
    }
}

/// What tells the items of a list from each other, in their order.
pub(super) fn identities(list: &[Value], key: Option<&str>) -> ApiResult<Vec<Value>> {
    list.iter().map(|item| identity(item, key).cloned()).collect()
}

/// Puts a merged list into order: the items that `wanted` names as it names them, the server's own as they were (by
/// their identities), and between the two, one of the server's items goes first only if it stood before.
pub(super) fn order(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> ApiResult<Vec<Value>> {
    let wanted = identities(wanted, key)?;
    let place = |list: &[Value], item: &Value| {
        let id = identity(item, key).ok()?;
        list.iter().position(|v| v == id)
    };
    let mut named = Vec::with_capacity(merged.len());
    let mut own = Vec::new();
    for item in merged {
        let id = identity(&item, key)?;
        if wanted.contains(id) { named.push(item) } else { own.push(item) }
    }
    named.sort_by_key(|item| place(&wanted, item));
    own.sort_by_key(|item| place(server, item));

    let mut ordered = Vec::with_capacity(named.len() + own.len());
    let (mut named, mut own) = (named.into_iter().peekable(), own.into_iter().peekable());
    loop {
        let own_first = match (own.peek(), named.peek()) {
            (None, None) => return Ok(ordered),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(o), Some(n)) => match (place(server, o), place(server, n)) {
                (Some(o), Some(n)) => o < n,
                _ => false,
            },
        };
        ordered.extend(if own_first { own.next() } else { named.next() });
    }
}
