//! Whether a maintenance that somebody drafts is made, or one followed that does the same already; and which others are at work on its
//! nodes.

use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_decide::maintenance::selector::{is_by_name, selected};
use usher_decide::snapshot::Node;

use crate::followed_drain::is_active;

/// What to do about a draft, seeing which maintenances are there.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice<'a> {
    /// One of this name.
    Create(String),
    /// This one does the same.
    Follow(&'a NodeMaintenance),
    /// This one is of the same nodes and has not come as far: whoever planned it moves it on.
    Planned(&'a NodeMaintenance),
    /// This one has the name, and does something else.
    NameTaken(&'a NodeMaintenance),
}

/// `is_named`: the person has chosen the name. `joins`: one that does the same already is as good.
pub fn choose<'a>(
    draft: &NodeMaintenance,
    is_named: bool,
    joins: bool,
    known: &'a [NodeMaintenance],
    nodes: &[Node],
) -> Choice<'a> {
    let base = name(draft).to_owned();
    let of_that_name = |wanted: &str| known.iter().find(|one| name(one) == wanted);
    let is_as_good = |one: &&NodeMaintenance| joins && is_active(one) && does_the_same(one, draft, nodes);
    if is_named {
        return match of_that_name(&base) {
            None => Choice::Create(base),
            Some(one) if is_as_good(&one) => follow(one, draft),
            Some(one) => Choice::NameTaken(one),
        };
    }
    // The one that has come furthest is the one that does it.
    if let Some(one) = known.iter().filter(is_as_good).max_by_key(|one| one.spec.stage) {
        return follow(one, draft);
    }
    let numbered = (2_usize..).map(|number| format!("{base}-{number}"));
    let mut free = std::iter::once(base.clone()).chain(numbered).filter(|it| of_that_name(it).is_none());
    Choice::Create(free.next().unwrap_or(base))
}

fn follow<'a>(one: &'a NodeMaintenance, draft: &NodeMaintenance) -> Choice<'a> {
    if one.spec.stage >= draft.spec.stage { Choice::Follow(one) } else { Choice::Planned(one) }
}

/// Labels may mean other nodes tomorrow; names do not.
fn does_the_same(one: &NodeMaintenance, draft: &NodeMaintenance, nodes: &[Node]) -> bool {
    let (theirs, own) = (&one.spec.node_selector, &draft.spec.node_selector);
    let selected = |selector| selected(selector, nodes).into_iter().map(|node| &node.name);
    theirs == own || (is_by_name(own) && selected(theirs).eq(selected(own)))
}

/// Other maintenances that are at work on some of the nodes, with these nodes.
pub fn overlaps<'a>(
    of: &NodeMaintenance,
    known: &'a [NodeMaintenance],
    nodes: &[Node],
) -> Vec<(&'a NodeMaintenance, Vec<String>)> {
    let own = selected(&of.spec.node_selector, nodes);
    let others = known.iter().filter(|one| name(one) != name(of));
    let at_work = others.filter(|one| is_active(one) && one.spec.stage != Stage::Idle);
    let shared = at_work.map(|one| {
        let theirs = selected(&one.spec.node_selector, nodes);
        let both = own.iter().filter(|node| theirs.iter().any(|other| other.name == node.name));
        (one, both.map(|node| node.name.to_string()).collect::<Vec<_>>())
    });
    shared.filter(|(_, both)| !both.is_empty()).collect()
}

/// A draft that nobody has named has none, or the beginning of one.
fn name(maintenance: &NodeMaintenance) -> &str {
    let meta = &maintenance.metadata;
    meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use usher_decide::snapshot::NodeOnWire;

    fn nodes() -> [Node; 3] {
        ["n1", "n2", "n3"].map(|name| {
            let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
            Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap())
        })
    }

    fn of_terms(name: &str, stage: &str, terms: &Value) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
            "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": terms}},
        }))
        .unwrap()
    }

    fn maintenance(name: &str, stage: &str, nodes: &[&str]) -> NodeMaintenance {
        let term = |node: &&str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        of_terms(name, stage, &nodes.iter().map(term).collect())
    }

    fn by_label(name: &str, host: &str) -> NodeMaintenance {
        let need = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
        of_terms(name, "Drain", &json!([{"matchExpressions": [need]}]))
    }

    /// What is chosen, and the name of which maintenance.
    fn chosen(draft: &NodeMaintenance, is_named: bool, joins: bool, known: &[NodeMaintenance]) -> String {
        match choose(draft, is_named, joins, known, &nodes()) {
            Choice::Create(name) => format!("create {name}"),
            Choice::Follow(one) => format!("follow {}", name(one)),
            Choice::Planned(one) => format!("planned {}", name(one)),
            Choice::NameTaken(one) => format!("taken {}", name(one)),
        }
    }

    #[test]
    fn the_same_nodes_are_drained_once() {
        let draft = maintenance("drain-n1", "Drain", &["n1"]);
        for (known, wanted) in [
            (vec![], "create drain-n1"),
            (vec![maintenance("other", "Drain", &["n1", "n2"])], "create drain-n1"),
            (vec![maintenance("other", "Drain", &["n1"])], "follow other"),
            (vec![by_label("other", "n1")], "follow other"),
            (vec![maintenance("drain-n1", "Complete", &["n1"])], "create drain-n1-2"),
            (vec![maintenance("drain-n1", "Drain", &["n2"])], "create drain-n1-2"),
            (vec![maintenance("a", "Idle", &["n1"]), maintenance("b", "Drain", &["n1"])], "follow b"),
            (vec![maintenance("idle", "Idle", &["n1"])], "planned idle"),
        ] {
            assert_eq!(chosen(&draft, false, true, &known), wanted, "{known:?}");
        }
        let same = [maintenance("other", "Drain", &["n1"])];
        assert_eq!(chosen(&draft, false, false, &same), "create drain-n1", "another one is wanted");
        let labelled = by_label("drain-blue", "n1");
        assert_eq!(chosen(&labelled, false, true, &same), "create drain-blue", "labels may change");
        assert_eq!(chosen(&labelled, false, true, &[by_label("other", "n1")]), "follow other");
    }

    #[test]
    fn a_name_that_is_taken_is_refused_unless_it_means_the_same() {
        let draft = maintenance("m", "Drain", &["n1"]);
        for (known, wanted) in [
            (vec![], "create m"),
            (vec![maintenance("other", "Drain", &["n1"])], "create m"),
            (vec![maintenance("m", "Drain", &["n1"])], "follow m"),
            (vec![maintenance("m", "Cordon", &["n1"])], "planned m"),
            (vec![maintenance("m", "Complete", &["n1"])], "taken m"),
            (vec![maintenance("m", "Drain", &["n2", "n3"])], "taken m"),
        ] {
            assert_eq!(chosen(&draft, true, true, &known), wanted, "{known:?}");
        }
        assert_eq!(chosen(&draft, true, false, &[maintenance("m", "Drain", &["n1"])]), "taken m");
    }

    #[test]
    fn maintenances_at_work_on_the_same_nodes_are_named() {
        let known = [
            maintenance("m", "Drain", &["n1", "n2"]),
            maintenance("idle", "Idle", &["n1"]),
            maintenance("over", "Complete", &["n1"]),
            maintenance("elsewhere", "Drain", &["n3"]),
            maintenance("other", "Cordon", &["n2", "n3"]),
        ];
        let found: Vec<(&str, Vec<String>)> =
            overlaps(&known[0], &known, &nodes()).into_iter().map(|(one, both)| (name(one), both)).collect();
        assert_eq!(found, [("other", vec!["n2".to_string()])]);
    }
}
