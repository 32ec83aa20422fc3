use serde_json::json;
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};
use usher_api::workloads::Strategy;

use super::tests::{Scene, says, turns};

#[test]
fn opted_in_at_most_max_unavailable_go_at_a_time() {
    let scene = |unavailable: u32| {
        let mut scene = Scene::new(4).with(|it| {
            it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": unavailable});
        });
        scene.strategy = Strategy::MaxUnavailable;
        for (cost, pod) in ["a", "b", "c"].iter().enumerate() {
            let cost = i32::MIN + i32::try_from(cost).unwrap();
            scene = scene.preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
        }
        scene
    };
    // Those that go are still available when the server is asked.
    says(
        &scene(2),
        &[
            "reports c: Deployment web: c waits until others",
            "completes a if 3 are available",
            "completes b if 4 are available",
        ],
    );
    says(
        &scene(1).asked("d", REPLICA_SET_CLASS, json!({})),
        &["prefers d", "completes d", "reports a", "reports b", "reports c"],
    );
}

#[test]
fn where_neither_surge_nor_unavailable_is_anybody_one_goes_at_a_time() {
    let mut scene = Scene::new(3).with(|it| {
        it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": "25%"});
    });
    scene.strategy = Strategy::MaxUnavailable;
    for (cost, pod) in (i32::MIN..).zip(["a", "b", "c"]) {
        scene = scene.preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
    }
    says(&scene, &["reports b", "reports c", "completes a if 3 are available"]);
}

/// Others may be marked meanwhile, and who does not know yet what came of the last report must not take another one instead.
#[test]
fn who_goes_next_does_not_depend_on_marks() {
    let mut scene = Scene::new(3).with(|it| {
        it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 1});
    });
    scene.strategy = Strategy::MaxUnavailable;
    for (cost, pod) in (i32::MIN..).zip(["c", "b", "a"]) {
        scene = scene.preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
    }
    says(&scene, &["reports b", "reports c", "completes a if 3 are available"]);
}

/// Three of four that are asked, of which two may be unavailable.
fn two_of_four() -> Scene {
    let mut scene = Scene::new(4).with(|it| {
        it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 2});
    });
    scene.strategy = Strategy::MaxUnavailable;
    for (cost, pod) in (i32::MIN..).zip(["a", "b", "c"]) {
        scene = scene.preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
    }
    scene
}

/// One that is down may be ready again before it has left.
#[test]
fn of_pods_that_are_down_no_more_go_at_a_time_either() {
    let mut scene = two_of_four();
    let down = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    for (cost, pod) in (i32::MIN..).zip(["a", "b", "c"]) {
        scene = scene.pod(pod, down.clone()).preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
    }
    says(&scene, &["reports c", "completes a", "completes b"]);
    let mut rolled_out = scene;
    rolled_out.deployment["status"]["updatedReplicas"] = 3.into();
    says(&rolled_out, &["reports a", "reports b", "reports c"]);
}

#[test]
fn nobody_goes_while_the_replica_set_has_more_than_it_should() {
    let scene = two_of_four().with(|it| it["spec"]["replicas"] = 3.into());
    says(&scene, &["reports a", "reports b", "reports c"]);
}

#[test]
fn one_that_skips_its_interceptors_goes() {
    let skips = json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/skip-interceptors": "now"}}});
    let scene = two_of_four().asked("a", DEPLOYMENT_CLASS, skips);
    says(&scene, &["prefers a", "reports c", "completes b if 4 are available"]);
}

#[test]
fn opting_in_to_max_unavailable_in_the_middle_takes_the_surge_back() {
    let mut scene = Scene::new(2).surge(1, 3, 3, 0).preferred("c", i32::MIN);
    scene.deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = 1.into();
    scene.strategy = Strategy::MaxUnavailable;
    says(&scene, &["scales to 2 with None", "tells SurgeTakenBack"]);
}

#[test]
fn an_autoscaler_has_nothing_to_add_to_max_unavailable() {
    let scene = |classes: &[&str]| {
        let mut scene = Scene::new(3).preferred("a", i32::MIN).autoscaler(3, 5, None);
        scene.deployment["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 1});
        scene.strategy = Strategy::MaxUnavailable;
        scene.asked("a", HORIZONTAL_POD_AUTOSCALER_CLASS, turns(classes, false))
    };
    let first = [HORIZONTAL_POD_AUTOSCALER_CLASS, DEPLOYMENT_CLASS, REPLICA_SET_CLASS];
    let last = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS];
    for classes in [first, last] {
        says(&scene(&classes), &["completes a: Deployment web has nothing to add"]);
    }
}

#[test]
fn a_deployment_that_says_how_many_go_at_a_time_lets_no_more_go_also_if_they_are_down() {
    let down = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let scene = || {
        let mut scene = Scene::new(3).with(|it| {
            let key = "evictionrequest.coordination.k8s.io/evict-max-unavailable";
            it["metadata"]["annotations"] = json!({key: "1"});
        });
        scene.strategy = Strategy::MaxUnavailable;
        for (cost, pod) in ["a", "b", "c"].iter().enumerate() {
            let cost = i32::MIN + i32::try_from(cost).unwrap();
            scene = scene.pod(pod, down.clone()).preferred(pod, cost).asked(pod, DEPLOYMENT_CLASS, json!({}));
        }
        scene
    };
    says(&scene(), &["reports b", "reports c", "completes a"]);
}
