//! The effects of the Pod Evict Policy: marks on pods, requests in the name of the taint eviction controller, and the end of pods whose
//! workloads had their time.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::Api;
use tracing::Instrument as _;
use usher_api::evict_policy::EvictWanted;
use usher_api::gateway::{Ask, WayToAsk};
use usher_api::lenient::Lenient;
use usher_api::names::FIELD_MANAGER;
use usher_client::{GatewayRequest, PodToMark, Writer, delete_pod, mark_pod};
use usher_decide::evict_policy::{Effect, taint_requester};
use usher_decide::snapshot::{Pod, Request, RequestOnWire};

use crate::events::Events;
use crate::requests::{Failure, failure_of_write, is_gone};
use crate::{requesters, spans};

/// As whom requests are written.
const WRITER: Writer = Writer::named(FIELD_MANAGER);

/// Carries out effects with this client.
#[derive(Clone)]
pub struct EvictPolicies {
    client: Client,
    events: Events,
}

impl EvictPolicies {
    pub fn new(client: Client, events: Events) -> Self {
        Self { client, events }
    }

    /// # Errors
    /// It was not carried out.
    pub async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        let about = |call: &'static str, pod: &Pod| spans::about_pod(call, &pod.key, &pod.uid);
        let (span, pod) = match effect {
            Effect::Mark { pod, .. } | Effect::Unmark { pod } => (about("mark Pod", pod), Some(pod)),
            Effect::Ask { pod, .. } => (about("ask for Pod", pod), Some(pod)),
            Effect::Delete { pod, .. } => (about("delete Pod", pod), Some(pod)),
            Effect::Withdraw { request, .. } => {
                (spans::about_request("write finalizers of EvictionRequest", request), None)
            }
            Effect::RecordEvent { pod, is_warning, reason, message } => {
                self.events.record_on(reference(pod), reason, message.clone(), *is_warning);
                return Ok(());
            }
        };
        let done = self.one(effect).instrument(span.clone()).await;
        spans::end(&span, &done);
        if let (Err(Failure::Refused { message, .. }), Some(pod)) = (&done, pod) {
            let advice = "see whether Usher's account has the role in deploy/evict-policy/role.yaml, and whether a policy refuses it";
            let message = format!(
                "the API server refuses what Usher writes for the pod's evict policy: {message}; {advice}"
            );
            self.events.record_on(reference(pod), "EvictPolicyRefused", message, true);
        }
        done
    }

    async fn one(&self, effect: &Effect) -> Result<(), Failure> {
        match effect {
            Effect::Mark { pod, wanted } => self.mark(pod, Some(wanted)).await,
            Effect::Unmark { pod } => self.mark(pod, None).await,
            Effect::Ask { pod, way, request, ask } => self.ask(pod, *way, request.as_deref(), ask).await,
            Effect::Withdraw { request, finalizers } => {
                let kept = requesters::keep(&self.client, WRITER, request, finalizers).await;
                kept.map_err(failure_of_write)
            }
            Effect::Delete { pod, request } => self.delete(pod, request.as_deref()).await,
            Effect::RecordEvent { .. } => Ok(()),
        }
    }

    fn requests(&self, namespace: &str) -> Api<Lenient<RequestOnWire>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// For the pod that was looked at and nothing that has changed since, as far as its version is known.
    async fn mark(&self, pod: &Pod, wanted: Option<&EvictWanted>) -> Result<(), Failure> {
        let pod = PodToMark {
            namespace: &pod.key.namespace,
            name: &pod.key.name,
            uid: &pod.uid,
            resource_version: version_of(pod),
        };
        mark_pod(&self.client, FIELD_MANAGER, pod, wanted).await.map_err(failure_of_write)
    }

    async fn ask(
        &self,
        pod: &Pod,
        way: WayToAsk,
        request: Option<&Request>,
        ask: &Ask,
    ) -> Result<(), Failure> {
        let requester = taint_requester();
        let ours = GatewayRequest {
            client: &self.client,
            writer: WRITER,
            namespace: &pod.key.namespace,
            pod: &pod.key.name,
            uid: &pod.uid,
            requester: &requester,
            ask,
        };
        ours.write(way, request.map(requesters::read)).await.map_err(failure_of_write)
    }

    /// A watch may be late: nobody is deleted past an interceptor that has just begun, nor one that has changed, as each pod has whose
    /// node is back.
    async fn delete(&self, pod: &Pod, request: Option<&Request>) -> Result<(), Failure> {
        let fresh = self.requests(&pod.key.namespace).get_opt(&pod.uid).await.map_err(failure_of_write)?;
        let fresh = fresh.map(|fresh| fresh.read().map_err(|why| Failure::Later(why.to_string())));
        let fresh = fresh.transpose()?.map(Request::from).filter(|fresh| fresh.pod_uid == pod.uid);
        let as_read = |request: &Request| (request.uid.clone(), request.resource_version.clone());
        if fresh.as_ref().map(as_read) != request.map(as_read) {
            return Err(Failure::Outdated);
        }
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        is_gone(delete_pod(self.client.clone(), namespace, name, &pod.uid, version_of(pod)).await)
    }
}

/// As far as it is known.
fn version_of(pod: &Pod) -> Option<&str> {
    pod.evict.as_ref().map(|facts| facts.resource_version.as_str())
}

fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.key.name.to_string()),
        namespace: Some(pod.key.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Method, Request as HttpRequest, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use usher_client::Clock;
    use usher_decide::snapshot::PodOnWire;

    use super::*;

    fn request(version: &str, pod: &str) -> Value {
        json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": "u", "namespace": "shop", "uid": "r", "resourceVersion": version,
                "creationTimestamp": "2026-01-01T12:00:00Z",
            },
            "spec": {"podRef": {"name": "web", "uid": pod}},
        })
    }

    /// Deletes a pod whose request was looked at in this version, on a server that has it in that one, for a pod of this UID. What comes of
    /// it, and which pod the server is told to delete.
    async fn deleted(
        looked_at: Option<&str>,
        stored: Option<(&str, &str)>,
    ) -> (Result<(), Failure>, Option<Value>) {
        let deletion = Arc::new(Mutex::new(None));
        let stored = stored.map(|(version, pod)| request(version, pod));
        let sent = deletion.clone();
        let service = tower::service_fn(move |call: HttpRequest<Body>| {
            let (sent, stored) = (sent.clone(), stored.clone());
            async move {
                let answer = if call.method() == Method::DELETE {
                    let body = call.into_body().collect_bytes().await.unwrap();
                    let options: Value = serde_json::from_slice(&body).unwrap();
                    *sent.lock() = Some(options["preconditions"].clone());
                    Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
                } else {
                    stored
                };
                let none = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""});
                let code = if answer.is_some() { 200 } else { 404 };
                let body = Body::from(answer.unwrap_or(none).to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = Client::new(service, "shop");
        let events = Events::start(client.clone(), Clock::system());
        let pod = json!({"metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "annotations": {"evictionrequest.coordination.k8s.io/evict-policy": "ControllerTakeOver"},
        }});
        let pod = Arc::new(Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap()));
        let read =
            |version| Request::from(serde_json::from_value::<RequestOnWire>(request(version, "u")).unwrap());
        let effect = Effect::Delete { pod, request: looked_at.map(read).map(Arc::new) };
        let done = EvictPolicies::new(client, events).carry_out(&effect).await;
        let deletion = deletion.lock().take();
        (done, deletion)
    }

    #[tokio::test]
    async fn nobody_is_deleted_past_a_request_that_has_changed_since() {
        for (looked_at, stored, is_deleted) in [
            (None, None, true),
            (Some("5"), Some(("5", "u")), true),
            (Some("5"), Some(("6", "u")), false),
            (None, Some(("5", "u")), false),
            (None, Some(("5", "of another pod")), true),
            (Some("5"), None, false),
        ] {
            let wanted = match is_deleted {
                true => (Ok(()), Some(json!({"uid": "u", "resourceVersion": "7"}))),
                false => (Err(Failure::Outdated), None),
            };
            assert_eq!(deleted(looked_at, stored).await, wanted, "{looked_at:?} {stored:?}");
        }
    }
}
