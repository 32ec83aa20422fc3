//! What tests of the SDK ask about: a pod, and a request for it with two interceptors.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use usher_api::EvictionRequest;

/// The interceptor under test.
pub const CLASS: &str = "db.example.com";
/// The interceptor whose turn comes after it.
pub const NEXT: &str = "next.example.com";
pub const DRAIN: &str = "requester.evictionrequest.coordination.k8s.io/name_drain.example.com";

/// # Panics
/// Never: the pod is valid.
#[must_use]
#[allow(clippy::unwrap_used, reason = "the objects below are valid")]
pub fn pod(name: &str) -> Pod {
    let containers = json!([{"name": "c", "image": "i:1"}]);
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": containers}}),
    )
    .unwrap()
}

/// A request as admission leaves it: the drain's, with the interceptor under test and another one after it.
///
/// # Panics
/// Never: the request is valid.
#[must_use]
#[allow(clippy::unwrap_used, reason = "the objects below are valid")]
pub fn request(pod: &Pod) -> EvictionRequest {
    let interceptors =
        json!([{"interceptorClass": CLASS, "priority": 12000}, {"interceptorClass": NEXT, "priority": 500}]);
    serde_json::from_value(json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": pod.uid(), "finalizers": [DRAIN]},
        "spec": {"podRef": {"name": pod.name_any(), "uid": pod.uid()}, "interceptors": interceptors},
    }))
    .unwrap()
}
