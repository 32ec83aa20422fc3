//! One stored object: its bytes, and beside them only what selectors look at.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Interner;

/// Where an object lives within its resource; the namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Box<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Sorts before every object of the namespace.
    pub fn first_of(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

/// What selectors and garbage collection look at.
#[derive(Debug, Default)]
pub struct Meta {
    pub labels: Box<[(Arc<str>, Arc<str>)]>,
    /// Values of the resource's selectable fields, in its order.
    pub fields: Box<[Arc<str>]>,
    /// Uids of the owners.
    pub owners: Box<[Arc<str>]>,
}

impl Meta {
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }
}

#[derive(Debug)]
pub struct Object {
    pub key: Key,
    pub revision: u64,
    pub bytes: Bytes,
    pub meta: Arc<Meta>,
}

impl Object {
    /// Stamps the revision into the value and freezes it.
    pub(super) fn seal(
        key: Key,
        revision: u64,
        value: &mut Value,
        selectable: &[String],
        interner: &mut Interner,
    ) -> Arc<Self> {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let labels = match &value["metadata"]["labels"] {
            Value::Object(labels) => labels
                .iter()
                .map(|(k, v)| (interner.intern(k), interner.intern(v.as_str().unwrap_or_default())))
                .collect(),
            _ => Box::default(),
        };
        let fields = selectable.iter().map(|pointer| interner.intern(&field_text(value, pointer))).collect();
        let owners = match &value["metadata"]["ownerReferences"] {
            Value::Array(list) => {
                list.iter().filter_map(|owner| owner["uid"].as_str()).map(|uid| interner.intern(uid)).collect()
            }
            _ => Box::default(),
        };
        let key = Key { namespace: interner.intern(&key.namespace), name: key.name };
        Arc::new(Self {
            key,
            revision,
            bytes: value.to_string().into(),
            meta: Arc::new(Meta { labels, fields, owners }),
        })
    }

    /// The same object seen at another revision: what a watch shows of an object that left its selection.
    pub fn at_revision(&self, revision: u64) -> Self {
        let mut value = self.value();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        Self { key: self.key.clone(), revision, bytes: value.to_string().into(), meta: self.meta.clone() }
    }

    /// The object as a value. Bytes in the store were serialised from one, so they always parse.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// A field as selectors compare it: absent is the empty string, `false` for absent booleans is left to the caller.
fn field_text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
