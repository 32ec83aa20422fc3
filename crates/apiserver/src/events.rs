//! Core events and events.k8s.io events are the same objects under different field names.

use serde_json::Value;

/// Core name, events.k8s.io name.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    if let Value::Object(fields) = event {
        for (from, to) in names {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.to_string(), value);
            }
        }
    }
}

pub(crate) fn to_modern(event: &mut Value) {
    rename(event, RENAMED.into_iter());
    if let Value::Object(fields) = event {
        for field in ["reportingController", "reportingInstance"] {
            if fields.get(field).is_some_and(|text| text == "") {
                fields.remove(field);
            }
        }
    }
}

pub(crate) fn to_core(event: &mut Value) {
    rename(event, RENAMED.into_iter().map(|(core, modern)| (modern, core)));
}
