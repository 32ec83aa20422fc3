//! Which changes could help pods that wait for a node. All others do not wake them.

use super::fit::Guest;
use super::is_waiting;
use crate::view::{Node, Pod, View};

/// A node that is new, or that differs in something that the scheduler looks at.
pub(crate) fn helped_by_node(before: Option<&Node>, after: Option<&Node>) -> bool {
    let Some(after) = after else { return false };
    before.is_none_or(|before| {
        before.metadata.labels != after.metadata.labels
            || before.spec.unschedulable != after.spec.unschedulable
            || before.spec.taints != after.spec.taints
            || before.status.allocatable != after.status.allocatable
    })
}

/// A pod takes room from when it has a node until it has ended.
fn takes_room(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_terminal()
}

/// What the change of a pod means for those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueingHint {
    No,
    /// It left its node.
    Room,
    /// It came to a node, is on its way out, or has other labels: pods with rules about others may see it differently.
    Company,
}

pub(crate) fn help_by_pod(before: Option<&Pod>, after: Option<&Pod>) -> QueueingHint {
    let was = before.filter(|pod| takes_room(pod));
    let is = after.filter(|pod| takes_room(pod));
    match (was, is) {
        (Some(_), None) => QueueingHint::Room,
        (None, Some(_)) => QueueingHint::Company,
        (Some(was), Some(is)) => {
            let same = was.metadata.labels == is.metadata.labels && was.is_deleting() == is.is_deleting();
            if same { QueueingHint::No } else { QueueingHint::Company }
        }
        (None, None) => QueueingHint::No,
    }
}

/// Whether a pod that was refused is worth asking again after there is room on a node, or company if it is none.
pub(crate) fn is_helped(view: &View, refused: &Pod, node: &str) -> bool {
    refused.affinity_terms().rules().next().is_some()
        || view
            .node_snapshot()
            .get(node)
            .is_some_and(|node_info| Guest::of(refused).against(node_info, |_| ()).is_none())
}

/// Whether a change of the pod itself is a reason to look for a node: it is new, or wants something else now.
pub(crate) fn is_worth_a_look(before: Option<&Pod>, after: &Pod) -> bool {
    let same = |before: &Pod| {
        is_waiting(before)
            && before.metadata.uid == after.metadata.uid
            && before.metadata.labels == after.metadata.labels
            && before.spec.tolerations == after.spec.tolerations
            && before.requests() == after.requests()
    };
    is_waiting(after) && !before.is_some_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{node, pod, view};
    use embedded_apiserver::Key;
    use serde_json::{Value, json};

    fn nodes(change: impl FnOnce(&mut Value)) -> bool {
        let mut changed = node("a");
        change(&mut changed);
        let (before, after) = (view(&[node("a")]), view(&[changed]));
        let key = Key::new("", "a");
        helped_by_node(before.nodes.get(&key).map(|n| &**n), after.nodes.get(&key).map(|n| &**n))
    }

    #[test]
    fn only_what_the_scheduler_looks_at_helps() {
        assert!(!nodes(|_| {}));
        assert!(!nodes(
            |node| node["status"]["conditions"][0]["lastHeartbeatTime"] = "1970-01-01T00:05:00Z".into()
        ));
        assert!(nodes(|node| node["metadata"]["labels"]["color"] = "blue".into()));
        assert!(nodes(|node| node["status"]["allocatable"]["cpu"] = "8".into()));
        assert!(nodes(|node| node["spec"] = json!({"unschedulable": true})));
        assert!(nodes(|node| node["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})));
    }

    #[test]
    fn a_pod_that_leaves_helps_those_that_fit_in_its_place() {
        let mut big = pod("big", "");
        big["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "5"}});
        let mut small = pod("small", "");
        small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
        let mut blue = small.clone();
        blue["metadata"]["name"] = "blue".into();
        blue["spec"]["nodeSelector"] = json!({"color": "blue"});
        let view = view(&[node("a"), big, small, blue, pod("left", "a")]);
        let of = |name: &str| view.pods.get(&Key::new("default", name)).unwrap();
        let helped = |name: &str| is_helped(&view, of(name), "a");
        assert_eq!((helped("big"), helped("small"), helped("blue")), (false, true, false));
        assert!(!is_helped(&view, of("small"), ""), "company is nothing to it");
        assert!(is_worth_a_look(None, of("small")) && is_worth_a_look(Some(of("big")), of("small")));
        assert!(!is_worth_a_look(Some(of("small")), of("small")) && !is_worth_a_look(None, of("left")));
        assert_eq!(help_by_pod(Some(of("left")), None), QueueingHint::Room);
        assert_eq!(help_by_pod(Some(of("small")), None), QueueingHint::No);
        assert_eq!(help_by_pod(Some(of("small")), Some(of("left"))), QueueingHint::Company);
    }
}
