//! The row of a HorizontalPodAutoscaler.

use jiff::Timestamp;
use serde_json::Value;

use super::age::age;
use super::cells::{int, list, name, scalar, text};

const SHOWN: usize = 2;

pub(crate) fn horizontal_pod_autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let target = &spec["scaleTargetRef"];
    let min = spec["minReplicas"].as_i64().map_or("<unset>".to_string(), |n| n.to_string());
    vec![
        name(object),
        format!("{}/{}", text(&target["kind"]), text(&target["name"])).into(),
        metrics(object).into(),
        min.into(),
        int(&spec["maxReplicas"]).into(),
        int(&object["status"]["currentReplicas"]).into(),
        age(object, now),
    ]
}

fn metrics(object: &Value) -> String {
    let specs = list(&object["spec"]["metrics"]);
    if specs.is_empty() {
        return autoscaling_v1(object);
    }
    let statuses = list(&object["status"]["currentMetrics"]);
    let all: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    if all.len() > SHOWN {
        return format!("{} + {} more...", all[..SHOWN].join(", "), all.len() - SHOWN);
    }
    all.join(", ")
}

/// The old version of the API knows the CPU alone.
fn autoscaling_v1(object: &Value) -> String {
    match object["spec"]["targetCPUUtilizationPercentage"].as_i64() {
        None => "<none>".to_string(),
        Some(target) => {
            let current = object["status"]["currentCPUUtilizationPercentage"].as_i64();
            format!("cpu: {}/{target}%", current.map_or("<unknown>".to_string(), |n| format!("{n}%")))
        }
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let (field, is_resource) = match text(&spec["type"]) {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_string(),
    };
    let target = &spec[field]["target"];
    let current = &status[field]["current"];
    let shown = |value: &Value| if value.is_null() { "<unknown>".to_string() } else { scalar(value) };
    if is_resource {
        let resource = text(&spec[field]["name"]);
        if !target["averageValue"].is_null() {
            return format!(
                "{resource}: {}/{}",
                shown(&current["averageValue"]),
                scalar(&target["averageValue"])
            );
        }
        let percent = |value: &Value, absent: &str| {
            value.as_i64().map_or(absent.to_string(), |percent| format!("{percent}%"))
        };
        return format!(
            "{resource}: {}/{}",
            percent(&current["averageUtilization"], "<unknown>"),
            percent(&target["averageUtilization"], "<auto>")
        );
    }
    if field == "pods" {
        return format!("{}/{}", shown(&current["averageValue"]), scalar(&target["averageValue"]));
    }
    if target["averageValue"].is_null() {
        format!("{}/{}", shown(&current["value"]), scalar(&target["value"]))
    } else {
        format!("{}/{} (avg)", shown(&current["averageValue"]), scalar(&target["averageValue"]))
    }
}
