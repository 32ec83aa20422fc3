//! Rows of the kinds that make pods.

use jiff::Timestamp;
use serde_json::Value;

use super::age::{age, between, human_duration, parse, since};
use super::cells::{
    condition, containers, int, labels, list, name, selector, selector_or_none, text, text_or,
};

pub(crate) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let ready = format!("{}/{}", int(&status["readyReplicas"]), int(&object["spec"]["replicas"]));
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    vec![
        name(object),
        ready.into(),
        int(&status["updatedReplicas"]).into(),
        int(&status["availableReplicas"]).into(),
        age(object, now),
        names,
        images,
        selector(&object["spec"]["selector"]).into(),
    ]
}

pub(crate) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    let spec_selector = &object["spec"]["selector"];
    let selected = if object["kind"] == "ReplicationController" {
        labels(spec_selector).into()
    } else {
        selector_or_none(spec_selector)
    };
    vec![
        name(object),
        int(&object["spec"]["replicas"]).into(),
        int(&status["replicas"]).into(),
        int(&status["readyReplicas"]).into(),
        age(object, now),
        names,
        images,
        selected,
    ]
}

pub(crate) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!("{}/{}", int(&object["status"]["readyReplicas"]), int(&object["spec"]["replicas"]));
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    vec![name(object), ready.into(), age(object, now), names, images]
}

pub(crate) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    vec![
        name(object),
        int(&status["desiredNumberScheduled"]).into(),
        int(&status["currentNumberScheduled"]).into(),
        int(&status["numberReady"]).into(),
        int(&status["updatedNumberScheduled"]).into(),
        int(&status["numberAvailable"]).into(),
        labels(&object["spec"]["template"]["spec"]["nodeSelector"]).into(),
        age(object, now),
        names,
        images,
        selector_or_none(&object["spec"]["selector"]),
    ]
}

pub(crate) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = int(&status["succeeded"]);
    let completions = match spec["completions"].as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if int(&spec["parallelism"]) > 1 => format!("{succeeded}/1 of {}", int(&spec["parallelism"])),
        None => format!("{succeeded}/1"),
    };
    let duration = match (parse(&status["startTime"]), parse(&status["completionTime"])) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(between(start, end.unwrap_or(now))),
    };
    let is = |ty: &str| condition(object, ty) == Some("True");
    let state = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let [names, images] = containers(&spec["template"]["spec"]);
    vec![
        name(object),
        state.into(),
        completions.into(),
        duration.into(),
        age(object, now),
        names,
        images,
        selector_or_none(&spec["selector"]),
    ]
}

pub(crate) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let last = match &status["lastScheduleTime"] {
        Value::Null => "<none>".to_string(),
        stamp => since(stamp, now),
    };
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(&spec["jobTemplate"]["spec"]["template"]["spec"]);
    vec![
        name(object),
        text(&spec["schedule"]).into(),
        text_or(&spec["timeZone"], "<none>").into(),
        suspend.into(),
        list(&status["active"]).len().into(),
        last.into(),
        age(object, now),
        names,
        images,
        selector_or_none(&spec["jobTemplate"]["spec"]["selector"]),
    ]
}

pub(crate) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(&object["metadata"]["ownerReferences"]).iter().find(|o| o["controller"] == true);
    let controller = match owner {
        Some(owner) => {
            let kind = text(&owner["kind"]).to_lowercase();
            let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text(&owner["name"]))
        }
        None => "<none>".to_string(),
    };
    vec![name(object), controller.into(), int(&object["revision"]).into(), age(object, now)]
}
