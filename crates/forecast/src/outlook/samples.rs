//! Objects for the tests: a shop at noon of the first day of 2026.

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::Maintenance;

use super::{Budget, Cluster, Node, NodeOnWire, Outlook, Pod, PodOnWire, Workloads, outlook};

pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub fn node(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "blue"}},
        "spec": {}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    })
}

/// A ready pod of a replica set that asks for one CPU.
pub fn pod(name: &str, node: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true});
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"}, "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

pub fn of_kind(name: &str, node: &str, kind: &str) -> Value {
    let group = if kind.ends_with("Set") { "apps/v1" } else { "v1" };
    let owner = json!([{"apiVersion": group, "kind": kind, "name": "own", "uid": "o", "controller": true}]);
    with(pod(name, node), "/metadata/ownerReferences", owner)
}

/// As the kubelet shows a static pod.
pub fn mirror(name: &str, node: &str) -> Value {
    let pod = with(of_kind(name, node, "Node"), "/metadata/ownerReferences/0/name", json!(node));
    with(pod, "/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"}))
}

pub fn intercepted(pod: Value) -> Value {
    let key = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    with(pod, "/metadata/annotations", json!({key: "11000"}))
}

/// A budget of `app=web` with so many healthy of three pods.
pub fn budget(name: &str, wanted: i32, healthy: i32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "generation": 2},
        "spec": {"minAvailable": wanted, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "observedGeneration": 2, "disruptionsAllowed": (healthy - wanted).max(0), "currentHealthy": healthy,
            "desiredHealthy": wanted, "expectedPods": 3,
        },
    })
}

pub fn maintenance(name: &str, nodes: &[&str]) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]},
        ]}},
    })
}

pub fn read_maintenance(value: Value) -> Maintenance {
    Maintenance::from(serde_json::from_value::<NodeMaintenance>(value).unwrap())
}

pub fn cluster(nodes: Vec<Value>, pods: Vec<Value>, budgets: Vec<Value>) -> Cluster {
    let node = |node| Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap());
    let pod = |pod| Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap());
    let budget = |budget| Budget::from(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap());
    Cluster {
        nodes: nodes.into_iter().map(node).collect(),
        pods: pods.into_iter().map(pod).collect(),
        budgets: budgets.into_iter().map(budget).collect(),
        maintenances: Vec::new(),
        workloads: Workloads::default(),
    }
}

pub fn outlook_of(cluster: &Cluster, nodes: &[&str]) -> Outlook {
    outlook(&read_maintenance(maintenance("new", nodes)), cluster, now())
}
