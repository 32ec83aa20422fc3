use super::*;
use crate::controllers::testing::{at, deleted, node, pod, set_status, view};

fn plan(objects: &[Value], now: i64) -> Plan {
    decide(&view(objects), &Key::new("default", "p"), &Times::default(), at(now))
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod("p", "n");
    change(&mut pod);
    pod
}

fn pending(pod: &mut Value) {
    pod["status"] = json!({"phase": "Pending"});
}

#[test]
fn durations_are_read_as_go_writes_them() {
    for (text, millis) in
        [("5s", Some(5000)), ("1m30s", Some(90_000)), ("500ms", Some(500)), ("1.5h", Some(5_400_000))]
    {
        assert_eq!(parse(text).map(|time| time.as_millis()), millis, "{text}");
    }
    assert_eq!((parse("5"), parse("x"), parse("")), (None, None, None));
}

#[test]
fn a_bound_pod_runs_after_its_start_delay() {
    let slow = with(|pod| {
        pending(pod);
        pod["metadata"]["annotations"] = json!({START_DELAY: "10s"});
    });
    let seen = plan(&[node("n"), slow.clone()], 100);
    assert_eq!(set_status(&seen)["startTime"], "1970-01-01T00:01:40Z");
    assert_eq!((set_status(&seen)["phase"].clone(), seen.recheck_at), (Value::Null, Some(at(110))));
    let mut later = slow;
    later["status"]["startTime"] = "1970-01-01T00:01:40Z".into();
    let started = set_status(&plan(&[node("n"), later], 110));
    assert_eq!(
        (&started["phase"], &started["containerStatuses"][0]["ready"]),
        (&json!("Running"), &json!(true))
    );
    assert!(started["podIP"].as_str().unwrap().starts_with("10."));
}

#[test]
fn nothing_happens_on_a_node_that_is_lost() {
    let mut lost = node("n");
    lost["status"]["conditions"][0]["status"] = "Unknown".into();
    assert_eq!(plan(&[lost, with(pending)], 100), Plan::nothing());
    assert_eq!(plan(&[with(pending)], 100), Plan::nothing(), "no such node");
}

#[test]
fn a_deleted_pod_goes_in_its_time_but_within_its_grace() {
    let leaving = |delay: &str, grace: i64, deadline: &str| {
        with(|pod| {
            pod["metadata"]["annotations"] = json!({TERMINATE_DELAY: delay});
            pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            pod["metadata"]["deletionTimestamp"] = deadline.into();
        })
    };
    let waits = plan(&[node("n"), leaving("20s", 30, "1970-01-01T00:02:10Z")], 110);
    assert_eq!((deleted(&waits), waits.recheck_at), (vec![], Some(at(120))));
    let goes = plan(&[node("n"), leaving("20s", 30, "1970-01-01T00:02:10Z")], 120);
    assert_eq!(deleted(&goes), ["p"]);
    let killed = plan(&[node("n"), leaving("10m", 30, "1970-01-01T00:02:10Z")], 130);
    assert_eq!(deleted(&killed), ["p"]);
}

#[test]
fn a_pod_that_is_held_by_a_finalizer_ends_but_stays() {
    let held = with(|pod| {
        pod["metadata"]["finalizers"] = json!(["a/b"]);
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:10Z".into();
    });
    let plan = plan(&[node("n"), held], 20);
    assert_eq!((set_status(&plan)["phase"].as_str(), deleted(&plan)), (Some("Succeeded"), vec![]));
}

#[test]
fn only_pods_that_may_end_do() {
    let job = |policy: &str| {
        with(|pod| {
            pod["spec"]["restartPolicy"] = policy.into();
            pod["metadata"]["ownerReferences"] =
                json!([{"kind": "Job", "name": "j", "uid": "j", "controller": true}]);
        })
    };
    assert_eq!(set_status(&plan(&[node("n"), job("Never")], 1))["phase"], "Succeeded");
    assert_eq!(plan(&[node("n"), job("Always")], 1), Plan::nothing());
    assert_eq!(plan(&[node("n"), with(|_| {})], 1), Plan::nothing());
}

#[test]
fn a_new_node_becomes_ready_with_room() {
    let bare = json!({"kind": "Node", "metadata": {"name": "n", "uid": "n"}});
    let status = set_status(&decide_node(&view(&[bare]), &Key::new("", "n"), at(0)));
    assert_eq!(status["allocatable"]["pods"], "110");
    assert!(
        status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    );
}

#[test]
fn readiness_may_take_longer_than_the_start() {
    let mut slow = with(|pod| {
        pending(pod);
        pod["metadata"]["annotations"] = json!({READY_DELAY: "20s"});
    });
    let started = set_status(&plan(&[node("n"), slow.clone()], 100));
    assert_eq!(
        (&started["phase"], &started["containerStatuses"][0]["ready"]),
        (&json!("Running"), &json!(false))
    );
    slow["status"] = started;
    assert_eq!(plan(&[node("n"), slow.clone()], 119).recheck_at, Some(at(120)));
    let ready = set_status(&plan(&[node("n"), slow], 120));
    let says = ready["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&says["status"], &ready["containerStatuses"][0]["ready"]), (&json!("True"), &json!(true)));
    assert_eq!(ready["containerStatuses"][0]["state"]["running"]["startedAt"], "1970-01-01T00:01:40Z");
}

#[test]
fn a_pod_says_how_it_ended_before_it_is_gone() {
    let leaving = |delay: &str| {
        with(|pod| {
            pod["metadata"]["annotations"] = json!({TERMINATE_DELAY: delay});
            pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
            pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:02:10Z".into();
        })
    };
    for (delay, phase) in [("5s", "Succeeded"), ("10m", "Failed")] {
        let gone = plan(&[node("n"), leaving(delay)], if phase == "Failed" { 130 } else { 110 });
        assert_eq!((set_status(&gone)["phase"].as_str(), deleted(&gone)), (Some(phase), vec!["p"]));
    }
}

#[test]
fn a_mirror_pod_goes_at_once_and_ends_nothing() {
    let mirror = with(|pod| {
        pod["metadata"]["annotations"] = json!({MIRROR: "hash", TERMINATE_DELAY: "20s"});
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:02:10Z".into();
    });
    let gone = plan(&[node("n"), mirror], 100);
    assert_eq!((set_status(&gone), deleted(&gone)), (Value::Null, vec!["p"]));
}

#[test]
fn a_kubelet_that_is_back_makes_its_node_and_pods_ready_again() {
    let mut lost = node("n");
    lost["status"]["conditions"][0] = json!({"type": "Ready", "status": "Unknown", "reason": UNKNOWN});
    let of_node = |silent: bool| {
        let mut view = view(&[lost.clone()]);
        if silent {
            view.fall_silent("n", at(0));
        }
        decide_node(&view, &Key::new("", "n"), at(200)).actions.len()
    };
    assert_eq!((of_node(false), of_node(true)), (1, 0));
    let not_ready = |reason: &str| {
        with(|pod| {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": reason}]);
        })
    };
    let given_up = plan(&[node("n"), not_ready(GIVEN_UP)], 200);
    assert_eq!(set_status(&given_up)["conditions"][0]["status"], "True");
    assert_eq!(plan(&[node("n"), not_ready("")], 200), Plan::nothing(), "it was not ready before");
    assert_eq!(plan(&[lost, not_ready(GIVEN_UP)], 200), Plan::nothing(), "the node is not there yet");
}
