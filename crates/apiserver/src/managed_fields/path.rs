//! Path elements: how list items are named in a field set, and how a path reads in messages.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::{ListType, SchemaRef};

pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity(name.len() + 2);
    element.push_str("f:");
    element.push_str(name);
    element
}

/// The element that names a list item; why not, in the words of the server, if the item has none.
pub(super) fn item(item: &Value, list: &ListType, items: Option<SchemaRef<'_>>) -> Result<String, String> {
    match list {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_string()),
        ListType::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_string())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_string()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_string())
            }
            scalar => Ok(format!("v:{scalar}")),
        },
        ListType::Map(keys) => {
            let fields = match item {
                Value::Object(fields) => fields,
                Value::Null => {
                    return Err("associative list with keys may not have a null element".to_string());
                }
                _ => return Err("associative list with keys may not have non-map elements".to_string()),
            };
            let default = |key: &String| items?.field(key)?.node().default.as_ref();
            let named = keys.iter().filter_map(|key| Some((key, fields.get(key).or_else(|| default(key))?)));
            let named: BTreeMap<&String, &Value> = named.collect();
            if named.is_empty() {
                let keys = keys.iter().map(|k| format!("{k:?}")).collect::<Vec<_>>().join(" ");
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{keys}] (and doesn't \
                     have default values for any key fields)"
                ));
            }
            serde_json::to_string(&named).map(|named| format!("k:{named}")).map_err(|error| error.to_string())
        }
    }
}

/// The path as people read it: `.spec.containers[name="a"].image`.
pub(super) fn display<'a>(path: impl IntoIterator<Item = &'a String>) -> String {
    path.into_iter().map(|element| display_element(element)).collect()
}

pub(super) fn display_element(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        Some(("k:", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => element.to_string(),
    }
}
