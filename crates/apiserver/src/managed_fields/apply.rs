//! Server-side apply.

use serde_json::{Map, Value, json};

use super::check::misfits;
use super::compare::{Comparison, compare, strip_unowned};
use super::entries::{self, Entry};
use super::field_set::FieldSet;
use super::merge::merge;
use super::remove::{forget_emptied, remove};
use super::set_of::{set_of, with_structs};
use super::update::{claim, reset_fields, take_from};
use super::{Writer, last_applied, path};
use crate::error::{ApiError, ApiResult};
use crate::schema::SchemaRef;

/// Who owned the fields of an object that was never tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Somebody else's fields that the configuration would change.
struct Conflict {
    owner: Entry,
    fields: FieldSet,
}

/// The live object (none: it is being created) after `config` is applied by the writer, with its managed fields.
/// Without `force`, changing what others own is a conflict. The caller defaults and validates the result.
pub(crate) fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: SchemaRef<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> ApiResult<Value> {
    if config.get("metadata").and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(problem) = misfits(config, schema) {
        let message = format!("failed to create typed patch object ({}): {problem}", describe(config));
        return Err(ApiError::new(500, "", message));
    }
    let mut applied = match attempt(live, config, schema, writer, force)? {
        Ok(applied) => applied,
        Err(conflicts) => {
            let allowed = last_applied::allowed(live, schema, writer);
            let left: Vec<Conflict> =
                conflicts.into_iter().filter_map(|c| c.without(allowed.as_ref())).collect();
            if !left.is_empty() {
                return Err(conflict_error(&left));
            }
            attempt(live, config, schema, writer, true)?.map_err(|left| conflict_error(&left))?
        }
    };
    last_applied::refresh(&mut applied, config, writer);
    Ok(applied)
}

impl Conflict {
    fn without(mut self, allowed: Option<&FieldSet>) -> Option<Self> {
        if let Some(allowed) = allowed {
            self.fields.subtract(allowed);
        }
        (!self.fields.is_empty()).then_some(self)
    }
}

fn attempt(
    live: Option<&Value>,
    config: &Value,
    schema: SchemaRef<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> ApiResult<Result<Value, Vec<Conflict>>> {
    let none = Value::Object(Map::new());
    let mut owners = match live.map(entries::read) {
        Some(None) => return Err(ApiError::new(500, "", "failed to decode managed fields")),
        Some(Some(owners)) => owners,
        None => Vec::new(),
    };
    if owners.is_empty()
        && let Some(live) = live
    {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let mut all = compare(&none, live, schema);
        all.subtract_trees(&reset_fields(writer));
        owners = claim(owners, all, &before);
    }

    let live = live.unwrap_or(&none);
    let reset = reset_fields(writer);
    let mut mine = Entry::new(writer, true);
    let last = owners.iter().find(|e| e.same_owner(&mine)).cloned();
    let mut set = set_of(config, schema);
    set.subtract_trees(&reset);
    mine.time = last.as_ref().and_then(|l| l.time.clone());
    owners.retain(|e| !e.same_owner(&mine));

    let merged = merge(live, config, schema);
    let object = match &last {
        Some(last) => prune(&merged, &last.fields, &set, &owners, schema),
        None => merged,
    };

    let unchanged = object == *live;
    let mut change = compare(live, &object, schema);
    change.subtract_trees(&reset);
    let Comparison { added, modified, removed } = change;
    let mut taken = added;
    taken.union(&modified);
    if !force {
        let conflicts = conflicts(&owners, &taken);
        if !conflicts.is_empty() {
            return Ok(Err(conflicts));
        }
    }
    taken.union(&removed);
    take_from(&mut owners, &taken);

    strip_unowned(&mut set);
    if !set.is_empty() {
        mine.fields = set;
        if !unchanged {
            mine.time = Some(writer.now.to_string());
        }
        owners.push(mine);
    }
    let mut object = if unchanged { live.clone() } else { object };
    forget_emptied(&mut object, live, config);
    for key in ["apiVersion", "kind"] {
        if let (Some(value), Some(fields)) = (config.get(key), object.as_object_mut()) {
            fields.insert(key.to_string(), value.clone());
        }
    }
    entries::write(&mut object, owners);
    Ok(Ok(object))
}

fn conflicts(owners: &[Entry], taken: &FieldSet) -> Vec<Conflict> {
    let mut conflicts: Vec<Conflict> = owners
        .iter()
        .map(|owner| (owner, owner.fields.intersection(taken)))
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(owner, fields)| Conflict { owner: owner.clone(), fields })
        .collect();
    conflicts.sort_by_key(|c| (c.owner.manager.clone(), c.owner.applied, c.owner.api_version.clone()));
    conflicts
}

/// Takes out what the applier owned by its last configuration and no longer names, unless somebody else owns it.
fn prune(merged: &Value, last: &FieldSet, set: &FieldSet, others: &[Entry], schema: SchemaRef<'_>) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let full = |set: &FieldSet| with_structs(set, Some(schema));
    let last = full(last);
    let without_last = remove(merged, &last, schema);

    let mut owned = set.clone();
    others.iter().for_each(|other| owned.union(&other.fields));
    let all = full(&set_of(merged, schema));
    let mut unowned = all.clone();
    unowned.subtract(&full(&set_of(&without_last, schema)));
    unowned.subtract(&full(&owned));
    let kept = remove(merged, &unowned, schema);

    // Only what the applier itself owned may go, not what merely stood below it.
    let mut gone = all;
    gone.subtract(&full(&set_of(&kept, schema)));
    remove(merged, &gone.intersection(&last), schema)
}

fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for conflict in conflicts {
        let owner = conflict.owner.display();
        lines.push(format!("conflicts with {owner}:"));
        for path in conflict.fields.paths() {
            let field = path::display(&path);
            lines.push(format!("- {field}"));
            causes.push(json!({
                "reason": "FieldManagerConflict", "message": format!("conflict with {owner}"), "field": field,
            }));
        }
    }
    let message = match causes.as_slice() {
        [one] => format!(
            "Apply failed with 1 conflict: {}: {}",
            one["message"].as_str().unwrap_or_default(),
            one["field"].as_str().unwrap_or_default()
        ),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    ApiError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}

/// `namespace/name; group/version, Kind=Kind`, as the server names an object it cannot take.
fn describe(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_string();
    let metadata = object.get("metadata");
    let of = |key: &str| text(metadata.and_then(|m| m.get(key)));
    let version = text(object.get("apiVersion"));
    let version = if version.contains('/') { version } else { format!("/{version}") };
    format!("{}/{}; {version}, Kind={}", of("namespace"), of("name"), text(object.get("kind")))
}
