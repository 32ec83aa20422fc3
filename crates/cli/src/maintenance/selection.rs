//! Which nodes are meant: by name or by their labels, and how a maintenance selects them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use kube::{Api, Client};
use usher_decide::maintenance::selector::{check, is_by_name, only_name_of, selected};
use usher_decide::snapshot::{Node, NodeOnWire};

use crate::Error;
use crate::arguments::kind_and_name;
use crate::world::list;

/// The field by which nodes are selected.
const NAME_FIELD: &str = "metadata.name";
/// So many names or terms are told.
const NAMED: usize = 5;

#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
pub struct NodeArguments {
    /// Nodes by name, as NAME or node/NAME.
    #[arg(value_name = "NODE", value_parser = node_name, conflicts_with = "selector")]
    nodes: Vec<String>,
    /// Nodes by their labels, such as pool=blue.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = labels)]
    selector: Option<Labels>,
}

/// The nodes that somebody may see.
pub struct KnownNodes {
    pub nodes: Vec<Node>,
    /// They are those of the whole cluster.
    pub are_all: bool,
}

/// A label selector as it was typed, and what it means for nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Labels {
    text: String,
    term: NodeSelectorTerm,
}

impl NodeArguments {
    /// As a maintenance selects them: of a name there can be only one in a term.
    pub fn selector(&self) -> NodeSelector {
        if let Some(labels) = &self.selector {
            return NodeSelector { node_selector_terms: vec![labels.term.clone()] };
        }
        let term = |name: &String| NodeSelectorTerm {
            match_fields: Some(vec![requirement(NAME_FIELD, "In", vec![name.clone()])]),
            match_expressions: None,
        };
        NodeSelector { node_selector_terms: self.names().iter().map(term).collect() }
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.nodes.clone();
        names.sort();
        names.dedup();
        names
    }

    /// A name for a maintenance of these nodes, by which people recognise it.
    pub fn summary(&self) -> String {
        match (&self.selector, &self.names()[..]) {
            (Some(labels), _) => labels.text.clone(),
            (None, []) => String::new(),
            (None, [one]) => one.clone(),
            (None, [first, others @ ..]) => format!("{first}-and-{}-more", others.len()),
        }
    }

    /// The nodes of the cluster; to who may not see all of them, those that are named.
    pub async fn read(&self, client: &Client) -> Result<KnownNodes, Error> {
        match read_nodes(client).await {
            Ok(nodes) => Ok(KnownNodes { are_all: true, nodes }),
            Err(Error::Forbidden(_)) if self.selector.is_none() => {
                let api: Api<NodeOnWire> = Api::all(client.clone());
                let mut nodes = Vec::new();
                for name in self.names() {
                    nodes.extend(api.get_opt(&name).await?.map(Node::from));
                }
                Ok(KnownNodes { are_all: false, nodes })
            }
            Err(why) => Err(why),
        }
    }

    /// Those of the cluster that are meant.
    ///
    /// All that are named must be there, and a selector must select some.
    pub fn among<'a>(&self, all: &'a [Node]) -> Result<Vec<&'a Node>, Error> {
        let there: BTreeSet<&str> = all.iter().map(|node| &*node.name).collect();
        let missing: Vec<String> = self
            .names()
            .into_iter()
            .filter(|name| !there.contains(name.as_str()))
            .map(|name| format!("{name:?}"))
            .collect();
        if !missing.is_empty() {
            let (noun, verb) = if missing.len() == 1 { ("node", "is") } else { ("nodes", "are") };
            return Err(Error::Refused(format!(
                "{noun} {} {verb} not in this cluster: see kubectl get nodes",
                missing.join(", ")
            )));
        }
        let found = selected(&self.selector(), all);
        match &self.selector {
            Some(labels) if found.is_empty() => Err(Error::Refused(format!(
                "no node has the labels {:?}: see kubectl get nodes --show-labels",
                labels.text
            ))),
            _ => Ok(found),
        }
    }
}

pub async fn read_nodes(client: &Client) -> Result<Vec<Node>, Error> {
    let nodes: Vec<NodeOnWire> = list(&Api::all(client.clone()), None).await?;
    Ok(nodes.into_iter().map(Node::from).collect())
}

/// The one node that is selected by name, if it is one.
pub fn only_name(selector: &NodeSelector) -> Option<&str> {
    match &selector.node_selector_terms[..] {
        [term] => only_name_of(term),
        _ => None,
    }
}

/// How many nodes are named, if nodes are selected by nothing but their names.
pub fn count_of_names(selector: &NodeSelector) -> Option<usize> {
    let names = |term: &NodeSelectorTerm| {
        only_name_of(term)?;
        Some(term.match_fields.iter().flatten().flat_map(|field| field.values.iter().flatten()).count())
    };
    selector.node_selector_terms.iter().map(names).sum()
}

/// A selector in one line.
pub fn describe(selector: &NodeSelector) -> String {
    let terms: Vec<String> = selector
        .node_selector_terms
        .iter()
        .map(|term| match only_name_of(term) {
            Some(name) => name.to_string(),
            None => {
                let needs = term.match_expressions.iter().flatten().chain(term.match_fields.iter().flatten());
                needs.map(describe_requirement).collect::<Vec<_>>().join(",")
            }
        })
        .collect();
    let named = terms.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
    match terms.len().saturating_sub(NAMED) {
        0 if is_by_name(selector) => named.join(", "),
        0 => named.join(" or "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn describe_requirement(need: &NodeSelectorRequirement) -> String {
    let (key, values) = (&need.key, need.values.clone().unwrap_or_default());
    match (need.operator.as_str(), &values[..]) {
        ("In", [one]) => format!("{key}={one}"),
        ("NotIn", [one]) => format!("{key}!={one}"),
        ("In", many) => format!("{key} in ({})", many.join(",")),
        ("NotIn", many) => format!("{key} notin ({})", many.join(",")),
        ("Exists", _) => key.clone(),
        ("DoesNotExist", _) => format!("!{key}"),
        ("Gt", [one]) => format!("{key}>{one}"),
        ("Lt", [one]) => format!("{key}<{one}"),
        (other, many) => format!("{key} {other} ({})", many.join(",")),
    }
}

/// A maintenance by name, also as `list -o name` and kubectl print it.
pub fn maintenance(text: &str) -> Result<String, String> {
    let parts = kind_and_name(text);
    match parts.as_ref().map(|(kind, name)| (kind.as_str(), *name)) {
        None => Ok(text.to_string()),
        Some((
            "nm" | "nodemaintenance" | "nodemaintenances" | "nodemaintenance.nodemaintenance.k8s.io",
            name,
        )) => Ok(name.to_string()),
        Some((other, name)) => {
            Err(format!("{other:?} is not a maintenance: name one, as in nodemaintenance/{name}"))
        }
    }
}

pub fn node_name(text: &str) -> Result<String, String> {
    let (kind, name) = kind_and_name(text).unwrap_or(("node".to_string(), text));
    match kind.as_str() {
        "node" | "nodes" | "no" if usher_api::domain::is_subdomain(name) => Ok(name.to_string()),
        "node" | "nodes" | "no" => {
            Err(format!("{name:?} cannot be the name of a node: see kubectl get nodes for the names"))
        }
        other => Err(format!("{other:?} is not a node: name nodes, as in node/{name}")),
    }
}

/// Reads a label selector into a term of a node selector.
pub fn labels(text: &str) -> Result<Labels, String> {
    let text = text.trim();
    let mut needs = Vec::new();
    for part in split(text)? {
        needs.push(read(part.trim())?);
    }
    let term = NodeSelectorTerm { match_expressions: Some(needs), match_fields: None };
    let selector = NodeSelector { node_selector_terms: vec![term.clone()] };
    match &check(&selector)[..] {
        [] => Ok(Labels { text: text.to_string(), term }),
        [first, ..] => Err(first.to_string()),
    }
}

/// At the commas that are in no brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return Err(format!("{text:?} closes a bracket that was not opened")),
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(format!("{text:?} does not close a bracket"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn read(part: &str) -> Result<NodeSelectorRequirement, String> {
    let wrong = || {
        format!(
            "{part:?} is not a label requirement: write key=value, key!=value, key in (a,b), key notin (a,b), key, !key, \
             key>1 or key<1"
        )
    };
    if part.is_empty() {
        return Err("the selector is empty: write for example pool=blue".to_string());
    }
    if let Some(key) = part.strip_prefix('!') {
        return Ok(requirement(key.trim(), "DoesNotExist", Vec::new()));
    }
    if let Some((before, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        let (key, operator) = before.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let operator = match operator.trim() {
            "in" => "In",
            "notin" => "NotIn",
            _ => return Err(wrong()),
        };
        return valued(key, operator, values).ok_or_else(wrong);
    }
    for (sign, operator) in [("!=", "NotIn"), ("==", "In"), ("=", "In"), (">", "Gt"), ("<", "Lt")] {
        if let Some((key, value)) = part.split_once(sign) {
            return valued(key, operator, vec![value.trim().to_string()]).ok_or_else(wrong);
        }
    }
    if part.contains(char::is_whitespace) {
        return Err(wrong());
    }
    Ok(requirement(part, "Exists", Vec::new()))
}

fn valued(key: &str, operator: &str, values: Vec<String>) -> Option<NodeSelectorRequirement> {
    let is_value = |value: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        value.len() <= 63 && value.chars().all(plain)
    };
    values.iter().all(is_value).then(|| requirement(key.trim(), operator, values))
}

fn requirement(key: &str, operator: &str, values: Vec<String>) -> NodeSelectorRequirement {
    let values = (!values.is_empty()).then_some(values);
    NodeSelectorRequirement { key: key.to_string(), operator: operator.to_string(), values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, pool: &str) -> Node {
        let node = json!({"metadata": {"name": name, "labels": {"pool": pool}}});
        Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap())
    }

    fn named(names: &[&str]) -> NodeArguments {
        NodeArguments { nodes: names.iter().map(ToString::to_string).collect(), selector: None }
    }

    fn labelled(text: &str) -> NodeArguments {
        NodeArguments { nodes: Vec::new(), selector: Some(labels(text).unwrap()) }
    }

    #[test]
    fn label_selectors_are_read_as_kubectl_reads_them_and_told_again() {
        for (text, told_again) in [
            ("pool=blue", "pool=blue"),
            ("pool == blue", "pool=blue"),
            ("pool!=blue", "pool!=blue"),
            ("pool in (blue, green),!gpu", "pool in (blue,green),!gpu"),
            ("pool notin (blue,green)", "pool notin (blue,green)"),
            ("topology.kubernetes.io/zone,size>4,size<16", "topology.kubernetes.io/zone,size>4,size<16"),
            ("pool=", "pool="),
        ] {
            let labels = labels(text).unwrap();
            assert_eq!(
                describe(&NodeSelector { node_selector_terms: vec![labels.term] }),
                told_again,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_label_selector_is_told() {
        for (text, part) in [
            ("", "the selector is empty"),
            ("pool=blue,", "the selector is empty"),
            ("pool=)", "closes a bracket"),
            ("pool in (blue", "does not close a bracket"),
            ("pool among (blue)", "is not a label requirement"),
            ("pool blue", "is not a label requirement"),
            ("pool=a b", "is not a label requirement"),
            ("size>big", "needs a whole number"),
            ("po ol=blue", "is no label key"),
            ("=blue", "is no label key"),
        ] {
            let message = labels(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn named_nodes_are_all_there_and_each_has_its_term() {
        let all = [node("n1", "blue"), node("n2", "green"), node("n3", "blue")];
        let names = |nodes: Vec<&Node>| nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
        let both = named(&["n3", "n1", "n3"]);
        assert_eq!(names(both.among(&all).unwrap()), ["n1", "n3"]);
        assert_eq!(describe(&both.selector()), "n1, n3");
        assert_eq!(both.summary(), "n1-and-1-more");
        let many = named(&["a", "b", "c", "d", "e", "f", "g"]);
        assert_eq!(describe(&many.selector()), "a, b, c, d, e and 2 more");
        assert_eq!(only_name(&named(&["n1"]).selector()), Some("n1"));
        assert_eq!(only_name(&both.selector()), None);
        assert_eq!(names(labelled("pool=blue").among(&all).unwrap()), ["n1", "n3"]);
        assert_eq!(
            named(&["n1", "x", "y"]).among(&all).unwrap_err().to_string(),
            "nodes \"x\", \"y\" are not in this cluster: see kubectl get nodes"
        );
        assert!(
            labelled("pool=red").among(&all).unwrap_err().to_string().starts_with("no node has the labels")
        );
    }

    #[test]
    fn a_node_may_be_named_as_kubectl_prints_it() {
        for text in ["n1", "node/n1", "no/n1"] {
            assert_eq!(node_name(text).as_deref(), Ok("n1"));
        }
        assert!(node_name("pod/n1").unwrap_err().contains("is not a node"));
        assert!(node_name("N_1").unwrap_err().contains("cannot be the name of a node"));
    }
}
