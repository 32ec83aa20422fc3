//! Finding the old value that a new value replaces, as ratcheting and transition rules need it.

use serde_json::Value;

use crate::schema::{ListType, SchemaRef};

/// The old field of the same name.
pub(crate) fn old_field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old.and_then(Value::as_object).and_then(|fields| fields.get(name))
}

/// The old item that `item` replaces: by keys in a map list, by value in a set; atomic lists have no items
/// of their own.
pub(crate) fn old_item<'a>(schema: SchemaRef<'_>, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let old = old.and_then(Value::as_array)?;
    match &schema.node().list {
        ListType::Map(keys) => old.iter().find(|candidate| same_keys(schema, candidate, item, keys)),
        ListType::Set => old.iter().find(|candidate| *candidate == item),
        ListType::Atomic => None,
    }
}

/// Items of a map list are the same when all keys agree; an absent key counts as its default.
fn same_keys(list: SchemaRef<'_>, a: &Value, b: &Value, keys: &[String]) -> bool {
    let items = list.items();
    let key_of = |item: &Value, key: &str| -> Option<Value> {
        item.get(key)
            .cloned()
            .or_else(|| items.and_then(|i| i.field(key)).and_then(|f| f.node().default.clone()))
    };
    a.is_object() && b.is_object() && keys.iter().all(|key| key_of(a, key) == key_of(b, key))
}
