//! The entries of `metadata.managedFields`: reading, writing, their order, and the cap on their number.

use serde::{Deserialize as _, Serialize};
use serde_json::{Map, Value, json};

use super::Writer;
use super::field_set::FieldSet;

/// How many managers may own fields by updating, before the oldest are lumped together.
pub(super) const MAX_UPDATE_MANAGERS: usize = 10;

/// Who the oldest updates are then ascribed to.
const ANCIENT: &str = "ancient-changes";

/// One manager's entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub manager: String,
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

/// Where an entry goes among the others: who applied first, then by time and name.
pub(super) type EntryOrder<'a> = (bool, Option<&'a str>, &'a str, &'a str, &'a str);

/// An entry as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    api_version: &'a str,
    fields_type: &'static str,
    #[serde(rename = "fieldsV1")]
    fields: &'a FieldSet,
    manager: &'a str,
    operation: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            api_version: &self.api_version,
            fields_type: "FieldsV1",
            fields: &self.fields,
            manager: &self.manager,
            operation: if self.applied { "Apply" } else { "Update" },
            subresource: &self.subresource,
            time: self.time.as_deref(),
        };
        written.serialize(to)
    }
}

impl Entry {
    pub(crate) fn new(writer: &Writer<'_>, applied: bool) -> Self {
        Self {
            manager: if writer.manager.is_empty() { "unknown" } else { writer.manager }.to_string(),
            applied,
            api_version: writer.api_version.to_string(),
            subresource: writer.subresource.to_string(),
            time: None,
            fields: FieldSet::default(),
        }
    }

    pub(crate) fn place(&self) -> EntryOrder<'_> {
        (!self.applied, self.time.as_deref(), &self.manager, &self.api_version, &self.subresource)
    }

    /// Entries of appliers are theirs whatever the version; of updaters, each version has its own.
    pub(crate) fn same_owner(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// The owner as conflicts name it: `"kubectl" using apps/v1`.
    pub(crate) fn display(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applied {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    /// `fields` says how their text is read.
    fn from_value(value: &Value, fields: impl Fn(&Value) -> Option<FieldSet>) -> Option<Self> {
        let text = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(s)) => Some(s.clone()),
            Some(_) => None,
        };
        let applied = match value.get("operation").and_then(Value::as_str)? {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        let api_version = text("apiVersion").filter(|v| !v.is_empty())?;
        if value.get("fieldsType").and_then(Value::as_str) != Some("FieldsV1") {
            return None;
        }
        let given = value.get("fieldsV1").filter(|given| !given.is_null());
        Some(Self {
            manager: text("manager")?,
            applied,
            api_version,
            subresource: text("subresource")?,
            time: Some(text("time")?).filter(|t| !t.is_empty()),
            fields: given.map_or_else(|| Some(FieldSet::default()), fields)?,
        })
    }
}

fn raw(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|m| !m.is_null())
}

/// The object's entries; none if any of them cannot be read.
pub(super) fn read(object: &Value) -> Option<Vec<Entry>> {
    let Some(raw) = raw(object) else { return Some(Vec::new()) };
    let mut entries: Vec<Entry> = Vec::new();
    for value in raw.as_array()? {
        let entry = Entry::from_value(value, |fields| FieldSet::from_value(fields).ok())?;
        match entries.iter_mut().find(|e| e.same_owner(&entry)) {
            Some(earlier) => *earlier = entry,
            None => entries.push(entry),
        }
    }
    Some(entries)
}

/// The entries of an object that this server wrote: their fields are known to be readable.
pub(super) fn read_stored(object: &Value) -> Vec<Entry> {
    let entries = raw(object).and_then(Value::as_array).into_iter().flatten();
    entries
        .filter_map(|entry| Entry::from_value(entry, |fields| FieldSet::deserialize(fields).ok()))
        .collect()
}

/// Whether both have the same managed fields.
pub(super) fn same(live: &Value, after: &Value) -> bool {
    raw(live) == raw(after)
}

/// Gives `after` the live managed fields, exactly.
pub(super) fn keep(live: &Value, after: &mut Value) {
    if same(live, after) {
        return;
    }
    let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match raw(live) {
        Some(entries) => metadata.insert("managedFields".to_string(), entries.clone()),
        None => metadata.remove("managedFields"),
    };
}

/// Whether the object asks for its managed fields to be forgotten, by an empty list or one empty entry.
pub(crate) fn is_reset(object: &Value) -> bool {
    match raw(object).and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Writes the entries into the object, in the order that the server keeps; none removes the field.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| a.place().cmp(&b.place()));
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_string(), json!(entries));
    }
}

/// Keeps the number of updaters in bounds: the oldest of a version are merged into one.
pub(super) fn cap(entries: &mut Vec<Entry>) {
    if entries.iter().filter(|e| !e.applied).count() <= MAX_UPDATE_MANAGERS {
        return;
    }
    let mut updaters: Vec<Entry> = entries.iter().filter(|e| !e.applied).cloned().collect();
    let id = |e: &Entry| (e.manager.clone(), e.api_version.clone(), e.subresource.clone());
    updaters.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| id(a).cmp(&id(b))));
    let mut excess = updaters.len() - MAX_UPDATE_MANAGERS;
    let mut first_of: Vec<Entry> = Vec::new();
    for updater in updaters {
        if excess == 0 {
            break;
        }
        let Some(first) = first_of.iter().find(|f| f.api_version == updater.api_version) else {
            first_of.push(updater);
            continue;
        };
        let is_bucket = |e: &Entry| {
            !e.applied
                && e.manager == ANCIENT
                && e.api_version == updater.api_version
                && e.subresource.is_empty()
        };
        if !entries.iter().any(is_bucket)
            && let Some(entry) = entries.iter_mut().find(|e| e.same_owner(first))
        {
            entry.manager = ANCIENT.to_string();
            entry.subresource = String::new();
        }
        if is_bucket(&updater) {
            continue;
        }
        entries.retain(|e| !e.same_owner(&updater));
        if let Some(bucket) = entries.iter_mut().find(|e| is_bucket(e)) {
            bucket.fields.union(&updater.fields);
            bucket.time = updater.time.clone();
        }
        excess -= 1;
    }
}
