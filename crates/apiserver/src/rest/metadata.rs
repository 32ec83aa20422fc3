//! The parts of object metadata that the server itself keeps.

use serde_json::{Map, Value};

use super::{Call, errors};
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult};
use crate::kinds::Generation;

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// The object must be the one that the path names.
pub(crate) fn check_name(call: &Call<'_>, object: &Value) -> ApiResult<()> {
    let given = text(object, "name");
    if given == call.name() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({})",
        call.name()
    )))
}

/// Takes the namespace of the path; one that is given must be the same.
pub(crate) fn settle_namespace(call: &Call<'_>, object: &mut Value) -> ApiResult<()> {
    let given = text(object, "namespace").to_string();
    if !call.kind.namespaced {
        if given.is_empty() {
            return Ok(());
        }
        metadata_mut(object).map(|m| m.remove("namespace"));
        return Ok(());
    }
    if !given.is_empty() && given != call.namespace() {
        return Err(errors::namespace_mismatch());
    }
    object["metadata"]["namespace"] = call.namespace().into();
    Ok(())
}

/// Fields that only the server sets; sent with a new object they mean nothing.
pub(crate) fn drop_server_fields(object: &mut Value) {
    if let Some(metadata) = metadata_mut(object) {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
    }
}

/// Fills in what the server decides about a new object: name from generateName, uid, creation time.
pub(crate) fn stamp_new(call: &Call<'_>, object: &mut Value) {
    let uid = call.server.uid();
    let now = rfc3339(call.server.now());
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), now.into());
        if call.kind.generation != Generation::None {
            metadata.insert("generation".into(), 1.into());
        }
    }
}

/// A name from `generateName`: the prefix cut so that five random characters fit.
pub(crate) fn generated_name(call: &Call<'_>, prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        name.push(ALPHABET[call.server.random(ALPHABET.len() as u64) as usize] as char);
    }
    name
}

/// Puts back what a client may leave out but never change.
pub(crate) fn keep_server_fields(old: &Value, new: &mut Value) {
    if let Some(metadata) = metadata_mut(new) {
        metadata.remove("selfLink");
        let kept = |field: &str| old["metadata"].get(field).cloned();
        for field in ["creationTimestamp", "generation"] {
            match kept(field) {
                Some(value) => metadata.insert(field.to_string(), value),
                None => metadata.remove(field),
            };
        }
        // These can be left out but not changed; a change is an error that validation reports.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "uid"] {
            let missing = metadata.get(field).is_none_or(|value| value.is_null() || value == "");
            if missing && let Some(value) = kept(field) {
                metadata.insert(field.to_string(), value);
            }
        }
    }
}

/// Raises the generation when something changed that it counts.
pub(crate) fn count_generation(counts: Generation, old: &Value, new: &mut Value) {
    fn counted(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"))
    }
    let spec_changed = || !counted(old).eq(counted(new));
    let changed = match counts {
        Generation::None | Generation::Constant => false,
        Generation::Spec => spec_changed(),
        Generation::SpecAndLabels => spec_changed() || old["metadata"]["labels"] != new["metadata"]["labels"],
        Generation::SpecAndAnnotations => {
            spec_changed() || old["metadata"]["annotations"] != new["metadata"]["annotations"]
        }
    };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        new["metadata"]["generation"] = generation.into();
    }
}
