//! Upkeep of `managedFields` when an object is created, updated or patched.

use serde_json::{Map, Value};

use super::compare::{Comparison, compare, strip_unowned};
use super::entries::{self, Entry};
use super::field_set::FieldSet;
use super::{Writer, path};
use crate::schema::SchemaRef;

/// Gives `after` the managed fields that follow from `before` and the change: the writer owns what it changed,
/// others lose it, and who owns nothing is no longer listed. What `after` brings as managed fields is honoured
/// where the API allows that (main resource, readable), else ignored.
pub(crate) fn update(before: Option<&Value>, after: &mut Value, schema: SchemaRef<'_>, writer: &Writer<'_>) {
    let none = Value::Object(Map::new());
    let live = before.unwrap_or(&none);
    let mut change = compare(live, after, schema);
    change.subtract_trees(&reset_fields(writer));
    let owners = match sent(live, after, writer) {
        Some(owners) => owners,
        None if change.is_empty() => return entries::keep(live, after),
        None => entries::read_stored(live),
    };
    // Without entries an object is not tracked: they were cleared, and only apply starts anew.
    let tracked = !owners.is_empty() || before.is_none();
    entries::write(after, if tracked { claim(owners, change, writer) } else { owners });
}

/// The entries that the writer asks for, if it may and they differ from the live ones; none of them to clear all.
fn sent(live: &Value, after: &Value, writer: &Writer<'_>) -> Option<Vec<Entry>> {
    if !writer.subresource.is_empty() || entries::same(live, after) {
        return None;
    }
    if entries::is_reset(after) {
        return Some(Vec::new());
    }
    entries::read(after).filter(|sent| !sent.is_empty())
}

/// Moves the changed fields to the writer.
pub(super) fn claim(mut owners: Vec<Entry>, change: Comparison, writer: &Writer<'_>) -> Vec<Entry> {
    let mut taken = change.added;
    taken.union(&change.modified);
    if !owners.is_empty() {
        let mut changed = taken.clone();
        changed.union(&change.removed);
        take_from(&mut owners, &changed);
    }

    strip_unowned(&mut taken);
    if !taken.is_empty() {
        let mut entry = Entry::new(writer, false);
        match owners.iter_mut().find(|e| e.same_owner(&entry)) {
            Some(previous) => {
                previous.fields.union(&taken);
                previous.time = Some(writer.now.to_string());
            }
            None => {
                entry.fields = taken;
                entry.time = Some(writer.now.to_string());
                owners.push(entry);
            }
        }
    }
    entries::cap(&mut owners);
    owners
}

/// Takes the fields from everybody; who is left with none goes.
pub(super) fn take_from(owners: &mut Vec<Entry>, fields: &FieldSet) {
    owners.retain_mut(|owner| {
        owner.fields.subtract(fields);
        !owner.fields.is_empty()
    });
}

pub(super) fn reset_fields(writer: &Writer<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for reset in writer.reset {
        let elements: Vec<String> = reset.iter().map(|name| path::field(name)).collect();
        set.insert(elements.iter().map(String::as_str));
    }
    set
}
