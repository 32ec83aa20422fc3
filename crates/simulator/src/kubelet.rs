//! Kubelets: they start the pods of their node, end those that are deleted, and report.
//!
//! How long that takes is the pod's to say, by the same annotations as on the testbed. Where a kubelet has fallen
//! silent, or somebody else wrote that the node is not ready, pods stay as they are.

mod containers;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::controllers::node_lifecycle::{GIVEN_UP, UNKNOWN, status_note};
use super::plan::{Action, Plan, Target};
use super::view::{Node, Pod, Resource, Room, View, condition};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

/// Until a pod runs and is ready.
pub(crate) const START_DELAY: &str = "cluster-simulator.dev/start-delay";
/// From then until it is ready, where that takes longer.
pub(crate) const READY_DELAY: &str = "cluster-simulator.dev/ready-delay";
/// What the containers of a pod end with; those of pods that say so always end.
pub(crate) const EXIT_CODE: &str = "cluster-simulator.dev/exit-code";
/// Marks the pod that stands for one that the kubelet runs without the API: deleting it ends nothing.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
/// Until a pod that is meant to end has ended.
pub(crate) const RUN_TIME: &str = "cluster-simulator.dev/run-time";
/// From a pod's deletion until it is gone; its grace is the limit.
pub(crate) const TERMINATE_DELAY: &str = "cluster-simulator.dev/terminate-delay";

/// The reason of a pod whose containers are not ready.
const NOT_READY: &str = "ContainersNotReady";
/// What a container that was killed ends with.
const KILLED: i64 = 137;

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
/// kubelet was silent is ready again when it speaks.
pub(crate) fn decide_node(view: &View, key: &Key, now: Timestamp) -> Plan {
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

pub(crate) fn decide(view: &View, key: &Key, times: &Times, now: Timestamp) -> Plan {
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
        if is_given_up(pod) {
            let status = json!({"conditions": conditions(&["Ready"], "True", "", now)});
            plan.act(Action::status(Resource::Pods, &pod.metadata, status));
        }
        become_ready(pod, now, &mut plan);
        containers::finish(pod, times, now, &mut plan);
    }
    plan
}

/// While nothing was heard of its node, somebody wrote that the pod is not ready; its kubelet knows better.
fn is_given_up(pod: &Pod) -> bool {
    condition(&pod.status.conditions, "Ready").is_some_and(|ready| ready.reason == GIVEN_UP)
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
        let waiting = each_container(pod, |container| {
            json!({
                "name": container.0, "image": container.1, "imageID": "", "ready": false, "started": false,
                "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}},
            })
        });
        let status = json!({
            "startTime": rfc3339(now),
            "conditions": conditions(&["Initialized"], "True", "", now).into_iter()
                .chain(conditions(&["Ready", "ContainersReady"], "False", NOT_READY, now))
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

fn each_container(pod: &Pod, status: impl Fn((&str, &str)) -> Value) -> Vec<Value> {
    pod.spec.containers.iter().map(|container| status((&container.name, &container.image))).collect()
}

/// Once its containers are ready, a pod that took longer for it is.
fn become_ready(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let Some(delay) = pod.metadata.annotations.get(READY_DELAY).and_then(|text| parse(text)) else { return };
    let waits = condition(&pod.status.conditions, "Ready")
        .filter(|ready| ready.status == "False" && ready.reason == NOT_READY)
        .and_then(|ready| ready.last_transition_time);
    let (Some(since), false) = (waits, pod.is_crashing()) else { return };
    if since + delay > now {
        plan.recheck(since + delay);
        return;
    }
    let statuses: Vec<Value> = pod
        .spec
        .containers
        .iter()
        .zip(&pod.status.container_statuses)
        .map(|(container, status)| {
            containers::running(container, status.restart_count, true, status.started_at().unwrap_or(now))
        })
        .collect();
    let status = json!({
        "conditions": conditions(&["ContainersReady", "Ready"], "True", "", now), "containerStatuses": statuses,
    });
    plan.act(Action::status(Resource::Pods, &pod.metadata, status));
}

/// What a pod says whose containers have just started: it is ready at once, unless it takes longer.
fn ready_conditions(pod: &Pod, now: Timestamp) -> (bool, Vec<Value>) {
    let at_once = !pod.metadata.annotations.contains_key(READY_DELAY);
    let kinds = ["ContainersReady", "Ready"];
    let mut said = conditions(&["Initialized"], "True", "", now);
    said.extend(if at_once {
        conditions(&kinds, "True", "", now)
    } else {
        conditions(&kinds, "False", NOT_READY, now)
    });
    (at_once, said)
}

fn running(view: &View, pod: &Pod, now: Timestamp) -> Value {
    let (ready, mut said) = ready_conditions(pod, now);
    let gates: Vec<&str> = pod.spec.readiness_gates.iter().map(|gate| gate.condition_type.as_str()).collect();
    said.extend(conditions(&gates, "True", "", now));
    let address = address(view, &pod.metadata.uid);
    let statuses: Vec<Value> =
        pod.spec.containers.iter().map(|container| containers::running(container, 0, ready, now)).collect();
    let mut status = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": said,
        "containerStatuses": statuses,
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

/// Containers end in their own time, but not later than the grace; then the pod goes.
fn end(pod: &Pod, times: &Times, now: Timestamp, plan: &mut Plan) {
    let (Some(deadline), grace) =
        (pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds.unwrap_or_default())
    else {
        return;
    };
    if pod.metadata.annotations.contains_key(MIRROR) {
        // The static pod goes on; only what stands for it goes.
        if grace > 0 || pod.metadata.finalizers.is_empty() {
            plan.act(Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) });
        }
        return;
    }
    let began = deadline - SignedDuration::from_secs(grace);
    let gone = deadline.min(began + time(pod, TERMINATE_DELAY, times.terminate));
    if now < gone && !pod.is_terminal() {
        plan.recheck(gone);
        return;
    }
    // Whoever watches sees how it ended before it is gone: by itself, or killed when its time was up.
    if pod.status.phase == "Running" && (grace > 0 || !pod.metadata.finalizers.is_empty()) {
        let code = if now < deadline || grace == 0 { 0 } else { KILLED };
        plan.act(Action::status(Resource::Pods, &pod.metadata, containers::ended(pod, code, now)));
    }
    if grace == 0 && !pod.metadata.finalizers.is_empty() {
        return;
    }
    plan.act(Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) });
}

#[cfg(test)]
mod tests;
