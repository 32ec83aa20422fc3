//! Objects for the tests: a shop at noon of the first day of 2026.

use serde_json::{Value, json};
use usher_decide::snapshot::{Budget, Pod, PodOnWire, Request, RequestOnWire};

pub const NOW: &str = "2026-01-01T12:00:00Z";

pub fn pod(deletion: Option<&str>) -> Pod {
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web"}, "deletionTimestamp": deletion,
    });
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let pod = json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status});
    Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap())
}

pub fn request(interceptors: Value, status: Value) -> Request {
    let request = json!({
        "metadata": {
            "name": "u", "namespace": "shop", "uid": "r", "creationTimestamp": "2026-01-01T11:50:00Z",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_a.example.com"],
        },
        "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": interceptors},
        "status": status,
    });
    Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
}

pub fn budget(name: &str, allowed: i32) -> Budget {
    let budget = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minAvailable": 3 - allowed, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3,
        },
    });
    Budget::from(&serde_json::from_value(budget).unwrap())
}
