//! Objects for the tests: a shop at noon of the first day of 2026.

use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::{Budget, Node, NodeOnWire, Pod, PodOnWire, Request, RequestOnWire};

use crate::world::World;

pub const NOW: &str = "2026-01-01T12:00:00Z";

/// A pod that runs and is ready.
pub fn pod(name: &str, node: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "uid-rs", "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A request of a quarter of an hour ago.
pub fn request(pod: &str) -> Value {
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": format!("uid-{pod}"), "namespace": "shop", "uid": format!("uid-of-request-of-{pod}"),
            "creationTimestamp": "2026-01-01T11:45:00Z",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_admin.usher.dev"],
        },
        "spec": {"podRef": {"name": pod, "uid": format!("uid-{pod}")}},
    })
}

/// A budget over `app=web` with three healthy pods of three.
pub fn budget(name: &str, allowed: i32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minAvailable": 3 - allowed, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3,
        },
    })
}

pub fn node(name: &str) -> Node {
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap())
}

/// A maintenance of a quarter of an hour ago, of nodes by name; `spec` has what is special about it.
pub fn maintenance(name: &str, stage: &str, nodes: &[&str], spec: Value) -> NodeMaintenance {
    let field =
        |node: &&str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let terms: Vec<Value> = nodes.iter().map(field).collect();
    let mut all = json!({"stage": stage, "nodeSelector": {"nodeSelectorTerms": terms}});
    for (name, value) in spec.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {
            "name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-01-01T11:45:00Z",
            "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"],
        },
        "spec": all,
    }))
    .unwrap()
}

pub fn world(pods: &[Value], requests: &[Value], budgets: &[Value]) -> World {
    let pods = pods.iter().map(|pod| Pod::from(serde_json::from_value::<PodOnWire>(pod.clone()).unwrap()));
    let requests = requests
        .iter()
        .map(|one| Request::from(serde_json::from_value::<RequestOnWire>(one.clone()).unwrap()));
    let budgets = budgets.iter().map(|budget| Budget::from(&serde_json::from_value(budget.clone()).unwrap()));
    World {
        pods: pods.map(|pod| (pod.key.clone(), pod)).collect(),
        requests: requests.map(|request| (request.key.clone(), request)).collect(),
        budgets: budgets.map(|budget| (budget.key.clone(), budget)).collect(),
        budgets_are_hidden: false,
        requests_are_hidden: false,
    }
}
