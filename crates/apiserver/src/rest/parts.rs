//! A stored object taken apart as text: what a write does not touch is not read, and stays the text that it is.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::managed_fields::EntryText;
use crate::store::{Draft, Object};

/// Fields in their order; those that are read into something else have no text here.
type Fields<'a> = Vec<(&'a str, Option<&'a RawValue>)>;

pub(crate) struct Parts<'a> {
    fields: Fields<'a>,
    pub metadata: Metadata<'a>,
    pub status: Option<Value>,
}

pub(crate) struct Metadata<'a> {
    fields: Fields<'a>,
    pub entries: Option<Vec<EntryText<'a>>>,
}

fn find<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a RawValue> {
    fields.iter().find(|(field, _)| *field == name).and_then(|(_, raw)| *raw)
}

impl<'a> Parts<'a> {
    pub(crate) fn of(object: &'a Object) -> Option<Self> {
        serde_json::from_str(object.text()).ok()
    }

    /// The text of the object with other managed fields and another status, and no revision yet.
    pub(crate) fn draft(&self, entries: &str, status: &Value) -> Option<Draft> {
        let mut draft = Draft::default();
        draft.open();
        for (name, raw) in &self.fields {
            draft.field(name);
            match (*name, raw) {
                ("metadata", _) => self.metadata.write(entries, &mut draft),
                ("status", _) => draft.value(&serde_json::to_string(status).ok()?),
                (_, Some(raw)) => draft.value(raw.get()),
                (_, None) => return None,
            }
        }
        draft.close();
        Some(draft)
    }
}

impl<'a> Metadata<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        find(&self.fields, name)
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.get("uid").is_some_and(|own| own.get().trim_matches('"') == uid)
    }

    fn write(&self, entries: &str, draft: &mut Draft) {
        draft.open();
        for (name, raw) in &self.fields {
            draft.field(name);
            match (*name, raw) {
                ("resourceVersion", _) => draft.revision_here(),
                (_, Some(raw)) => draft.value(raw.get()),
                (_, None) => draft.value(entries),
            }
        }
        draft.close();
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(PartsVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Metadata<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MetadataVisitor)
    }
}

struct PartsVisitor;

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = Parts<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let metadata = Metadata { fields: Vec::new(), entries: None };
        let mut parts = Parts { fields: Vec::new(), metadata, status: None };
        while let Some(name) = map.next_key::<&'de str>()? {
            let mut raw = None;
            match name {
                "metadata" => parts.metadata = map.next_value()?,
                "status" => parts.status = Some(map.next_value()?),
                _ => raw = Some(map.next_value()?),
            }
            parts.fields.push((name, raw));
        }
        Ok(parts)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Metadata<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("metadata")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut metadata = Metadata { fields: Vec::new(), entries: None };
        while let Some(name) = map.next_key::<&'de str>()? {
            let mut raw = None;
            match name {
                "managedFields" => metadata.entries = Some(map.next_value()?),
                _ => raw = Some(map.next_value()?),
            }
            metadata.fields.push((name, raw));
        }
        Ok(metadata)
    }
}
