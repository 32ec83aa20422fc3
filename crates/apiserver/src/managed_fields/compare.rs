//! What changed between two versions of an object, as field sets.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Node};
use super::path;
use super::shape::{Fields, Items, Shape, shape};
use crate::schema::SchemaRef;

/// The fields that differ between two objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(super) fn subtract_trees(&mut self, fields: &FieldSet) {
        self.added.subtract_trees(fields);
        self.modified.subtract_trees(fields);
        self.removed.subtract_trees(fields);
    }
}

/// Compares two versions of an object. Fields that nobody can own (the server's own metadata) are not looked at.
pub(crate) fn compare(before: &Value, after: &Value, schema: SchemaRef<'_>) -> Comparison {
    let mut out = Comparison::default();
    let none = Map::new();
    let (l, r) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    compare_objects(l, r, Fields::new(Some(schema)), Level::Root, &mut out);
    out
}

/// Metadata that is never owned.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// What nobody can own, as a set.
static UNOWNED_SET: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut unowned = FieldSet::default();
    unowned.insert(["f:apiVersion"]);
    unowned.insert(["f:kind"]);
    unowned.insert(["f:metadata"]);
    for name in UNOWNED {
        unowned.insert(["f:metadata", &path::field(name)]);
    }
    unowned
});

/// Takes out of a set what nobody can own.
pub(super) fn strip_unowned(set: &mut FieldSet) {
    set.subtract(&UNOWNED_SET);
}

/// Where in the object a level is. Only the object's own metadata is special, not that of a template in it.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Metadata,
    Inside,
}

impl Level {
    fn skips(self, name: &str) -> bool {
        match self {
            Level::Root => name == "apiVersion" || name == "kind",
            Level::Metadata => UNOWNED.contains(&name),
            Level::Inside => false,
        }
    }
}

/// What becomes of the path itself, besides what is below it.
enum Mark {
    Same,
    Added,
    Modified,
    Removed,
}

fn compare_objects(
    l: &Map<String, Value>,
    r: &Map<String, Value>,
    types: Fields<'_>,
    level: Level,
    out: &mut Comparison,
) {
    let names = l.keys().chain(r.keys().filter(|name| !l.contains_key(*name)));
    for name in names {
        if level.skips(name) {
            continue;
        }
        let (mut lv, mut rv) = (l.get(name), r.get(name));
        if lv == rv {
            continue;
        }
        let is_metadata = level == Level::Root && name == "metadata";
        if lv.is_none() || rv.is_none() {
            // The side that lacks the field has it empty.
            let zero = types.zero(name).or(is_metadata.then_some(&Value::Null));
            lv = lv.or(zero);
            rv = rv.or(zero);
        }
        let mut below = Comparison::default();
        let level = if is_metadata { Level::Metadata } else { Level::Inside };
        let mark = compare_values(lv, rv, types.of(name), level, &mut below);
        attach(out, mark, below, || path::field(name));
    }
}

fn compare_values(
    l: Option<&Value>,
    r: Option<&Value>,
    schema: Option<SchemaRef<'_>>,
    level: Level,
    out: &mut Comparison,
) -> Mark {
    let (l, r) = match (l, r) {
        (None, None) => return Mark::Same,
        (None, Some(r)) => {
            out.added = everything(r, schema);
            return Mark::Added;
        }
        (Some(l), None) => {
            out.removed = everything(l, schema);
            return Mark::Removed;
        }
        (Some(l), Some(r)) => (l, r),
    };
    let no_fields = Map::new();
    match (shape(l, schema), shape(r, schema)) {
        (Shape::Object(l, types), Shape::Object(r, _)) => {
            compare_objects(l, r, types, level, out);
            Mark::Same
        }
        (Shape::Object(l, types), Shape::Leaf) if r.is_null() => {
            compare_objects(l, &no_fields, types, level, out);
            Mark::Same
        }
        (Shape::Leaf, Shape::Object(r, types)) if l.is_null() => {
            compare_objects(&no_fields, r, types, level, out);
            Mark::Same
        }
        (Shape::List(ls, items), Shape::List(rs, _)) => compare_lists(ls, rs, items, out),
        (Shape::List(ls, items), Shape::Leaf) if r.is_null() => compare_lists(ls, &[], items, out),
        (Shape::Leaf, Shape::List(rs, items)) if l.is_null() => compare_lists(&[], rs, items, out),
        (Shape::Leaf, Shape::Leaf) => {
            if l == r || (is_empty(l) && is_empty(r)) {
                Mark::Same
            } else {
                Mark::Modified
            }
        }
        _ => {
            out.added = everything(r, schema);
            out.removed = everything(l, schema);
            Mark::Modified
        }
    }
}

/// Null and empty containers are the same for what is always there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn compare_lists(ls: &[Value], rs: &[Value], items: Items<'_>, out: &mut Comparison) -> Mark {
    if ls == rs {
        return Mark::Same;
    }
    let (Some(left), Some(right)) = (by_element(ls, items), by_element(rs, items)) else {
        // An item without a name: such a list can only be taken whole.
        return Mark::Modified;
    };
    let empty = Vec::new();
    let elements = left.keys().chain(right.keys().filter(|element| !left.contains_key(*element)));
    for element in elements {
        let l = left.get(element).unwrap_or(&empty);
        let r = right.get(element).unwrap_or(&empty);
        let mut below = Comparison::default();
        match (l.as_slice(), r.as_slice()) {
            (l @ ([] | [_]), r @ ([] | [_])) => {
                let (l, r) = (l.first().copied(), r.first().copied());
                if l == r {
                    continue;
                }
                let mark = compare_values(l, r, items.schema, Level::Inside, &mut below);
                attach(out, mark, below, || element.clone());
            }
            // Items that share their name are owned and changed together.
            ([_, _, ..], [_, _, ..]) => {
                let mark = if l == r { Mark::Same } else { Mark::Modified };
                attach(out, mark, below, || element.clone());
            }
            ([_, _, ..], r) => {
                if let [one] = r {
                    below.added = everything(one, items.schema);
                    attach(out, Mark::Added, below, || element.clone());
                }
                attach(out, Mark::Removed, Comparison::default(), || element.clone());
            }
            (l, _) => {
                if let [one] = l {
                    below.removed = everything(one, items.schema);
                    attach(out, Mark::Removed, below, || element.clone());
                }
                attach(out, Mark::Added, Comparison::default(), || element.clone());
            }
        }
    }
    Mark::Same
}

fn by_element<'v>(values: &'v [Value], items: Items<'_>) -> Option<BTreeMap<String, Vec<&'v Value>>> {
    let mut map: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for value in values {
        map.entry(path::item(value, items.list, items.schema).ok()?).or_default().push(value);
    }
    Some(map)
}

/// Every path below a value that came or went whole; the structs between are members too.
fn everything(value: &Value, schema: Option<SchemaRef<'_>>) -> FieldSet {
    let mut set = FieldSet::default();
    match shape(value, schema) {
        Shape::Leaf => {}
        Shape::Object(fields, types) => {
            for (name, value) in fields {
                set.put(path::field(name), Node { member: true, below: everything(value, types.of(name)) });
            }
        }
        Shape::List(values, items) => {
            for (element, values) in by_element(values, items).into_iter().flatten() {
                let below = match values.as_slice() {
                    [one] => everything(one, items.schema),
                    _ => FieldSet::default(),
                };
                set.put(element, Node { member: true, below });
            }
        }
    }
    set
}

fn attach(out: &mut Comparison, mark: Mark, below: Comparison, element: impl FnOnce() -> String) {
    if matches!(mark, Mark::Same) && below.is_empty() {
        return;
    }
    let element = element();
    out.added.add(&element, Node { member: matches!(mark, Mark::Added), below: below.added });
    out.modified.add(&element, Node { member: matches!(mark, Mark::Modified), below: below.modified });
    out.removed.add(&element, Node { member: matches!(mark, Mark::Removed), below: below.removed });
}
