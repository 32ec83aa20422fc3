//! Clusters for tests, written as short as they are thought of.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{Cluster, Differences, InProgress, Plan, Planner, Policy};

/// 2026-01-01, when all tests are run.
pub fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub fn ago(seconds: i64) -> String {
    Timestamp::from_second(now().as_second() - seconds).unwrap().to_string()
}

/// Merges maps, so that a test says only what it is about.
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A ready node with 4 CPUs, 8 GiB and room for 10 pods, labelled with its name.
pub fn node(name: &str, more: Value) -> Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    merge(&mut node, more);
    serde_json::from_value(node).unwrap()
}

/// A running pod of a ReplicaSet `rs` that asks for 100m and 100Mi, a day old.
pub fn pod(name: &str, node: &str, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "creationTimestamp": ago(86_400),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}],
        },
        "status": {"phase": "Running", "startTime": ago(86_400)},
    });
    merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

pub fn cluster(nodes: Vec<Node>, pods: Vec<Pod>) -> Cluster {
    let mut cluster = Cluster::default();
    nodes.iter().for_each(|node| cluster.set_node(node));
    pods.iter().for_each(|pod| cluster.set_pod(pod));
    cluster
}

/// A policy of one profile with these plugins, each with its args, and these args of the evictor.
pub fn policy_with(top: Value, evictor: Value, plugins: &[(&str, Value)]) -> Policy {
    let mut configs = vec![json!({"name": "DefaultEvictor", "args": evictor})];
    configs.extend(plugins.iter().map(|(name, args)| json!({"name": name, "args": args})));
    let balances = [
        "RemoveDuplicates",
        "RemovePodsViolatingTopologySpreadConstraint",
        "LowNodeUtilization",
        "HighNodeUtilization",
    ];
    let names = plugins.iter().map(|(name, _)| *name);
    let (balance, deschedule): (Vec<&str>, Vec<&str>) = names.partition(|name| balances.contains(name));
    let mut policy = json!({
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [{
            "name": "p",
            "pluginConfig": configs,
            "plugins": {"deschedule": {"enabled": deschedule}, "balance": {"enabled": balance}},
        }],
    });
    merge(&mut policy, top);
    Policy::read(&policy.to_string()).unwrap()
}

pub fn policy(evictor: Value, plugin: &str, args: Value) -> Policy {
    policy_with(json!({}), evictor, &[(plugin, args)])
}

/// The names of the pods that are proposed, in order.
pub fn proposed(plan: &Plan) -> Vec<&str> {
    plan.proposals.iter().map(|proposal| proposal.pod.name.as_str()).collect()
}

pub fn plan_of(cluster: &Cluster, policy: &Policy) -> Plan {
    crate::plan(cluster, policy, &InProgress::default(), now())
}

/// As the Go descheduler would.
pub fn plan_as_go(cluster: &Cluster, policy: &Policy) -> Plan {
    Planner::new(Differences::none()).plan(cluster, policy, &InProgress::default(), now())
}
