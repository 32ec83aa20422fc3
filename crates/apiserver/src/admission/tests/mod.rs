//! Webhooks as users meet them: configurations and requests in, verdicts and wordings out.

mod calling;
mod conditions;
mod https;
mod matching;
mod mutating;
mod reviews;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::attributes::{Attributes, User};
use crate::auth::Rbac;
use crate::error::ApiResult;

pub(super) const URL: &str = "https://127.0.0.1:1/hook";

/// A webhook that sees creates, updates and deletes of config maps, with some fields changed.
pub(super) fn webhook(name: &str, changes: Value) -> Value {
    let mut hook = json!({
        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "clientConfig": {"url": URL},
    });
    for (key, value) in changes.as_object().unwrap() {
        hook[key] = value.clone();
    }
    hook
}

pub(super) fn configuration(name: &str, webhooks: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "webhooks": webhooks})
}

/// Has the namespace `default`, serves every kind in these versions, and lets bob do everything.
pub(super) struct Cluster(pub(super) &'static [&'static str]);

impl Cluster {
    pub(super) const ONE_VERSION: Self = Self(&["v1"]);
}

impl Lookup for Cluster {
    fn namespace(&self, name: &str) -> Option<Value> {
        (name == "default").then(|| json!({"metadata": {"name": "default", "labels": {"env": "prod"}}}))
    }

    fn rbac(&self) -> Arc<Rbac> {
        let role = json!({"metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
        let binding = json!({"metadata": {"name": "all"}, "subjects": [{"kind": "User", "name": "bob"}],
            "roleRef": {"kind": "ClusterRole", "name": "all"}});
        Arc::new(Rbac::build([], [], [&role], [&binding]))
    }

    fn kind(&self, _: &str, _: &str) -> Option<Arc<crate::kinds::Kind>> {
        None
    }

    fn versions(&self, _: &str, _: &str) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn object(&self, _: &crate::kinds::Kind, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn objects(&self, _: &crate::kinds::Kind, _: Option<&str>) -> Vec<Value> {
        Vec::new()
    }
}

/// A request by alice, in the namespace `default`, which has the label `env: prod`.
pub(super) struct Case {
    pub(super) attributes: Attributes,
    pub(super) user: User,
    pub(super) kind: Kind,
    pub(super) operation: Operation,
    pub(super) object: Value,
    pub(super) old: Option<Value>,
    pub(super) options: Value,
    pub(super) dry_run: bool,
}

impl Case {
    pub(super) fn create() -> Self {
        Self {
            attributes: Attributes {
                verb: "create".into(),
                version: "v1".into(),
                resource: "configmaps".into(),
                namespace: "default".into(),
                ..Default::default()
            },
            user: User { name: "alice".into(), uid: "u1".into(), groups: vec!["dev".into()] },
            kind: Kind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() },
            operation: Operation::Create,
            object: json!({"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"name": "settings", "namespace": "default"}, "data": {"k": "v"}}),
            old: None,
            options: Value::Null,
            dry_run: false,
        }
    }

    pub(super) fn delete() -> Self {
        let mut case = Self::create();
        case.attributes.verb = "delete".into();
        case.attributes.name = "settings".into();
        case.operation = Operation::Delete;
        case.old = Some(std::mem::take(&mut case.object));
        case
    }

    pub(super) fn request<'a>(&'a self, lookup: &'a dyn Lookup) -> Request<'a> {
        Request {
            attributes: &self.attributes,
            user: &self.user,
            kind: &self.kind,
            operation: self.operation,
            old: self.old.as_ref(),
            options: &self.options,
            dry_run: self.dry_run,
            lookup,
        }
    }

    async fn mutate(&mut self, webhooks: &Webhooks) -> ApiResult<Vec<String>> {
        let mut object = std::mem::take(&mut self.object);
        let mut warnings = Vec::new();
        let target = Target { schema: None, default: &|_| () };
        let none = MutatingPolicies::default();
        let request = self.request(&Cluster::ONE_VERSION);
        let result = super::mutate(&none, webhooks, &request, &mut object, &target, &mut warnings).await;
        self.object = object;
        result.map(|()| warnings)
    }

    async fn validate(&self, webhooks: &Webhooks) -> ApiResult<Vec<String>> {
        let request = self.request(&Cluster::ONE_VERSION);
        let mut warnings = Vec::new();
        webhooks.validate(&request, &self.object, &mut warnings).await.map(|()| warnings)
    }
}

/// The answer to a review: `response` with the uid filled in.
pub(super) fn respond(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

pub(super) fn patching(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

/// An endpoint that always gives this response.
fn answering(response: Value) -> Endpoint {
    in_process(move |review| std::future::ready(Ok(respond(&review, response.clone()))))
}

/// One validating webhook at this endpoint.
fn one_validating(changes: Value, endpoint: Endpoint) -> Webhooks {
    let (configuration, caller) = one_webhook(changes, endpoint);
    Webhooks::compile([], [&configuration], caller)
}

/// One mutating webhook at this endpoint.
fn one_mutating(changes: Value, endpoint: Endpoint) -> Webhooks {
    let (configuration, caller) = one_webhook(changes, endpoint);
    Webhooks::compile([&configuration], [], caller)
}

fn one_webhook(changes: Value, endpoint: Endpoint) -> (Value, Arc<Caller>) {
    let caller = Caller::default();
    caller.register_url(URL, endpoint);
    (configuration("c", &[webhook("h.example.com", changes)]), Arc::new(caller))
}

/// What has been called, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, entry: impl Into<String>) {
        self.0.lock().push(entry.into());
    }

    fn entries(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
