//! Managed fields in the text of a stored object. A write that touches one part of the object need not read who owns
//! the others: their entries stay the text that they are.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Writer;
use super::compare::compare;
use super::entries::{Entry, EntryOrder, MAX_UPDATE_MANAGERS};
use super::update::{claim, reset_fields};
use crate::schema::SchemaRef;

/// One entry, whose parts are not read.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EntryText<'a> {
    #[serde(borrow)]
    api_version: &'a RawValue,
    #[serde(borrow)]
    fields_type: &'a RawValue,
    #[serde(borrow, rename = "fieldsV1")]
    fields: &'a RawValue,
    #[serde(borrow)]
    manager: &'a RawValue,
    #[serde(borrow)]
    operation: &'a RawValue,
    #[serde(borrow, default)]
    subresource: Option<&'a RawValue>,
    #[serde(borrow, default)]
    time: Option<&'a RawValue>,
}

/// The text between the quotes, if that is all there is to it.
fn plain(raw: &RawValue) -> Option<&str> {
    let text = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

fn plain_or_none(raw: Option<&RawValue>) -> Option<Option<&str>> {
    raw.map_or(Some(None), |raw| plain(raw).map(Some))
}

impl<'a> EntryText<'a> {
    fn place(&self) -> Option<EntryOrder<'a>> {
        Some((
            self.operation.get() != "\"Apply\"",
            plain_or_none(self.time)?,
            plain(self.manager)?,
            plain(self.api_version)?,
            plain_or_none(self.subresource)?.unwrap_or_default(),
        ))
    }

    fn read(&self, (not_applied, time, manager, api_version, subresource): EntryOrder<'_>) -> Option<Entry> {
        Some(Entry {
            manager: manager.to_string(),
            applied: !not_applied,
            api_version: api_version.to_string(),
            subresource: subresource.to_string(),
            time: time.map(String::from),
            fields: serde_json::from_str(self.fields.get()).ok()?,
        })
    }

    fn write(&self, to: &mut String) {
        let parts = [
            ("{\"apiVersion\":", Some(self.api_version)),
            (",\"fieldsType\":", Some(self.fields_type)),
            (",\"fieldsV1\":", Some(self.fields)),
            (",\"manager\":", Some(self.manager)),
            (",\"operation\":", Some(self.operation)),
            (",\"subresource\":", self.subresource),
            (",\"time\":", self.time),
        ];
        for (name, raw) in parts {
            if let Some(raw) = raw {
                to.push_str(name);
                to.push_str(raw.get());
            }
        }
        to.push('}');
    }
}

enum Line<'a> {
    Kept(&'a EntryText<'a>),
    Claimed(&'a Entry),
}

/// What becomes of the entries when nothing but the root field of these two values changes; `None` if that is nothing,
/// or not so simple that it could be told from here.
pub(crate) fn update_text(
    entries: &[EntryText<'_>],
    (before, after): (&Value, &Value),
    schema: SchemaRef<'_>,
    writer: &Writer<'_>,
) -> Option<String> {
    let mut change = compare(before, after, schema);
    change.subtract_trees(&reset_fields(writer));
    if entries.is_empty() || change.is_empty() {
        return None;
    }
    let [(root, _)] = Vec::from_iter(after.as_object()?)[..] else { return None };
    let root = format!("\"f:{root}\":");
    let own = Entry::new(writer, false);
    let (_, _, manager, api_version, subresource) = own.place();
    let mut concerned = Vec::new();
    let mut texts = Vec::with_capacity(entries.len() + 1);
    for text in entries {
        let place = text.place()?;
        let mine = (place.0, place.2, place.3, place.4) == (true, manager, api_version, subresource);
        if mine || text.fields.get().contains(&root) {
            concerned.push(text.read(place)?);
        } else {
            texts.push((place, Line::Kept(text)));
        }
    }
    let claimed = claim(concerned, change, writer);
    texts.extend(claimed.iter().map(|entry| (entry.place(), Line::Claimed(entry))));
    // Who is lumped together when there are too many depends on all of them.
    if texts.len() > MAX_UPDATE_MANAGERS {
        return None;
    }
    texts.sort_by_key(|(place, _)| *place);
    let mut all = String::with_capacity(2048);
    for (_, line) in texts {
        all.push(if all.is_empty() { '[' } else { ',' });
        match line {
            Line::Kept(text) => text.write(&mut all),
            Line::Claimed(entry) => all.push_str(&serde_json::to_string(entry).ok()?),
        }
    }
    all.push(']');
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::update;
    use super::*;
    use crate::schema::builtin_kind;
    use serde_json::json;

    fn writer<'a>(manager: &'a str, subresource: &'a str, now: &'a str) -> Writer<'a> {
        Writer { manager, subresource, api_version: "v1", now, reset: &[] }
    }

    /// Both ways must give the same, whoever writes and whoever wrote before.
    #[test]
    fn entries_become_what_they_become_when_all_of_them_are_read() {
        let schema = builtin_kind("", "v1", "Pod").unwrap();
        let statuses = [
            json!({"phase": "Pending"}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"}),
            json!({"phase": "Running", "conditions": [{"type": "Other", "status": "True"}]}),
            json!({"phase": "Failed"}),
        ];
        let managers = ["kubelet", "scheduler", "kubelet", "somebody else!", "kubelet"];
        let mut object = json!({
            "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {},
        });
        update(None, &mut object, schema, &writer("kubectl", "", "2027-01-01T00:00:00Z"));
        for (turn, (status, manager)) in statuses.iter().zip(managers).enumerate() {
            let now = format!("2027-01-01T00:00:{:02}Z", 10 - turn);
            let by = writer(manager, "status", &now);
            let text = object["metadata"]["managedFields"].to_string();
            let entries: Vec<EntryText<'_>> = serde_json::from_str(&text).unwrap();
            let parts = (json!({"status": object["status"]}), json!({"status": status}));
            let told = update_text(&entries, (&parts.0, &parts.1), schema, &by).unwrap();
            let mut after = object.clone();
            after["status"] = status.clone();
            update(Some(&object), &mut after, schema, &by);
            assert_eq!(told, after["metadata"]["managedFields"].to_string(), "{manager} writes {status}");
            object = after;
        }
        let text = object["metadata"]["managedFields"].to_string();
        let entries: Vec<EntryText<'_>> = serde_json::from_str(&text).unwrap();
        let quoted = text.replace("kubelet", r#"the \"kubelet\""#);
        assert_ne!(quoted, text);
        let quoted: Vec<EntryText<'_>> = serde_json::from_str(&quoted).unwrap();
        let same = json!({"status": statuses[4]});
        assert_eq!(update_text(&entries, (&same, &same), schema, &writer("a", "status", "now")), None);
        let other = json!({"status": statuses[0]});
        assert_eq!(update_text(&quoted, (&same, &other), schema, &writer("a", "status", "now")), None);
        assert_eq!(update_text(&[], (&same, &other), schema, &writer("a", "status", "now")), None);
    }
}
