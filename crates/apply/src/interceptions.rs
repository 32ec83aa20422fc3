//! The effects of the bundled interceptors: reports on requests, the end of pods, and what admission is told.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::Instrument as _;
use usher_api::Refusal;
use usher_api::lenient::Lenient;
use usher_api::names::{
    DELETION_COST_BEFORE_ANNOTATION, HAND_OVER_ANNOTATION, HELD_NODES_CONFIG_MAP, INTERCEPTOR_FIELD_MANAGER,
    POD_DELETION_COST_ANNOTATION, SURGE_ANNOTATION, SURGE_LABEL,
};
use usher_api::report::Report;
use usher_api::workloads::POD_TEMPLATE_HASH_LABEL;
use usher_decide::decision::limited;
use usher_decide::interceptors::{AvailablePods, Effect, NewHandOver};
use usher_decide::snapshot::{
    AutoscalerOnWire, DeploymentOnWire, Key, Pod, PodOnWire, ReplicaSetOnWire, Request, RequestOnWire, Surge,
    is_of_others,
};

use crate::config_map;
use crate::events::Events;
use crate::requesters::version;
use crate::requests::{Failure, RefusedWrite, failure_of_write, is_gone, stored_status};
use crate::spans;
use crate::written::{Written, precondition};
use usher_client::{Clock, Evicted, EvictionOptions, FailureClass, Writer, delete_pod, evict};

/// Carries out effects with this client.
#[derive(Clone)]
pub struct Interceptions {
    client: Client,
    events: Events,
    clock: Clock,
    written: Written,
    /// Where the manager runs.
    namespace: String,
}

/// How many pods the server has found available for a decision. Those that go by it are still among them.
#[derive(Debug, Default)]
pub struct AvailableCounts(Vec<(Arc<AvailablePods>, usize)>);

/// So many pods are read at a time.
const PAGE: u32 = 500;

impl Interceptions {
    pub fn new(client: Client, events: Events, clock: Clock, namespace: String) -> Self {
        Self { client, events, clock, written: Written::default(), namespace }
    }

    /// # Errors
    /// It was not carried out. What the server does not take is [`Failure::Refused`].
    pub async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        self.carry_out_with(effect, &mut AvailableCounts::default()).await
    }

    /// The same for one of several effects of a decision.
    ///
    /// # Errors
    /// It was not carried out. What the server does not take is [`Failure::Refused`].
    pub async fn carry_out_with(
        &self,
        effect: &Effect,
        counted: &mut AvailableCounts,
    ) -> Result<(), Failure> {
        match effect {
            Effect::Report { request, report } => {
                let span = spans::about_request("report on EvictionRequest", request);
                self.report(request, report).instrument(span).await
            }
            Effect::ReportIfAvailable { request, report, pods, at_least } => {
                let span = spans::about_request("report on EvictionRequest", request);
                async {
                    if self.count(&request.key.namespace, pods, counted).await? < *at_least {
                        return Err(Failure::Outdated);
                    }
                    self.report(request, report).await
                }
                .instrument(span)
                .await
            }
            Effect::DeletePod { pod, version } => {
                let span = spans::work("delete Pod", &pod.key.namespace, &pod.key.name);
                async {
                    match version {
                        None => self.delete(pod, None).await,
                        Some(version) => self.evict(pod, version).await,
                    }
                }
                .instrument(span)
                .await
            }
            Effect::HoldNodes(data) => {
                let span = spans::work("write ConfigMap", &self.namespace, HELD_NODES_CONFIG_MAP);
                self.hold_nodes(data).instrument(span).await
            }
            Effect::Prefer { pod, cost, before } => {
                let span = spans::work("mark Pod", &pod.key.namespace, &pod.key.name);
                self.prefer(pod, cost.as_deref(), before.as_deref()).instrument(span).await
            }
            Effect::Resize { deployment, replicas, surge } => {
                let span = spans::work("scale Deployment", &deployment.key.namespace, &deployment.key.name);
                let mut metadata = meta(&deployment.uid, &deployment.resource_version, surge.as_ref());
                metadata["labels"] = json!({SURGE_LABEL: surge.as_ref().map(Surge::label)});
                let patch = json!({"metadata": metadata, "spec": {"replicas": replicas}});
                self.merge::<DeploymentOnWire>(&deployment.key, &patch).instrument(span).await
            }
            Effect::Limit { autoscaler, min_replicas, max_replicas, raised } => {
                let span = spans::work(
                    "limit HorizontalPodAutoscaler",
                    &autoscaler.key.namespace,
                    &autoscaler.key.name,
                );
                let patch = json!({
                    "metadata": meta(&autoscaler.uid, &autoscaler.resource_version, raised.as_ref()),
                    "spec": {"minReplicas": min_replicas, "maxReplicas": max_replicas},
                });
                self.merge::<AutoscalerOnWire>(&autoscaler.key, &patch).instrument(span).await
            }
            Effect::MakeHandOver(new) => {
                let span = spans::work("make Pod", &new.set.namespace, &new.name);
                self.make_hand_over(new).instrument(span).await
            }
            Effect::HandOver { pod, hash } => {
                let span = spans::work("hand over Pod", &pod.key.namespace, &pod.key.name);
                let mut patch = json!({"metadata": {
                    "uid": &*pod.uid,
                    "resourceVersion": version_of(pod),
                    "labels": {POD_TEMPLATE_HASH_LABEL: &**hash},
                }});
                if !pod.is_named_after_another_set() {
                    patch["metadata"]["annotations"] = json!({HAND_OVER_ANNOTATION: null});
                }
                self.merge::<PodOnWire>(&pod.key, &patch).instrument(span).await
            }
            Effect::DropHandOver { pod } => {
                let span = spans::work("delete Pod", &pod.key.namespace, &pod.key.name);
                self.delete(pod, version_of(pod)).instrument(span).await
            }
            Effect::RecordEvent { namespace, workload, is_warning, reason, message } => {
                let about = ObjectReference {
                    api_version: Some(workload.api_version.to_string()),
                    kind: Some(workload.kind.to_string()),
                    name: Some(workload.name.to_string()),
                    uid: Some(workload.uid.to_string()),
                    namespace: Some(namespace.to_string()).filter(|namespace| !namespace.is_empty()),
                    ..ObjectReference::default()
                };
                self.events.record_on(about, reason, limited(message.clone()), *is_warning);
                Ok(())
            }
        }
    }

    /// How many of these pods the server has, unless it was asked before. Read from where writes go, not from a cache of the server.
    async fn count(
        &self,
        namespace: &str,
        wanted: &Arc<AvailablePods>,
        counted: &mut AvailableCounts,
    ) -> Result<usize, Failure> {
        if let Some((_, count)) = counted.0.iter().find(|(before, _)| before == wanted) {
            return Ok(*count);
        }
        let pods: Api<Lenient<PodOnWire>> = Api::namespaced(self.client.clone(), namespace);
        let mut parameters = ListParams::default().labels_from(&wanted.selector).limit(PAGE);
        let mut count = 0;
        loop {
            let page = pods.list(&parameters).await.map_err(failure_of_write)?;
            let read = page.items.into_iter().filter_map(|pod| pod.read().ok()).map(Pod::from);
            count += wanted.count(&read.collect::<Vec<_>>(), self.clock.now());
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
        counted.0.push((wanted.clone(), count));
        Ok(count)
    }

    async fn report(&self, request: &Request, report: &Report) -> Result<(), Failure> {
        let requests: Api<Lenient<RequestOnWire>> =
            Api::namespaced(self.client.clone(), &request.key.namespace);
        let read = version(request);
        let now = self.clock.now();
        // A report replaces the whole list of conditions, and the words of others are not kept in memory.
        let status = if report.condition.is_some() && request.status.conditions.iter().any(is_of_others) {
            report.patch(&stored_status(&requests, request, read.resource_version).await?, now)
        } else {
            report.patch(&request.status, now)
        };
        let write =
            Writer::named(INTERCEPTOR_FIELD_MANAGER).report(&requests, &request.key.name, read, status);
        self.once(Some((read.uid, read.resource_version)), write).await.map_err(failure_of_write)?
    }

    /// Writes, unless what it was decided on was written over here already.
    async fn once<W: kube::Resource>(
        &self,
        read: Option<(&str, &str)>,
        write: impl Future<Output = Result<W, Error>>,
    ) -> Result<Result<(), Failure>, Error> {
        if read.is_some_and(|read| self.written.is_outdated(read)) {
            return Ok(Err(Failure::Outdated));
        }
        let object = write.await?;
        if let Some(read) = read {
            self.written.wrote(read, object.meta().resource_version.as_deref());
        }
        Ok(Ok(()))
    }

    async fn prefer(&self, pod: &Pod, cost: Option<&str>, before: Option<&str>) -> Result<(), Failure> {
        let patch = json!({"metadata": {
            "uid": &*pod.uid,
            "annotations": {POD_DELETION_COST_ANNOTATION: cost, DELETION_COST_BEFORE_ANNOTATION: before},
        }});
        self.merge::<PodOnWire>(&pod.key, &patch).await
    }

    /// What is gone needs no change.
    async fn merge<W>(&self, key: &Key, patch: &Value) -> Result<(), Failure>
    where
        W: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let objects: Api<Lenient<W>> = Api::namespaced(self.client.clone(), &key.namespace);
        let parameters = PatchParams::apply(INTERCEPTOR_FIELD_MANAGER);
        match self
            .once(precondition(patch), objects.patch(&key.name, &parameters, &Patch::Merge(patch)))
            .await
        {
            Ok(written) => written,
            Err(why) if FailureClass::of(&why) == FailureClass::NotFound => Ok(()),
            Err(why) => Err(failure_of_write(why)),
        }
    }

    /// From the template as the server has it, and nothing of that is read: what newer servers know is kept.
    async fn make_hand_over(&self, new: &NewHandOver) -> Result<(), Failure> {
        let of = |kind: ApiResource| -> Api<DynamicObject> {
            Api::namespaced_with(self.client.clone(), &new.set.namespace, &kind)
        };
        let set = of(ApiResource::erase::<ReplicaSetOnWire>(&())).get(&new.set.name).await;
        let set = set.and_then(|set| serde_json::to_value(set).map_err(Error::SerdeError));
        let Some(pod) = new.pod(&set.map_err(failure_of_write)?) else { return Err(Failure::Outdated) };
        let pod: DynamicObject =
            serde_json::from_value(pod).map_err(|why| Failure::Later(why.to_string()))?;
        let pods = of(ApiResource::erase::<PodOnWire>(&()));
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.is_already_exists() => self.confirm_hand_over(new).await,
            Err(why) => Err(failure_of_write(why)),
        }
    }

    /// Whether the pod of that name is the one that was to be made.
    async fn confirm_hand_over(&self, new: &NewHandOver) -> Result<(), Failure> {
        let pods: Api<Lenient<PodOnWire>> = Api::namespaced(self.client.clone(), &new.set.namespace);
        let found = pods.get(&new.name).await.map_err(failure_of_write)?;
        if found.read().is_ok_and(|pod| new.is(&Pod::from(pod))) { Ok(()) } else { Err(Failure::NameTaken) }
    }

    async fn delete(&self, pod: &Pod, version: Option<&str>) -> Result<(), Failure> {
        is_gone(delete_pod(self.client.clone(), &pod.key.namespace, &pod.key.name, &pod.uid, version).await)
    }

    /// A pod that was never scheduled: the eviction API deletes it, and asks no budget. Every manager may do that, also one that must
    /// not delete pods.
    async fn evict(&self, pod: &Pod, version: &str) -> Result<(), Failure> {
        let options = EvictionOptions { resource_version: Some(version), ..EvictionOptions::default() };
        match evict(self.client.clone(), &pod.key.namespace, &pod.key.name, &pod.uid, options).await {
            Ok(Evicted::Accepted | Evicted::Gone) => Ok(()),
            Ok(Evicted::Conflict(_)) => Err(Failure::Outdated),
            Ok(Evicted::Refused(refusal)) => Err(failure_of_refusal(refusal)),
            Err(why) => Err(failure_of_write(why)),
        }
    }

    /// Written whole: what the manager before has left is replaced.
    async fn hold_nodes(&self, data: &BTreeMap<String, String>) -> Result<(), Failure> {
        config_map::write(&self.client, &self.namespace, HELD_NODES_CONFIG_MAP, data.clone()).await
    }
}

/// A webhook says by its code, which is of its choice, whether it is worth another try; whatever that says, it is not allowed.
fn failure_of_refusal(refusal: Refusal) -> Failure {
    let (reason, message) = match refusal {
        Refusal::NotAllowed { message } => (RefusedWrite::NotAllowed, message),
        Refusal::Webhook { code, message } if FailureClass::of_code(code).is_refused() => {
            (RefusedWrite::NotAllowed, message)
        }
        Refusal::Server { code, message } if FailureClass::of_code(code).is_refused() => {
            (RefusedWrite::Invalid, message)
        }
        refusal => return Failure::Later(refusal.reason().as_str().to_owned()),
    };
    Failure::Refused { reason, message: limited(message) }
}

/// For the object that was looked at and nothing that has changed since, with what is remembered on it.
fn meta(uid: &str, version: &str, remembered: Option<&impl Serialize>) -> Value {
    let text = remembered.and_then(|it| serde_json::to_string(it).ok());
    json!({"uid": uid, "resourceVersion": version, "annotations": {SURGE_ANNOTATION: text}})
}

/// The version of a pod that is to be handed over.
fn version_of(pod: &Pod) -> Option<&str> {
    pod.hand_over().map(|hand_over| hand_over.resource_version.as_str())
}
