//! A request as admission sees it.

use std::sync::Arc;

use serde_json::Value;

use crate::attributes::{Attributes, User};
use crate::auth::Rbac;
use crate::kinds;

/// What a request does to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Group, version and kind of the object in the request. For a subresource, that of its own body: an eviction is
/// policy/v1 Eviction, although the resource is core/v1 pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// Everything about a request but the new object, which mutating webhooks change.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub attributes: &'a Attributes,
    pub user: &'a User,
    pub kind: &'a Kind,
    pub operation: Operation,
    /// The stored object, for updates and deletes.
    pub old: Option<&'a Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions with kind and apiVersion; null: empty ones.
    pub options: &'a Value,
    pub dry_run: bool,
    pub lookup: &'a dyn Lookup,
}

/// What admission asks of the server that it works for.
pub(crate) trait Lookup: Sync {
    fn namespace(&self, name: &str) -> Option<Value>;
    fn rbac(&self) -> Arc<Rbac>;
    /// A kind that is served now.
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<kinds::Kind>>;
    /// All versions that a resource is served in.
    fn versions(&self, group: &str, resource: &str) -> Vec<String>;
    fn object(&self, kind: &kinds::Kind, namespace: &str, name: &str) -> Option<Value>;
    /// All objects of a kind, in one namespace or in all.
    fn objects(&self, kind: &kinds::Kind, namespace: Option<&str>) -> Vec<Value>;
}

impl Request<'_> {
    /// The name in the URL; for a create, that in the object.
    pub(super) fn name<'a>(&'a self, object: &'a Value) -> &'a str {
        match self.attributes.name.as_str() {
            "" => object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default(),
            name => name,
        }
    }

    pub(super) fn is_about_namespaces(&self) -> bool {
        let a = self.attributes;
        a.group.is_empty() && a.version == "v1" && a.resource == "namespaces"
    }

    /// The namespace of the object. A namespace counts as being in itself.
    pub(super) fn namespace<'a>(&'a self, object: &'a Value) -> &'a str {
        match self.attributes.namespace.as_str() {
            "" if self.is_about_namespaces() => self.name(object),
            namespace => namespace,
        }
    }
}
