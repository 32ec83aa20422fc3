use serde_json::{Value, json};
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};

use super::super::samples::at;
use super::tests::{Scene, says, turns};

#[test]
fn with_an_autoscaler_its_limits_are_raised_and_set_back() {
    let asked = |scene: Scene| scene.asked("a", DEPLOYMENT_CLASS, json!({}));
    let marked = || Scene::new(1).preferred("a", i32::MIN);
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2});
    says(&asked(marked().autoscaler(1, 5, None)), &["limits to 2..5 with Some((1, 1, 2, 0))", "reports a"]);
    // Where the largest number is in the way it is raised too.
    says(&asked(marked().autoscaler(1, 1, None)), &["limits to 2..2 with Some((1, 1, 2, 1))", "reports a"]);
    says(
        &asked(marked().autoscaler(2, 5, Some(raised.clone()))),
        &["reports a: Deployment web: a waits until HorizontalPodAutoscaler hpa has scaled it up"],
    );
    let grown = || {
        marked().pod("b", json!({})).with(|it| it["spec"]["replicas"] = 2.into()).autoscaler(
            2,
            5,
            Some(raised.clone()),
        )
    };
    says(&asked(grown()), &["scales to 2 with Some((1, 2, 0))", "completes a"]);
    let given_over = |scene: Scene| scene.asked("a", REPLICA_SET_CLASS, json!({}));
    // The Deployment remembers, then the limits go back, then the replicas.
    says(&given_over(grown()), &["scales to 2 with Some((1, 2, 0))"]);
    says(&given_over(grown().surge(1, 2, 2, 0)), &["limits to 1..5 with None"]);
    let restored = || marked().pod("b", json!({})).surge(1, 2, 2, 0).autoscaler(1, 5, None);
    says(&given_over(restored()), &["scales to 1 with None"]);
    let mut unobserved = given_over(restored());
    unobserved.autoscaler.as_mut().unwrap()["metadata"]["generation"] = 2.into();
    says(&unobserved, &[]);
    // The load wants more: that counts.
    let loaded = marked().pod("b", json!({})).pod("c", json!({}));
    let loaded = loaded.with(|it| it["spec"]["replicas"] = 3.into()).autoscaler(2, 5, Some(raised.clone()));
    says(&asked(loaded), &["limits to 4..5 with Some((1, 3, 4, 0))", "reports a"]);
    // Somebody sets them back.
    says(
        &asked(marked().autoscaler(1, 5, Some(raised))),
        &["limits to 1..5 with None", "scales to 1 with Some((0, 0, 1))", "tells SurgeReverted"],
    );
}

#[test]
fn the_largest_number_of_an_autoscaler_goes_back_after_the_replicas() {
    let surged = |min: u32, raised: Value| {
        Scene::new(1).preferred("a", i32::MIN).pod("b", json!({})).surge(1, 2, 2, 0).autoscaler(
            min,
            2,
            Some(raised),
        )
    };
    let given_over = |scene: Scene| scene.asked("a", REPLICA_SET_CLASS, json!({}));
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2, "maxBy": 1, "maxReplicas": 2});
    says(&given_over(surged(2, raised)), &["limits to 1..2 with Some((0, 0, 1, 1))"]);
    let kept = json!({"by": 0, "minBy": 0, "minReplicas": 1, "maxBy": 1, "maxReplicas": 2});
    says(&given_over(surged(1, kept.clone())), &["scales to 1 with None"]);
    says(&Scene::new(1).autoscaler(1, 2, Some(kept.clone())), &["limits to 1..1 with None"]);
    // It has made use of it: as long as pods are asked to leave it is not cut off, and then it is.
    let used = || Scene::new(2).autoscaler(1, 2, Some(kept.clone()));
    let told =
        json!({"status": {"message": "Deployment web: a waits", "progressTimestamp": at(0).to_string()}});
    says(&used().preferred("a", i32::MIN).asked("a", DEPLOYMENT_CLASS, told), &[]);
    says(&used(), &["limits to 1..1 with None"]);
    // What the autoscaler takes back by itself is nobody's revert.
    let by_itself = Scene::new(1).surge(1, 2, 1, 0).autoscaler(1, 5, None);
    says(&by_itself, &["scales to 1 with None"]);
}

#[test]
fn an_autoscaler_that_is_about_to_scale_up_or_down_is_waited_for() {
    for (min, max) in [(10, 20), (1, 2)] {
        let scene = Scene::new(3).preferred("a", i32::MIN).autoscaler(min, max, None);
        says(&scene.asked("a", DEPLOYMENT_CLASS, json!({})), &["reports a"]);
    }
}

#[test]
fn an_autoscaler_surges_where_the_deployment_does_not_and_keeps_it_until_the_pod_is_gone() {
    let none = |scene: Scene| {
        scene.with(|it| it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 1}))
    };
    let classes = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS];
    let asked = |scene: Scene, class: &str, completed: bool| {
        none(scene).asked("a", class, turns(&classes, completed))
    };
    let first = || Scene::new(1).autoscaler(1, 5, None);
    says(&asked(first(), DEPLOYMENT_CLASS, false), &["completes a: Deployment web has no maxSurge"]);
    let marked = || Scene::new(1).preferred("a", i32::MIN);
    says(
        &asked(marked().autoscaler(1, 5, None), HORIZONTAL_POD_AUTOSCALER_CLASS, false),
        &["limits to 2..5", "reports a"],
    );
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2});
    let grown = marked().pod("b", json!({})).surge(1, 2, 2, 0).autoscaler(2, 5, Some(raised));
    says(&asked(grown, HORIZONTAL_POD_AUTOSCALER_CLASS, false), &["completes a"]);
    let restored = || marked().pod("b", json!({})).surge(1, 2, 2, 0).autoscaler(1, 5, None);
    says(&asked(restored(), HORIZONTAL_POD_AUTOSCALER_CLASS, true), &["scales to 1 with None"]);
    // Without a surge it is the eviction API's alone, and nobody waits for it.
    let lost = asked(marked().autoscaler(1, 5, None), HORIZONTAL_POD_AUTOSCALER_CLASS, true).decide();
    assert_eq!((lost.effects, lost.waiting_on), (vec![], None));
}

#[test]
fn a_surge_is_remembered_on_the_deployment_as_soon_as_the_autoscaler_has_grown_it() {
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2});
    let grown =
        Scene::new(1).preferred("a", i32::MIN).pending("b").with(|it| it["spec"]["replicas"] = 2.into());
    let asked = grown.autoscaler(2, 5, Some(raised)).asked("a", DEPLOYMENT_CLASS, json!({}));
    says(&asked, &["scales to 2 with Some((1, 2, 0))", "reports a"]);
}

#[test]
fn a_person_who_scales_down_below_what_was_wanted_is_right_also_with_an_autoscaler() {
    let raised = json!({"by": 1, "minBy": 3, "minReplicas": 6, "maxBy": 0, "maxReplicas": 9});
    let scene = |replicas: u32| {
        let scene = Scene::new(5).preferred("a", i32::MIN).surge(1, 6, replicas, 0);
        scene.autoscaler(6, 9, Some(raised.clone()))
    };
    let asked = |scene: Scene| scene.asked("a", DEPLOYMENT_CLASS, json!({}));
    says(&asked(scene(3)), &["limits to 3..9 with None", "scales to 3 with None"]);
    // It has not scaled up yet, or again.
    says(&asked(scene(5)), &["reports a: Deployment web: a waits until HorizontalPodAutoscaler hpa"]);
    let not_yet = Scene::new(5).preferred("a", i32::MIN).autoscaler(6, 9, Some(raised.clone()));
    says(&asked(not_yet), &["reports a: Deployment web: a waits until HorizontalPodAutoscaler hpa"]);
}

#[test]
fn limits_that_a_record_makes_no_sense_of_stay_and_the_record_goes() {
    for record in [
        json!("nonsense"),
        json!({"by": "x"}),
        // The Deployment would be left with nothing.
        json!({"by": 2, "minBy": 0, "minReplicas": 2, "maxBy": 0, "maxReplicas": 5}),
        json!({"by": 0, "minBy": 7, "minReplicas": 2, "maxBy": 0, "maxReplicas": 5}),
        json!({"by": 0, "minBy": 0, "minReplicas": 2, "maxBy": 5, "maxReplicas": 5}),
        json!({"by": 0, "minBy": 0, "minReplicas": 2, "maxBy": 4, "maxReplicas": 5}),
    ] {
        says(&Scene::new(2).autoscaler(2, 5, Some(record)), &["limits to 2..5 with None"]);
    }
}
