//! The schema that field ownership and patches follow: what the definition says, plus the parts that every object has.

use super::NodeId;
use crate::schema::{ListType, Node, SchemaSet, Type};

/// A copy of the root that also knows apiVersion, kind and metadata.
pub(crate) fn build(set: &mut SchemaSet, root: NodeId) -> NodeId {
    let mut node = set.at(root).node().clone();
    let text = set.add(Node { ty: Type::String, ..Node::default() });
    let flag = set.add(Node { ty: Type::Boolean, ..Node::default() });
    let number = set.add(Node { ty: Type::Integer, ..Node::default() });
    let texts = set.add(Node { ty: Type::Object, additional: Some(text), ..Node::default() });
    let finalizers = set.add(Node {
        ty: Type::Array,
        items: Some(text),
        list: ListType::Set,
        patch_merge: true,
        ..Node::default()
    });
    let fields =
        |fields: &[(&str, NodeId)]| fields.iter().map(|(name, id)| ((*name).to_string(), *id)).collect();
    let owner = set.add(Node {
        ty: Type::Object,
        properties: fields(&[
            ("apiVersion", text),
            ("kind", text),
            ("name", text),
            ("uid", text),
            ("controller", flag),
            ("blockOwnerDeletion", flag),
        ]),
        atomic_map: true,
        ..Node::default()
    });
    let owners = set.add(Node {
        ty: Type::Array,
        items: Some(owner),
        list: ListType::Map(vec!["uid".into()]),
        patch_merge: true,
        patch_merge_key: Some("uid".into()),
        ..Node::default()
    });
    let anything = set.add(Node::default());
    let managed = set.add(Node { ty: Type::Array, items: Some(anything), ..Node::default() });
    let metadata = set.add(Node {
        ty: Type::Object,
        properties: fields(&[
            ("name", text),
            ("generateName", text),
            ("namespace", text),
            ("selfLink", text),
            ("uid", text),
            ("resourceVersion", text),
            ("generation", number),
            ("creationTimestamp", text),
            ("deletionTimestamp", text),
            ("deletionGracePeriodSeconds", number),
            ("labels", texts),
            ("annotations", texts),
            ("finalizers", finalizers),
            ("ownerReferences", owners),
            ("managedFields", managed),
        ]),
        ..Node::default()
    });
    node.properties.extend([
        ("apiVersion".to_string(), text),
        ("kind".to_string(), text),
        ("metadata".to_string(), metadata),
    ]);
    set.add(node)
}
