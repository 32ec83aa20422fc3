//! Pods of nodes that do not exist: nobody else would ever end them.

use jiff::{SignedDuration, Timestamp};

use crate::life::plan::{Action, Plan, Target};
use crate::life::view::{Resource, View};
use crate::store::Key;

/// A new pod may be ahead of its node.
const PATIENCE: SignedDuration = SignedDuration::from_secs(40);

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key) else { return plan };
    let node = &pod.spec.node_name;
    if node.is_empty() || view.nodes.get(&Key::new("", node)).is_some() {
        return plan;
    }
    let due = pod.metadata.created() + PATIENCE;
    if due > now {
        plan.recheck(due);
    } else if !pod.is_deleting() || pod.metadata.deletion_grace_period_seconds != Some(0) {
        plan.act(Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, deleted, node, pod, view};

    #[test]
    fn pods_of_missing_nodes_go_unless_they_are_new() {
        let decide = |objects: &[serde_json::Value], second| {
            decide(&view(objects), &Key::new("default", "p"), at(second))
        };
        assert_eq!(decide(&[pod("p", "n")], 10), Plan { actions: vec![], recheck_at: Some(at(40)) });
        assert_eq!(deleted(&decide(&[pod("p", "n")], 40)), ["p"]);
        assert_eq!(decide(&[node("n"), pod("p", "n")], 40), Plan::nothing());
        assert_eq!(decide(&[pod("p", "")], 40), Plan::nothing());
    }
}
