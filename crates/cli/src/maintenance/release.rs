//! What became of the nodes that a maintenance held.

use usher_decide::snapshot::Node;

/// A line for each node that was held before, from the nodes as they are now.
pub fn describe(maintenance: &str, before: &[Node], after: &[Node]) -> Vec<String> {
    let held = before.iter().filter(|node| node.is_held_by(maintenance));
    held.map(|node| {
        let now = after.iter().find(|now| now.name == node.name);
        format!("node/{}: {}", node.name, fate(maintenance, node, now))
    })
    .collect()
}

fn fate(maintenance: &str, before: &Node, now: Option<&Node>) -> String {
    let Some(now) = now else { return "is no longer in the cluster".to_string() };
    let holders = now.held_by.iter().flatten().map(|name| &**name);
    let others: Vec<&str> = holders.filter(|name| *name != maintenance).collect();
    if now.is_held_by(maintenance) {
        "not released yet".to_string()
    } else if !others.is_empty() {
        let verb = if others.len() == 1 { "holds" } else { "hold" };
        format!("stays cordoned: {} {verb} it too", others.join(", "))
    } else if !now.unschedulable {
        "uncordoned".to_string()
    } else if before.was_unschedulable {
        "stays cordoned, as it was before the maintenance".to_string()
    } else {
        "released, but somebody has cordoned it since".to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::node;

    fn state(name: &str, unschedulable: bool, held_by: &[&str], was_unschedulable: bool) -> Node {
        let held_by = (!held_by.is_empty()).then(|| held_by.iter().map(|name| (*name).into()).collect());
        Node { unschedulable, held_by, was_unschedulable, ..node(name) }
    }

    #[test]
    fn each_node_that_was_held_is_told_of() {
        let before = [
            state("n1", true, &["m"], false),
            state("n2", true, &["m"], true),
            state("n3", true, &["m", "other"], false),
            state("n4", true, &["m"], false),
            state("n5", true, &["m"], false),
            state("n6", true, &["other"], false),
            state("n7", true, &["m"], false),
        ];
        let after = [
            state("n1", false, &[], false),
            state("n2", true, &[], false),
            state("n3", true, &["other"], false),
            state("n4", true, &[], false),
            state("n6", true, &["other"], false),
            state("n7", true, &["m"], false),
        ];
        assert_eq!(
            describe("m", &before, &after),
            [
                "node/n1: uncordoned",
                "node/n2: stays cordoned, as it was before the maintenance",
                "node/n3: stays cordoned: other holds it too",
                "node/n4: released, but somebody has cordoned it since",
                "node/n5: is no longer in the cluster",
                "node/n7: not released yet",
            ]
        );
    }
}
