//! pods/binding and bindings: the scheduler's word on where a pod runs.

use serde_json::{Value, json};

use super::update::Change;
use super::{Call, decode, errors, metadata};
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::response::{self, ServerResponse};
use crate::store::Key;

pub(crate) async fn create(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let mut binding = decode::body_of(call, "Binding")?;
    decode::expect_gvk(&mut binding, "v1", "Binding")?;
    let dry_run = call.query.dry_run("CreateOptions")?;
    let name =
        if call.name().is_empty() { metadata::text(&binding, "name") } else { call.name() }.to_string();
    if name != metadata::text(&binding, "name") && !metadata::text(&binding, "name").is_empty() {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_string();
    let target = binding["target"]["kind"].as_str().unwrap_or_default();
    let error = if !matches!(target, "" | "Node") {
        Some(FieldError::not_supported("target.kind", target, &["Node", "<empty>"]))
    } else {
        node.is_empty().then(|| FieldError::required("target.name", ""))
    };
    if let Some(error) = error {
        return Err(ApiError::new(500, "", error.to_string()));
    }
    call.server.mutate(call, Operation::Create, &mut binding, None, dry_run).await?;
    call.server.admit(call, Operation::Create, Some(&binding), None, dry_run).await?;
    let registry = call.server.registry();
    let Some(pods) = registry.find("", "v1", "pods") else { return Err(errors::no_such_path()) };
    call.kind = pods.clone();
    let key = Key::new(call.namespace(), &name);
    let now = rfc3339(call.server.now());
    let change = Change {
        key,
        subresource: "binding".into(),
        dry_run,
        replaces: false,
        admitted: true,
        applied: true,
    };
    change.run(call, |call, pod| bound(call, pod, &binding, &node, &now)).await?;
    Ok(done())
}

fn done() -> ServerResponse {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    response::json(201, &status)
}

fn bound(call: &Call<'_>, pod: &Value, binding: &Value, node: &str, now: &str) -> ApiResult<Value> {
    let name = metadata::text(pod, "name");
    let refuse = |why: String| {
        let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
        let details = json!({"name": name, "kind": "pods/binding"});
        Err(ApiError::new(409, "Conflict", message).with_details(details))
    };
    let (uid, actual) = (metadata::text(binding, "uid"), metadata::text(pod, "uid"));
    if !uid.is_empty() && uid != actual {
        return Err(errors::uid_mismatch(&call.kind, &Key::new(call.namespace(), name), uid, actual));
    }
    if metadata::is_deleting(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let current = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !current.is_empty() {
        return refuse(format!("pod {name} is already assigned to node \"{current}\""));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = node.into();
    for field in ["labels", "annotations"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    set_scheduled(&mut pod["status"], now);
    Ok(pod)
}

fn set_scheduled(status: &mut Value, now: &str) {
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    match &mut status["conditions"] {
        Value::Array(list) => {
            list.retain(|c| c["type"] != "PodScheduled");
            list.push(scheduled);
        }
        other => *other = json!([scheduled]),
    }
}
