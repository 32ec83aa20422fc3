//! Which nodes a maintenance means.
//!
//! Terms are alternatives, the requirements of a term are all needed, and a term without any matches nothing, as in the
//! affinity of pods. A requirement that cannot be read makes its term match nothing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::snapshot::Node;

/// The only field that nodes can be selected by.
const NAME_FIELD: &str = "metadata.name";

/// A node selector, read once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeMatcher(Vec<Vec<Need>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Need {
    Label {
        key: String,
        test: Test,
    },
    /// The only field that nodes can be selected by.
    Name(Test),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

/// Why a part of a selector cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("there is no term: a selector without terms selects nothing; add one under nodeSelectorTerms")]
    NoTerms,
    #[error(
        "term {0} has neither matchExpressions nor matchFields and selects nothing: add one, or leave the term out"
    )]
    EmptyTerm(usize),
    #[error("operator {operator:?} of {key:?} is unknown: use In, NotIn, Exists, DoesNotExist, Gt or Lt")]
    Operator { key: String, operator: String },
    #[error("{operator} on {key:?} needs {wanted}")]
    Values { key: String, operator: String, wanted: &'static str },
    #[error("nodes cannot be selected by the field {0:?}: only by metadata.name")]
    Field(String),
    #[error("{key:?} is no label key: {why}")]
    Key { key: String, why: &'static str },
}

impl NodeMatcher {
    pub fn new(selector: &NodeSelector) -> Self {
        let terms = selector.node_selector_terms.iter().filter(|term| !is_empty(term));
        Self(terms.filter_map(|term| needs(term).ok()).collect())
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().any(|needs| {
            needs.iter().all(|need| match need {
                Need::Label { key, test } => test.passes(labels.get(key).map(String::as_str)),
                Need::Name(test) => test.passes(Some(name)),
            })
        })
    }
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Everything that is wrong with a selector.
pub fn check(selector: &NodeSelector) -> Vec<SelectorError> {
    let mut wrong = Vec::new();
    if selector.node_selector_terms.is_empty() {
        wrong.push(SelectorError::NoTerms);
    }
    for (number, term) in selector.node_selector_terms.iter().enumerate() {
        if is_empty(term) {
            wrong.push(SelectorError::EmptyTerm(number));
        }
        wrong.extend(labels(term).filter_map(|need| label_need(need).err()));
        wrong.extend(fields(term).filter_map(|need| field_need(need).err()));
    }
    wrong
}

/// The names of all nodes that a selector can ever mean, whatever joins and whatever labels change. `Err` has the first term
/// that no name bounds.
///
/// Only what a term says of names is read: whatever else it demands, and whether that can be read, it means no more nodes.
pub fn names(selector: &NodeSelector) -> Result<BTreeSet<&str>, usize> {
    let mut all = BTreeSet::new();
    for (number, term) in selector.node_selector_terms.iter().enumerate() {
        let bound =
            fields(term).find(|need| need.key == NAME_FIELD && need.operator == "In").ok_or(number)?;
        all.extend(bound.values.iter().flatten().map(String::as_str));
    }
    Ok(all)
}

/// The nodes that a selector selects.
pub fn selected<'a>(selector: &NodeSelector, all: &'a [Node]) -> Vec<&'a Node> {
    // A thousand names are a thousand terms, each of which would be held against each node.
    if is_by_name(selector) && check(selector).is_empty() {
        let terms = selector.node_selector_terms.iter();
        let names: BTreeSet<&str> = terms
            .flat_map(fields)
            .flat_map(|field| field.values.iter().flatten())
            .map(String::as_str)
            .collect();
        return all.iter().filter(|node| names.contains(&*node.name)).collect();
    }
    let matcher = NodeMatcher::new(selector);
    all.iter().filter(|node| matcher.matches(&node.name, &node.labels)).collect()
}

/// Whether nodes are selected by nothing but their names.
pub fn is_by_name(selector: &NodeSelector) -> bool {
    selector.node_selector_terms.iter().all(|term| only_name_of(term).is_some())
}

/// The name that a term demands, if it demands nothing else.
pub fn only_name_of(term: &NodeSelectorTerm) -> Option<&str> {
    let mut fields = fields(term);
    let (field, is_only) = (fields.next()?, fields.next().is_none() && labels(term).next().is_none());
    let is_name = is_only && field.key == NAME_FIELD && field.operator == "In";
    field.values.as_ref().filter(|_| is_name)?.first().map(String::as_str)
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    labels(term).next().is_none() && fields(term).next().is_none()
}

fn labels(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().flatten()
}

fn fields(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_fields.iter().flatten()
}

fn needs(term: &NodeSelectorTerm) -> Result<Vec<Need>, SelectorError> {
    labels(term).map(label_need).chain(fields(term).map(field_need)).collect()
}

fn label_need(need: &NodeSelectorRequirement) -> Result<Need, SelectorError> {
    let wrong = |why| Err(SelectorError::Key { key: need.key.clone(), why });
    let (prefix, name) = need.key.rsplit_once('/').unwrap_or(("", &need.key));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
        return wrong("its name has 1 to 63 letters, digits, '-', '_' and '.'");
    }
    if need.key.contains('/') && !usher_api::domain::is_subdomain(prefix) {
        return wrong("what comes before the '/' is a DNS subdomain");
    }
    Ok(Need::Label { key: need.key.clone(), test: test(need)? })
}

fn field_need(need: &NodeSelectorRequirement) -> Result<Need, SelectorError> {
    if need.key != NAME_FIELD {
        return Err(SelectorError::Field(need.key.clone()));
    }
    let one = need.values.as_ref().is_some_and(|values| values.len() == 1);
    match test(need)? {
        test @ (Test::In(_) | Test::NotIn(_)) if one => Ok(Need::Name(test)),
        _ => Err(SelectorError::Values {
            key: need.key.clone(),
            operator: need.operator.clone(),
            wanted: "the operator In or NotIn and exactly one name; use more terms for more nodes",
        }),
    }
}

fn test(need: &NodeSelectorRequirement) -> Result<Test, SelectorError> {
    let values = need.values.clone().unwrap_or_default();
    let wrong =
        |wanted| SelectorError::Values { key: need.key.clone(), operator: need.operator.clone(), wanted };
    let bound = || match &values[..] {
        [one] => one.parse::<i64>().map_err(|_| wrong("a whole number")),
        _ => Err(wrong("exactly one value")),
    };
    match need.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => Err(wrong("at least one value")),
        "In" => Ok(Test::In(values)),
        "NotIn" => Ok(Test::NotIn(values)),
        "Exists" | "DoesNotExist" if !values.is_empty() => Err(wrong("no values")),
        "Exists" => Ok(Test::Exists),
        "DoesNotExist" => Ok(Test::DoesNotExist),
        "Gt" => Ok(Test::Above(bound()?)),
        "Lt" => Ok(Test::Below(bound()?)),
        operator => Err(SelectorError::Operator { key: need.key.clone(), operator: operator.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};
    use serde_json::{Value, json};

    fn selector(terms: Value) -> NodeSelector {
        serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()
    }

    #[test]
    fn operators_select_as_the_affinity_of_pods_does() {
        let labels: BTreeMap<String, String> =
            [("pool", "blue"), ("size", "16")].map(|(k, v)| (k.to_string(), v.to_string())).into();
        let need = |key: &str, operator: &str, values: &[&str]| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        let name = |operator: &str, values: &[&str]| json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}]);
        let rows = [
            (need("pool", "In", &["red", "blue"]), true),
            (need("pool", "In", &["red"]), false),
            (need("zone", "In", &["a"]), false),
            (need("pool", "NotIn", &["red"]), true),
            (need("pool", "NotIn", &["blue"]), false),
            (need("zone", "NotIn", &["a"]), true),
            (need("pool", "Exists", &[]), true),
            (need("zone", "Exists", &[]), false),
            (need("zone", "DoesNotExist", &[]), true),
            (need("pool", "DoesNotExist", &[]), false),
            (need("size", "Gt", &["15"]), true),
            (need("size", "Gt", &["16"]), false),
            (need("size", "Lt", &["17"]), true),
            (need("pool", "Gt", &["1"]), false),
            (need("size", "Gt", &["many"]), false),
            (need("pool", "Like", &["blue"]), false),
            (name("In", &["n1"]), true),
            (name("In", &["n2"]), false),
            (name("NotIn", &["n2"]), true),
            (json!([]), false),
            (json!([{}]), false),
            (json!([{}, {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]), true),
            (
                json!([{
                    "matchExpressions": [{"key": "pool", "operator": "Exists"}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
                }]),
                false,
            ),
        ];
        for (terms, wanted) in rows {
            assert_eq!(NodeMatcher::new(&selector(terms.clone())).matches("n1", &labels), wanted, "{terms}");
        }
    }

    #[test]
    fn only_names_bound_a_selector() {
        let name = |operator: &str, name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]});
        let label = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": values}]});
        let mut both = name("In", "n1");
        both["matchExpressions"] = label("NotIn", &["n2"])["matchExpressions"].clone();
        let mut unreadable = name("In", "n1");
        unreadable["matchExpressions"] = label("Like", &["n2"])["matchExpressions"].clone();
        let rows: Vec<(Value, Result<Vec<&str>, usize>)> = vec![
            (json!([]), Ok(vec![])),
            (json!([name("In", "n1")]), Ok(vec!["n1"])),
            (json!([name("In", "n2"), name("In", "n1"), name("In", "n2")]), Ok(vec!["n1", "n2"])),
            (json!([both]), Ok(vec!["n1"])),
            (json!([unreadable]), Ok(vec!["n1"])),
            (json!([name("NotIn", "n1")]), Err(0)),
            (json!([name("In", "n1"), label("In", &["n1"])]), Err(1)),
            (json!([label("NotIn", &["n1"])]), Err(0)),
            (json!([label("Exists", &[])]), Err(0)),
            (json!([label("Gt", &["3"])]), Err(0)),
            (json!([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]}]), Err(0)),
            (json!([{}]), Err(0)),
        ];
        for (terms, wanted) in rows {
            let selector = selector(terms.clone());
            assert_eq!(names(&selector), wanted.map(|names| names.into_iter().collect()), "{terms}");
        }
    }

    #[test]
    fn nodes_are_selected_by_name_as_by_any_other_need() {
        let node = |name: &str| {
            let node = json!({"metadata": {"name": name, "labels": {"pool": "blue"}}});
            Node::from(serde_json::from_value::<crate::snapshot::NodeOnWire>(node).unwrap())
        };
        let all = ["n1", "n2", "n3"].map(node);
        let name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let blue = || json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["blue"]}]});
        let mut both = name("n1");
        both["matchExpressions"] = blue()["matchExpressions"].clone();
        for (terms, is_named, wanted) in [
            (json!([name("n3"), name("n1"), name("x")]), true, vec!["n1", "n3"]),
            (json!([name("n1"), blue()]), false, vec!["n1", "n2", "n3"]),
            (json!([both]), false, vec!["n1"]),
            (json!([{}]), false, vec![]),
        ] {
            let selector = selector(terms);
            assert_eq!(is_by_name(&selector), is_named, "{selector:?}");
            let found: Vec<&str> = selected(&selector, &all).into_iter().map(|node| &*node.name).collect();
            assert_eq!(found, wanted, "{selector:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let of = |part: Value| check(&selector(json!([part])));
        let label = |key: &str, operator: &str, values: Value| {
            of(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert_eq!(check(&selector(json!([]))), [SelectorError::NoTerms]);
        assert_eq!(of(json!({})), [SelectorError::EmptyTerm(0)]);
        assert_eq!(label("a.io/b", "In", json!(["x"])), []);
        assert!(matches!(label("a b", "In", json!(["x"]))[..], [SelectorError::Key { .. }]));
        assert!(matches!(label("A/b", "In", json!(["x"]))[..], [SelectorError::Key { .. }]));
        assert!(matches!(label("a", "Is", json!(["x"]))[..], [SelectorError::Operator { .. }]));
        assert!(matches!(label("a", "In", json!([]))[..], [SelectorError::Values { .. }]));
        assert!(matches!(label("a", "Exists", json!(["x"]))[..], [SelectorError::Values { .. }]));
        assert!(matches!(label("a", "Gt", json!(["x"]))[..], [SelectorError::Values { .. }]));
        let field = |key: &str, values: Value| {
            of(json!({"matchFields": [{"key": key, "operator": "In", "values": values}]}))
        };
        assert_eq!(field("spec.x", json!(["x"])), [SelectorError::Field("spec.x".to_string())]);
        assert!(matches!(field("metadata.name", json!(["x", "y"]))[..], [SelectorError::Values { .. }]));
    }

    fn requirement(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"];
        let values = ["n1", "n2", "7"];
        (select(keys), select(operators.to_vec()), subsequence(values.to_vec(), 0..=2))
            .prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
    }

    proptest! {
        #[test]
        fn a_selector_that_names_bound_never_means_another_node(
            terms in vec(
                (vec(requirement(&["pool", "size"]), 0..2), vec(requirement(&["metadata.name", "spec.x"]), 0..3)),
                0..4,
            ),
            name in select(&["n1", "n2", "n3", "7"][..]),
            pool in proptest::option::of(select(&["n1", "7"][..])),
        ) {
            let term = |(labels, fields): &(Vec<Value>, Vec<Value>)| json!({"matchExpressions": labels, "matchFields": fields});
            let selector = selector(terms.iter().map(term).collect());
            let labels = pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect();
            if let Ok(names) = names(&selector) {
                prop_assert!(names.contains(name) || !NodeMatcher::new(&selector).matches(name, &labels));
            }
        }
    }
}
