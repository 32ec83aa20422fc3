//! A set of field paths, kept as a tree whose keys are path elements in their `FieldsV1` spelling: `f:<field>`,
//! `k:<keys>`, `v:<value>`, `i:<index>`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// By element. Levels are small and mostly written in order, which suits a list better than a tree.
    nodes: Vec<(String, Node)>,
}

/// Never both no member and without children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// The path to here is in the set, not only paths below it.
    pub member: bool,
    pub below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    fn join(&mut self, other: &Node) {
        self.member |= other.member;
        self.below.union(&other.below);
    }
}

/// `fieldsV1` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldSetError {
    #[error("a field set must be an object")]
    NotAnObject,
    #[error("not a path element: {0}")]
    Element(String),
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds the path given by its elements (`f:spec`, `k:{"name":"a"}` ...).
    pub(crate) fn insert<'a>(&mut self, path: impl IntoIterator<Item = &'a str>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let at = set.find(element).unwrap_or_else(|at| {
                set.nodes.insert(at, (element.to_string(), Node::default()));
                at
            });
            let (_, node) = &mut set.nodes[at];
            if path.peek().is_none() {
                node.member = true;
                return;
            }
            set = &mut node.below;
        }
    }

    /// Whether the path itself is in the set.
    #[cfg(test)]
    pub(crate) fn contains<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> bool {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let Some(node) = set.node(element) else { return false };
            if path.peek().is_none() {
                return node.member;
            }
            set = &node.below;
        }
        false
    }

    /// Where the element is, or where it would go.
    fn find(&self, element: &str) -> Result<usize, usize> {
        match self.nodes.last() {
            Some((last, _)) if last.as_str() < element => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|(other, _)| other.as_str().cmp(element)),
        }
    }

    pub(super) fn node(&self, element: &str) -> Option<&Node> {
        self.find(element).ok().map(|at| &self.nodes[at].1)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter().map(|(element, node)| (element, node))
    }

    pub(super) fn put(&mut self, element: String, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.find(&element) {
            Ok(at) => self.nodes[at].1 = node,
            Err(at) => self.nodes.insert(at, (element, node)),
        }
    }

    /// Adds to what is there.
    pub(super) fn add(&mut self, element: &str, node: Node) {
        match self.find(element) {
            Ok(at) => self.nodes[at].1.join(&node),
            Err(_) if node.is_empty() => {}
            Err(at) => self.nodes.insert(at, (element.to_string(), node)),
        }
    }

    /// Does something to a node that is there; one that is then empty goes.
    fn change(&mut self, element: &str, change: impl FnOnce(&mut Node)) {
        if let Ok(at) = self.find(element) {
            change(&mut self.nodes[at].1);
            if self.nodes[at].1.is_empty() {
                self.nodes.remove(at);
            }
        }
    }

    pub(crate) fn union(&mut self, other: &FieldSet) {
        for (element, theirs) in &other.nodes {
            match self.find(element) {
                Ok(at) => self.nodes[at].1.join(theirs),
                Err(at) => self.nodes.insert(at, (element.clone(), theirs.clone())),
            }
        }
    }

    /// Takes out exactly the paths of `other`; what is below or above them stays.
    pub(crate) fn subtract(&mut self, other: &FieldSet) {
        for (element, theirs) in &other.nodes {
            self.change(element, |ours| {
                ours.member &= !theirs.member;
                ours.below.subtract(&theirs.below);
            });
        }
    }

    /// Takes out the paths of `other` with everything below them.
    pub(crate) fn subtract_trees(&mut self, other: &FieldSet) {
        for (element, theirs) in &other.nodes {
            self.change(element, |ours| match theirs.member {
                true => *ours = Node::default(),
                false => ours.below.subtract_trees(&theirs.below),
            });
        }
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut common = FieldSet::default();
        for (element, ours) in &self.nodes {
            if let Some(theirs) = other.node(element) {
                let member = ours.member && theirs.member;
                common.put(element.clone(), Node { member, below: ours.below.intersection(&theirs.below) });
            }
        }
        common
    }

    /// All paths, a level's own before those below it.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        fn walk(set: &FieldSet, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
            for (element, node) in &set.nodes {
                if node.member {
                    paths.push(prefix.iter().chain([element]).cloned().collect());
                }
            }
            for (element, node) in &set.nodes {
                prefix.push(element.clone());
                walk(&node.below, prefix, paths);
                prefix.pop();
            }
        }
        let mut paths = Vec::new();
        walk(self, &mut Vec::new(), &mut paths);
        paths
    }

    /// Reads `fieldsV1`. Elements of an unknown kind are skipped: a later version may know them.
    pub(crate) fn from_value(value: &Value) -> Result<FieldSet, FieldSetError> {
        let fields = value.as_object().ok_or(FieldSetError::NotAnObject)?;
        let mut set = FieldSet::default();
        for (element, below) in fields {
            if element == "." {
                continue;
            }
            let Some(element) = canonical(element)? else { continue };
            let nested = below.as_object().ok_or(FieldSetError::NotAnObject)?;
            let below = FieldSet::from_value(below)?;
            let member = below.is_empty() || nested.contains_key(".");
            set.put(element, Node { member, below });
        }
        Ok(set)
    }
}

/// As `fieldsV1`.
impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(self, false, to)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(&self.below, self.member && !self.below.is_empty(), to)
    }
}

/// The dot says that the path to here is in the set itself. It sorts before all elements.
fn write<S: Serializer>(set: &FieldSet, dot: bool, to: S) -> Result<S::Ok, S::Error> {
    let mut fields = to.serialize_map(Some(set.nodes.len() + usize::from(dot)))?;
    if dot {
        fields.serialize_entry(".", &FieldSet::default())?;
    }
    for (element, node) in &set.nodes {
        fields.serialize_entry(element, node)?;
    }
    fields.end()
}

/// Reads `fieldsV1` that this server wrote; what users send takes [`FieldSet::from_value`].
impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Node::deserialize(from)?.below)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a field set")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Node, M::Error> {
        let mut node = Node::default();
        while let Some(element) = fields.next_key::<Cow<'de, str>>()? {
            if element == "." {
                node.member = true;
                fields.next_value::<IgnoredAny>()?;
            } else {
                node.below.put(element.into_owned(), fields.next_value()?);
            }
        }
        node.member |= node.below.is_empty();
        Ok(node)
    }
}

/// The element with keys sorted and without spaces; none if its kind is unknown.
fn canonical(element: &str) -> Result<Option<String>, FieldSetError> {
    let bad = || FieldSetError::Element(element.to_string());
    let (kind, rest) = element.split_at_checked(2).ok_or_else(bad)?;
    if !kind.ends_with(':') {
        return Err(bad());
    }
    match kind {
        "f:" => Ok(Some(element.to_string())),
        "i:" => rest.parse::<i64>().map(|_| Some(element.to_string())).map_err(|_| bad()),
        "k:" | "v:" => {
            let value: Value = serde_json::from_str(rest).map_err(|_| bad())?;
            if kind == "k:" && !value.is_object() {
                return Err(bad());
            }
            Ok(Some(format!("{kind}{value}")))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_value(&value).expect("readable")
    }

    fn arbitrary() -> impl Strategy<Value = FieldSet> {
        let element = prop_oneof![
            "f:[a-c]",
            "[a-b]{1,2}".prop_map(|n| format!("k:{{\"name\":\"{n}\"}}")),
            (0..3u8).prop_map(|n| format!("v:{n}"))
        ];
        let path = proptest::collection::vec(element, 1..4);
        proptest::collection::vec(path, 0..6).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|p| set.insert(p.iter().map(String::as_str)));
            set
        })
    }

    #[test]
    fn a_dot_marks_a_path_that_is_in_the_set_with_others_below() {
        let fields =
            json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:replicas": {}}});
        let set = set(fields.clone());
        assert!(set.contains(["f:metadata", "f:labels"]));
        assert!(set.contains(["f:metadata", "f:labels", "f:app"]));
        assert!(!set.contains(["f:metadata"]));
        assert_eq!(json!(set), fields);
    }

    #[test]
    fn keys_are_read_in_any_spelling() {
        let odd = set(json!({"k:{\"protocol\": \"TCP\", \"containerPort\":80}": {}}));
        assert_eq!(odd, set(json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}})));
    }

    #[test]
    fn what_is_no_field_set_is_refused_and_unknown_kinds_are_skipped() {
        for bad in [
            json!([]),
            json!({"f": {}}),
            json!({"fx": {}}),
            json!({"k:x": {}}),
            json!({"i:x": {}}),
            json!({"f:a": 1}),
        ] {
            assert!(FieldSet::from_value(&bad).is_err(), "{bad}");
        }
        assert!(set(json!({"z:later": {"f:a": {}}})).is_empty());
    }

    #[test]
    fn subtracting_takes_paths_and_subtracting_trees_takes_what_is_below() {
        let all = json!({"f:a": {".": {}, "f:b": {".": {}, "f:c": {}}}, "f:d": {}});
        let mut exact = set(all.clone());
        exact.subtract(&set(json!({"f:a": {"f:b": {}}, "f:d": {}})));
        assert_eq!(json!(exact), json!({"f:a": {".": {}, "f:b": {"f:c": {}}}}));
        let mut trees = set(all);
        trees.subtract_trees(&set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(json!(trees), json!({"f:a": {}, "f:d": {}}));
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_give_the_same_set(set in arbitrary()) {
            let text = json!(set).to_string();
            prop_assert_eq!(&serde_json::from_str::<FieldSet>(&text).expect("readable"), &set);
            prop_assert_eq!(serde_json::to_string(&set).expect("writable"), text);
            prop_assert_eq!(FieldSet::from_value(&json!(set)).expect("readable"), set);
        }

        #[test]
        fn set_algebra_holds(a in arbitrary(), b in arbitrary()) {
            let mut union = a.clone();
            union.union(&b);
            let mut only_a = union.clone();
            only_a.subtract(&b);
            let common = a.intersection(&b);
            let mut rebuilt = only_a.clone();
            rebuilt.union(&common);
            prop_assert_eq!(&rebuilt, &a);
            prop_assert!(only_a.intersection(&b).is_empty());
            for path in a.paths() {
                prop_assert!(union.contains(path.iter().map(String::as_str)));
            }
        }
    }
}
