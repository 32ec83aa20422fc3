//! ReplicaSets: as many pods as asked for, and which of them go first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::{BURST, adoption, is_available, owned_by, pod_from};
use crate::plan::{Action, Plan};
use crate::status;
use crate::view::{Pod, ReplicaSet, Resource, View};
use embedded_apiserver::Key;

pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.replica_sets.get(key) else { return plan };
    let claimant = adoption::Set::of_apps("ReplicaSet", &set.metadata, &set.spec.selector);
    let all = adoption::claim(view, &claimant, |_| true, &mut plan);
    let (active, other): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = all.into_iter().partition(|pod| pod.is_active());
    let terminating = other.iter().filter(|pod| !pod.is_terminal()).count();
    report(set, &active, terminating, now, &mut plan);
    if !set.is_deleting() {
        let (have, want) = (active.len(), usize::try_from(set.replicas()).unwrap_or_default());
        if have < want {
            let owners = owned_by("apps/v1", "ReplicaSet", &set.metadata);
            let pod = pod_from(&set.spec.template, &set.metadata, owners);
            for _ in 0..(want - have).min(BURST) {
                plan.act(Action::create(Resource::Pods, &set.metadata.namespace, pod.clone()));
            }
        } else if have > want {
            for pod in leaving_order(view, set, &active, now).into_iter().take((have - want).min(BURST)) {
                plan.act(Action::delete(Resource::Pods, &pod.metadata));
            }
        }
    }
    plan
}

fn report(set: &ReplicaSet, active: &[&Arc<Pod>], terminating: usize, now: Timestamp, plan: &mut Plan) {
    let labels = set.spec.template["metadata"]["labels"].as_object();
    let labeled = active.iter().filter(|pod| {
        labels.into_iter().flatten().all(|(key, value)| {
            pod.metadata.labels.get(key).is_some_and(|is| Some(is.as_str()) == value.as_str())
        })
    });
    let ready = active.iter().filter(|pod| pod.is_ready()).count();
    let available = active
        .iter()
        .filter(|pod| is_available(pod, set.spec.min_ready_seconds, now, |at| plan.recheck(at)))
        .count();
    let wanted = json!({
        "replicas": active.len(), "fullyLabeledReplicas": labeled.count(), "readyReplicas": ready,
        "availableReplicas": available, "observedGeneration": set.metadata.generation,
        "terminatingReplicas": terminating,
    });
    if let Some(new) = status::difference(&set.status, wanted) {
        plan.act(Action::status(Resource::ReplicaSets, &set.metadata, new));
    }
}

/// The order in which a replica set gives up pods: unassigned, pending, not ready, cheap to delete, many on one node,
/// ready for a shorter time, restarted more often, newer. Times are compared by their order of magnitude, and within
/// it chance decides: the uid.
fn leaving_order<'a>(
    view: &View,
    set: &ReplicaSet,
    active: &[&'a Arc<Pod>],
    now: Timestamp,
) -> Vec<&'a Arc<Pod>> {
    let pod_group = pod_groups(view, set);
    let mut pods = active.to_vec();
    pods.sort_by_cached_key(|pod| {
        let phase = match pod.status.phase.as_str() {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost: i32 = pod
            .metadata
            .annotations
            .get(DELETION_COST)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        (
            !pod.spec.node_name.is_empty(),
            phase,
            pod.is_ready(),
            cost,
            Reverse(pod_group.get(&pod.spec.node_name).copied().unwrap_or_default()),
            pod.ready_since().map_or(0, |since| magnitude(since, now)),
            Reverse(pod.restarts()),
            magnitude(pod.metadata.created(), now),
            pod.metadata.uid.clone(),
        )
    });
    pods
}

/// The power of two of the nanoseconds since then.
fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    let passed = now.duration_since(since).as_nanos();
    if passed <= 0 { -1 } else { i64::from(passed.ilog2()) }
}

/// How many active pods of the set, and of the other sets of the same deployment, are on each node.
fn pod_groups(view: &View, set: &ReplicaSet) -> HashMap<String, usize> {
    let related: Vec<String> = match set.metadata.controller() {
        Some(owner) => view.replica_sets_of(&owner.uid).iter().map(|set| set.metadata.uid.clone()).collect(),
        None => vec![set.metadata.uid.clone()],
    };
    let mut pod_groups = HashMap::new();
    for uid in related {
        for pod in view.pods_of(&uid).into_iter().filter(|pod| pod.is_active()) {
            *pod_groups.entry(pod.spec.node_name.clone()).or_default() += 1;
        }
    }
    pod_groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, created, deleted, owned_pod, set_status, view};
    use serde_json::Value;

    fn set(replicas: i64) -> Value {
        json!({
            "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "uid": "set", "generation": 1},
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        })
    }

    fn plan(objects: &[Value]) -> Plan {
        decide(&view(objects), &Key::new("default", "web"), at(1000))
    }

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = owned_pod(name, "ReplicaSet", "web", "set");
        change(&mut pod);
        pod
    }

    #[test]
    fn missing_pods_are_made_from_the_template() {
        let plan = plan(&[set(2), pod("a", |_| {}), pod("b", |p| p["status"]["phase"] = "Failed".into())]);
        let made = created(&plan);
        assert_eq!(made.len(), 1, "a pod that has failed does not count");
        assert_eq!(made[0]["metadata"]["labels"]["app"], "web");
        assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "set");
    }

    #[test]
    fn pods_leave_in_the_documented_order() {
        let cases: [(&str, Value, Value); 8] = [
            ("unassigned first", pod("b", |_| {}), pod("a", |p| p["spec"]["nodeName"] = "".into())),
            ("pending next", pod("b", |_| {}), pod("a", |p| p["status"]["phase"] = "Pending".into())),
            (
                "not ready next",
                pod("b", |_| {}),
                pod("a", |p| p["status"]["conditions"][0]["status"] = "False".into()),
            ),
            (
                "cheaper next",
                pod("b", |_| {}),
                pod("a", |p| p["metadata"]["annotations"] = json!({DELETION_COST: "-5"})),
            ),
            (
                "ready for a shorter time next",
                pod("b", |_| {}),
                pod("a", |p| {
                    p["status"]["conditions"][0]["lastTransitionTime"] = "1970-01-01T00:05:00Z".into()
                }),
            ),
            (
                "restarted more often next",
                pod("b", |_| {}),
                pod("a", |p| p["status"]["containerStatuses"] = json!([{"restartCount": 3}])),
            ),
            (
                "newer next",
                pod("b", |_| {}),
                pod("a", |p| p["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z".into()),
            ),
            (
                "a cost counts more than age",
                pod("b", |p| p["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z".into()),
                pod("a", |p| p["metadata"]["annotations"] = json!({DELETION_COST: "-5"})),
            ),
        ];
        for (rule, stays, goes) in cases {
            assert_eq!(deleted(&plan(&[set(1), stays, goes])), ["a"], "{rule}");
        }
    }

    #[test]
    fn the_node_with_more_pods_of_the_set_gives_one_up() {
        let on = |name: &str, node: &str| pod(name, |p| p["spec"]["nodeName"] = node.into());
        assert_eq!(deleted(&plan(&[set(2), on("a", "n1"), on("b", "n2"), on("c", "n2")])), ["b"]);
    }

    #[test]
    fn pods_are_available_once_they_were_ready_long_enough() {
        let mut slow = set(1);
        slow["spec"]["minReadySeconds"] = json!(2000);
        let plan = plan(&[slow, pod("a", |_| {})]);
        assert_eq!(set_status(&plan)["readyReplicas"], 1);
        assert!(set_status(&plan)["availableReplicas"].is_null());
        assert_eq!(plan.recheck_at, Some(at(2000)));
    }

    #[test]
    fn a_pod_that_the_selector_does_not_match_any_more_is_let_go_and_replaced() {
        let mut set = set(1);
        set["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        let plan = plan(&[set, pod("a", |p| p["metadata"]["labels"]["app"] = "debug".into())]);
        let let_go = plan.actions.iter().any(|action| {
            matches!(action, Action::Patch { target, patch, .. }
                if target.name == "a" && patch["metadata"]["ownerReferences"][0]["$patch"] == "delete")
        });
        assert!(let_go);
        assert_eq!(created(&plan).len(), 1);
    }

    #[test]
    fn pods_on_their_way_out_are_counted() {
        let leaving = pod("a", |p| p["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into());
        assert_eq!(set_status(&plan(&[set(0), leaving]))["terminatingReplicas"], 1);
    }
}
