//! The errors of resource handlers, worded as the API server words them.

use serde_json::json;

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::store::Key;

/// What the API server's etcd client sends in one message.
const SENT_BYTES: usize = 2 << 20;

fn details(kind: &Kind, name: &str) -> serde_json::Value {
    let mut details = json!({"kind": kind.plural});
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    details
}

pub(crate) fn not_found(kind: &Kind, name: &str) -> ApiError {
    ApiError::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified_resource()))
        .with_details(details(kind, name))
}

pub(crate) fn already_exists(kind: &Kind, name: &str) -> ApiError {
    ApiError::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified_resource()))
        .with_details(details(kind, name))
}

pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> ApiError {
    ApiError::new(
        409,
        "Conflict",
        format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_resource()),
    )
    .with_details(details(kind, name))
}

/// The object is larger than etcd takes. What its client does not even send is refused in other words.
pub(crate) fn too_large(size: usize) -> ApiError {
    let message = if size > SENT_BYTES {
        format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {SENT_BYTES})"
        )
    } else {
        "etcdserver: request is too large".to_string()
    };
    ApiError::new(500, "", message)
}

/// The object changed between reading and writing.
pub(crate) fn modified(kind: &Kind, name: &str) -> ApiError {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    conflict(kind, name, why)
}

/// The object is another one of the same name.
pub(crate) fn uid_mismatch(kind: &Kind, key: &Key, wanted: &str, actual: &str) -> ApiError {
    let namespace = if key.namespace.is_empty() { String::new() } else { format!("/{}", key.namespace) };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}{namespace}/{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}",
        kind.plural, key.name
    );
    conflict(kind, &key.name, &why)
}

pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> ApiError {
    ApiError::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.qualified_resource()))
        .with_details(details(kind, name))
}

pub(crate) fn namespace_mismatch() -> ApiError {
    ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

pub(crate) fn method_not_allowed() -> ApiError {
    ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        .with_details(json!({}))
}

pub(crate) fn no_such_path() -> ApiError {
    ApiError::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
}

/// A watch or a page starts at a revision that the server no longer remembers.
pub(crate) fn expired(message: impl Into<String>) -> ApiError {
    ApiError::new(410, "Expired", message)
}

pub(crate) fn unsupported_media_type(accepted: &[&str]) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}

pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
    ApiError::new(500, "InternalError", format!("Internal error occurred: {message}"))
        .with_details(json!({"causes": [{"message": message.to_string()}]}))
}

/// A revision from the future: the client is ahead of this server.
pub(crate) fn too_large_revision(asked: u64, current: u64) -> ApiError {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Too large resource version: {asked}, current: {current}"),
    )
    .with_details(
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}),
    );
    error.retry_after = Some(1);
    error
}

pub(crate) fn resource_version_on_create() -> ApiError {
    ApiError::new(500, "", "resourceVersion should not be set on objects to be created")
}
