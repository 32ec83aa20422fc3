//! Patches of nothing but a status, which are most of what happens in a cluster. The rest of the object is not read:
//! it stays the text that it is. Whatever is not plain (a refusal, a webhook, a warning, a deletion that ends with it)
//! is left to the way that all writes can take, so there is one place that words it.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Call;
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::kinds::KindSchema;
use crate::managed_fields::{self, EntryText, Writer};
use crate::schema::SchemaRef;
use crate::server::reset_fields;
use crate::store::{Draft, Object};
use crate::{defaults, encoding, patch, validation};

/// Patches the status strategically; `None` if nothing was done and the patch must take the usual way.
pub fn patch_status(call: &mut Call<'_>, document: &Value) -> Option<Arc<Object>> {
    let kind = call.kind.clone();
    let KindSchema::Builtin(schema) = &kind.schema else { return None };
    let plain = call.subresource() == "status"
        && kind.api_version() == kind.storage_api_version
        && !kind.is("apiextensions.k8s.io", "customresourcedefinitions")
        && kind.group != "rbac.authorization.k8s.io"
        && call.query.get("fieldValidation").is_none();
    if !plain || call.server.is_asked_about(call, Operation::Update) {
        return None;
    }
    let current = call.server.store.get(&kind.storage, &call.key())?;
    let mut parts: Parts<'_> = serde_json::from_str(current.text()).ok()?;
    let wanted = parts.wanted(document, &current)?;
    let status_schema = schema.field("status")?;
    let before = parts.status.take()?;
    let status = status_of(&before, wanted, status_schema)?;
    let (old, new) = (patch::only("status", before), patch::only("status", status));
    if !validation::status::validate(&kind.group, &kind.kind, &new).is_empty() {
        return None;
    }
    let manager = call.field_manager().ok()?;
    let writer = Writer {
        manager: &manager,
        subresource: "status",
        api_version: &kind.api_version(),
        now: &rfc3339(call.server.now()),
        reset: reset_fields(&kind, "status"),
    };
    let entries = managed_fields::update_text(&parts.metadata.entries, (&old, &new), *schema, &writer)?;
    let draft = parts.draft(&entries, &new["status"])?;
    let stored = call.server.store.update_status(&kind.storage, &current, &draft, &new["status"]).ok()?;
    call.server.after_write(&kind, Some(&current), &stored);
    Some(stored)
}

/// The status with the patch on it, in the form in which it is stored.
fn status_of(before: &Value, wanted: &Value, schema: SchemaRef<'_>) -> Option<Value> {
    let mut status = patch::strategic(before, wanted, schema).ok()?;
    if patch::misfit(&status, schema).is_some() || !defaults::drop_unknown(&mut status, schema).is_empty() {
        return None;
    }
    encoding::as_go(&mut status, schema);
    if defaults::fill_in(&mut status, schema) {
        encoding::as_go(&mut status, schema);
    }
    status.as_object().is_some_and(|fields| !fields.is_empty()).then_some(status)
}

/// A stored object taken apart as far as a new status needs it.
#[derive(Default)]
struct Parts<'a> {
    /// In their order, with metadata and status among them.
    fields: Vec<(&'a str, Option<&'a RawValue>)>,
    metadata: Metadata<'a>,
    status: Option<Value>,
}

#[derive(Default)]
struct Metadata<'a> {
    fields: Vec<(&'a str, Option<&'a RawValue>)>,
    entries: Vec<EntryText<'a>>,
}

impl<'a> Parts<'a> {
    /// What the patch says of the status, if it says nothing else but for which object it is meant.
    fn wanted<'d>(&self, document: &'d Value, current: &Object) -> Option<&'d Value> {
        let fields = document.as_object()?;
        let meant = |name: &str, value: &Value| match name {
            "uid" => self.metadata.get("uid").is_some_and(|uid| *value == uid.get().trim_matches('"')),
            "resourceVersion" => *value == current.revision.to_string().as_str(),
            _ => false,
        };
        for (name, value) in fields {
            let plain = match name.as_str() {
                "metadata" => value.as_object()?.iter().all(|(name, value)| meant(name, value)),
                "status" => value.is_object(),
                _ => false,
            };
            if !plain {
                return None;
            }
        }
        // With the last grace gone and nothing that holds it, any write ends the object.
        let grace = self.metadata.get("deletionGracePeriodSeconds").map_or("0", RawValue::get);
        let ends = self.metadata.get("deletionTimestamp").is_some() && grace == "0";
        fields.get("status").filter(|_| !ends)
    }

    /// The text of the object with another status and other managed fields, and no revision yet.
    fn draft(&self, entries: &str, status: &Value) -> Option<Draft> {
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
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.fields.iter().find(|(field, _)| *field == name).and_then(|(_, raw)| *raw)
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
        let mut parts = Parts::default();
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
        let mut metadata = Metadata::default();
        while let Some(name) = map.next_key::<&'de str>()? {
            let mut raw = None;
            match name {
                "managedFields" => metadata.entries = map.next_value()?,
                _ => raw = Some(map.next_value()?),
            }
            metadata.fields.push((name, raw));
        }
        Ok(metadata)
    }
}
