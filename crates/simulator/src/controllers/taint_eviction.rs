//! Taint eviction: pods that do not tolerate a `NoExecute` taint of their node go, at once or after what they tolerate.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::plan::{About, Action, Note, Plan};
use crate::scheduler::tolerates;
use crate::view::{Node, Pod, Resource, Taint, View};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key).filter(|pod| !pod.is_deleting()) else { return plan };
    let Some(node) = view.nodes.get(&Key::new("", &pod.spec.node_name)) else { return plan };
    let Some(patience) = patience(pod, node) else { return plan };
    let seen = view.driving_since(&node.metadata.name).unwrap_or(now);
    let due = seen.max(pod.metadata.created()) + patience;
    if patience > SignedDuration::ZERO && due > now {
        plan.recheck(due);
        return plan;
    }
    plan.act(Action::status(
        Resource::Pods,
        &pod.metadata,
        json!({"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": rfc3339(now),
        }]}),
    ));
    plan.act(Action::delete(Resource::Pods, &pod.metadata));
    let message = format!("Marking for deletion Pod {}/{}", pod.metadata.namespace, pod.metadata.name);
    plan.note(Note::normal(About::of(Resource::Pods, &pod.metadata), "TaintManagerEviction", message));
    plan
}

/// How long the pod may stay; nothing if for ever.
fn patience(pod: &Pod, node: &Node) -> Option<SignedDuration> {
    let mut shortest = None;
    for taint in node.spec.taints.iter().filter(|taint: &&Taint| taint.effect == "NoExecute") {
        // The first toleration that matches is the one that counts.
        let tolerated = pod.spec.tolerations.iter().find(|of| tolerates(std::slice::from_ref(*of), taint));
        let Some(toleration) = tolerated else { return Some(SignedDuration::ZERO) };
        if let Some(seconds) = toleration.seconds {
            let seconds = SignedDuration::from_secs(seconds.max(0));
            shortest = Some(shortest.map_or(seconds, |known: SignedDuration| known.min(seconds)));
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, deleted, node, pod, set_status, view_since};
    use serde_json::Value;

    fn tainted(taints: Value) -> Value {
        let mut node = node("n");
        node["spec"]["taints"] = taints;
        node
    }

    fn tolerant(tolerations: Value) -> Value {
        let mut pod = pod("p", "n");
        pod["spec"]["tolerations"] = tolerations;
        pod
    }

    /// The node has been tainted since second 100.
    fn plan(node: Value, pod: Value, second: i64) -> Plan {
        decide(&view_since(&[node, pod], 100), &Key::new("default", "p"), at(second))
    }

    #[test]
    fn who_does_not_tolerate_goes_at_once_and_who_does_goes_in_time() {
        let no_execute = || tainted(json!([{"key": "k", "effect": "NoExecute"}]));
        let gone = plan(no_execute(), pod("p", "n"), 100);
        assert_eq!(deleted(&gone), ["p"]);
        let target = set_status(&gone)["conditions"][0].clone();
        assert_eq!(
            (target["type"].as_str(), target["reason"].as_str()),
            (Some("DisruptionTarget"), Some("DeletionByTaintManager"))
        );
        assert_eq!(gone.notes[0].message, "Marking for deletion Pod default/p");

        let for_a_while = || {
            tolerant(
                json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]),
            )
        };
        let waits = plan(no_execute(), for_a_while(), 399);
        assert_eq!((waits.actions.len(), waits.recheck_at), (0, Some(at(400))));
        assert_eq!(deleted(&plan(no_execute(), for_a_while(), 400)), ["p"]);

        let for_ever = tolerant(json!([{"key": "k", "operator": "Exists"}]));
        assert_eq!(plan(no_execute(), for_ever, 9999), Plan::nothing());
        let closed = tainted(json!([{"key": "k", "effect": "NoSchedule"}]));
        assert_eq!(plan(closed, pod("p", "n"), 9999), Plan::nothing(), "only NoExecute drives off");
    }

    #[test]
    fn the_least_patient_toleration_counts_and_one_taint_too_many_is_enough() {
        let two =
            || tainted(json!([{"key": "k", "effect": "NoExecute"}, {"key": "l", "effect": "NoExecute"}]));
        let both = json!([
            {"key": "k", "operator": "Exists", "tolerationSeconds": 50},
            {"key": "l", "operator": "Exists", "tolerationSeconds": 20},
        ]);
        assert_eq!(plan(two(), tolerant(both), 100).recheck_at, Some(at(120)));
        let one = json!([{"key": "k", "operator": "Exists"}]);
        assert_eq!(deleted(&plan(two(), tolerant(one), 100)), ["p"]);
    }
}
