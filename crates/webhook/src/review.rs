//! AdmissionReview v1 on the wire: as little of it as is needed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use usher_decide::admission::{Changes, Denial, Verdict};

use crate::rights::Caller;

/// What the API server asks. The objects are left as they are until somebody needs a part of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Review<'a> {
    #[serde(borrow)]
    pub request: Request<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    pub uid: String,
    pub operation: Operation,
    /// Empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    #[serde(default)]
    pub namespace: String,
    /// Of the object; empty if it has none yet.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub dry_run: Option<bool>,
    #[serde(default, deserialize_with = "caller")]
    pub user_info: Caller,
    #[serde(default, borrow)]
    pub object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub old_object: Option<&'a RawValue>,
}

/// Who belongs to thousands of groups still has less; lists of tiny pieces would take many times their length.
const CALLER_MAX: usize = 128 << 10;

fn caller<'de, D: Deserializer<'de>>(from: D) -> Result<Caller, D::Error> {
    let text = <&RawValue>::deserialize(from)?.get();
    if text.len() > CALLER_MAX {
        return Err(D::Error::custom("userInfo is too long"));
    }
    serde_json::from_str(text).map_err(D::Error::custom)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The answer to the review with this UID.
pub(crate) fn answer(uid: &str, verdict: &Verdict) -> Value {
    let mut response = match verdict {
        Verdict::Allow { changes, warnings } => {
            let mut response = json!({"allowed": true});
            if !changes.is_empty() {
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(patch(changes).to_string()).into();
            }
            if !warnings.is_empty() {
                response["warnings"] = json!(warnings);
            }
            response
        }
        Verdict::Deny(denial) => json!({"allowed": false, "status": status(denial)}),
    };
    response["uid"] = uid.into();
    reviewed(response)
}

/// The answer to a plain eviction that is refused for now: the one that every drainer understands.
pub(crate) fn try_again(uid: &str, message: &str, pod: &str, retry_after_seconds: u32) -> Value {
    let cause = json!({"reason": "EvictionRequest", "message": message});
    let details = json!({
        "name": pod, "kind": "pods", "retryAfterSeconds": retry_after_seconds, "causes": [cause],
    });
    let status = json!({
        "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": message, "details": details,
    });
    reviewed(json!({"uid": uid, "allowed": false, "status": status}))
}

/// The answer when no verdict could be made: not the caller's fault, so the caller may try again.
pub(crate) fn failure(uid: &str, what: &str) -> Value {
    let status = json!({"status": "Failure", "code": 500, "reason": "InternalError", "message": what});
    reviewed(json!({"uid": uid, "allowed": false, "status": status}))
}

/// The answer to a review that no API server would send.
pub(crate) fn malformed(uid: &str, what: &str) -> Value {
    let status = json!({"status": "Failure", "code": 400, "reason": "BadRequest", "message": what});
    reviewed(json!({"uid": uid, "allowed": false, "status": status}))
}

/// The answer to an object that cannot be read as its kind.
pub(crate) fn unreadable<K: kube::Resource<DynamicType = ()>>(uid: &str, why: &str) -> Value {
    let kind = K::kind(&());
    let article = if kind.starts_with('E') { "an" } else { "a" };
    let message = format!(
        "this cannot be read as {article} {kind}: {why}; see kubectl explain {}",
        kind.to_lowercase()
    );
    let status = json!({"status": "Failure", "code": 422, "reason": "Invalid", "message": message});
    reviewed(json!({"uid": uid, "allowed": false, "status": status}))
}

fn reviewed(response: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// "add" replaces what is there; only the parents must exist, and `metadata` and `spec` do.
fn patch(changes: &Changes) -> Value {
    let mut operations = Vec::new();
    if let Some(labels) = &changes.labels {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": labels}));
    }
    if let Some(annotations) = &changes.annotations {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": annotations}));
    }
    if let Some(interceptors) = &changes.interceptors {
        operations.push(json!({"op": "add", "path": "/spec/interceptors", "value": interceptors}));
    }
    if let Some(plan) = &changes.drain_plan {
        operations.push(json!({"op": "add", "path": "/spec/drainPlan", "value": plan}));
    }
    if let Some(gates) = &changes.scheduling_gates {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        operations.push(json!({"op": "add", "path": "/spec/schedulingGates", "value": gates}));
    }
    Value::Array(operations)
}

fn status(denial: &Denial) -> Value {
    let causes: Vec<Value> = denial
        .refusals()
        .map(|r| json!({"reason": r.rule.name(), "field": r.field, "message": r.message}))
        .collect();
    json!({
        "status": "Failure", "code": denial.code(), "reason": denial.reason(), "message": denial.to_string(),
        "details": {"causes": causes},
    })
}
