//! The kinds the server knows: rows in a table. Handlers are generic and ask the row what is special.

mod builtin;
mod registry;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use registry::Registry;

use crate::crd::CustomKind;
use crate::schema::SchemaRef;

/// A verb set, as discovery lists it.
pub(crate) type Verbs = &'static [&'static str];

pub(crate) const ALL_VERBS: Verbs =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The same set, in the order that custom kinds list it in.
pub(crate) const CUSTOM_VERBS: Verbs =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const WRITE_ONLY: Verbs = &["create"];
const READ_WRITE: Verbs = &["get", "patch", "update"];

/// A subresource and the kind of object it speaks.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: String,
    pub verbs: Verbs,
}

#[derive(Debug, Clone)]
pub(crate) enum KindSchema {
    Builtin(SchemaRef<'static>),
    Custom(Arc<CustomKind>),
    /// Nothing is known about the shape.
    Open,
}

/// What `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// There is none.
    None,
    /// It stays at 1.
    Constant,
    /// Changes of anything but metadata and status.
    Spec,
    /// Those, and changes of the labels.
    SpecAndLabels,
    /// Those, and changes of the annotations.
    SpecAndAnnotations,
}

/// One kind in one version.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Verbs,
    pub subresources: Vec<Subresource>,
    /// The store's resource; versions of one kind share it.
    pub storage: Arc<str>,
    /// `apiVersion` of the stored form.
    pub storage_api_version: String,
    /// The spec is written through the object, the status through its subresource.
    pub has_status: bool,
    /// What a new object's status is, whatever the client sent; null keeps what was sent.
    pub initial_status: Value,
    pub generation: Generation,
    /// PUT without a resourceVersion replaces whatever is there.
    pub unconditional_update: bool,
    /// PUT of an object that does not exist makes it.
    pub create_on_update: bool,
    /// DELETE answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Deleting an object leaves its dependents, unless the request says otherwise.
    pub orphans_by_default: bool,
    /// What every answer warns of.
    pub warning: String,
    /// Selector names and the JSON pointers they stand for, beyond metadata.name and metadata.namespace.
    pub selectable: Vec<(String, String)>,
    pub schema: KindSchema,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`, or `pods` in the core group: how messages name a resource.
    pub(crate) fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.schema, KindSchema::Custom(_))
    }

    /// The schema that patches, defaults and field ownership follow.
    pub(crate) fn schema_ref(&self) -> Option<SchemaRef<'_>> {
        match &self.schema {
            KindSchema::Builtin(schema) => Some(*schema),
            KindSchema::Custom(custom) => Some(custom.owned_schema()),
            KindSchema::Open => None,
        }
    }
}
