//! Objects that the tests of interceptors begin with.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::snapshot::{Maintenance, Pod, PodOnWire, Request, RequestOnWire, WatchEvent};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A pod with the same UID as its name. `with` is merged over it.
pub fn pod(name: &str, kind: &str, owner: &str, node: &str, with: Value) -> Arc<Pod> {
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(-100).to_string(), "resourceVersion": "1",
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true},
            ],
        },
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 60, "priority": 5000},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": at(-90).to_string()},
        ]},
    });
    merge(&mut object, with);
    Arc::new(serde_json::from_value::<PodOnWire>(object).unwrap().into())
}

/// A pod with the same UID as its name that a request owns, and a ReplicaSet is to adopt. `with` is merged over it.
pub fn hand_over_pod(name: &str, set: &str, request_uid: &str, with: Value) -> Arc<Pod> {
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(-100).to_string(), "resourceVersion": "3",
            "annotations": {"evictionrequest.coordination.k8s.io/hand-over": set},
            "ownerReferences": [{
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "x", "uid": request_uid,
            }],
        },
        "spec": {"nodeName": "node-2"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": at(-90).to_string()},
        ]},
    });
    merge(&mut object, with);
    Arc::new(serde_json::from_value::<PodOnWire>(object).unwrap().into())
}

/// A request of node maintenance for the pod, in the turn of a class.
pub fn request(pod: &str, class: &str, with: Value) -> Arc<Request> {
    let mut object = json!({
        "metadata": {
            "name": pod, "namespace": "ns", "uid": format!("r-{pod}"), "resourceVersion": "7",
            "creationTimestamp": at(-10).to_string(),
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
        },
        "spec": {
            "podRef": {"name": pod, "uid": pod}, "progressDeadlineSeconds": 1800,
            "interceptors": [{"interceptorClass": class, "priority": 10000, "role": "controller"}],
        },
        "status": {"activeInterceptorClass": class, "progressTimestamp": at(0).to_string()},
    });
    merge(&mut object, with);
    Arc::new(serde_json::from_value::<RequestOnWire>(object).unwrap().into())
}

/// A maintenance that drains, with targets on nodes.
pub fn maintenance(name: &str, stage: &str, targets: &[(&str, Value)]) -> Arc<Maintenance> {
    let nodes: Vec<Value> = targets
        .iter()
        .map(|(node, targets)| json!({"nodeRef": {"name": node}, "drainTargets": targets}))
        .collect();
    let object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": name, "uid": name, "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"]},
        "spec": {"nodeSelector": {"nodeSelectorTerms": [{}]}, "stage": stage, "reason": "OS upgrade"},
        "status": {"nodeStatuses": nodes},
    });
    Arc::new(serde_json::from_value::<usher_api::NodeMaintenance>(object).unwrap().into())
}

pub fn applied<T, K>(object: T) -> WatchEvent<T, K> {
    WatchEvent::Applied(object)
}

pub fn merge(into: &mut Value, with: Value) {
    match (into, with) {
        (Value::Object(into), Value::Object(with)) => {
            for (key, value) in with {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, with) => *into = with,
    }
}
