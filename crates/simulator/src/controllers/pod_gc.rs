//! Pods that nobody else would ever end: those of nodes that are gone or out of service.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::plan::{Action, Plan, Target};
use crate::view::{Pod, Resource, View};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

/// A node that is missing may only be late.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key) else { return plan };
    let name = &pod.spec.node_name;
    if name.is_empty() {
        if pod.is_deleting() {
            end(pod, None, now, &mut plan);
        }
        return plan;
    }
    match view.nodes.get(&Key::new("", name)) {
        Some(node) => {
            let out = node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
            if pod.is_deleting() && out && !node.is_ready() {
                end(pod, None, now, &mut plan);
            }
        }
        None => {
            let due = view.gone_since(name).unwrap_or(now) + QUARANTINE;
            if due > now {
                plan.recheck(due);
            } else {
                end(pod, Some("PodGC: node no longer exists"), now, &mut plan);
            }
        }
    }
    plan
}

/// Whether such a pod may ever have to be looked at because of its node.
pub(crate) fn may_concern(view: &View, pod: &Pod) -> bool {
    let node = &pod.spec.node_name;
    if node.is_empty() {
        pod.is_deleting()
    } else {
        pod.is_deleting() || view.nodes.get(&Key::new("", node)).is_none()
    }
}

/// It has failed, and is deleted by force.
fn end(pod: &Pod, why: Option<&str>, now: Timestamp, plan: &mut Plan) {
    if pod.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0) {
        // Only finalizers are left, and they are others' to take away.
        return;
    }
    if !pod.is_terminal() {
        let mut status = json!({"phase": "Failed"});
        if let Some(message) = why {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message,
                "lastTransitionTime": rfc3339(now),
            }]);
        }
        plan.act(Action::status(Resource::Pods, &pod.metadata, status));
    }
    plan.act(Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, deleted, node, pod, set_status, view_since};
    use serde_json::Value;

    fn plan(objects: &[Value], second: i64) -> Plan {
        decide(&view_since(objects, 100), &Key::new("default", "p"), at(second))
    }

    #[test]
    fn pods_of_missing_nodes_go_after_the_quarantine() {
        assert_eq!(plan(&[pod("p", "n")], 139).recheck_at, Some(at(140)));
        let gone = plan(&[pod("p", "n")], 140);
        assert_eq!((deleted(&gone), set_status(&gone)["phase"].as_str()), (vec!["p"], Some("Failed")));
        assert_eq!(set_status(&gone)["conditions"][0]["reason"], "DeletionByPodGC");
        assert_eq!(plan(&[node("n"), pod("p", "n")], 140), Plan::nothing());
        assert_eq!(plan(&[pod("p", "")], 140), Plan::nothing());
    }

    #[test]
    fn pods_that_are_to_go_from_a_node_out_of_service_are_ended() {
        let mut leaving = pod("p", "n");
        leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        let mut out = node("n");
        out["spec"]["taints"] =
            json!([{"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}]);
        assert_eq!(plan(&[out.clone(), leaving.clone()], 100), Plan::nothing(), "it is ready");
        out["status"]["conditions"][0]["status"] = "Unknown".into();
        assert_eq!(deleted(&plan(&[out.clone(), leaving], 100)), ["p"]);
        assert_eq!(plan(&[out, pod("p", "n")], 100), Plan::nothing(), "only those that are to go");
    }
}
