//! Kubelets: they start the pods of their node, end those that are deleted, and report.
//!
//! How long that takes is the pod's to say, by the same annotations as on the testbed. Where a kubelet has fallen
//! silent, or somebody else wrote that the node is not ready, pods stay as they are.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::controllers::node_lifecycle::{UNKNOWN, status_note};
use super::plan::{Action, Plan, Target};
use super::view::{Node, Pod, Resource, Room, View, condition};
use crate::clock::rfc3339;
use crate::store::Key;

/// Until a pod runs and is ready.
pub const START_DELAY: &str = "testbed.usher.dev/start-delay";
/// Until a pod that is meant to end has succeeded.
pub const RUN_TIME: &str = "testbed.usher.dev/run-time";
/// From a pod's deletion until it is gone; its grace is the limit.
pub const TERMINATE_DELAY: &str = "testbed.usher.dev/terminate-delay";

/// Times for pods that say nothing.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub start: Duration,
    pub run: Duration,
    pub terminate: Duration,
}

impl Default for Times {
    /// As on the testbed: at once, except that pods of jobs work for a second.
    fn default() -> Self {
        Self { start: Duration::ZERO, run: Duration::from_secs(1), terminate: Duration::ZERO }
    }
}

/// A node that nobody has spoken for yet gets its kubelet: it has room, and is ready. One that was given up while its
/// kubelet was silent is ready again when it speaks, and so are the pods there.
pub fn decide_node(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(node) = view.nodes.get(key) else { return plan };
    if node.is_deleting() || view.silent_since(&node.metadata.name).is_some() {
        return plan;
    }
    let Some(ready) = condition(&node.status.conditions, "Ready") else {
        plan.act(Action::status(Resource::Nodes, &node.metadata, first_status(node, now)));
        return plan;
    };
    if ready.status != "Unknown" || !matches!(ready.reason.as_str(), UNKNOWN | "NodeStatusNeverUpdated") {
        return plan;
    }
    let since = ready.last_transition_time.unwrap_or(now);
    for pod in view.pods_on(&node.metadata.name).filter(|pod| !pod.is_terminal()) {
        let given_up = condition(&pod.status.conditions, "Ready").filter(|ready| {
            ready.status == "False" && ready.reason.is_empty() && ready.last_transition_time >= Some(since)
        });
        if given_up.is_some() {
            let status = json!({"conditions": conditions(&["Ready"], "True", "", now)});
            plan.act(Action::status(Resource::Pods, &pod.metadata, status));
        }
    }
    plan.act(Action::status(Resource::Nodes, &node.metadata, first_status(node, now)));
    plan.note(status_note(node, "NodeReady"));
    plan
}

fn first_status(node: &Node, now: Timestamp) -> Value {
    let now = rfc3339(now);
    let pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"].map(|kind| {
        json!({
            "type": kind, "status": "False", "reason": format!("KubeletHasNo{kind}"), "message": "kubelet has no pressure",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    });
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let conditions: Vec<Value> = pressures.into_iter().chain([ready]).collect();
    let mut status = json!({"conditions": conditions});
    if node.status.allocatable == Room::default() {
        let size = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"});
        status["capacity"] = size.clone();
        status["allocatable"] = size;
    }
    status
}

pub fn decide(view: &View, key: &Key, times: &Times, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key) else { return plan };
    let node = &pod.spec.node_name;
    let ready = view.nodes.get(&Key::new("", node)).is_some_and(|node| node.is_ready());
    if node.is_empty() || !ready || view.silent_since(node).is_some() {
        return plan;
    }
    if pod.is_deleting() {
        end(pod, times, now, &mut plan);
    } else if pod.status.phase == "Pending" {
        start(view, pod, times, now, &mut plan);
    } else if pod.status.phase == "Running" {
        finish(pod, times, now, &mut plan);
    }
    plan
}

/// The time that an annotation gives, else the usual one.
fn time(pod: &Pod, annotation: &str, usual: Duration) -> SignedDuration {
    let given = pod.metadata.annotations.get(annotation).and_then(|text| parse(text));
    given.unwrap_or_else(|| SignedDuration::try_from(usual).unwrap_or_default())
}

/// `1m30s`, `500ms`: a time as Go writes it.
fn parse(text: &str) -> Option<SignedDuration> {
    let mut rest = text.trim();
    let mut millis = 0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let scale = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        millis += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    Some(SignedDuration::from_millis(millis as i64))
}

/// First the kubelet has seen the pod, then its containers run.
fn start(view: &View, pod: &Pod, times: &Times, now: Timestamp, plan: &mut Plan) {
    let delay = time(pod, START_DELAY, times.start);
    let began = pod.status.start_time.unwrap_or(now);
    if began + delay <= now {
        plan.act(Action::status(Resource::Pods, &pod.metadata, running(view, pod, now)));
        return;
    }
    plan.recheck(began + delay);
    if pod.status.start_time.is_none() {
        let waiting = containers(pod, |container| {
            json!({
                "name": container.0, "image": container.1, "imageID": "", "ready": false, "started": false,
                "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}},
            })
        });
        let status = json!({
            "startTime": rfc3339(now),
            "conditions": conditions(&["Initialized"], "True", "", now).into_iter()
                .chain(conditions(&["Ready", "ContainersReady"], "False", "ContainersNotReady", now))
                .collect::<Vec<_>>(),
            "containerStatuses": waiting,
        });
        plan.act(Action::status(Resource::Pods, &pod.metadata, status));
    }
}

fn conditions(kinds: &[&str], status: &str, reason: &str, now: Timestamp) -> Vec<Value> {
    let condition = |kind: &&str| {
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": rfc3339(now)});
        // An empty reason takes away the one that was there.
        condition["reason"] = if reason.is_empty() { Value::Null } else { reason.into() };
        condition
    };
    kinds.iter().map(condition).collect()
}

fn containers(pod: &Pod, status: impl Fn((&str, &str)) -> Value) -> Vec<Value> {
    pod.spec.containers.iter().map(|container| status((&container.name, &container.image))).collect()
}

fn running(view: &View, pod: &Pod, now: Timestamp) -> Value {
    let mut kinds = vec!["Initialized", "ContainersReady", "Ready"];
    kinds.extend(pod.spec.readiness_gates.iter().map(|gate| gate.condition_type.as_str()));
    let address = address(view, &pod.metadata.uid);
    let mut status = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": conditions(&kinds, "True", "", now),
        "containerStatuses": containers(pod, |(name, image)| json!({
            "name": name, "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": rfc3339(now)}},
        })),
    });
    if pod.status.start_time.is_none() {
        status["startTime"] = rfc3339(now).into();
    }
    if !pod.spec.init_containers.is_empty() {
        let at = rfc3339(now);
        let done =
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}});
        let of = |container: &super::view::Container| {
            let stays = container.restart_policy == "Always";
            let state = if stays { json!({"running": {"startedAt": at}}) } else { done.clone() };
            json!({
                "name": container.name, "image": container.image, "imageID": "", "ready": true, "started": stays,
                "restartCount": 0, "state": state,
            })
        };
        status["initContainerStatuses"] = pod.spec.init_containers.iter().map(of).collect();
    }
    status
}

/// A free address, the same for the same pod if nobody else has it.
fn address(view: &View, uid: &str) -> String {
    let mut number =
        uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    loop {
        // 10.128.0.0/9, away from the addresses of services.
        let [_, b, c, d] = number.to_be_bytes();
        let address = format!("10.{}.{c}.{d}", b | 0x80);
        if !view.is_address_taken(&address) {
            return address;
        }
        number = number.wrapping_add(1);
    }
}

/// Pods of jobs, and those that say how long they run, end by themselves where their restart policy lets them.
fn finish(pod: &Pod, times: &Times, now: Timestamp, plan: &mut Plan) {
    let of_job = pod.metadata.controller().is_some_and(|owner| owner.kind == "Job");
    let ends = of_job || pod.metadata.annotations.contains_key(RUN_TIME);
    if !ends || !matches!(pod.spec.restart_policy.as_str(), "Never" | "OnFailure") {
        return;
    }
    let began = pod.ready_since().or(pod.status.start_time).unwrap_or(now);
    let done = began + time(pod, RUN_TIME, times.run);
    if done <= now {
        plan.act(Action::status(Resource::Pods, &pod.metadata, ended(pod, now)));
    } else {
        plan.recheck(done);
    }
}

fn ended(pod: &Pod, now: Timestamp) -> Value {
    let at = rfc3339(now);
    let started = pod.status.start_time.map_or_else(|| at.clone(), rfc3339);
    json!({
        "phase": "Succeeded",
        "conditions": conditions(&["Ready", "ContainersReady"], "False", "PodCompleted", now),
        "containerStatuses": containers(pod, |(name, image)| json!({
            "name": name, "image": image, "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": at}},
        })),
    })
}

/// Containers end in their own time, but not later than the grace; then the pod goes.
fn end(pod: &Pod, times: &Times, now: Timestamp, plan: &mut Plan) {
    let (Some(deadline), grace) =
        (pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds.unwrap_or_default())
    else {
        return;
    };
    let began = deadline - SignedDuration::from_secs(grace);
    let gone = deadline.min(began + time(pod, TERMINATE_DELAY, times.terminate));
    if now < gone && !pod.is_terminal() {
        plan.recheck(gone);
        return;
    }
    if !pod.metadata.finalizers.is_empty() {
        // Somebody still holds it, and has to see that nothing runs any more.
        if !pod.is_terminal() {
            plan.act(Action::status(Resource::Pods, &pod.metadata, ended(pod, now)));
        }
        if grace == 0 {
            return;
        }
    }
    plan.act(Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, deleted, node, pod, set_status, view};

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
}
