use super::*;
use crate::controllers::testing::{at, owned_pod, pod, set_status, view};

fn budget(spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    json!({
        "kind": "PodDisruptionBudget", "spec": spec,
        "metadata": {"name": "b", "namespace": "default", "uid": "b", "generation": 1},
    })
}

fn set(replicas: i64) -> Value {
    json!({
        "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "uid": "set"},
        "spec": {"replicas": replicas},
    })
}

fn members(count: usize) -> Vec<Value> {
    (0..count).map(|index| owned_pod(&format!("p{index}"), "ReplicaSet", "web", "set")).collect()
}

fn plan(objects: &[Value]) -> Plan {
    decide(&view(objects), &Key::new("default", "b"), at(60))
}

/// Expected, desired, healthy, allowed.
fn counts(objects: &[Value]) -> [i64; 4] {
    let status = set_status(&plan(objects));
    ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
        .map(|field| status[field].as_i64().unwrap_or_default())
}

#[test]
fn budgets_count_as_rules_11_12_and_15_say() {
    let cases = [
        ("11: an absolute maximum", json!({"maxUnavailable": 1}), 4, 4, [4, 3, 4, 1]),
        ("11: a share is rounded up", json!({"maxUnavailable": "30%"}), 4, 4, [4, 2, 4, 2]),
        ("11: never below zero", json!({"maxUnavailable": 9}), 4, 4, [4, 0, 4, 4]),
        ("11: expected is the scale, not the pods", json!({"maxUnavailable": 1}), 4, 2, [4, 3, 2, 0]),
        ("12: an absolute minimum counts pods", json!({"minAvailable": 2}), 9, 3, [3, 2, 3, 1]),
        ("12: a share of the scale, rounded up", json!({"minAvailable": "50%"}), 5, 5, [5, 3, 5, 2]),
    ];
    for (rule, spec, replicas, pods, want) in cases {
        let mut objects = vec![budget(spec), set(replicas)];
        objects.extend(members(pods));
        assert_eq!(counts(&objects), want, "{rule}");
    }
    let created = BudgetStatus { observed_generation: 1, ..BudgetStatus::default() };
    assert_eq!(created.disruptions_allowed, 0);
    assert_eq!(
        counts(&[budget(json!({"minAvailable": 0}))]),
        [0, 0, 0, 0],
        "15: nothing expected, nothing allowed"
    );
}

#[test]
fn rule_14_only_ready_pods_that_stay_are_healthy() {
    let mut objects = vec![budget(json!({"minAvailable": 1})), set(4)];
    objects.extend(members(4));
    objects[2]["status"]["conditions"][0]["status"] = "False".into();
    objects[3]["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
    objects[0]["status"] = json!({"disruptedPods": {"p2": "1970-01-01T00:00:30Z"}});
    assert_eq!(counts(&objects)[2], 1);
}

#[test]
fn rule_16_evicted_pods_are_remembered_for_two_minutes_or_until_they_go() {
    let mut objects = vec![budget(json!({"minAvailable": 1})), set(3)];
    objects.extend(members(3));
    objects[4]["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
    objects[0]["status"] = json!({"disruptedPods": {
        "p0": "1970-01-01T00:00:30Z", "p1": "1969-12-31T23:58:00Z", "p2": "1970-01-01T00:00:30Z", "gone": "1970-01-01T00:00:30Z",
    }});
    let plan = plan(&objects);
    let kept = set_status(&plan)["disruptedPods"].clone();
    assert_eq!(kept, json!({"p0": "1970-01-01T00:00:30Z", "p1": null, "p2": null, "gone": null}));
    assert_eq!(plan.recheck_at, Some(at(150)));
    let noted: Vec<(&str, &str)> =
        plan.notes.iter().map(|note| (note.about.name.as_str(), note.reason)).collect();
    assert_eq!(noted, [("p1", "NotDeleted")]);
}

fn replicas(kind: &str, name: &str, count: i64) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"replicas": count}})
}

fn owned(kind: &str, api_version: &str, uid: &str) -> Value {
    let mut pod = owned_pod("p", kind, "o", uid);
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = api_version.into();
    pod
}

#[test]
fn rule_13_scales_are_those_of_the_controllers_that_are_followed() {
    let half = || budget(json!({"maxUnavailable": "50%"}));
    let expected = |controllers: &[Value], pod: Value| {
        let objects: Vec<Value> =
            [half()].into_iter().chain(controllers.iter().cloned()).chain([pod]).collect();
        counts(&objects)[0]
    };
    assert_eq!(
        expected(&[replicas("ReplicationController", "o", 3)], owned("ReplicationController", "v1", "o")),
        3
    );
    assert_eq!(expected(&[replicas("StatefulSet", "o", 4)], owned("StatefulSet", "apps/v1", "o")), 4);
    assert_eq!(expected(&[replicas("ReplicaSet", "o", 5)], owned("ReplicaSet", "apps/v1", "o")), 5);
    let mut of_deployment = replicas("ReplicaSet", "o", 5);
    of_deployment["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]);
    assert_eq!(
        expected(&[of_deployment, replicas("Deployment", "d", 6)], owned("ReplicaSet", "apps/v1", "o")),
        6
    );
}

/// The plan once the owner's scale was asked for.
fn told(objects: &[Value], scale: crate::view::Scale) -> Plan {
    let mut view = view(objects);
    let key = Key::new("default", "b");
    let asked = decide(&view, &key, at(60));
    let [Action::AskScale { namespace, owner }] = &asked.actions[..] else { panic!("{asked:?}") };
    view.observe_scale(namespace, owner, scale, at(60));
    decide(&view, &key, at(60))
}

#[test]
fn rule_13_scales_of_others_are_asked_for_and_their_uid_must_match() {
    let objects = [budget(json!({"maxUnavailable": 1})), owned("Thing", "example.com/v1", "o")];
    let known = told(&objects, Ok(Some(("o".into(), 7))));
    assert_eq!(set_status(&known)["expectedPods"], 7);
    for none in [Ok(Some(("another".into(), 7))), Ok(None)] {
        let condition = set_status(&told(&objects, none))["conditions"][0].clone();
        assert_eq!(condition["message"], "found no controllers for pod \"p\"");
    }
    let mut later = view(&objects);
    let Some(owner) = later.pods.iter().next().and_then(|(_, pod)| pod.metadata.controller().cloned()) else {
        panic!("it has an owner");
    };
    later.observe_scale("default", &owner, Ok(None), at(10));
    assert!(matches!(
        decide(&later, &Key::new("default", "b"), at(60)).actions[..],
        [Action::AskScale { .. }]
    ));
}

#[test]
fn rule_13_pods_without_a_controller_do_not_count_but_are_noted() {
    let objects = [budget(json!({"maxUnavailable": 1})), pod("p", "n")];
    assert_eq!(counts(&objects), [0, 0, 1, 0]);
    let notes = plan(&objects).notes;
    assert_eq!(notes[0].reason, "UnmanagedPods");
    let selector = "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}";
    assert!(notes[0].message.contains(selector), "{}", notes[0].message);
}

#[test]
fn rule_17_what_cannot_be_counted_allows_nothing_and_keeps_the_rest() {
    let mut failing = budget(json!({"maxUnavailable": 1}));
    failing["metadata"]["generation"] = json!(5);
    failing["status"] =
        json!({"observedGeneration": 4, "disruptionsAllowed": 2, "currentHealthy": 3, "expectedPods": 3});
    let why = "daemonsets.apps does not implement the scale subresource";
    let plan = told(&[failing, owned("DaemonSet", "apps/v1", "o")], Err(why.into()));
    let status = set_status(&plan);
    assert_eq!(
        [&status["disruptionsAllowed"], &status["currentHealthy"], &status["observedGeneration"]],
        [&json!(0), &json!(3), &json!(4)]
    );
    let condition = &status["conditions"][0];
    assert_eq!(
        [&condition["status"], &condition["reason"], &condition["message"], &condition["observedGeneration"]],
        [&json!("False"), &json!("SyncFailed"), &json!(why), &json!(4)]
    );
    assert_eq!(plan.notes[0].reason, "CalculateExpectedPodCountFailed");
}

#[test]
fn rule_18_a_target_that_nobody_deleted_is_none() {
    let mut target = pod("p", "n");
    target["status"]["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
    let at_second =
        |second| decide_stale(&view(std::slice::from_ref(&target)), &Key::new("default", "p"), at(second));
    assert_eq!((at_second(60).actions, at_second(60).recheck_at), (vec![], Some(at(120))));
    assert_eq!(set_status(&at_second(120))["conditions"][0]["status"], "False");
    target["status"]["conditions"][0]["reason"] = "TerminationByKubelet".into();
    let announced = decide_stale(&view(&[target]), &Key::new("default", "p"), at(999));
    assert_eq!(announced, Plan::nothing(), "a kubelet may take its time");
}

#[test]
fn a_status_that_says_it_already_is_not_written() {
    let mut objects = vec![budget(json!({"minAvailable": 1})), set(2)];
    objects.extend(members(2));
    objects[0]["status"] = set_status(&plan(&objects));
    assert_eq!(plan(&objects), Plan::nothing());
}
