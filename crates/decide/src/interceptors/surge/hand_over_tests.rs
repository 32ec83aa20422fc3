use std::sync::Arc;

use serde_json::{Value, json};
use usher_api::names::{DEPLOYMENT_CLASS, REPLICA_SET_CLASS};
use usher_api::workloads::Strategy;

use super::super::samples::{self, at};
use super::hand_over::{NewHandOver, name};
use super::tests::{Scene, says};
use crate::snapshot::Key;

fn handing(replicas: u32) -> Scene {
    Scene { strategy: Strategy::HandOver, ..Scene::new(replicas) }
}

fn asked(scene: Scene, pod: &str, class: &str) -> Scene {
    scene.asked(pod, class, json!({"status": {"message": format!("Deployment web: {pod} waits")}}))
}

fn unscheduled() -> Value {
    json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
    ]}})
}

fn not_ready() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
}

#[test]
fn a_single_replica_is_handed_over() {
    let made = name("web-1", "r-a", 0);
    says(
        &handing(1).asked("a", DEPLOYMENT_CLASS, json!({})),
        &[&format!("makes {made} for a"), "reports a: Deployment web: a waits until 1 more pod is there"],
    );
    says(&asked(handing(1).handed("n", "a", unscheduled()), "a", DEPLOYMENT_CLASS), &["prefers a Some(0)"]);
    let marked = || handing(1).preferred("a", i32::MIN);
    says(
        &marked().handed("n", "a", unscheduled()).asked("a", DEPLOYMENT_CLASS, json!({})),
        &[
            "reports a: Deployment web: a waits until n is available, which cannot be scheduled: 0/3 nodes are available",
        ],
    );
    let ready = || marked().handed("n", "a", json!({}));
    says(
        &asked(ready(), "a", DEPLOYMENT_CLASS),
        &["completes a: Deployment web: a goes now, 1 of 1 pods are available without it"],
    );
    says(&asked(ready(), "a", REPLICA_SET_CLASS), &["hands over n as 1"]);
    // Its ReplicaSet has adopted it, and is about to delete the other.
    says(&asked(marked().pod("n", json!({})), "a", REPLICA_SET_CLASS), &[]);
}

#[test]
fn not_more_than_max_surge_are_made_at_a_time_and_each_goes_when_its_own_replacement_is_available() {
    let scene = || {
        let scene = handing(3)
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
            .preferred("a", i32::MIN)
            .preferred("b", i32::MIN + 1)
            .preferred("c", i32::MIN + 2);
        asked(asked(asked(scene, "a", DEPLOYMENT_CLASS), "b", DEPLOYMENT_CLASS), "c", DEPLOYMENT_CLASS)
    };
    let make = |pod: &str| format!("makes {} for {pod}", name("web-1", &format!("r-{pod}"), 0));
    says(&scene(), &[&make("a"), &make("b")]);
    says(&scene().handed("n", "a", not_ready()), &[&make("b")]);
    says(&scene().handed("n", "a", json!({})).handed("m", "b", not_ready()), &["completes a"]);
    // The ReplicaSet would delete a first: b goes once a comes after it.
    says(&scene().handed("n", "a", not_ready()).handed("m", "b", json!({})), &["prefers a Some(3)"]);
    // One that goes counts until it is gone.
    let going = asked(scene(), "a", REPLICA_SET_CLASS);
    says(&going.handed("n", "a", json!({})), &[&make("b"), "hands over n as 1"]);
    let adopted = asked(scene(), "a", REPLICA_SET_CLASS).pod("n", json!({}));
    says(&adopted.handed("m", "b", not_ready()), &[]);
    // So does one on its way out.
    let leaves = json!({"metadata": {"deletionTimestamp": at(5).to_string()}});
    says(&scene().handed("n", "a", leaves.clone()).handed("m", "b", leaves), &[]);
}

#[test]
fn a_pod_that_nobody_waits_for_any_more_is_dropped() {
    let ready = || handing(1).handed("n", "a", json!({}));
    says(&ready(), &["drops n"]);
    let withdrawn = json!({"metadata": {"finalizers": []}});
    says(&ready().asked("a", DEPLOYMENT_CLASS, withdrawn), &["drops n"]);
    says(&ready().asked("a", "backup.example.com", json!({})), &["drops n"]);
    // Its Deployment wants something else by now.
    let surging = || ready().preferred("a", i32::MIN);
    let surging = Scene { strategy: Strategy::Surge, ..asked(surging(), "a", DEPLOYMENT_CLASS) };
    says(&surging, &["scales to 2", "drops n"]);
    let off = Scene { strategy: Strategy::Off, ..ready() };
    says(&asked(off, "a", DEPLOYMENT_CLASS), &["drops n", "completes a"]);
    // One that has ended is made anew once it is gone.
    let failed = handing(1).preferred("a", i32::MIN).handed("n", "a", json!({"status": {"phase": "Failed"}}));
    says(&asked(failed, "a", DEPLOYMENT_CLASS), &["drops n"]);
    let leaves = json!({"metadata": {"deletionTimestamp": at(5).to_string()}});
    says(&handing(1).handed("n", "a", leaves), &[]);
}

#[test]
fn a_rollout_drops_what_was_made_of_the_template_before() {
    let rolled_out = handing(2)
        .preferred("a", i32::MIN)
        .handed("n", "a", json!({}))
        .with(|it| it["status"]["updatedReplicas"] = 1.into());
    says(&asked(rolled_out, "a", DEPLOYMENT_CLASS), &["drops n"]);
    // A change that the controller has not seen yet may be anything.
    let unobserved =
        || handing(2).preferred("a", i32::MIN).with(|it| it["metadata"]["generation"] = 2.into());
    says(&asked(unobserved().handed("n", "a", json!({})), "a", DEPLOYMENT_CLASS), &[]);
    says(&asked(unobserved(), "a", DEPLOYMENT_CLASS), &[]);
}

#[test]
fn nothing_is_handed_over_while_another_pod_would_be_deleted_for_it() {
    let scene = |other: Value| {
        let scene = handing(2).preferred("a", i32::MIN).pod("b", other).handed("n", "a", json!({}));
        asked(scene, "a", REPLICA_SET_CLASS)
    };
    says(&scene(json!({})), &["hands over n as 1"]);
    says(&scene(not_ready()), &[]);
    says(
        &handing(2).handed("n", "a", json!({})).asked("a", DEPLOYMENT_CLASS, json!({})),
        &["prefers a", "reports a"],
    );
}

#[test]
fn a_replacement_that_was_lost_is_made_again_as_long_as_patience_lasts() {
    let given_over_since = |since: i64| {
        let turn = json!({"status": {"progressTimestamp": at(since).to_string()}});
        handing(1).preferred("a", i32::MIN).asked("a", REPLICA_SET_CLASS, turn)
    };
    let given_over = || given_over_since(-298);
    let make = format!("makes {}", name("web-1", "r-a", 0));
    says(&given_over().handed("n", "a", not_ready()), &[]);
    says(&given_over(), &[&make]);
    let ended = || given_over().handed("n", "a", json!({"status": {"phase": "Failed"}}));
    says(&ended(), &["drops n"]);
    // It has the label, and its ReplicaSet is about to adopt it.
    let labelled = json!({"metadata": {"labels": {"pod-template-hash": "1"}}});
    says(&given_over().handed("n", "a", labelled.clone()), &[]);
    says(&handing(1).handed("n", "a", labelled), &[]);
    // Another pod was deleted instead, and the ReplicaSet has as many as it should.
    let instead = given_over().with(|it| it["spec"]["replicas"] = 2.into()).pod("b", json!({}));
    says(&instead, &[&make]);
    let left =
        "completes a: Deployment web has no available replacement of the pod: it is left to the eviction API";
    says(&given_over_since(-299).handed("n", "a", not_ready()), &[left]);
    // It was adopted, and the ReplicaSet is about to delete the other one.
    says(&given_over_since(-299).pod("n", json!({})), &[]);
}

fn turn(since: i64) -> Value {
    json!({"status": {"progressTimestamp": at(since).to_string()}})
}

#[test]
fn one_new_pod_that_never_gets_ready_does_not_hold_up_the_others() {
    let scene = |mark_of_b: i32, since: i64| {
        handing(2)
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
            .preferred("a", i32::MIN + 1)
            .preferred("b", mark_of_b)
            .handed("n", "a", not_ready())
            .handed("m", "b", json!({}))
            .asked("a", REPLICA_SET_CLASS, turn(since))
            .asked("b", REPLICA_SET_CLASS, turn(since))
    };
    // The one whose new pod is available has to be the first to go.
    says(&scene(i32::MIN + 2, -298), &["prefers a Some(3)"]);
    says(&scene(i32::MIN, -298), &["hands over m as 1"]);
    let left =
        "completes a: Deployment web has no available replacement of the pod: it is left to the eviction API";
    says(&scene(i32::MIN, -299), &["hands over m as 1", left]);
    // What is refused for one is no reason to give up another.
    let refused = Scene { refused: Some("exceeded quota: pods"), ..scene(i32::MIN, -299) };
    let refused_too = "completes a: Deployment web has no available replacement of the pod (one cannot be made: exceeded quota: pods)";
    says(&refused, &["hands over m as 1", refused_too]);
}

#[test]
fn more_than_max_surge_whose_turn_has_passed_go_one_after_the_other() {
    let scene = |scene: Scene| {
        let marked = scene.preferred("a", i32::MIN).preferred("b", i32::MIN + 1).preferred("c", i32::MIN + 2);
        ["a", "b", "c"].iter().fold(marked, |scene, pod| scene.asked(pod, REPLICA_SET_CLASS, turn(-10)))
    };
    says(&scene(handing(3)), &[&format!("makes {}", name("web-1", "r-a", 0))]);
    says(&scene(handing(3).handed("n", "a", json!({}))), &["hands over n as 1"]);
    // It is adopted, and the first is about to be deleted.
    says(&scene(handing(3).pod("n", json!({}))), &[]);
}

#[test]
fn what_somebody_keeps_setting_back_is_handed_over_if_the_manager_may() {
    let reverted = |may_hand_over: bool, strategy: Strategy| {
        let scene = Scene { may_hand_over, strategy, ..Scene::new(1) };
        asked(scene.preferred("a", i32::MIN).surge(0, 0, 1, 2), "a", DEPLOYMENT_CLASS)
    };
    says(&reverted(true, Strategy::Default), &[&format!("makes {}", name("web-1", "r-a", 0))]);
    for (may, strategy) in [(false, Strategy::Default), (true, Strategy::Surge)] {
        says(
            &reverted(may, strategy),
            &["prefers a None", "completes a: Deployment web was scaled back 2 times"],
        );
    }
}

#[test]
fn a_surge_is_taken_back_before_pods_are_handed_over() {
    let surged = handing(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).pod("b", json!({}));
    says(&asked(surged, "a", DEPLOYMENT_CLASS), &["scales to 1 with None"]);
}

#[test]
fn an_autoscaler_is_not_touched() {
    let scene = handing(1).autoscaler(1, 1, None).preferred("a", i32::MIN);
    says(&asked(scene, "a", DEPLOYMENT_CLASS), &[&format!("makes {}", name("web-1", "r-a", 0))]);
}

#[test]
fn what_the_server_refuses_is_told_as_the_reason() {
    let refused = Scene { refused: Some("exceeded quota: pods"), ..handing(1).preferred("a", i32::MIN) };
    says(
        &asked(refused, "a", DEPLOYMENT_CLASS),
        &[
            "makes",
            "reports a: Deployment web: a waits until 1 more pod is there, which cannot be made: exceeded quota: pods",
        ],
    );
}

#[test]
fn the_name_is_the_same_for_the_same_request_unless_others_have_it() {
    let uid = "0f3b9d2e-6f0c-4c1e-9a52-6f8d4f0d5a11";
    assert_eq!(name("web-77", uid, 0), name("web-77", uid, 0));
    let names = [name("web-77", uid, 0), name("web-77", uid, 1), name("web-77", "1f3b", 0)];
    for (at, name) in names.iter().enumerate() {
        assert!(name.starts_with("web-77-") && name.len() == 12 && !names[..at].contains(name), "{names:?}");
    }
    let long = name(&"w".repeat(200), uid, 0);
    assert_eq!(long.len(), 63);
    // What is cut off after a dot or a dash is a name all the same.
    for end in [".w", "-w", ".-w"] {
        let set = format!("{}{end}", "w".repeat(58 - end.len()));
        let name = name(&set, uid, 0);
        assert!(name[..name.len() - 6].ends_with('w') && name.as_bytes()[name.len() - 6] == b'-', "{name}");
    }
    let mut taken = handing(1).preferred("a", i32::MIN);
    taken.taken.insert("r-a".into(), 1);
    says(&asked(taken, "a", DEPLOYMENT_CLASS), &[&format!("makes {}", name("web-1", "r-a", 1))]);
}

fn new() -> NewHandOver {
    NewHandOver {
        name: "web-1-bcdfg".to_owned(),
        set: Key::new("ns", "web-1"),
        set_uid: "set".into(),
        request: samples::request("a", DEPLOYMENT_CLASS, json!({})),
    }
}

#[test]
fn a_new_pod_has_the_template_and_not_the_hash_and_belongs_to_the_request() {
    let set = |uid: &str| {
        json!({"metadata": {"uid": uid}, "spec": {"template": {
            "metadata": {"labels": {"app": "web", "pod-template-hash": "1"}, "annotations": {"team": "blue"}},
            "spec": {"containers": [{"name": "c", "image": "i:1", "newer": true}]},
        }}})
    };
    let pod = new().pod(&set("set")).unwrap();
    let key =
        |class: &str| format!("interceptor.evictionrequest.coordination.k8s.io/priority_{class}.apps.k8s.io");
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1-bcdfg", "namespace": "ns", "labels": {"app": "web"}, "finalizers": null,
                "annotations": {
                    "team": "blue", "evictionrequest.coordination.k8s.io/hand-over": "web-1",
                    key("deployment"): "10001/deployment-controller", key("replicaset"): "10000/controller",
                },
                "ownerReferences": [{
                    "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                    "name": "a", "uid": "r-a",
                }],
            },
            "spec": {"containers": [{"name": "c", "image": "i:1", "newer": true}]},
        })
    );
    assert_eq!(new().pod(&set("another")), None);
    let mut going = set("set");
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(new().pod(&going), None);
}

#[test]
fn only_a_pod_of_the_same_request_is_the_one_that_was_to_be_made() {
    let own = samples::hand_over_pod("web-1-bcdfg", "web-1", "r-a", json!({}));
    assert!(new().is(&own));
    let others = [
        samples::hand_over_pod("web-1-bcdfg", "web-1", "r-b", json!({})),
        samples::pod("web-1-bcdfg", "ReplicaSet", "web-1", "n", json!({})),
    ];
    assert!(!others.iter().any(|other: &Arc<_>| new().is(other)));
}

#[test]
fn a_pod_that_is_asked_to_leave_before_it_was_handed_over_is_dropped() {
    let mut scene = handing(1).preferred("a", i32::MIN).handed("n", "a", json!({}));
    scene.handed_asked.insert("n".into());
    for class in [DEPLOYMENT_CLASS, REPLICA_SET_CLASS] {
        scene = asked(scene, "a", class);
        says(&scene, &["drops n"]);
    }
}

#[test]
fn a_pod_whose_leaving_one_is_gone_is_handed_over_while_others_are_missing() {
    let new = |scene: Scene| Scene { strategy: Strategy::HandOver, ..scene }.handed("n", "a", json!({}));
    let gone = json!({"metadata": {"deletionTimestamp": at(5).to_string()}});
    let without = || Scene::new(2).pod("a", gone.clone());
    says(&new(without().pod("c", not_ready())), &["hands over n as 1"]);
    says(&new(without().pod("c", json!({}))), &["drops n"]);
    let slow = |it: &mut serde_json::Value| it["spec"]["minReadySeconds"] = 4000.into();
    says(&new(without().pod("c", not_ready()).with(slow)), &["hands over n as 1"]);
    let rolling = without().pod("c", not_ready()).with(|it| it["status"]["updatedReplicas"] = 1.into());
    says(&new(rolling), &["drops n"]);
}
