//! What the server knows about the shape of objects: one arena of nodes, built either from the built-in
//! definitions or from a custom resource's OpenAPI schema. It drives strategic merge, server-side apply,
//! defaulting, pruning and validation, so that none of them needs code per kind.

mod builtin;

use std::collections::HashMap;

use serde_json::Value;

pub(crate) use builtin::{builtin, builtin_kind};

/// By field name. Every write looks up hundreds of names, all of them our own: a fast hash without a secret does.
pub(crate) type Fields<T> = HashMap<String, T, foldhash::fast::FixedState>;

/// Index of a node in its [`SchemaSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub u32);

/// An arena of schema nodes; definitions may refer to each other and to themselves.
#[derive(Debug, Default)]
pub(crate) struct SchemaSet {
    pub nodes: Vec<Node>,
    /// Definitions by name, e.g. `io.k8s.api.core.v1.PodSpec`.
    pub names: HashMap<String, NodeId>,
}

impl SchemaSet {
    pub(crate) fn at(&self, id: NodeId) -> SchemaRef<'_> {
        SchemaRef { set: self, id }
    }

    pub(crate) fn named(&self, name: &str) -> Option<SchemaRef<'_>> {
        self.names.get(name).map(|id| self.at(*id))
    }

    pub(crate) fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }
}

/// A node together with the arena it lives in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaRef<'a> {
    pub set: &'a SchemaSet,
    pub id: NodeId,
}

impl<'a> SchemaRef<'a> {
    pub(crate) fn node(self) -> &'a Node {
        &self.set.nodes[self.id.0 as usize]
    }

    /// The schema of a field: a declared property, else what additional properties must be.
    pub(crate) fn field(self, name: &str) -> Option<SchemaRef<'a>> {
        let node = self.node();
        node.properties.get(name).copied().or(node.additional).map(|id| self.set.at(id))
    }

    pub(crate) fn items(self) -> Option<SchemaRef<'a>> {
        self.node().items.map(|id| self.set.at(id))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Nothing is known: every JSON value fits, and it is treated as one atom.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How the items of a list are told apart (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    /// Associative by these keys.
    Map(Vec<String>),
}

/// One level of a schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// The definition's name, where the node is one; the key of the defaulting table.
    pub definition: Option<String>,
    pub ty: Type,
    pub properties: Fields<NodeId>,
    pub additional: Option<NodeId>,
    pub items: Option<NodeId>,
    pub required: Vec<String>,
    pub list: ListType,
    /// `x-kubernetes-map-type: atomic`: the object is replaced whole by apply.
    pub atomic_map: bool,
    /// `x-kubernetes-patch-merge-key`, for strategic merge of lists of objects.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy` contains `merge`.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-strategy` contains `retainKeys`.
    pub patch_retain_keys: bool,
    /// `x-kubernetes-patch-strategy: replace`: strategic merge replaces the object whole.
    pub patch_replace: bool,
    /// Fields that are left out when they hold their zero value (built-in kinds only).
    pub omit_zero: Vec<String>,
    /// Fields that are always written, and the value of those that nobody set (built-in kinds only).
    pub write_zero: Fields<Value>,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub default: Option<Value>,
    pub format: Option<String>,
    /// Value rules that only custom resources carry: ranges, patterns, enums, CEL.
    pub rules: Option<Box<Rules>>,
}

/// Value validations of a custom resource's schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub enum_values: Vec<Value>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<String>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub not: Option<NodeId>,
    pub cel: Vec<CelRule>,
}

/// An entry of `x-kubernetes-validations`, as written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CelRule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    /// `FieldValueInvalid` when empty.
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

/// The schema of a built-in object.
#[cfg(test)]
pub(crate) fn schema_of(object: &Value) -> SchemaRef<'static> {
    let api_version = object["apiVersion"].as_str().expect("a version");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin_kind(group, version, object["kind"].as_str().expect("a kind")).expect("a served kind")
}
