//! Which nodes a write of a maintenance can act on, today or later, and whether its caller may delete them.
//!
//! A selector by labels means nodes that join later, too, and nobody asks its author again then. So only who may delete all
//! nodes may use one. Everybody else names the nodes, each of which they may delete, whether it is there today or not.

use std::collections::BTreeSet;

use usher_api::NodeMaintenance;
use usher_api::names::{DECIDING_ANNOTATIONS, MAINTENANCE_COMPLETION_FINALIZER};

use super::{Refusal, Rule};
use crate::maintenance::selector;

/// So many nodes are named in an answer.
pub const NAMED: usize = 5;

/// The nodes that a caller has to be allowed to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// Those with these names.
    Named(BTreeSet<String>),
    /// All of them: this term is not bounded by names.
    All {
        term: usize,
        /// The selector is the one from before the write.
        is_old: bool,
    },
}

/// Whether a caller may delete the nodes that are needed, as the API server's authorizers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAccess {
    Allowed,
    Denied {
        user: String,
        /// Of the named ones, those that it may not delete: [`NAMED`] of them at most.
        nodes: Vec<String>,
        are_more: bool,
    },
}

/// The nodes that a write is about: who takes nodes out of a maintenance decides on them as who puts them in.
pub fn needed(old: Option<&NodeMaintenance>, new: Option<&NodeMaintenance>) -> Needed {
    let mut names = BTreeSet::new();
    let is_same = old.zip(new).is_some_and(|(old, new)| old.spec.node_selector == new.spec.node_selector);
    for (maintenance, is_old) in [(new, is_same), (old, true)] {
        let Some(maintenance) = maintenance else { continue };
        match selector::names(&maintenance.spec.node_selector) {
            Ok(some) => names.extend(some.into_iter().map(str::to_owned)),
            Err(term) => return Needed::All { term, is_old },
        }
    }
    Needed::Named(names)
}

/// Whether an update can change what becomes of nodes: by the spec, by the finalizer that keeps a maintenance until it has
/// let go of its nodes, or by owners, with whom the garbage collector would delete it.
pub fn has_effect(old: &NodeMaintenance, new: &NodeMaintenance) -> bool {
    let holds = |it: &NodeMaintenance| {
        let finalizers = it.metadata.finalizers.iter().flatten();
        finalizers.into_iter().any(|name| name == MAINTENANCE_COMPLETION_FINALIZER)
    };
    let owners = |it: &NodeMaintenance| it.metadata.owner_references.clone().unwrap_or_default();
    let says = |it: &NodeMaintenance| {
        let all = it.metadata.annotations.as_ref();
        DECIDING_ANNOTATIONS.map(|name| all.and_then(|all| all.get(name)).cloned())
    };
    old.spec != new.spec || says(old) != says(new) || holds(old) != holds(new) || owners(old) != owners(new)
}

pub(super) fn check(needed: &Needed, access: &NodeAccess) -> Option<Refusal> {
    let NodeAccess::Denied { user, nodes, are_more } = access else { return None };
    let message = match needed {
        Needed::All { term, is_old: true } => format!(
            "{user:?} may not delete all nodes, and nodeSelectorTerms[{term}] of this maintenance can mean any of them: only who \
             may delete all nodes may change or delete it"
        ),
        Needed::All { term, is_old: false } => format!(
            "{user:?} may not delete all nodes, and so has to select nodes by name; nodeSelectorTerms[{term}] also means nodes \
             that join later: write one term for each node, with \
             matchFields: [{{key: metadata.name, operator: In, values: [NODE]}}], or have a role bound that allows the verb \
             delete on nodes"
        ),
        Needed::Named(_) => {
            let more = if *are_more { " and others" } else { "" };
            format!(
                "{user:?} may not delete {}{more}, and so may not decide on their maintenance: leave these nodes out, or have \
                 a role bound that allows the verb delete on them",
                nodes.join(", ")
            )
        }
    };
    Some(Refusal::new(Rule::CallerMayDeleteNodes, "spec.nodeSelector", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn maintenance(metadata: Value, terms: Value) -> NodeMaintenance {
        let object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": metadata,
            "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": terms}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn named(names: &[&str]) -> NodeMaintenance {
        let terms: Vec<Value> = names
            .iter()
            .map(
                |name| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}),
            )
            .collect();
        maintenance(json!({"name": "m"}), json!(terms))
    }

    fn labelled() -> NodeMaintenance {
        let term = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]});
        maintenance(json!({"name": "m"}), json!([term]))
    }

    #[test]
    fn a_selector_that_can_mean_nodes_that_join_later_needs_the_right_to_all() {
        let names = |names: &[&str]| Needed::Named(names.iter().map(|name| (*name).to_owned()).collect());
        let (one, two, open) = (named(&["n1"]), named(&["n2", "n3"]), labelled());
        let rows = [
            (None, Some(&one), names(&["n1"])),
            (Some(&one), Some(&two), names(&["n1", "n2", "n3"])),
            (Some(&two), None, names(&["n2", "n3"])),
            (None, Some(&open), Needed::All { term: 0, is_old: false }),
            (Some(&one), Some(&open), Needed::All { term: 0, is_old: false }),
            (Some(&open), Some(&one), Needed::All { term: 0, is_old: true }),
            (Some(&open), None, Needed::All { term: 0, is_old: true }),
        ];
        for (old, new, wanted) in rows {
            assert_eq!(needed(old, new), wanted);
        }
    }

    #[test]
    fn metadata_that_decides_on_nodes_counts_as_the_spec_does() {
        let of = |metadata: Value| maintenance(metadata, json!([]));
        let ours = json!([MAINTENANCE_COMPLETION_FINALIZER, "example.com/other"]);
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
        let rows = [
            (json!({}), json!({}), false),
            (json!({}), json!({"labels": {"a": "b"}, "annotations": {"a": "b"}}), false),
            (json!({"finalizers": ["example.com/other"]}), json!({}), false),
            (json!({"finalizers": ours}), json!({"finalizers": ["example.com/other"]}), true),
            (json!({}), json!({"finalizers": ours}), true),
            (json!({}), json!({"ownerReferences": owner}), true),
            (json!({"ownerReferences": owner}), json!({"ownerReferences": []}), true),
            (json!({"ownerReferences": []}), json!({}), false),
        ];
        for (old, new, wanted) in rows {
            assert_eq!(has_effect(&of(old.clone()), &of(new.clone())), wanted, "{old} -> {new}");
        }
        assert!(has_effect(&named(&["n1"]), &named(&["n1", "n2"])));
    }

    #[test]
    fn a_refusal_says_what_to_write_instead() {
        let some = || ["n1", "n2"].map(str::to_owned);
        let denied = |nodes: &[String], are_more| NodeAccess::Denied {
            user: "jo".to_owned(),
            nodes: nodes.to_vec(),
            are_more,
        };
        let rows = [
            (
                Needed::All { term: 2, is_old: false },
                denied(&[], false),
                vec![
                    "nodeSelectorTerms[2]",
                    "matchFields: [{key: metadata.name, operator: In, values: [NODE]}]",
                ],
            ),
            (
                Needed::All { term: 0, is_old: true },
                denied(&[], false),
                vec!["only who may delete all nodes may change or delete it"],
            ),
            (
                Needed::Named(some().into()),
                denied(&some(), true),
                vec!["may not delete n1, n2 and others", "leave these nodes out"],
            ),
        ];
        for (needed, access, parts) in rows {
            let refusal = check(&needed, &access).unwrap();
            assert_eq!(refusal.rule.code(), 403);
            for part in parts.into_iter().chain(["\"jo\""]) {
                assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
            }
        }
        assert_eq!(check(&Needed::All { term: 0, is_old: false }, &NodeAccess::Allowed), None);
    }
}
