//! A request as admission sees it.

use serde_json::Value;

use crate::attributes::{Attributes, User};

/// What a request does to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Group, version and kind of the object in the request. For a subresource, that of its own body: an eviction is
/// policy/v1 Eviction, although the resource is core/v1 pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// Everything about a request but the new object, which mutating webhooks change.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub attributes: &'a Attributes,
    pub user: &'a User,
    pub kind: &'a Kind,
    pub operation: Operation,
    /// The stored object, for updates and deletes.
    pub old: Option<&'a Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions with kind and apiVersion; null: empty ones.
    pub options: &'a Value,
    pub dry_run: bool,
    /// The labels of a namespace (an object or null), `None` if there is no such namespace.
    pub namespace_labels: &'a (dyn Fn(&str) -> Option<Value> + Sync),
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
