//! Nodes explained as people read them.

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_api::node_agent::NodeAgentMark;
use usher_decide::snapshot::{Maintenance, NodeOnWire};

use super::explanation::{NodeFound, explain};
use super::read::close_to;
use super::text;
use crate::Environment;
use crate::explain::PodFound;
use crate::samples::{NOW, budget, pod, request, world};
use usher_forecast::node_state::Urgency;
use usher_forecast::request_state::Leader;

fn node(held_by: &str, is_cordoned: bool) -> Value {
    let mut node = json!({"metadata": {"name": "n1", "labels": {"pool": "blue"}}, "spec": {"unschedulable": is_cordoned}});
    if !held_by.is_empty() {
        node["metadata"]["annotations"] = json!({"nodemaintenance.k8s.io/held-by": held_by});
    }
    node
}

/// A maintenance of a quarter of an hour ago, with what it says of n1.
fn maintenance(name: &str, stage: &str, message: &str) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": name, "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"]},
        "spec": {"stage": stage, "reason": "kernel update", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["blue"]}]},
        ]}},
        "status": {
            "stageStatuses": [{"name": stage, "startTimestamp": "2026-01-01T11:45:00Z"}],
            "nodeStatuses": [{
                "nodeRef": {"name": "n1"}, "drainMessage": message,
                "drainTargets": [{"podPriority": 1_000_000_000, "podType": "Default"}],
            }],
        },
    })
}

fn found_pod(pod: &Value, request: Option<Value>, budgets: &[Value]) -> PodFound {
    PodFound {
        namespace: "shop".into(),
        name: pod["metadata"]["name"].as_str().unwrap().into(),
        pod: serde_json::from_value(pod.clone()).unwrap(),
        request: request.map(|request| serde_json::from_value(request).unwrap()),
        world: world(&[], &[], budgets),
        events: Vec::new(),
        leader: Leader::Unknown,
        set: None,
    }
}

fn found(node: Value, maintenances: &[Value], pods: Vec<PodFound>) -> NodeFound {
    let maintenance =
        |one: &Value| Maintenance::from(serde_json::from_value::<NodeMaintenance>(one.clone()).unwrap());
    NodeFound {
        node: serde_json::from_value::<NodeOnWire>(node).unwrap().into(),
        cordoned_by: Some("kubectl-cordon".to_string()),
        agent: None,
        maintenances: maintenances.iter().map(maintenance).collect(),
        pods,
    }
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn rendered(found: &NodeFound) -> String {
    text::render(&explain(found, now()), &Environment::plain(), now())
}

/// An interceptor has its turn.
fn intercepted(name: &str) -> PodFound {
    let mut asked = request(name);
    asked["spec"]["interceptors"] = json!([{"interceptorClass": "db.example.com", "priority": 11000}]);
    asked["status"] = json!({
        "activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:50:00Z", "message": "",
    });
    found_pod(&pod(name, "n1"), Some(asked), &[])
}

#[test]
fn what_blocks_a_node_is_told_worst_first() {
    let mut system = pod("system", "n1");
    system["spec"]["priority"] = 2_000_000_000.into();
    let pods = vec![
        intercepted("db-0"),
        found_pod(&system, None, &[]),
        found_pod(&pod("web-1", "n1"), Some(request("web-1")), &[budget("web", 0)]),
        found_pod(&pod("web-2", "n1"), Some(request("web-2")), &[budget("web", 0)]),
    ];
    let found = found(node("m", true), &[maintenance("m", "Drain", "Evicting")], pods);
    let wanted = "\
Node n1 is being drained: 4 pods have not been evicted yet, 2 blocked.

Maintenance   m: Drain since 15m ago (2026-01-01 11:45:00Z); kernel update
                Evicting
                evicts: Default pods up to priority 1000000000
Cordoned      by maintenance m
To end it     usher maintenance complete m

Blocked       2 pods: disruption budget web does not allow the pod to be evicted
              shop/web-1, shop/web-2
  Since       15m ago (2026-01-01 11:45:00Z)
  What to do  budget web has minAvailable 3 and 3 pods: scale up to 4 pods or more, or lower minAvailable

Evicting      1 pod: interceptor db.example.com has its turn
              shop/db-0
  Until       in 20m (2026-01-01 12:20:00Z)
  What to do  wait; if db.example.com is stuck, look at its logs. It gives up its turn by setting status.activeInterceptorCompleted

Pending       1 pod: the drain plan has not reached it yet
              shop/system
  What to do  wait until the pods before it are gone

More          usher explain POD -n NAMESPACE
";
    assert_eq!(rendered(&found), wanted);
}

#[test]
fn the_agent_of_a_node_is_told_with_what_it_has_taken() {
    let mut found = found(node("m", true), &[maintenance("m", "Drain", "Drained")], Vec::new());
    assert!(!rendered(&found).contains("Agent"), "a node without one says nothing of it");
    let mark = r#"{"version":"0.1.0","staticPods":"/etc/kubernetes/manifests","taken":["proxy.yaml"],"delaysShutdown":true,
        "warnings":["the kubelet ends pods by itself"]}"#;
    found.agent = NodeAgentMark::read(mark).map(Box::new);
    let wanted = "\
Agent         moves static pods, shutdowns wait for the pods
                taken from /etc/kubernetes/manifests: proxy.yaml
                the kubelet ends pods by itself
";
    assert!(rendered(&found).contains(wanted), "{}", rendered(&found));
}

#[test]
fn a_node_without_a_maintenance_is_told_what_a_drain_would_meet() {
    let pods = vec![
        found_pod(&pod("web-1", "n1"), None, &[budget("web", 0)]),
        found_pod(&pod("web-2", "n1"), None, &[]),
    ];
    let wanted = "\
Node n1 is in no maintenance, and has 2 pods; 1 could not be evicted now.

Cordoned      by kubectl-cordon, not by a maintenance

Would block   1 pod: disruption budget web does not allow the pod to be evicted
              shop/web-1
  What to do  budget web has minAvailable 3 and 3 pods: scale up to 4 pods or more, or lower minAvailable

Evictable     1 pod: it would be evicted at once: it has no interceptor, and no budget is in the way
              shop/web-2

To drain it   usher drain n1 --dry-run, then usher drain n1
";
    assert_eq!(rendered(&found(node("", true), &[], pods)), wanted);
}

#[test]
fn who_holds_the_node_is_told_in_each_stage() {
    let line = |found: &NodeFound, name: &str| {
        let text = rendered(found);
        text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string()
    };
    let drained = found(node("m", true), &[maintenance("m", "Drain", "Drained")], vec![]);
    assert_eq!(line(&drained, "Node"), "Node n1 is drained.");
    let waits = found(node("m", true), &[maintenance("m", "Drain", "Cordoned")], vec![]);
    assert_eq!(line(&waits, "Node"), "Node n1 has no pods, and its drain has not begun.");
    let idle = found(node("", false), &[maintenance("m", "Idle", "")], vec![]);
    assert_eq!(line(&idle, "Node"), "Node n1 is in a maintenance that does not drain it, and has 0 pods.");
    assert_eq!(line(&idle, "Cordoned"), "Cordoned      no");
    let uncordoned = found(node("m", false), &[maintenance("m", "Cordon", "")], vec![]);
    assert!(line(&uncordoned, "Cordoned").contains("somebody uncordoned it"));
    let waiting_on = |found: &NodeFound| explain(found, now()).waiting_on.map(|it| (it.kind, it.reason));
    assert_eq!(waiting_on(&uncordoned), Some(("Cordon", "CordonConflict")));
    assert_eq!(waiting_on(&idle), None);
    let mut before = node("m", true);
    before["metadata"]["annotations"]["nodemaintenance.k8s.io/was-unschedulable"] = "true".into();
    let before = found(before, &[maintenance("m", "Cordon", "")], vec![]);
    assert!(line(&before, "Cordoned").ends_with("it was cordoned before, and stays cordoned afterwards"));
    // A maintenance that is over and no longer marked on the node is none of its.
    let over = found(node("", false), &[maintenance("m", "Complete", "")], vec![]);
    assert_eq!(line(&over, "Node"), "Node n1 is in no maintenance, and has 0 pods.");
    let leaving = found(node("m", true), &[maintenance("m", "Complete", "")], vec![]);
    assert!(line(&leaving, "Maintenance").contains("m: Complete"));
}

#[test]
fn a_pod_that_is_targeted_and_not_asked_waits_for_the_manager() {
    let pods = vec![found_pod(&pod("web-1", "n1"), None, &[budget("web", 0)])];
    let explanation = explain(&found(node("m", true), &[maintenance("m", "Drain", "")], pods), now());
    let group = &explanation.groups[0];
    assert_eq!((group.urgency, group.waiting_on.kind), (Urgency::NotYet, "Manager"));
    assert!(group.sentence.ends_with("and then: disruption budget web does not allow the pod to be evicted"));
    assert!(group.advice.starts_with("wait a moment\nbudget web has minAvailable 3"), "{}", group.advice);
}

#[test]
fn a_pod_whose_turn_comes_later_is_told_after_whom() {
    let mut later = maintenance("m", "Drain", "");
    later["spec"]["drainLimit"] = json!({"maxNodes": 1});
    later["status"]["nodeStatuses"] = json!([
        {"nodeRef": {"name": "n1"}, "podsPendingEviction": 1},
        {"nodeRef": {"name": "n2"}, "podsEvicting": 2},
        {"nodeRef": {"name": "n3"}, "podsPendingEviction": 2},
    ]);
    let pods = || vec![found_pod(&pod("web-1", "n1"), None, &[])];
    let explanation = explain(&found(node("m", true), &[later.clone()], pods()), now());
    let group = &explanation.groups[0];
    assert_eq!(group.sentence, "the nodes of an earlier wave are not drained yet");
    assert_eq!(group.advice, "wait until the pods before it are gone, which are on n2: see explain node/n2");
    later["spec"].as_object_mut().unwrap().remove("drainLimit");
    let explanation = explain(&found(node("m", true), &[later], pods()), now());
    assert_eq!(explanation.groups[0].sentence, "the drain plan has not reached it yet");
}

#[test]
fn names_that_may_have_been_meant_are_offered() {
    let names = ["node-1", "node-2", "node-10", "worker-a", "worker-b.example.com"].map(str::to_string);
    let rows: [(&str, &[&str]); 4] = [
        ("noed-1", &["node-1"]),
        ("node1", &["node-1", "node-10", "node-2"]),
        ("worker-b", &["worker-a", "worker-b.example.com"]),
        ("database", &[]),
    ];
    for (name, wanted) in rows {
        assert_eq!(close_to(name, &names), wanted, "{name}");
    }
}
