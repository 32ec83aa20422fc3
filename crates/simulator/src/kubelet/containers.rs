//! Containers that end: by themselves, with a code, and again where their pod is to be restarted.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{EXIT_CODE, RUN_TIME, Times, conditions, each_container, ready_conditions, time};
use crate::plan::{Action, Plan};
use crate::view::{Container, Pod, Resource};
use embedded_apiserver::clock::rfc3339;

/// Between restarts: twice as long each time, up to the limit. The first restart is at once.
const FIRST_BACK_OFF: i64 = 10;
const LONGEST_BACK_OFF: i64 = 300;

pub(super) fn running(container: &Container, restarts: i64, ready: bool, since: Timestamp) -> Value {
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": ready, "started": true,
        "restartCount": restarts, "state": {"running": {"startedAt": rfc3339(since)}},
    })
}

/// Pods of jobs, and those that say when or how they end, end by themselves; then their restart policy decides.
pub(super) fn finish(pod: &Pod, times: &Times, now: Timestamp, plan: &mut Plan) {
    let of_job = pod.metadata.controller().is_some_and(|owner| owner.kind == "Job");
    let code = pod.metadata.annotations.get(EXIT_CODE).and_then(|text| text.parse::<i64>().ok());
    if !of_job && code.is_none() && !pod.metadata.annotations.contains_key(RUN_TIME) {
        return;
    }
    let restarts = match (pod.spec.restart_policy.as_str(), code) {
        ("Never", _) | ("OnFailure", None | Some(0)) => false,
        (_, None) => return,
        _ => true,
    };
    let code = code.unwrap_or_default();
    let so_far = pod.restarts_of_first();
    if let Some(ended) = pod.crashed_at() {
        let again = ended + back_off(so_far);
        if again <= now {
            plan.act(Action::status(Resource::Pods, &pod.metadata, restarted(pod, so_far + 1, code, now)));
        } else {
            plan.recheck(again);
        }
        return;
    }
    let began = pod.started_at().or(pod.ready_since()).or(pod.status.start_time).unwrap_or(now);
    let done = began + time(pod, RUN_TIME, times.run);
    if done > now {
        plan.recheck(done);
        return;
    }
    let status = match (restarts, so_far) {
        (false, _) => ended(pod, code, now),
        (true, 0) => restarted(pod, 1, code, now),
        (true, _) => crashed(pod, so_far, code, now),
    };
    plan.act(Action::status(Resource::Pods, &pod.metadata, status));
}

fn back_off(restarts: i64) -> SignedDuration {
    let doublings = u32::try_from(restarts - 1).unwrap_or_default().min(10);
    SignedDuration::from_secs((FIRST_BACK_OFF << doublings).min(LONGEST_BACK_OFF))
}

fn terminated(pod: &Pod, code: i64, now: Timestamp) -> Value {
    let started = pod.started_at().or(pod.status.start_time).unwrap_or(now);
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({
        "exitCode": code, "reason": reason, "startedAt": rfc3339(started), "finishedAt": rfc3339(now),
    })
}

/// All containers have ended, and stay so.
pub(super) fn ended(pod: &Pod, code: i64, now: Timestamp) -> Value {
    let (phase, reason) = if code == 0 { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    let restarts = pod.restarts_of_first();
    json!({
        "phase": phase, "conditions": conditions(&["Ready", "ContainersReady"], "False", reason, now),
        "containerStatuses": each_container(pod, |(name, image)| json!({
            "name": name, "image": image, "imageID": "", "ready": false, "started": false, "restartCount": restarts,
            "state": {"terminated": terminated(pod, code, now)},
        })),
    })
}

fn crashed(pod: &Pod, restarts: i64, code: i64, now: Timestamp) -> Value {
    json!({
        "conditions": conditions(&["Ready", "ContainersReady"], "False", super::NOT_READY, now),
        "containerStatuses": each_container(pod, |(name, image)| json!({
            "name": name, "image": image, "imageID": "", "ready": false, "started": false, "restartCount": restarts,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": terminated(pod, code, now)},
        })),
    })
}

fn restarted(pod: &Pod, restarts: i64, code: i64, now: Timestamp) -> Value {
    let (ready, said) = ready_conditions(pod, now);
    let again = |container: &Container| {
        let mut status = running(container, restarts, ready, now);
        status["lastState"] = json!({"terminated": terminated(pod, code, now)});
        status
    };
    let statuses: Vec<Value> = pod.spec.containers.iter().map(again).collect();
    json!({"conditions": said, "containerStatuses": statuses})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, node, pod, set_status, view};
    use embedded_apiserver::Key;

    fn ending(policy: &str, code: &str) -> Value {
        let mut pod = pod("p", "n");
        pod["metadata"]["annotations"] = json!({EXIT_CODE: code, RUN_TIME: "5s"});
        pod["spec"]["restartPolicy"] = policy.into();
        pod["status"]["containerStatuses"] =
            json!([{"restartCount": 0, "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}}]);
        pod
    }

    fn plan(pod: &Value, second: i64) -> Plan {
        super::super::decide(
            &view(&[node("n"), pod.clone()]),
            &Key::new("default", "p"),
            &Times::default(),
            at(second),
        )
    }

    #[test]
    fn the_restart_policy_decides_what_follows_an_end() {
        let after = |policy: &str, code: &str| {
            let status = set_status(&plan(&ending(policy, code), 5));
            (status["phase"].clone(), status["containerStatuses"][0]["restartCount"].clone())
        };
        assert_eq!(after("Never", "0"), (json!("Succeeded"), json!(0)));
        assert_eq!(after("Never", "1"), (json!("Failed"), json!(0)));
        assert_eq!(after("OnFailure", "0"), (json!("Succeeded"), json!(0)));
        assert_eq!(after("OnFailure", "1"), (Value::Null, json!(1)));
        assert_eq!(after("Always", "0"), (Value::Null, json!(1)));
        assert_eq!(plan(&ending("Always", "1"), 4).recheck_at, Some(at(5)));
    }

    #[test]
    fn restarts_come_later_and_later() {
        let mut pod = ending("Always", "1");
        let mut waits = Vec::new();
        let mut second = 0;
        for _ in 0..8 {
            let next = plan(&pod, second);
            match next.recheck_at {
                Some(at) => {
                    let due = at.as_second();
                    waits.push(due - second);
                    second = due;
                }
                None => {
                    for (field, value) in set_status(&next).as_object().unwrap() {
                        pod["status"][field] = value.clone();
                    }
                }
            }
        }
        assert_eq!(waits, [5, 5, 10, 5], "run, run after the restart at once, back off, run");
        assert_eq!([1, 2, 3, 6, 9].map(|n| back_off(n).as_secs()), [10, 20, 40, 300, 300]);
    }
}
