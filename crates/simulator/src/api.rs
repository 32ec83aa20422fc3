//! Requests to the API server, in this process.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::plan::{Action, Target};
use super::tasks::{Component, INFORMERS};
use super::view::{Owner, Resource, Scale};
use embedded_apiserver::Cluster;
use embedded_apiserver::ServerBody;
use embedded_apiserver::User;
use embedded_apiserver::faults::NoAnswer;
use embedded_apiserver::{AUTHENTICATED, MASTERS};

/// What became of an action.
#[derive(Debug)]
pub(crate) struct ActionResult {
    /// Of the answer; 0 if there was none.
    pub code: u16,
    /// The object as the server has it now, where it says so.
    pub object: Option<(Resource, Bytes)>,
    pub message: String,
    /// The scale that was asked for.
    pub scale: Option<Scale>,
}

impl ActionResult {
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// It is not there any more, or another object has its name: the watch will tell.
    pub(crate) fn is_moot(&self) -> bool {
        self.code == 404
    }
}

fn path(resource: Resource, namespace: &str, rest: &str) -> String {
    let (prefix, plural, namespaced) = resource.path();
    let namespace = if namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{prefix}{namespace}/{plural}{rest}")
}

async fn send(
    cluster: &Cluster,
    client: &str,
    who: Component,
    request: http::request::Builder,
    body: String,
) -> (u16, ServerBody) {
    let (name, agent) = who.identity();
    let user =
        User { name: name.into(), uid: String::new(), groups: vec![MASTERS.into(), AUTHENTICATED.into()] };
    let request = request.header(header::USER_AGENT, agent).body(Full::new(Bytes::from(body)));
    let Ok(request) = request else {
        // Only names that the server would not have stored make no path.
        return (400, ServerBody::default());
    };
    match cluster.client_as(client, user).oneshot(request).await {
        Ok(response) => (response.status().as_u16(), response.into_body()),
        Err(NoAnswer) => (0, ServerBody::default()),
    }
}

async fn whole(body: ServerBody) -> Bytes {
    let Ok(body) = body.collect().await;
    body.to_bytes()
}

/// All objects of a resource, as they were at a revision or later: whoever has seen that one must not go back.
pub(crate) async fn list(cluster: &Cluster, resource: Resource, at_least: u64) -> (u16, Bytes) {
    let (prefix, plural, _) = resource.path();
    let request = Request::get(format!("{prefix}/{plural}?resourceVersion={at_least}"));
    let (code, body) = send(cluster, INFORMERS, Component::Budget, request, String::new()).await;
    (code, whole(body).await)
}

/// The changes of a resource after a revision.
pub(crate) async fn watch(cluster: &Cluster, resource: Resource, revision: u64) -> (u16, ServerBody) {
    let (prefix, plural, _) = resource.path();
    let request = Request::get(format!("{prefix}/{plural}?watch=true&resourceVersion={revision}"));
    send(cluster, INFORMERS, Component::Budget, request, String::new()).await
}

/// A line that says what an action is, for traces and logs.
pub(crate) fn describe(action: &Action) -> String {
    let target = |target: &Target| {
        let (_, plural, _) = target.resource.path();
        format!("{plural}/{}/{}", target.namespace, target.name)
    };
    match action {
        Action::Create { resource, namespace, object } | Action::Ensure { resource, namespace, object } => {
            let meta = &object["metadata"];
            let name = meta["name"].as_str().or(meta["generateName"].as_str()).unwrap_or_default();
            format!("create {}/{namespace}/{name}", resource.path().1)
        }
        Action::Patch { target: of, subresource, patch, .. } => {
            let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
            format!("patch {}{subresource} {patch}", target(of))
        }
        Action::Delete { target: of, grace } => {
            let grace = grace.map(|seconds| format!(" within {seconds}s")).unwrap_or_default();
            format!("delete {}{grace}", target(of))
        }
        Action::Bind { pod, node } => format!("bind {} to {node}", target(pod)),
        Action::AskScale { namespace, owner } => {
            format!("ask scale of {}/{namespace}/{}", owner.kind, owner.name)
        }
    }
}

/// The scale of an object of any kind, found as clients find it: by discovery, then by its subresource.
async fn ask_scale(cluster: &Cluster, who: Component, namespace: &str, owner: &Owner) -> (u16, Scale) {
    let Owner { api_version, kind, name, .. } = owner;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let prefix =
        if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let unknown = || (404, Err(format!("no matches for kind \"{kind}\" in version \"{api_version}\"")));
    let (code, body) = send(cluster, who.client(), who, Request::get(&prefix), String::new()).await;
    let resources: Value = serde_json::from_slice(&whole(body).await).unwrap_or_default();
    if code != 200 {
        return if code == 404 { unknown() } else { (code, Err(format!("cannot discover {api_version}"))) };
    }
    let names = || resources["resources"].as_array().into_iter().flatten();
    let is_it = |resource: &&Value| resource["kind"] == kind.as_str();
    let found = names().filter(is_it).filter_map(|r| r["name"].as_str()).find(|name| !name.contains('/'));
    let Some(plural) = found else { return unknown() };
    let request = Request::get(format!("{prefix}/namespaces/{namespace}/{plural}/{name}/scale"));
    let (code, body) = send(cluster, who.client(), who, request, String::new()).await;
    let answer: Value = serde_json::from_slice(&whole(body).await).unwrap_or_default();
    let scales = format!("{plural}/scale");
    match code {
        200 => {
            let uid = answer["metadata"]["uid"].as_str().unwrap_or_default().to_string();
            (200, Ok(Some((uid, answer["spec"]["replicas"].as_i64().unwrap_or_default()))))
        }
        404 if names().any(|resource| resource["name"] == scales.as_str()) => (404, Ok(None)),
        404 => {
            let of = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
            (404, Err(format!("{of} does not implement the scale subresource")))
        }
        code => (code, Err(answer["message"].as_str().unwrap_or_default().to_string())),
    }
}

pub(crate) async fn carry_out(cluster: &Cluster, who: Component, action: &Action) -> ActionResult {
    const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");
    let build = |method: Method, path: String, content: &str| {
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content)
    };
    let (request, body, resource) = match action {
        Action::Create { resource, namespace, object } | Action::Ensure { resource, namespace, object } => (
            build(Method::POST, path(*resource, namespace, ""), JSON.1),
            serde_json::to_string(object),
            Some(*resource),
        ),
        Action::Patch { target, subresource, patch, pinned } => {
            let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
            let path = path(target.resource, &target.namespace, &format!("/{}{subresource}", target.name));
            let fields = patch.as_object().into_iter().flatten();
            let mut fields: BTreeMap<&str, Cow<'_, Value>> =
                fields.map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect();
            let metadata = fields.entry("metadata").or_insert(Cow::Owned(json!({}))).to_mut();
            if !target.uid.is_empty() {
                metadata["uid"] = target.uid.clone().into();
            }
            if let Some(version) = pinned {
                metadata["resourceVersion"] = version.clone().into();
            }
            let content = "application/strategic-merge-patch+json";
            (build(Method::PATCH, path, content), serde_json::to_string(&fields), Some(target.resource))
        }
        Action::Delete { target, grace } => {
            let path = path(target.resource, &target.namespace, &format!("/{}", target.name));
            let mut options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": target.uid},
                "propagationPolicy": "Background",
            });
            if let Some(grace) = grace {
                options["gracePeriodSeconds"] = (*grace).into();
            }
            // Only a pod that is still there is answered with itself.
            let resource = (target.resource == Resource::Pods).then_some(Resource::Pods);
            (build(Method::DELETE, path, JSON.1), serde_json::to_string(&options), resource)
        }
        Action::Bind { pod, node } => {
            let path = path(Resource::Pods, &pod.namespace, &format!("/{}/binding", pod.name));
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name, "uid": pod.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            (build(Method::POST, path, JSON.1), serde_json::to_string(&binding), None)
        }
        Action::AskScale { namespace, owner } => {
            let (code, scale) = ask_scale(cluster, who, namespace, owner).await;
            let message = scale.as_ref().err().cloned().unwrap_or_default();
            // Not to be there is an answer too.
            let code = if code == 404 { 200 } else { code };
            return ActionResult { code, object: None, message, scale: Some(scale) };
        }
    };
    let (code, body) = send(cluster, who.client(), who, request, body.unwrap_or_default()).await;
    let bytes = whole(body).await;
    if code == 409 && matches!(action, Action::Ensure { .. }) {
        return ActionResult { code: 200, object: None, message: String::new(), scale: None };
    }
    if !(200..300).contains(&code) {
        let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_default().to_string();
        return ActionResult { code, object: None, message, scale: None };
    }
    let mut object = resource.map(|resource| (resource, bytes));
    if let Action::Bind { pod, .. } = action {
        // A binding is answered with a status; the pod is read back, so that its room is known to be taken.
        let request = Request::get(path(Resource::Pods, &pod.namespace, &format!("/{}", pod.name)));
        let (code, body) = send(cluster, who.client(), who, request, String::new()).await;
        object = if code == 200 { Some((Resource::Pods, whole(body).await)) } else { None };
    }
    ActionResult { code, object, message: String::new(), scale: None }
}
