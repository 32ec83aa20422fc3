//! The objects of the specification's examples, with the names as settled, are read and written without loss.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use usher_api::node_maintenance::{DrainPlanEntry, PodType, default_drain_plan};
use usher_api::{
    EvictionRequest, EvictionRequestCancellationPolicy, EvictionRequestStatus, NodeMaintenance,
    NodeMaintenanceStage,
};

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_request_of_the_daemonset_example() {
    let object = yaml(
        r#"
apiVersion: evictionrequest.coordination.k8s.io/v1alpha1
kind: EvictionRequest
metadata:
  finalizers: [requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io]
  labels: {app: critical-ds}
  name: ae9b4bc6-e4ca-4f8e-962b-2d4459b1f684
  namespace: critical-workloads
spec:
  podRef:
    name: critical-ds-5nxjs
    uid: ae9b4bc6-e4ca-4f8e-962b-2d4459b1f684
  progressDeadlineSeconds: 1800
  interceptors:
    - {interceptorClass: daemonset.apps.k8s.io, priority: 10000, role: controller}
status:
  activeInterceptorClass: daemonset.apps.k8s.io
  activeInterceptorCompleted: true
  progressTimestamp: "2024-04-22T21:40:32Z"
  expectedInterceptorFinishTime: "2024-04-22T21:41:32Z"
  evictionRequestCancellationPolicy: Forbid
  failedAPIEvictionCounter: 0
  message: critical-ds is terminating the pod due to node maintenance (OS upgrade).
  conditions:
    - {type: A, status: "True", reason: Why, message: "", lastTransitionTime: "2024-04-22T21:40:32Z"}
"#,
    );
    let request: EvictionRequest = serde_json::from_value(object.clone()).unwrap();
    let status = request.status.as_ref().unwrap();
    assert_eq!(status.active_interceptor_class.as_deref(), Some("daemonset.apps.k8s.io"));
    assert_eq!(status.eviction_request_cancellation_policy, EvictionRequestCancellationPolicy::Forbid);
    assert_eq!(serde_json::to_value(request).unwrap(), object);
}

#[test]
fn a_request_with_only_a_pod_gets_the_defaults() {
    let object = json!({"metadata": {"name": "u"}, "spec": {"podRef": {"name": "p", "uid": "u"}}, "status": {},
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest"});
    let request: EvictionRequest = serde_json::from_value(object).unwrap();
    assert_eq!(request.spec, usher_api::EvictionRequestSpec::for_pod("p", "u"));
    assert_eq!(request.spec.progress_deadline_seconds, 1800);
    assert_eq!(request.status, Some(EvictionRequestStatus::default()));
    assert_eq!(
        serde_json::to_value(EvictionRequestStatus::default()).unwrap(),
        json!({"evictionRequestCancellationPolicy": "Allow", "failedAPIEvictionCounter": 0, "message": ""}),
        "required fields are written even when they have their defaults"
    );
}

#[test]
fn the_maintenance_of_the_progression_example() {
    let object = yaml(
        r#"
apiVersion: nodemaintenance.k8s.io/v1alpha1
kind: NodeMaintenance
metadata: {name: maintenance-a}
spec:
  nodeSelector:
    nodeSelectorTerms:
      - matchFields: [{key: metadata.name, operator: In, values: [five]}]
  stage: Drain
  reason: OS upgrade
  drainPlan:
    - {podPriority: 1000, podType: Default}
    - {podPriority: 2000, podType: Default, podSelector: {matchLabels: {app: postgres}}}
    - {podPriority: 2147483647, podType: Default}
    - {podPriority: 1000, podType: DaemonSet}
    - {podPriority: 2147483647, podType: DaemonSet}
    - {podPriority: 2147483647, podType: Static}
status:
  stageStatuses:
    - {name: Drain, startTimestamp: "2024-04-22T21:40:32Z"}
  nodes: 1
  drainStatus:
    drainMessage: Evicting (limited by maintenance-b)
    podsPendingEviction: 145
    podsEvicting: 35
    nodesDrained: 0
    planPosition: 0
    reachedDrainTargets: [{podPriority: 1000, podType: Default}]
  nodeStatuses:
    - nodeRef: {name: five}
      drainMessage: Evicting
      podsPendingEviction: 145
      podsEvicting: 35
      drainTargets:
        - {podPriority: 1000, podType: Default}
        - {podPriority: 1000, podType: Default, podSelector: {matchLabels: {app: postgres}}}
  conditions:
    - {type: Drained, status: "False", reason: Draining, message: "", lastTransitionTime: "2024-04-22T21:40:32Z"}
"#,
    );
    let maintenance: NodeMaintenance = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(maintenance.spec.stage, NodeMaintenanceStage::Drain);
    assert_eq!(serde_json::to_value(maintenance).unwrap(), object);
}

#[test]
fn every_plan_contains_four_priorities_for_three_pod_types() {
    let plan = default_drain_plan();
    assert_eq!(plan.len(), 12);
    assert_eq!(plan[0], DrainPlanEntry::up_to(1_000_000_000, PodType::Default));
    assert_eq!(plan[4], DrainPlanEntry::up_to(1_000_000_000, PodType::DaemonSet));
    assert_eq!(plan[11], DrainPlanEntry::up_to(2_147_483_647, PodType::Static));
    assert!(plan.is_sorted_by_key(|entry| (entry.pod_type, entry.pod_priority)));
}

#[test]
fn stages_move_forward_only() {
    use NodeMaintenanceStage::*;
    let stages = [Idle, Cordon, Drain, Complete];
    for (from_index, from) in stages.into_iter().enumerate() {
        for (to_index, to) in stages.into_iter().enumerate() {
            assert_eq!(from.may_become(to), from_index <= to_index, "{from:?} -> {to:?}");
        }
    }
}
