//! create: from a decoded object to a stored one.

use std::sync::Arc;

use serde_json::Value;

use super::answer;
use super::metadata::{self, drop_server_fields, generated_name, settle_namespace, stamp_new};
use super::{Call, decode, errors, namespaces, prepare};
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::defaults::{self, PodPriority};
use crate::error::{ApiError, ApiResult};
use crate::kinds::KindSchema;
use crate::response::ServerResponse;
use crate::store::{Key, Object, WriteError};
use crate::strategy;

/// What came of a write: a stored object, or what would have been stored.
pub(crate) enum WriteResult {
    Stored(Arc<Object>),
    DryRun(Value),
}

impl WriteResult {
    pub(crate) fn answer(&self, call: &Call<'_>, code: u16) -> ServerResponse {
        match self {
            Self::Stored(object) => answer::object(call, code, object),
            Self::DryRun(value) => answer::value(call, code, value.clone()),
        }
    }
}

pub(crate) async fn create(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let mut object = decode::object(call)?;
    prepare::shape(call, &mut object)?;
    Ok(create_object(call, object, dry_run, false).await?.answer(call, 201))
}

/// Names made from `generateName` may collide; then another is tried.
const NAME_TRIES: usize = 8;

/// Stores a new object; `applied` says that its managed fields are already those of a server-side apply.
pub(crate) async fn create_object(
    call: &mut Call<'_>,
    mut object: Value,
    dry_run: bool,
    applied: bool,
) -> ApiResult<WriteResult> {
    settle_namespace(call, &mut object)?;
    if !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(errors::resource_version_on_create());
    }
    let kind = call.kind.clone();
    drop_server_fields(&mut object);
    metadata::metadata_mut(&mut object).map(|m| m.remove("resourceVersion"));
    prepare::default(&kind, &mut object);
    // What admission adds later belongs to nobody.
    namespaces::check_alive(call, &kind)?;
    if !applied {
        let manager = call.field_manager()?;
        call.server.own_fields(&kind, None, &mut object, &manager, "");
    }
    if kind.is("", "pods") {
        admit_priority(call, &mut object)?;
    }
    if call.server.mutate(call, Operation::Create, &mut object, None, dry_run).await? {
        prepare::shape(call, &mut object)?;
        prepare::default(&kind, &mut object);
    }
    stamp_new(call, &mut object);
    set_initial_status(call, &mut object);
    strategy::created(call.server, &kind, &mut object, &rfc3339(call.server.now()));
    let generate = metadata::text(&object, "generateName").to_string();
    let generates = metadata::text(&object, "name").is_empty() && !generate.is_empty();

    for _ in 0..NAME_TRIES {
        if generates {
            object["metadata"]["name"] = generated_name(call, &generate).into();
        }
        prepare::validate_create(&kind, &object)?;
        call.server.admit(call, Operation::Create, Some(&object), None, dry_run).await?;
        let key = Key::new(metadata::text(&object, "namespace"), metadata::text(&object, "name"));
        if dry_run {
            if call.server.store.get(&kind.storage, &key).is_some() {
                return Err(exists(call, &key));
            }
            return Ok(WriteResult::DryRun(object));
        }
        let mut candidate = answer::to_stored(&kind, object);
        match call.server.store.create(&kind.storage, key.clone(), &mut candidate) {
            Ok(stored) => {
                call.server.after_write(&kind, None, &stored);
                return Ok(WriteResult::Stored(stored));
            }
            Err(WriteError::Exists) if generates => object = answer::in_version(&kind, candidate),
            Err(WriteError::Exists) => return Err(exists(call, &key)),
            Err(WriteError::TooLarge(size)) => return Err(errors::too_large(size)),
            Err(_) => return Err(errors::no_such_path()),
        }
    }
    let mut error = ApiError::new(
        409,
        "AlreadyExists",
        format!(
            "{} \"{generate}\" already exists, the server was not able to generate a unique name for the object",
            kind.qualified_resource()
        ),
    );
    error.retry_after = Some(1);
    Err(error)
}

/// The name is taken, perhaps by an object that is on its way out.
fn exists(call: &Call<'_>, key: &Key) -> ApiError {
    let mut error = errors::already_exists(&call.kind, &key.name);
    let there = call.server.store.get(&call.kind.storage, key);
    if there.is_some_and(|object| metadata::is_deleting(&object.value())) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// A pod gets the priority of its class, or of the class that is the default for all.
fn admit_priority(call: &Call<'_>, pod: &mut Value) -> ApiResult<()> {
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_string();
    let class = call.server.priority_class(&named);
    if class.is_none() && !named.is_empty() {
        let why = format!("no PriorityClass with name {named} was found");
        return Err(errors::forbidden(&call.kind, metadata::text(pod, "name"), &why));
    }
    let class = class.unwrap_or_default();
    let text = |value: &Value, other: &str| value.as_str().unwrap_or(other).to_string();
    let (name, policy) =
        (text(&class["metadata"]["name"], ""), text(&class["preemptionPolicy"], "PreemptLowerPriority"));
    let value = class["value"].as_i64().unwrap_or_default();
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(errors::forbidden(&call.kind, metadata::text(pod, "name"), &why));
    }
    let priority = PodPriority { class: &name, value: value as i32, preemption_policy: &policy };
    defaults::admit_pod(pod, priority);
    Ok(())
}

/// A new object starts with the status its kind prescribes, whatever the client sent.
fn set_initial_status(call: &Call<'_>, object: &mut Value) {
    let kind = &call.kind;
    match &kind.schema {
        KindSchema::Custom(_) if kind.has_status => {
            object.as_object_mut().map(|o| o.remove("status"));
            // A status may have defaults of its own.
            prepare::default(kind, object);
        }
        KindSchema::Builtin(schema) => {
            if !kind.initial_status.is_null() {
                object["status"] = kind.initial_status.clone();
            }
            defaults::prepare_create(object, *schema);
        }
        _ => {}
    }
}
