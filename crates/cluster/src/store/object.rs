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
    /// Where the fields after `kind` and `apiVersion` begin.
    body: usize,
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
            Value::Array(list) => list
                .iter()
                .filter_map(|owner| owner["uid"].as_str())
                .map(|uid| interner.intern(uid))
                .collect(),
            _ => Box::default(),
        };
        let key = Key { namespace: interner.intern(&key.namespace), name: key.name };
        let (bytes, body) = serialise(value);
        Arc::new(Self { key, revision, bytes, body, meta: Arc::new(Meta { labels, fields, owners }) })
    }

    /// The same object with a text that differs in its status and its managed fields only.
    pub(super) fn with_status(
        &self,
        revision: u64,
        bytes: Vec<u8>,
        status: &Value,
        selectable: &[String],
        interner: &mut Interner,
    ) -> Arc<Self> {
        let field = |(pointer, before): (&String, &Arc<str>)| match pointer.strip_prefix("/status") {
            Some(rest) => {
                let text = field_text(status, rest);
                if *text == **before { before.clone() } else { interner.intern(&text) }
            }
            None => before.clone(),
        };
        let fields: Box<[Arc<str>]> = selectable.iter().zip(&self.meta.fields).map(field).collect();
        let meta = if fields == self.meta.fields {
            self.meta.clone()
        } else {
            let Meta { labels, owners, .. } = &*self.meta;
            Arc::new(Meta { labels: labels.clone(), fields, owners: owners.clone() })
        };
        Arc::new(Self { key: self.key.clone(), revision, bytes: bytes.into(), body: self.body, meta })
    }

    /// The fields without `kind` and `apiVersion`, up to and including the closing brace: how built-in kinds appear
    /// in lists, after an opening brace.
    pub fn untyped_fields(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// The same object seen at another revision: what a watch shows of an object that left its selection.
    pub fn at_revision(&self, revision: u64) -> Self {
        let mut value = self.value();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let (bytes, body) = serialise(&mut value);
        Self { key: self.key.clone(), revision, bytes, body, meta: self.meta.clone() }
    }

    /// Another content at the same place and revision; never stored, only shown.
    pub fn with_value(&self, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let (bytes, body) = serialise(&mut value);
        Self { key: self.key.clone(), revision: self.revision, bytes, body, meta: self.meta.clone() }
    }

    /// The object as a value. Bytes in the store were serialised from one, so they always parse.
    pub fn value(&self) -> Value {
        // Checking the text once is cheaper than string by string.
        std::str::from_utf8(&self.bytes)
            .ok()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}

/// Kind and apiVersion first, so that lists can leave them out without parsing. Gives where the rest begins.
fn serialise(value: &mut Value) -> (Bytes, usize) {
    let mut take = |field: &str| value.as_object_mut().and_then(|o| o.remove(field)).unwrap_or_default();
    let (kind, api_version) = (take("kind"), take("apiVersion"));
    let mut bytes = format!("{{\"kind\":{kind},\"apiVersion\":{api_version}").into_bytes();
    // The rest is written with its own opening brace, which becomes the comma between the two.
    let brace = bytes.len();
    if serde_json::to_writer(&mut bytes, value).is_err() {
        // A value always serialises into memory.
        bytes.truncate(brace);
        bytes.extend_from_slice(b"{}");
    }
    bytes[brace] = b',';
    // Objects are held for long: no spare capacity.
    bytes.shrink_to_fit();
    (bytes.into(), brace + 1)
}

/// A field as selectors compare it: absent is the empty string, `false` for absent booleans is left to the caller.
fn field_text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
