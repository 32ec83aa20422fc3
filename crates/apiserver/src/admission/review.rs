//! AdmissionReview: the question put to a webhook, and reading its answer.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::request::{Operation, Request};
use crate::auth::identity_reviews::user_info;

/// The version of AdmissionReview that a webhook asked for first among those known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    pub(super) fn choose(accepted: &Value) -> Option<Self> {
        accepted.as_array()?.iter().find_map(|version| match version.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The question. It borrows the objects, so that a call over the network copies nothing but the bytes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Question<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    #[serde(flatten)]
    about: About<'a>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

/// All of the question but the objects.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    uid: &'a str,
    kind: Value,
    resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Value,
    request_resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: Value,
    dry_run: bool,
    options: Value,
}

impl<'a> Review<'a> {
    pub(super) fn new(version: Version, uid: &'a str, request: &'a Request<'_>, object: &'a Value) -> Self {
        let question = Question {
            about: About::new(uid, request, object),
            object: Some(object),
            old_object: request.old,
        };
        Self { kind: "AdmissionReview", api_version: version.api_version(), request: question }
    }

    /// The question as a value of its own. Copying the objects is faster than to serialise them.
    pub(super) fn to_value(&self) -> serde_json::Result<Value> {
        let Question { about, object, old_object } = &self.request;
        let mut request = serde_json::to_value(about)?;
        request["object"] = object.cloned().unwrap_or_default();
        request["oldObject"] = old_object.cloned().unwrap_or_default();
        let mut review = json!({"kind": self.kind, "apiVersion": self.api_version});
        review["request"] = request;
        Ok(review)
    }

    /// `request` as match conditions see it: without the objects, which have variables of their own.
    pub(super) fn condition_request(request: &Request<'_>, object: &Value) -> Value {
        let mut value = serde_json::to_value(About::new("", request, object)).unwrap_or_default();
        value.as_object_mut().map(|about| about.remove("uid"));
        value
    }
}

impl<'a> About<'a> {
    fn new(uid: &'a str, request: &'a Request<'_>, object: &'a Value) -> Self {
        let (kind, resource) = (kind(request), resource(request));
        Self {
            uid,
            sub_resource: &request.attributes.subresource,
            request_kind: kind.clone(),
            request_resource: resource.clone(),
            request_sub_resource: &request.attributes.subresource,
            kind,
            resource,
            name: request.name(object),
            namespace: request.namespace(object),
            operation: request.operation.as_str(),
            user_info: user_info(request.user),
            dry_run: request.dry_run,
            options: options(request),
        }
    }
}

fn kind(request: &Request<'_>) -> Value {
    let kind = request.kind;
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn resource(request: &Request<'_>) -> Value {
    let a = request.attributes;
    json!({"group": a.group, "version": a.version, "resource": a.resource})
}

/// Options are always there, if only with their kind.
fn options(request: &Request<'_>) -> Value {
    if !request.options.is_null() {
        return request.options.clone();
    }
    options_of(&request.attributes.verb, request.operation)
}

/// The options of such a request that has none.
pub(crate) fn options_of(verb: &str, operation: Operation) -> Value {
    let kind = match (verb, operation) {
        ("patch", _) => "PatchOptions",
        (_, Operation::Create) => "CreateOptions",
        (_, Operation::Update) => "UpdateOptions",
        (_, Operation::Delete) => "DeleteOptions",
    };
    json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"})
}

/// What a webhook answered, once it is known to be an answer to our question.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) status: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// Reads the answer; the error says why it is none.
pub(super) fn verdict(
    answer: &Value,
    version: Version,
    uid: &str,
    mutating: bool,
) -> Result<Verdict, String> {
    let response = answer.get("response").filter(|r| r.is_object()).ok_or("webhook response was absent")?;
    let text = |name: &str| response.get(name).and_then(Value::as_str);
    let patch = match text("patch") {
        None => Vec::new(),
        Some(encoded) => BASE64_STANDARD
            .decode(encoded)
            .map_err(|problem| format!("response.patch is not base64: {problem}"))?,
    };
    let mut patch_type = text("patchType");
    match version {
        Version::V1 => check_v1(answer, response, uid, mutating, &patch, patch_type)?,
        // The older version promised less.
        Version::V1Beta1 => patch_type = (!patch.is_empty()).then_some("JSONPatch"),
    }
    let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
    Ok(Verdict {
        allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or(false),
        patch: if mutating { patch } else { Vec::new() },
        patch_type: patch_type.unwrap_or_default().to_string(),
        status: response.get("status").cloned(),
        warnings: warnings.filter_map(|w| w.as_str().map(str::to_string)).collect(),
    })
}

fn check_v1(
    answer: &Value,
    response: &Value,
    uid: &str,
    mutating: bool,
    patch: &[u8],
    patch_type: Option<&str>,
) -> Result<(), String> {
    let got = response.get("uid").and_then(Value::as_str).unwrap_or_default();
    if got != uid {
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let field = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("kind") != "AdmissionReview" || field("apiVersion") != "admission.k8s.io/v1" {
        let (group, version) = field("apiVersion").split_once('/').unwrap_or(("", field("apiVersion")));
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
            field("kind")
        ));
    }
    let problem = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(problem.to_string())
}

/// A random identifier in the usual form. Not from the system, so that a seeded run stays the same.
pub(super) fn new_uid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0xc << 60) | (0x4 << 76) | (0x8 << 60);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
