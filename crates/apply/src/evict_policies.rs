//! The effects of the Pod Evict Policy: marks on pods, requests in the name of the taint eviction controller, and the end of pods whose
//! workloads had their time.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ObjectReference, Pod as FullPod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tracing::Instrument as _;
use usher_api::gateway::Ask;
use usher_api::lenient::Lenient;
use usher_api::names::{EVICT_WANTED_ANNOTATION, FIELD_MANAGER, POD_EVICT_WANTED_ANNOTATION};
use usher_client::{Asking, Clock, ReadRequest, delete_pod};
use usher_decide::admission::gateway::way_to_ask;
use usher_decide::evict_policy::{Effect, is_at_work, taint_requester};
use usher_decide::snapshot::{Pod, Request, RequestOnWire};

use crate::events::Events;
use crate::requests::{Failure, failure_of_write, is_gone};
use crate::{requesters, spans};

/// Carries out effects with this client.
#[derive(Clone)]
pub struct EvictPolicies {
    client: Client,
    events: Events,
    clock: Clock,
    /// How long all interceptors of a pod may take together.
    interceptors_limit: Option<SignedDuration>,
}

impl EvictPolicies {
    pub fn new(
        client: Client,
        events: Events,
        clock: Clock,
        interceptors_limit: Option<SignedDuration>,
    ) -> Self {
        Self { client, events, clock, interceptors_limit }
    }

    /// # Errors
    /// It was not carried out.
    pub async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        let about = |call: &'static str, pod: &Pod| spans::about_pod(call, &pod.key, &pod.uid);
        let (span, pod) = match effect {
            Effect::Mark { pod, .. } | Effect::Unmark { pod } => (about("mark Pod", pod), Some(pod)),
            Effect::Ask { pod, .. } => (about("ask for Pod", pod), Some(pod)),
            Effect::Delete { pod } => (about("delete Pod", pod), Some(pod)),
            Effect::Withdraw { request, .. } => {
                (spans::about_request("write finalizers of EvictionRequest", request), None)
            }
            Effect::Tell { pod, is_warning, reason, message } => {
                self.events.tell_of(reference(pod), reason, message.clone(), *is_warning);
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
            self.events.tell_of(reference(pod), "EvictPolicyRefused", message, true);
        }
        done
    }

    async fn one(&self, effect: &Effect) -> Result<(), Failure> {
        match effect {
            Effect::Mark { pod, wanted } => {
                let annotations: BTreeMap<&str, String> = wanted.annotations().into_iter().collect();
                self.annotate(pod, &json!(annotations)).await
            }
            Effect::Unmark { pod } => {
                self.annotate(pod, &json!({POD_EVICT_WANTED_ANNOTATION: null, EVICT_WANTED_ANNOTATION: null}))
                    .await
            }
            Effect::Ask { pod, request, ask } => self.ask(pod, request.as_deref(), ask).await,
            Effect::Withdraw { request, finalizers } => {
                let kept = requesters::keep(&self.client, FIELD_MANAGER, request, finalizers).await;
                kept.map_err(failure_of_write)
            }
            Effect::Delete { pod } => self.delete(pod).await,
            Effect::Tell { .. } => Ok(()),
        }
    }

    fn requests(&self, namespace: &str) -> Api<Lenient<RequestOnWire>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// For the pod that was looked at and nothing that has changed since, as far as its version is known.
    async fn annotate(&self, pod: &Pod, annotations: &Value) -> Result<(), Failure> {
        let pods: Api<PartialObjectMeta<FullPod>> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let read = pod.evict.as_ref().map(|facts| facts.resource_version.as_str());
        let patch =
            json!({"metadata": {"uid": &*pod.uid, "resourceVersion": read, "annotations": annotations}});
        let parameters = PatchParams::apply(FIELD_MANAGER);
        pods.patch(&pod.key.name, &parameters, &Patch::Merge(patch)).await.map(drop).map_err(failure_of_write)
    }

    async fn ask(&self, pod: &Pod, request: Option<&Request>, ask: &Ask) -> Result<(), Failure> {
        let requester = taint_requester();
        let asking = Asking {
            client: &self.client,
            field_manager: FIELD_MANAGER,
            namespace: &pod.key.namespace,
            pod: &pod.key.name,
            uid: &pod.uid,
            requester: &requester,
            ask: ask.clone(),
        };
        let read = request
            .map(|known| ReadRequest { version: requesters::version(known), finalizers: &known.finalizers });
        asking.write(way_to_ask(request, requester.as_str()), read).await.map_err(failure_of_write)
    }

    /// A watch may be late: nobody is deleted past an interceptor that has just begun, nor one that has changed, as each pod has whose
    /// node is back.
    async fn delete(&self, pod: &Pod) -> Result<(), Failure> {
        let fresh = self.requests(&pod.key.namespace).get_opt(&pod.uid).await.map_err(failure_of_write)?;
        if let Some(fresh) = fresh {
            let fresh = fresh.read().map_err(|why| Failure::Later(why.to_string()))?;
            if is_at_work(&Request::from(fresh), self.interceptors_limit, self.clock.now()) {
                return Err(Failure::Outdated);
            }
        }
        let version = pod.evict.as_ref().map(|facts| facts.resource_version.as_str());
        is_gone(delete_pod(self.client.clone(), &pod.key.namespace, &pod.key.name, &pod.uid, version).await)
    }
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
