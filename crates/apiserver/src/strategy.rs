//! What a few built-in kinds do with their objects beyond defaults: fields that stand for each other, values that the
//! server hands out, and what its admission plugins add.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::defaults::{self, PodPriority};
use crate::kinds::Kind;
use crate::server::Server;

/// Right after decoding: one field in place of another.
pub(crate) fn decoded(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Secret") => {
            let texts = object.as_object_mut().and_then(|o| o.remove("stringData"));
            for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
                object["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
            }
        }
        ("", "Node") => {
            let range = object["spec"]["podCIDR"].as_str().unwrap_or_default().to_string();
            if !range.is_empty() && object["spec"]["podCIDRs"].is_null() {
                object["spec"]["podCIDRs"] = json!([range]);
            }
        }
        ("apps", "DaemonSet") => {
            const GENERATION: &str = "deprecated.daemonset.template.generation";
            if object["metadata"]["annotations"].is_null() {
                object["metadata"]["annotations"] = json!({});
            }
            if object["metadata"]["annotations"][GENERATION].is_null() {
                object["metadata"]["annotations"][GENERATION] = "1".into();
            }
        }
        _ => {}
    }
}

/// What the server gives a new object; nobody owns these fields.
pub(crate) fn created(server: &Server, kind: &Kind, object: &mut Value, now: &str) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Service") => give_address(server, object),
        ("", "Node") => {
            let taint = json!({"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"});
            match &mut object["spec"]["taints"] {
                Value::Array(taints) if taints.iter().any(|t| t["key"] == taint["key"]) => {}
                Value::Array(taints) => taints.push(taint),
                taints => *taints = json!([taint]),
            }
        }
        ("", "PersistentVolume") => {
            object["status"]["lastPhaseTransitionTime"] = now.into();
            add_finalizer(object, "kubernetes.io/pv-protection");
        }
        ("", "PersistentVolumeClaim") => add_finalizer(object, "kubernetes.io/pvc-protection"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let stored = object["spec"]["versions"].as_array().into_iter().flatten();
            let stored: Vec<Value> = stored
                .filter(|version| version["storage"] == true)
                .map(|version| version["name"].clone())
                .collect();
            object["status"]["storedVersions"] = stored.into();
        }
        ("batch", "Job") if object["spec"]["manualSelector"] != true => select_own_pods(object),
        _ => {}
    }
}

/// Keeps storage objects while they are in use.
fn add_finalizer(object: &mut Value, finalizer: &str) {
    match &mut object["metadata"]["finalizers"] {
        Value::Array(list) if list.iter().any(|f| f == finalizer) => {}
        Value::Array(list) => list.push(finalizer.into()),
        other => *other = json!([finalizer]),
    }
}

/// A job finds its pods by its own uid.
fn select_own_pods(job: &mut Value) {
    let uid = job["metadata"]["uid"].clone();
    let name = job["metadata"]["name"].clone();
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
    ] {
        job["spec"]["template"]["metadata"]["labels"][label] = value.clone();
    }
    if job["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
}

/// What an update may leave out because the server gave it.
pub(crate) fn updated(kind: &Kind, old: &Value, new: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => {
            let policy = old["spec"]["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority");
            let value = old["spec"]["priority"].as_i64().unwrap_or_default() as i32;
            let given = new["spec"]["priority"].take();
            defaults::admit_pod(new, PodPriority { class: "", value, preemption_policy: policy });
            if !given.is_null() {
                new["spec"]["priority"] = given;
            }
        }
        ("", "Service") if new["spec"]["type"] != "ExternalName" => {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                    new["spec"][field] = old["spec"][field].clone();
                }
            }
        }
        _ => {}
    }
}

/// A cluster address out of 10.96.0.0/12, unless the service is headless, external, or brings its own.
fn give_address(server: &Server, service: &mut Value) {
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    let address = match spec["clusterIP"].as_str() {
        Some(given) if !given.is_empty() => given.to_string(),
        _ => server.free_cluster_ip(),
    };
    spec["clusterIP"] = address.clone().into();
    if spec["clusterIPs"].is_null() {
        spec["clusterIPs"] = json!([address]);
    }
    // Without addresses of its own and without pods to look at, a service may be of any family.
    let open = address == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = if open { "RequireDualStack" } else { "SingleStack" }.into();
    }
}
