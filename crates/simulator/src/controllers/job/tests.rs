use super::*;
use crate::controllers::testing::{at, created, deleted, owned_pod, set_status, view};

fn job(spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": []}});
    json!({"kind": "Job", "metadata": {"name": "j", "namespace": "default", "uid": "j"}, "spec": spec})
}

fn pod(name: &str, phase: &str) -> Value {
    let mut pod = owned_pod(name, "Job", "j", "j");
    pod["status"]["phase"] = phase.into();
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    pod
}

/// A rule, what there is, how many pods are made and deleted, and the verdict.
type Case = (&'static str, Vec<Value>, usize, usize, Option<&'static str>);

#[test]
fn no_pods_are_made_for_a_job_that_is_done_or_suspended() {
    let cases: [Case; 3] = [
        (
            "enough is enough",
            vec![job(json!({"completions": 1})), pod("a", "Succeeded"), pod("b", "Running")],
            0,
            1,
            Some("SuccessCriteriaMet"),
        ),
        (
            "suspended",
            vec![job(json!({"completions": 1, "suspend": true})), pod("a", "Running")],
            0,
            1,
            Some("Suspended"),
        ),
        (
            "a work queue is done with its last pod",
            vec![job(json!({"parallelism": 2})), pod("a", "Succeeded")],
            0,
            0,
            Some("SuccessCriteriaMet"),
        ),
    ];
    for (rule, objects, creates, deletes, verdict) in cases {
        let plan = decide(&view(&objects), &Key::new("default", "j"), at(100));
        assert_eq!((created(&plan).len(), deleted(&plan).len()), (creates, deletes), "{rule}");
        assert_eq!(set_status(&plan)["conditions"][0]["type"].as_str(), verdict, "{rule}");
    }
}

fn plan(objects: &[Value], second: i64) -> Plan {
    decide(&view(objects), &Key::new("default", "j"), at(second))
}

/// The names of pods that are let go.
fn let_go(plan: &Plan) -> Vec<&str> {
    let name = |action| match action {
        &Action::Patch { ref target, subresource: None, .. } => Some(target.name.as_str()),
        _ => None,
    };
    plan.actions.iter().filter_map(name).collect()
}

#[test]
fn an_end_is_noted_then_let_go_then_counted() {
    let mut work = job(json!({"completions": 2, "parallelism": 1}));
    let first = plan(&[work.clone(), pod("a", "Succeeded")], 100);
    let status = set_status(&first);
    assert_eq!(
        (&status["uncountedTerminatedPods"]["succeeded"], &status["succeeded"]),
        (&json!(["a"]), &Value::Null)
    );
    assert_eq!(let_go(&first), ["a"]);
    work["status"] = status;
    let mut free = pod("a", "Succeeded");
    free["metadata"]["finalizers"] = json!([]);
    let status = set_status(&plan(&[work, free], 100));
    assert_eq!(
        (&status["uncountedTerminatedPods"]["succeeded"], &status["succeeded"]),
        (&json!([]), &json!(1))
    );
}

#[test]
fn the_last_word_comes_when_all_is_counted_and_nothing_runs() {
    let mut work = job(json!({"completions": 1}));
    work["status"] =
        json!({"succeeded": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]});
    let last = |objects: &[Value]| {
        let conditions =
            set_status(&plan(objects, 100))["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Complete")
    };
    let mut leaving = pod("b", "Running");
    leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
    leaving["metadata"]["finalizers"] = json!([]);
    assert!(!last(&[work.clone(), leaving]));
    assert!(last(&[work.clone()]));
    work["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    assert_eq!(let_go(&plan(&[work, pod("late", "Failed")], 100)), ["late"], "nobody counts it any more");
}

#[test]
fn failures_make_the_next_pod_wait_and_too_many_or_too_much_time_end_the_job() {
    let failed = |name: &str| {
        let mut pod = pod(name, "Failed");
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"}]);
        pod
    };
    let work = || job(json!({"completions": 1, "backoffLimit": 2}));
    let waits = plan(&[work(), failed("a"), failed("b")], 60);
    assert_eq!((created(&waits).len(), waits.recheck_at), (0, Some(at(80))));
    assert_eq!(created(&plan(&[work(), failed("a"), failed("b")], 80)).len(), 1);
    let mut late = job(json!({"completions": 1, "activeDeadlineSeconds": 50}));
    late["status"] = json!({"startTime": "1970-01-01T00:00:00Z"});
    assert_eq!(plan(&[late.clone(), pod("a", "Running")], 49).recheck_at, Some(at(50)));
    let over = plan(&[late, pod("a", "Running")], 50);
    assert_eq!(
        (deleted(&over), &set_status(&over)["conditions"][0]["reason"]),
        (vec!["a"], &json!("DeadlineExceeded"))
    );
}

#[test]
fn a_job_that_has_ended_goes_after_its_time() {
    let mut done = job(json!({"completions": 1, "ttlSecondsAfterFinished": 30}));
    done["status"]["conditions"] =
        json!([{"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}]);
    assert_eq!(plan(&[done.clone()], 60).recheck_at, Some(at(90)));
    assert_eq!(deleted(&plan(&[done], 90)), ["j"]);
}

#[test]
fn each_index_is_completed_once() {
    let mut indexed = job(json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"}));
    indexed["status"]["completedIndexes"] = "0".into();
    let of = |name: &str, phase: &str, index: &str| {
        let mut pod = pod(name, phase);
        pod["metadata"]["annotations"] = json!({INDEX: index});
        pod
    };
    let plan = plan(&[indexed, of("a", "Succeeded", "1"), of("b", "Running", "2")], 100);
    let made = created(&plan);
    assert_eq!(made.len(), 1);
    assert_eq!(
        [
            &made[0]["metadata"]["annotations"][INDEX],
            &made[0]["metadata"]["labels"][INDEX],
            &made[0]["spec"]["hostname"]
        ],
        [&json!("3"), &json!("3"), &json!("j-3")]
    );
    assert_eq!(set_status(&plan)["completedIndexes"], "0,1");
}

#[test]
fn the_failure_policy_may_ignore_a_disruption_or_end_the_job() {
    let mut work = job(json!({"completions": 1, "backoffLimit": 0}));
    work["spec"]["podFailurePolicy"] = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]});
    let mut evicted = pod("a", "Failed");
    evicted["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let ignored = plan(&[work.clone(), evicted], 100);
    assert_eq!((created(&ignored).len(), let_go(&ignored)), (1, vec!["a"]));
    let mut fatal = pod("a", "Failed");
    fatal["status"]["containerStatuses"] = json!([{"state": {"terminated": {"exitCode": 42}}}]);
    let ends = plan(&[work.clone(), fatal], 100);
    assert_eq!(set_status(&ends)["conditions"][0]["reason"], "PodFailurePolicy");
    let mut leaving = pod("a", "Running");
    leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
    assert_eq!(let_go(&plan(&[work, leaving], 100)).len(), 0, "how it ends has to be seen first");
}
