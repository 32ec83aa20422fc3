//! One stored object: its text, and beside it only what selectors look at.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Interner;
use crate::head::metadata_of;

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
    pub(crate) labels: Box<[(Arc<str>, Arc<str>)]>,
    /// Values of the resource's selectable fields, in its order.
    pub(crate) fields: Box<[Arc<str>]>,
    /// Uids of the owners.
    pub(crate) owners: Box<[Arc<str>]>,
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
    text: Arc<str>,
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
        let (text, body) = serialise(value);
        Arc::new(Self { key, revision, text, body, meta: Arc::new(Meta { labels, fields, owners }) })
    }

    /// The same object with a text that differs in its managed fields and its status.
    pub(super) fn with_status(
        &self,
        revision: u64,
        text: String,
        status: &Value,
        selectable: &[String],
        interner: &mut Interner,
    ) -> Arc<Self> {
        let field = |(pointer, before): (&String, &Arc<str>)| match pointer
            .strip_prefix("/status")
            .map(|rest| field_text(status, rest))
        {
            Some(text) if *text != **before => interner.intern(&text),
            _ => before.clone(),
        };
        let fields: Box<[Arc<str>]> = selectable.iter().zip(&self.meta.fields).map(field).collect();
        let meta = if fields == self.meta.fields {
            self.meta.clone()
        } else {
            let Meta { labels, owners, .. } = &*self.meta;
            Arc::new(Meta { labels: labels.clone(), fields, owners: owners.clone() })
        };
        Arc::new(Self { key: self.key.clone(), revision, text: text.into(), body: self.body, meta })
    }

    /// The fields without `kind` and `apiVersion`, up to and including the closing brace: how built-in kinds appear
    /// in lists, after an opening brace.
    pub(crate) fn untyped_fields(&self) -> &str {
        &self.text[self.body..]
    }

    /// The same object seen at another revision: what a watch shows of an object that went or left its selection.
    pub(crate) fn at_revision(&self, revision: u64) -> Self {
        let now = format!("\"{revision}\"");
        let text = match metadata_of::<Kept<'_>>(self.text()) {
            Ok(Kept { resource_version: Some(before) }) => replaced(self.text(), before.get(), &now),
            _ => self.text().to_string(),
        };
        let Self { key, body, meta, .. } = self;
        Self { key: key.clone(), revision, text: text.into(), body: *body, meta: meta.clone() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as the body of an answer, without a copy.
    pub fn bytes(&self) -> Bytes {
        struct Shared(Arc<str>);
        impl AsRef<[u8]> for Shared {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        Bytes::from_owner(Shared(self.text.clone()))
    }

    /// Another content at the same place and revision; never stored, only shown.
    pub(crate) fn with_value(&self, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let (text, body) = serialise(&mut value);
        Self { key: self.key.clone(), revision: self.revision, text, body, meta: self.meta.clone() }
    }

    /// The object as a value; its text was one, so it always parses.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }
}

/// Metadata that stays the text that it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept<'a> {
    #[serde(borrow, default)]
    resource_version: Option<&'a RawValue>,
}

/// The text with something else in place of one part, which is a slice of it.
fn replaced(text: &str, part: &str, by: &str) -> String {
    let from = part.as_ptr().addr() - text.as_ptr().addr();
    [&text[..from], by, &text[from + part.len()..]].concat()
}

/// Kind and apiVersion first, so that lists can leave them out without parsing. Gives where the rest begins.
fn serialise(value: &mut Value) -> (Arc<str>, usize) {
    let mut take = |field: &str| value.as_object_mut().and_then(|o| o.remove(field)).unwrap_or_default();
    let (kind, api_version) = (take("kind"), take("apiVersion"));
    let head = format!("{{\"kind\":{kind},\"apiVersion\":{api_version},");
    // A value always serialises into memory. Its opening brace is in the head.
    let rest = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_string());
    ([&head, &rest[1..]].concat().into(), head.len())
}

/// A field as selectors compare it: absent is the empty string, `false` for absent booleans is left to the caller.
fn field_text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(value: &Value) -> Arc<Object> {
        Object::seal(Key::new("d", "p"), 7, &mut value.clone(), &[], &mut Interner::default())
    }

    #[test]
    fn the_revision_is_replaced_in_the_text() {
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n", "resourceVersion": "1"}, "status": {},
            "metadata": {
                "annotations": {"resourceVersion": "1", "managedFields": "{\"metadata\":{}}"}, "name": "p",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}],
            },
        });
        let object = stored(&pod);
        let mut later = pod.clone();
        later["metadata"]["resourceVersion"] = "12".into();
        assert_eq!(object.at_revision(12).text(), stored(&later).at_revision(12).text());
        assert_eq!(object.at_revision(12).value(), later);
        assert!(object.untyped_fields().starts_with("\"metadata\":"));
        assert_eq!(object.bytes(), object.text());
    }
}
