//! The entries of `metadata.managedFields`: reading, writing, their order, and the cap on their number.

use serde_json::{Map, Value};

use super::Writer;
use super::field_set::FieldSet;

/// How many managers may own fields by updating, before the oldest are lumped together.
pub(super) const MAX_UPDATE_MANAGERS: usize = 10;

/// Who the oldest updates are then ascribed to.
const ANCIENT: &str = "ancient-changes";

/// One manager's entry. Its fields are decoded only when they must change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub manager: String,
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    /// `fieldsV1`.
    pub fields: Value,
}

impl Entry {
    pub fn new(writer: &Writer<'_>, applied: bool) -> Self {
        Self {
            manager: if writer.manager.is_empty() { "unknown" } else { writer.manager }.to_string(),
            applied,
            api_version: writer.api_version.to_string(),
            subresource: writer.subresource.to_string(),
            time: None,
            fields: Value::Object(Map::new()),
        }
    }

    /// Entries of appliers are theirs whatever the version; of updaters, each version has its own.
    pub fn same_owner(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// The fields; what users send is validated when it is read.
    pub fn set(&self) -> FieldSet {
        FieldSet::from_value(&self.fields).unwrap_or_default()
    }

    /// The owner as conflicts name it: `"kubectl" using apps/v1`.
    pub fn display(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applied {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    pub fn into_value(self) -> Value {
        let mut entry = Map::new();
        entry.insert("manager".into(), self.manager.into());
        entry.insert("operation".into(), if self.applied { "Apply" } else { "Update" }.into());
        entry.insert("apiVersion".into(), self.api_version.into());
        entry.insert("fieldsType".into(), "FieldsV1".into());
        entry.insert("fieldsV1".into(), self.fields);
        if let Some(time) = self.time {
            entry.insert("time".into(), time.into());
        }
        if !self.subresource.is_empty() {
            entry.insert("subresource".into(), self.subresource.into());
        }
        entry.into()
    }

    fn from_value(value: &Value) -> Option<Self> {
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
        let none = Value::Object(Map::new());
        let fields = value.get("fieldsV1").filter(|f| !f.is_null()).unwrap_or(&none);
        Some(Self {
            manager: text("manager")?,
            applied,
            api_version,
            subresource: text("subresource")?,
            time: Some(text("time")?).filter(|t| !t.is_empty()),
            fields: fields.clone(),
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
        let entry = Entry::from_value(value)?;
        FieldSet::from_value(&entry.fields).ok()?;
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
    entries.filter_map(Entry::from_value).collect()
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
pub fn is_reset(object: &Value) -> bool {
    match raw(object).and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Writes the entries into the object, in the order that the server keeps; none removes the field.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        b.applied
            .cmp(&a.applied)
            .then_with(|| a.time.cmp(&b.time))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        let entries: Vec<Value> = entries.into_iter().map(Entry::into_value).collect();
        metadata.insert("managedFields".to_string(), entries.into());
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
            let mut set = bucket.set();
            set.union(&updater.set());
            bucket.fields = set.to_value();
            bucket.time = updater.time.clone();
        }
        excess -= 1;
    }
}
