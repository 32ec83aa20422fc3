//! How a value is taken apart for ownership: field by field, item by item, or not at all.

use serde_json::{Map, Value};

use crate::schema::{ListType, SchemaRef, Type};

/// A value seen through its schema.
pub(super) enum Shape<'v, 's> {
    /// Owned as a whole.
    Leaf,
    Object(&'v Map<String, Value>, Fields<'s>),
    List(&'v [Value], Items<'s>),
}

#[derive(Clone, Copy)]
pub(super) struct Fields<'s>(Option<SchemaRef<'s>>);

#[derive(Clone, Copy)]
pub(super) struct Items<'s> {
    pub list: &'s ListType,
    pub schema: Option<SchemaRef<'s>>,
}

impl<'s> Fields<'s> {
    pub(crate) fn new(schema: Option<SchemaRef<'s>>) -> Self {
        Fields(schema)
    }

    pub(crate) fn of(self, name: &str) -> Option<SchemaRef<'s>> {
        self.0.and_then(|schema| schema.field(name))
    }

    /// A field that the schema names, rather than a key of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        self.0.is_some_and(|schema| schema.node().properties.contains_key(name))
    }

    /// What objects have in the field even when nobody set it, if they do.
    pub(crate) fn zero(self, name: &str) -> Option<&'s Value> {
        self.0.and_then(|schema| schema.node().write_zero.get(name))
    }

    /// Nothing but the declared fields may be there.
    pub(crate) fn closed(self) -> bool {
        self.0.is_some_and(|schema| {
            let node = schema.node();
            !node.properties.is_empty() && node.additional.is_none() && !node.preserve_unknown
        })
    }
}

/// Where the schema knows nothing, objects are taken apart and lists are not. Where it says that anything goes
/// without asking to keep unknown fields, the value is one atom.
pub(super) fn shape<'v, 's>(value: &'v Value, schema: Option<SchemaRef<'s>>) -> Shape<'v, 's> {
    let node = schema.map(SchemaRef::node);
    match value {
        Value::Object(fields) => match node {
            None => Shape::Object(fields, Fields(None)),
            Some(node) if node.atomic_map => Shape::Leaf,
            Some(node) if node.ty == Type::Object || node.preserve_unknown => {
                Shape::Object(fields, Fields(schema))
            }
            Some(_) => Shape::Leaf,
        },
        Value::Array(items) => match (node, schema) {
            (Some(node), Some(schema)) if node.ty == Type::Array && node.list != ListType::Atomic => {
                Shape::List(items, Items { list: &node.list, schema: schema.items() })
            }
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}
