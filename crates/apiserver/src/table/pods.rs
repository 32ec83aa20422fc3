//! The row of a pod: its status is the most telling reason found in it.

use jiff::Timestamp;
use serde_json::Value;

use super::age::{age, between, human_duration, parse};
use super::cells::{condition, int, list, name, text, text_or};

pub(crate) fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, human_duration(between(last, now)))
        }
        _ => summary.restarts.to_string(),
    };
    let gates = list(&pod["spec"]["readinessGates"]);
    let gates = if gates.is_empty() {
        "<none>".to_string()
    } else {
        let open = gates.iter().filter(|g| condition(pod, text(&g["conditionType"])) == Some("True")).count();
        format!("{open}/{}", gates.len())
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        text_or(&pod["status"]["podIPs"][0]["ip"], "<none>").into(),
        text_or(&pod["spec"]["nodeName"], "<none>").into(),
        text_or(&pod["status"]["nominatedNodeName"], "<none>").into(),
        gates.into(),
    ]
}

#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let mut summary = Summary {
            total: list(&spec["containers"]).len(),
            reason: text_or(&status["reason"], text(&status["phase"])).to_string(),
            ..Summary::default()
        };
        let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
        if list(&status["conditions"]).iter().any(gated) {
            summary.reason = "SchedulingGated".to_string();
        }
        let sidecars: Vec<&str> = list(&spec["initContainers"])
            .iter()
            .filter(|c| c["restartPolicy"] == "Always")
            .map(|c| text(&c["name"]))
            .collect();
        summary.total += sidecars.len();

        let sidecar_restarts = summary.init_containers(pod, &sidecars);
        let initialized = condition(pod, "Initialized") == Some("True");
        if sidecar_restarts.done || initialized {
            summary.restarts = sidecar_restarts.count;
            summary.last_restart = sidecar_restarts.last;
            summary.containers(pod);
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            if status["reason"] == "NodeLost" {
                summary.reason = "Unknown".to_string();
            } else if !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
                summary.reason = "Terminating".to_string();
            }
        }
        summary
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += int(&container["restartCount"]);
        self.last_restart = self.last_restart.max(last_end(container));
    }

    /// Goes through the init containers up to the first one that holds the pod back.
    fn init_containers(&mut self, pod: &Value, sidecars: &[&str]) -> SidecarRestarts {
        let mut restarts = SidecarRestarts { done: true, ..SidecarRestarts::default() };
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
            self.count_restarts(container);
            let is_sidecar = sidecars.contains(&text(&container["name"]));
            if is_sidecar {
                restarts.count += int(&container["restartCount"]);
                restarts.last = restarts.last.max(last_end(container));
            }
            let state = &container["state"];
            if state["terminated"].is_object() && int(&state["terminated"]["exitCode"]) == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text(&state["waiting"]["reason"]);
            self.reason = if state["terminated"].is_object() {
                format!("Init:{}", end_reason(&state["terminated"]))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", list(&pod["spec"]["initContainers"]).len())
            };
            restarts.done = false;
            break;
        }
        restarts
    }

    fn containers(&mut self, pod: &Value) {
        let mut has_running = false;
        let mut error = String::new();
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_string();
            } else if state["terminated"].is_object() {
                self.reason = end_reason(&state["terminated"]);
                if int(&state["terminated"]["exitCode"]) != 0 {
                    error = self.reason.clone();
                }
            } else if container["ready"] == true && state["running"].is_object() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && condition(pod, "Ready") == Some("True") {
                self.reason = "Running".to_string();
            } else if !error.is_empty() {
                self.reason = error;
            } else if has_running {
                self.reason = "NotReady".to_string();
            }
        }
    }
}

/// Restarts of sidecars alone, and whether the pod got past its init containers.
#[derive(Default)]
struct SidecarRestarts {
    count: i64,
    last: Option<Timestamp>,
    done: bool,
}

fn last_end(container: &Value) -> Option<Timestamp> {
    parse(&container["lastState"]["terminated"]["finishedAt"])
}

fn end_reason(terminated: &Value) -> String {
    let reason = text(&terminated["reason"]);
    if !reason.is_empty() {
        return reason.to_string();
    }
    match int(&terminated["signal"]) {
        0 => format!("ExitCode:{}", int(&terminated["exitCode"])),
        signal => format!("Signal:{signal}"),
    }
}
