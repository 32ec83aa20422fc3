//! pods/binding and bindings: the scheduler's word on where a pod runs.

use serde_json::{Value, json};

use super::update::Change;
use super::{Call, decode, errors, metadata};
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::response::{self, ServerResponse};
use crate::store::Key;

pub async fn create(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let mut binding = decode::body(call)?;
    decode::expect_gvk(&mut binding, "v1", "Binding", false)?;
    let dry_run = call.query.dry_run("CreateOptions")?;
    let name = if call.name().is_empty() { metadata::text(&binding, "name") } else { call.name() }.to_string();
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_string();
    if node.is_empty() {
        let error = FieldError::required("target.name", "");
        return Err(ApiError::invalid("", "Binding", &name, &[error]));
    }
    call.server.mutate(call, Operation::Create, &mut binding, None, dry_run).await?;
    call.server.admit(call, Operation::Create, Some(&binding), None, dry_run).await?;
    let registry = call.server.registry();
    let Some(pods) = registry.find("", "v1", "pods") else { return Err(errors::no_such_path()) };
    call.kind = pods.clone();
    let key = Key::new(call.namespace(), &name);
    let uid = metadata::text(&binding, "uid").to_string();
    let now = rfc3339(call.server.now());
    let change = Change { key, subresource: "binding".into(), dry_run, replaces: false, admitted: true, applied: false };
    change.run(call, |call, pod| bound(call, pod, &node, &uid, &now)).await?;
    Ok(response::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    ))
}

fn bound(call: &Call<'_>, pod: &Value, node: &str, uid: &str, now: &str) -> ApiResult<Value> {
    let name = metadata::text(pod, "name");
    let refuse = |why: String| Err(errors::conflict(&call.kind, name, &why));
    if !uid.is_empty() && uid != metadata::text(pod, "uid") {
        return refuse(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            metadata::text(pod, "uid")
        ));
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
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    match &mut pod["status"]["conditions"] {
        Value::Array(list) => {
            list.retain(|c| c["type"] != "PodScheduled");
            list.push(scheduled);
        }
        other => *other = json!([scheduled]),
    }
    Ok(pod)
}
