//! Recorded sequences of writes at the real server, done again here: patches, defaults and ownership together
//! must give the recorded objects and errors.

use serde_json::{Value, json};

use super::{Writer, apply, update};
use crate::defaults::{apply_defaults, drop_unknown, prepare_create};
use crate::encoding::as_go;
use crate::error::ApiResult;
use crate::patch::{json_patch, merge_patch, strategic};
use crate::schema::schema_of;

const CASES: &str = include_str!("../../data/write-cases.json");

/// What the kind's strategy puts back after a write to the endpoint.
fn put_back(object: &mut Value, live: &Value, reset: &[&[&str]]) {
    for path in reset {
        let pointer = format!("/{}", path.join("/"));
        match (live.pointer(&pointer).cloned(), path) {
            (value, [field]) => object[*field] = value.unwrap_or_default(),
            (Some(value), [outer, field]) => object[*outer][*field] = value,
            (None, [outer, field]) => drop(object[*outer].as_object_mut().and_then(|o| o.remove(*field))),
            _ => {}
        }
    }
}

fn write(live: Option<&Value>, step: &Value, now: &str) -> ApiResult<Value> {
    let body = &step["body"];
    let schema = schema_of(live.unwrap_or(body));
    let typed = live.unwrap_or(body)["apiVersion"].as_str().unwrap_or_default().to_string();
    let subresource = step["subresource"].as_str().unwrap_or_default();
    let kind = live.unwrap_or(body)["kind"].as_str().unwrap_or_default();
    let reset: &[&[&str]] = match (subresource, kind) {
        ("", "ConfigMap") => &[],
        ("", _) => &[&["status"]],
        (_, "Pod") => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        (_, "Node") => &[&["spec"]],
        _ => &[&["spec"], &["metadata", "labels"]],
    };
    let manager = step["manager"].as_str().unwrap_or_default();
    let writer = Writer { manager, subresource, api_version: &typed, now, reset };
    let mut object = match (step["type"].as_str().unwrap_or_default(), live) {
        ("json", _) => body.clone(),
        ("apply-patch", _) => {
            let mut object = apply(live, body, schema, &writer, step["force"] == true)?;
            drop_unknown(&mut object, schema);
            as_go(&mut object, schema);
            apply_defaults(&mut object, schema);
            if let Some(live) = live {
                put_back(&mut object, live, reset);
            } else {
                admit(&mut object);
            }
            return Ok(object);
        }
        ("json-patch", Some(live)) => json_patch(live, body)?,
        ("merge-patch", Some(live)) => merge_patch(live, body)?,
        ("strategic-merge-patch", Some(live)) => strategic(live, body, schema)?,
        (other, _) => panic!("a step of type {other}"),
    };
    drop_unknown(&mut object, schema);
    as_go(&mut object, schema);
    apply_defaults(&mut object, schema);
    update(live, &mut object, schema, &writer);
    match live {
        Some(live) => put_back(&mut object, live, reset),
        None => {
            prepare_create(&mut object, schema);
            admit(&mut object);
        }
    }
    Ok(object)
}

/// What the recording server's admission did to new objects.
fn admit(object: &mut Value) {
    if object["kind"] == "Node" {
        object["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    } else {
        object["metadata"]["namespace"] = "default".into();
    }
}

/// Removes what the recording server's clock and admission made.
fn comparable(mut object: Value) -> Value {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if entry.get("time").is_some() {
            entry["time"] = "some time".into();
        }
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        ["priority", "preemptionPolicy", "tolerations"].iter().for_each(|f| drop(spec.remove(*f)));
    }
    drop_nulls(&mut object);
    object
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn differences(got: &Value, want: &Value, path: &str, out: &mut Vec<String>) {
    match (got, want) {
        (Value::Object(g), Value::Object(w)) => {
            for name in g.keys().chain(w.keys().filter(|n| !g.contains_key(*n))) {
                differences(&got[name], &want[name], &format!("{path}.{name}"), out);
            }
        }
        (Value::Array(g), Value::Array(w)) if g.len() == w.len() => {
            for i in 0..g.len() {
                differences(&g[i], &w[i], &format!("{path}[{i}]"), out);
            }
        }
        _ if got != want => out.push(format!("{path}: got {got}, want {want}")),
        _ => {}
    }
}

#[test]
fn recorded_writes_have_the_recorded_results() {
    let cases: Vec<Value> = serde_json::from_str(CASES).expect("readable cases");
    let mut wrong = Vec::new();
    for case in &cases {
        let mut live: Option<Value> = None;
        for (i, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
            let at = format!("{} step {i}", case["name"]);
            let now = format!("2026-01-01T00:00:{i:02}Z");
            let want = &step["result"];
            match write(live.as_ref(), step, &now) {
                Ok(object) => {
                    let got = comparable(object.clone());
                    differences(&got, &comparable(want["object"].clone()), &at, &mut wrong);
                    live = Some(object);
                }
                Err(error) => {
                    let got = json!({"code": error.code, "message": error.message, "reason": error.reason,
                                     "details": error.details});
                    differences(&got, want, &at, &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
