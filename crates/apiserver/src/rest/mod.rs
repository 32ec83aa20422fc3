//! The verbs on resources. Every handler is generic over kinds; what is special about one is in its row
//! ([`crate::kinds`]) or in a file of its own beside this one (eviction, binding, scale, ...).

pub(crate) mod answer;
pub(crate) mod binding;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod errors;
pub(crate) mod eviction;
pub(crate) mod metadata;
pub(crate) mod namespaces;
mod parts;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod read;
pub(crate) mod reviews;
pub(crate) mod scale;
pub(crate) mod status_patch;
pub(crate) mod tokens;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::attributes::{Attributes, User};
use crate::error::{ApiError, ApiResult, FieldError, FieldErrorKind};
use crate::kinds::Kind;
use crate::negotiate::Form;
use crate::request::{Query, ResourcePath};
use crate::response::ServerResponse;
use crate::server::Server;
use crate::store::Key;

/// One request about a resource, with everything that was found out about it.
pub(crate) struct Call<'a> {
    pub server: &'a Arc<Server>,
    pub kind: Arc<Kind>,
    pub path: ResourcePath,
    pub attributes: Attributes,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: User,
    pub form: Form,
    pub body: Bytes,
    pub warnings: Vec<String>,
}

impl Call<'_> {
    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// Who is writing, for managed fields.
    pub(crate) fn field_manager(&self) -> ApiResult<String> {
        if let Some(manager) = self.query.get("fieldManager") {
            check_manager(manager, &self.attributes.verb)?;
            return Ok(manager.to_string());
        }
        let agent =
            self.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        Ok(crate::managed_fields::manager_from_user_agent(agent))
    }
}

/// A field manager's name must fit and be printable.
fn check_manager(manager: &str, verb: &str) -> ApiResult<()> {
    let error = if manager.len() > 128 {
        FieldError::new(
            FieldErrorKind::TooLong,
            "fieldManager",
            Value::Null,
            "may not be more than 128 bytes",
        )
    } else if let Some((at, c)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        FieldError::invalid("fieldManager", manager, detail)
    } else {
        return Ok(());
    };
    Err(ApiError::invalid("meta.k8s.io", options_kind(verb), "", &[error]))
}

/// The options that a write of this verb takes.
fn options_kind(verb: &str) -> &'static str {
    match verb {
        "create" => "CreateOptions",
        "patch" => "PatchOptions",
        _ => "UpdateOptions",
    }
}

/// The verb that RBAC and admission know a request by.
pub(crate) fn verb(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if path.name.is_some() => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if path.name.is_some() => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

/// Sends the call to its handler.
pub(crate) async fn handle(call: &mut Call<'_>, verb: &str) -> ApiResult<ServerResponse> {
    if call.subresource().is_empty() {
        let named = call.path.name.is_some();
        let posts_to_name = verb == "create" && named;
        let unnamed_write = matches!(verb, "update" | "patch") && !named;
        if !call.kind.verbs.contains(&verb) || posts_to_name || unnamed_write {
            return Err(errors::method_not_allowed());
        }
        if call.kind.verbs.len() == 1 {
            return if call.kind.is("", "bindings") {
                binding::create(call).await
            } else {
                reviews::create(call)
            };
        }
        return match verb {
            "get" => read::get(call),
            "list" => read::list(call),
            "watch" => watch::watch(call),
            "create" => create::create(call).await,
            "update" => update::replace(call).await,
            "patch" => patch::patch(call).await,
            "delete" => delete::delete(call).await,
            _ => delete::delete_collection(call).await,
        };
    }
    let Some(subresource) = call.kind.subresource(call.subresource()) else {
        return Err(match call.kind.is_custom() {
            true => errors::not_found(&call.kind, call.name()),
            false => errors::no_such_path(),
        });
    };
    if !subresource.verbs.contains(&verb) {
        return Err(errors::method_not_allowed());
    }
    match (subresource.name, verb) {
        ("status", "get") => read::get(call),
        ("status" | "finalize", "update") => update::replace(call).await,
        ("status", "patch") => patch::patch(call).await,
        ("scale", _) => scale::handle(call, verb).await,
        ("eviction", _) => eviction::create(call).await,
        ("binding", _) => binding::create(call).await,
        ("token", _) => tokens::create(call),
        _ => Err(ApiError::new(
            501,
            "NotImplemented",
            "this subresource is not served by the embedded cluster",
        )),
    }
}
