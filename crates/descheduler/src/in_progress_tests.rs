//! Pods that are leaving count for what they are about to be.

use serde_json::{Value, json};

use super::*;
use crate::Cluster;
use crate::policy::Policy;
use crate::testing::{cluster, node, now, plan_of, pod, policy, policy_with, proposed};

fn leaving(pods: &[&str]) -> InProgress {
    let mut in_progress = InProgress::default();
    for name in pods {
        in_progress.set_leaving("default", name, &format!("uid-{name}"), "somebody");
    }
    in_progress
}

fn plan(cluster: &Cluster, policy: &Policy, pods: &[&str]) -> crate::Plan {
    crate::plan(cluster, policy, &leaving(pods), now())
}

fn tainted(name: &str) -> k8s_openapi::api::core::v1::Node {
    node(name, json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}}))
}

fn sized(name: &str, node: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    pod(name, node, json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}))
}

fn taints(evictor: Value) -> Policy {
    policy(evictor, "RemovePodsViolatingNodeTaints", json!({}))
}

#[test]
fn a_pod_whose_replacement_took_the_room_is_still_wanted() {
    let nodes = || vec![tainted("a"), node("b", json!({}))];
    let policy = taints(json!({"nodeFit": true}));
    let before = cluster(nodes(), vec![sized("old", "a", "3")]);
    assert_eq!(proposed(&plan_of(&before, &policy)), ["old"]);
    // Its surge pod runs where it would have fit.
    let surged = cluster(nodes(), vec![sized("old", "a", "3"), sized("new", "b", "3")]);
    assert_eq!(plan(&surged, &policy, &["old"]).still_wanted, ["uid-old"]);
    let mut cools = leaving(&["old"]);
    cools.set_cool_down("default", "old", "uid-old", now() + jiff::SignedDuration::from_secs(60));
    let plan = crate::plan(&surged, &policy, &cools, now());
    assert_eq!(plan.still_wanted, ["uid-old"], "a pause says when it is asked, not whether it is wanted");
}

#[test]
fn room_is_kept_for_pods_that_are_leaving() {
    let pods = (0..3).map(|i| sized(&format!("p{i}"), "a", "1")).collect();
    let cluster =
        cluster(vec![tainted("a"), node("b", json!({"status": {"allocatable": {"cpu": "2"}}}))], pods);
    let policy = taints(json!({"nodeFit": true}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["p0", "p1"]);
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0"])), ["p1"], "not one more in each cycle");
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0", "p1"])), [] as [&str; 0]);
}

#[test]
fn replicas_that_are_leaving_are_not_there() {
    let names = ["a", "b", "c"];
    let pods = names.iter().enumerate().map(|(i, node)| pod(&format!("p{i}"), node, json!({}))).collect();
    let nodes = names.iter().map(|name| tainted(name)).chain([node("d", json!({}))]).collect();
    let cluster = cluster(nodes, pods);
    let policy = taints(json!({"minReplicas": 2}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)).len(), 2);
    let plan = plan(&cluster, &policy, &["p2"]);
    assert_eq!((proposed(&plan).len(), plan.still_wanted), (1, vec!["uid-p2".to_owned()]));
}

#[test]
fn a_pod_that_is_leaving_is_in_nobodys_way() {
    let away = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    let nodes = vec![zone("a", "x"), zone("b", "x"), zone("c", "y")];
    let cluster = cluster(nodes, vec![pod("first", "a", away.clone()), pod("second", "b", away)]);
    let policy = policy(json!({}), "RemovePodsViolatingInterPodAntiAffinity", json!({}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["first"]);
    let plan_ = plan(&cluster, &policy, &["second"]);
    assert_eq!((proposed(&plan_), &plan_.still_wanted[..]), (vec![], &["uid-second".to_owned()][..]));
    let both = plan(&cluster, &policy, &["first", "second"]);
    assert_eq!(both.still_wanted, ["uid-first"], "one of them may stay");
}

#[test]
fn who_is_still_wanted_is_known_also_where_a_limit_is_reached() {
    let pods = vec![pod("free", "a", json!({})), pod("p", "b", json!({})), pod("q", "b", json!({}))];
    let cluster = cluster(vec![node("a", json!({})), tainted("b"), node("c", json!({}))], pods);
    let plugins = [("RemovePodsViolatingNodeTaints", json!({}))];
    let policy = policy_with(json!({"maxNoOfPodsToEvictTotal": 2}), json!({}), &plugins);
    // The limit is full with one that nobody wants any more and one that is wanted, and the latter comes last.
    let plan = plan(&cluster, &policy, &["free", "q"]);
    assert_eq!((proposed(&plan), plan.still_wanted.len()), (vec![], 1), "{plan:?}");
    assert_eq!(plan.still_wanted, ["uid-q"]);
}

#[test]
fn of_pods_on_nodes_that_are_not_ready_nobody_knows() {
    let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
    let silent = node("s", json!({"status": {"conditions": conditions}}));
    let nodes = vec![node("a", json!({})), node("b", json!({})), silent];
    let cluster = cluster(nodes, vec![pod("p", "s", json!({})), pod("q", "a", json!({}))]);
    assert_eq!(plan(&cluster, &taints(json!({})), &["p", "q"]).still_wanted, ["uid-p"]);
}
