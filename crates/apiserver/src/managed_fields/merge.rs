//! Merging an applied configuration into the live object: the configuration wins, maps and keyed lists are
//! merged, and the order of list items follows the configuration as far as both know them.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::path;
use super::shape::{Items, Shape, shape};
use crate::schema::SchemaRef;

/// `live` with `config` merged in.
pub(crate) fn merge(live: &Value, config: &Value, schema: SchemaRef<'_>) -> Value {
    merge_values(Some(live), Some(config), Some(schema)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merge_values(
    live: Option<&Value>,
    config: Option<&Value>,
    schema: Option<SchemaRef<'_>>,
) -> Option<Value> {
    let (live, config) = match (live, config) {
        (live, None) => return live.cloned(),
        (None, Some(config)) => return Some(config.clone()),
        (Some(live), Some(config)) => (live, config),
    };
    match (shape(live, schema), shape(config, schema)) {
        (Shape::Object(l, types), Shape::Object(r, _)) => {
            let mut merged = Map::new();
            for name in l.keys().chain(r.keys().filter(|name| !l.contains_key(*name))) {
                if let Some(value) = merge_values(l.get(name), r.get(name), types.of(name)) {
                    merged.insert(name.clone(), value);
                }
            }
            Some(Value::Object(merged))
        }
        (Shape::List(l, items), Shape::List(r, _)) if !l.is_empty() => Some(merge_lists(l, r, items)),
        // Null is no value for what has parts: the live parts stay.
        (Shape::Object(l, _), Shape::Leaf) if config.is_null() && !l.is_empty() => Some(live.clone()),
        (Shape::List(l, _), Shape::Leaf) if config.is_null() && !l.is_empty() => Some(live.clone()),
        _ => Some(config.clone()),
    }
}

/// Items of both lists are paired by name. Live items keep their place relative to the shared ones around them,
/// shared and new items come in the configuration's order.
fn merge_lists(live: &[Value], config: &[Value], items: Items<'_>) -> Value {
    let elements = |values: &[Value]| -> Option<Vec<String>> {
        values.iter().map(|v| path::item(v, items.list, items.schema).ok()).collect()
    };
    let (Some(left), Some(right)) = (elements(live), elements(config)) else {
        return Value::from(config.to_vec());
    };
    // A name that the live list has twice is not merged into: the configuration's item takes its place.
    let mut of_live: HashMap<&str, Option<&Value>> = HashMap::new();
    for (element, value) in left.iter().zip(live) {
        of_live.entry(element).and_modify(|v| *v = None).or_insert(Some(value));
    }
    let of_config: HashMap<&str, &Value> = right.iter().map(String::as_str).zip(config).collect();
    let merged_item = |element: &str| {
        let live = of_live.get(element).copied().flatten();
        merge_values(live, of_config.get(element).copied(), items.schema)
    };

    let mut shared = right.iter().filter(|e| of_live.contains_key(e.as_str())).peekable();
    let mut done: HashMap<&str, ()> = HashMap::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(le), Some(re)) = (left.get(l), right.get(r)) {
            if le == re {
                done.insert(le, ());
                out.extend(merged_item(le));
                l += 1;
                r += 1;
                shared.next();
                continue;
            }
            if of_config.contains_key(le.as_str()) && shared.peek().is_some_and(|next| *next != le) {
                // Shared, but another shared item comes first.
                l += 1;
                continue;
            }
        }
        if let Some(le) = left.get(l) {
            if !of_config.contains_key(le.as_str()) {
                out.push(live[l].clone());
                l += 1;
                continue;
            } else if done.contains_key(le.as_str()) {
                l += 1;
            }
        }
        if let Some(re) = right.get(r) {
            done.insert(re, ());
            out.extend(merged_item(re));
            r += 1;
            if shared.peek().is_some_and(|next| *next == re) {
                shared.next();
            }
        }
    }
    Value::from(out)
}
