//! The effects of decisions on maintenances, their nodes and their pods, in their order, up to the first that fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tracing::Instrument as _;
use usher_api::lenient::Lenient;
use usher_api::names::{
    FIELD_MANAGER, MAINTENANCE_COMPLETION_FINALIZER, NODE_HELD_BY_ANNOTATION, NODE_MAINTENANCE_CONDITION,
    NODE_MAINTENANCE_FINALIZER, NODE_PHASE_ANNOTATION, NODE_WAS_UNSCHEDULABLE_ANNOTATION,
};
use usher_api::{EvictionRequest, NodeMaintenance};
use usher_client::requests::new_request;
use usher_client::{FailureClass, Writer};
use usher_decide::admission::Rule;
use usher_decide::decision::limited;
use usher_decide::maintenance::decision::{Effect, NodeEffect, Notice, PodEffect};
use usher_decide::snapshot::{Maintenance, Node, NodeOnWire, Owner, Pod, Request};

use crate::events::Events;
use crate::requests::{Failure, RefusedWrite, breaks_only, failure_of, failure_of_write, remember};
use crate::{requesters, spans, status};

/// What etcd says of a request that is too large, and what its client does.
const TOO_LARGE: [&str; 2] = ["request is too large", "message larger than max"];
/// As whom requests are written.
const WRITER: Writer = Writer::named(FIELD_MANAGER);
/// So many letters of a refusal are told.
const SHOWN_AT_MOST: usize = 500;

/// Maintenances by their names, with their UIDs.
type Holders = BTreeMap<Arc<str>, Arc<str>>;

/// Carries out effects with this client.
#[derive(Clone)]
pub struct Maintenances {
    client: Client,
    events: Events,
}

/// What came of it: the object as it is on the server afterwards, if it was written, and what failed.
#[derive(Debug)]
pub struct MaintenanceApplied<T> {
    pub fresh: Option<T>,
    pub failure: Option<Failure>,
    /// The server has taken the status of a maintenance, whatever failed after it.
    pub status_taken: bool,
}

impl<T> MaintenanceApplied<T> {
    fn of(result: Result<(), Failure>, fresh: Option<T>) -> Self {
        Self { fresh, failure: result.err(), status_taken: false }
    }
}

impl Maintenances {
    pub fn new(client: Client, events: Events) -> Self {
        Self { client, events }
    }

    pub async fn maintenance(
        &self,
        maintenance: &Maintenance,
        effects: &[Effect],
    ) -> MaintenanceApplied<Maintenance> {
        let mut version = maintenance.resource_version.clone();
        let (mut fresh, mut status_taken) = (None, false);
        for effect in effects {
            let done = match effect {
                Effect::AddFinalizer => {
                    let mut names = maintenance.finalizers.clone();
                    names.push(MAINTENANCE_COMPLETION_FINALIZER.to_string());
                    self.set(maintenance, &mut version, None, json!({"metadata": {"finalizers": names}}))
                        .await
                }
                Effect::RemoveFinalizer => {
                    let mut names = maintenance.finalizers.clone();
                    names.retain(|name| name != MAINTENANCE_COMPLETION_FINALIZER);
                    self.set(maintenance, &mut version, None, json!({"metadata": {"finalizers": names}}))
                        .await
                }
                Effect::SetStageComplete => {
                    self.set(maintenance, &mut version, None, json!({"spec": {"stage": "Complete"}})).await
                }
                Effect::WriteStatus(status) => {
                    self.set(maintenance, &mut version, Some("status"), status::of_maintenance(status)).await
                }
                Effect::WriteConditions(conditions) => {
                    let patch = json!({"status": {"conditions": conditions}});
                    self.set(maintenance, &mut version, Some("status"), patch).await.map_err(later)
                }
                Effect::RecordEvent(notice) => {
                    self.record(maintenance_reference(&maintenance.name, &maintenance.uid), notice);
                    continue;
                }
            };
            match done {
                Ok(written) => {
                    status_taken |= matches!(effect, Effect::WriteStatus(_));
                    fresh = written.read().ok().map(Maintenance::from);
                }
                Err(failure) => {
                    return MaintenanceApplied {
                        status_taken,
                        ..MaintenanceApplied::of(Err(failure), fresh)
                    };
                }
            }
        }
        MaintenanceApplied { status_taken, ..MaintenanceApplied::of(Ok(()), fresh) }
    }

    async fn set(
        &self,
        maintenance: &Maintenance,
        version: &mut String,
        subresource: Option<&str>,
        mut patch: Value,
    ) -> Result<Lenient<NodeMaintenance>, Failure> {
        let call =
            if subresource.is_some() { "write status of NodeMaintenance" } else { "write NodeMaintenance" };
        let span = spans::about_maintenance(call, &maintenance.name);
        patch["metadata"]["uid"] = (*maintenance.uid).into();
        patch["metadata"]["resourceVersion"] = version.as_str().into();
        let api: Api<Lenient<NodeMaintenance>> = Api::all(self.client.clone());
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER), Patch::Merge(&patch));
        let written = match subresource {
            None => api.patch(&maintenance.name, &parameters, &patch).instrument(span.clone()).await,
            Some(_) => {
                api.patch_status(&maintenance.name, &parameters, &patch).instrument(span.clone()).await
            }
        };
        let written = written.map_err(|why| refusal_of_write(&why).unwrap_or_else(|| failure_of(why)));
        spans::end(&span, &written);
        let written = written?;
        remember(written.meta(), version);
        Ok(written)
    }

    /// What is refused is told to the node, and to the maintenances that hold it.
    pub async fn node(
        &self,
        node: &Node,
        effects: &[NodeEffect],
        holders: &Holders,
        now: Timestamp,
    ) -> MaintenanceApplied<Node> {
        let mut version = node.resource_version.clone();
        let mut fresh = None;
        for effect in effects {
            let done = match effect {
                NodeEffect::Hold { held_by, was_unschedulable, phase } => {
                    let names: Vec<&str> = held_by.iter().map(|name| &**name).collect();
                    let annotations = json!({
                        NODE_HELD_BY_ANNOTATION: names.join(","),
                        NODE_WAS_UNSCHEDULABLE_ANNOTATION: was_unschedulable.to_string(),
                        NODE_PHASE_ANNOTATION: phase.name(),
                    });
                    self.mark(node, &mut version, &annotations, Some(true)).await
                }
                NodeEffect::Release { unschedulable } => {
                    let annotations = json!({
                        NODE_HELD_BY_ANNOTATION: null,
                        NODE_WAS_UNSCHEDULABLE_ANNOTATION: null,
                        NODE_PHASE_ANNOTATION: null,
                    });
                    self.mark(node, &mut version, &annotations, unschedulable.then_some(true)).await
                }
                NodeEffect::Show { status, reason, message } => {
                    self.show(node, &mut version, [status, reason, message], now).await
                }
                NodeEffect::RecordEvent(notice) | NodeEffect::RecordConflict(notice) => {
                    self.record(node_reference(node), notice);
                    self.record_on_maintenances(&notice.maintenances, notice);
                    continue;
                }
            };
            match done {
                Ok(written) => fresh = written.read().ok().map(Node::from),
                Err(failure) => {
                    if let Failure::Refused { reason, message } = &failure {
                        let notice =
                            refused("NodeNotWritten", *reason, &format!("node {}", node.name), message);
                        self.record(node_reference(node), &notice);
                        self.record_on_maintenances(holders, &notice);
                    }
                    return MaintenanceApplied::of(Err(failure), fresh);
                }
            }
        }
        MaintenanceApplied::of(Ok(()), fresh)
    }

    /// Cordon and marks in one write. A node that is schedulable does not have the field.
    async fn mark(
        &self,
        node: &Node,
        version: &mut String,
        annotations: &Value,
        unschedulable: Option<bool>,
    ) -> Result<Lenient<NodeOnWire>, Failure> {
        let patch = json!({
            "metadata": {"uid": &*node.uid, "resourceVersion": version, "annotations": annotations},
            "spec": {"unschedulable": unschedulable},
        });
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        let span = spans::about_node("write Node", &node.name);
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER), Patch::Merge(&patch));
        let written = nodes.patch(&node.name, &parameters, &patch).instrument(span.clone()).await;
        let written = written.map_err(failure_of_write);
        spans::end(&span, &written);
        let written = written?;
        remember(written.meta(), version);
        Ok(written)
    }

    async fn show(
        &self,
        node: &Node,
        version: &mut String,
        [status, reason, message]: [&str; 3],
        now: Timestamp,
    ) -> Result<Lenient<NodeOnWire>, Failure> {
        let has_changed = node.condition.as_ref().is_none_or(|(before, ..)| before != status);
        let condition = NodeCondition {
            type_: NODE_MAINTENANCE_CONDITION.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: has_changed.then_some(Time(now)),
        };
        let patch = json!({
            "metadata": {"uid": &*node.uid, "resourceVersion": version},
            "status": {"conditions": [condition]},
        });
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        // Conditions of nodes are merged by their type: those of the kubelet stay.
        let span = spans::about_node("write status of Node", &node.name);
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER), Patch::Strategic(&patch));
        let written = nodes.patch_status(&node.name, &parameters, &patch).instrument(span.clone()).await;
        let written = written.map_err(failure_of_write);
        spans::end(&span, &written);
        let written = written?;
        remember(written.meta(), version);
        Ok(written)
    }

    /// `request` is the one that the pod has, if any. What is refused is told to the pod, and to the maintenances that hold its node.
    pub async fn pod(
        &self,
        pod: &Pod,
        request: Option<&Request>,
        effects: &[PodEffect],
        holders: &Holders,
    ) -> Result<(), Failure> {
        for effect in effects {
            let call = match effect {
                PodEffect::Request => "create EvictionRequest",
                PodEffect::Join | PodEffect::Withdraw => "write finalizers of EvictionRequest",
                // Events are written by somebody else, later.
                PodEffect::RecordOnWorkload(..) => "record event on workload",
            };
            let span = spans::about_pod(call, &pod.key, &pod.uid);
            let done = self.about_pod(pod, request, effect).instrument(span.clone()).await;
            spans::end(&span, &done);
            if let Err(Failure::Refused { reason, message }) = &done {
                let what = format!("eviction requests in namespace {}", pod.key.namespace);
                let notice = refused("EvictionRequestNotWritten", *reason, &what, message);
                self.record(pod_reference(pod), &notice);
                self.record_on_maintenances(holders, &notice);
            }
            done?;
        }
        Ok(())
    }

    async fn about_pod(
        &self,
        pod: &Pod,
        request: Option<&Request>,
        effect: &PodEffect,
    ) -> Result<(), Failure> {
        match (effect, request) {
            (PodEffect::Request, _) => self.create(pod).await,
            (PodEffect::Join, Some(request)) => {
                let joined =
                    requesters::join(&self.client, WRITER, request, NODE_MAINTENANCE_FINALIZER).await;
                joined.map_err(failure_of_write)
            }
            (PodEffect::Withdraw, Some(request)) => {
                let withdrawn =
                    requesters::withdraw(&self.client, WRITER, request, NODE_MAINTENANCE_FINALIZER).await;
                withdrawn.map_err(failure_of_write)
            }
            (PodEffect::Join | PodEffect::Withdraw, None) => Err(Failure::Outdated),
            (PodEffect::RecordOnWorkload(workload, notice), _) => {
                self.record(workload_reference(workload, &pod.key.namespace), notice);
                self.record_on_maintenances(&notice.maintenances, notice);
                Ok(())
            }
        }
    }

    async fn create(&self, pod: &Pod) -> Result<(), Failure> {
        let request =
            new_request(&pod.key.namespace, &pod.key.name, &pod.uid, NODE_MAINTENANCE_FINALIZER, None);
        let requests: Api<EvictionRequest> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let mut created = WRITER.create(&requests, &request).await;
        // What is copied from the pod is read twice on the way, and its ReplicaSet may adopt it in between.
        if let Err(kube::Error::Api(status)) = &created
            && breaks_only(status, &[Rule::CopiedFromPod])
        {
            created = WRITER.create(&requests, &request).await;
        }
        created.map(drop).map_err(failure_of_write)
    }

    fn record_on_maintenances(&self, maintenances: &Holders, notice: &Notice) {
        for (name, uid) in maintenances {
            self.record(maintenance_reference(name, uid), notice);
        }
    }

    fn record(&self, about: ObjectReference, notice: &Notice) {
        self.events.record_on(about, notice.reason, notice.message.clone(), notice.is_warning);
    }
}

/// What the server will not take however often it is asked. What is too large for etcd has no reason that would tell it from
/// other errors within the server, so that the message has to. An
/// account that the server does not know, alone of what it refuses, is tried again and not told: it cannot write that either.
fn refusal_of_write(why: &kube::Error) -> Option<Failure> {
    let kube::Error::Api(status) = why else { return None };
    let is_too_large = || TOO_LARGE.iter().any(|words| status.message.contains(words));
    let reason = match FailureClass::of(why) {
        FailureClass::TooLarge => RefusedWrite::StatusTooLarge,
        FailureClass::Server if is_too_large() => RefusedWrite::StatusTooLarge,
        FailureClass::Forbidden | FailureClass::Invalid => RefusedWrite::StatusRefused,
        _ => return None,
    };
    // An answer may repeat what was sent.
    Some(Failure::Refused { reason, message: status.message.chars().take(SHOWN_AT_MOST).collect() })
}

/// The server does not take `what`, and says why.
fn refused(told: &'static str, reason: RefusedWrite, what: &str, message: &str) -> Notice {
    let advice = match reason {
        RefusedWrite::NotAllowed => {
            "see whether Usher's account has its roles (deploy/), and whether a quota or a policy refuses it"
        }
        RefusedWrite::Invalid
        | RefusedWrite::NoNamespace
        | RefusedWrite::StatusTooLarge
        | RefusedWrite::StatusRefused => {
            "see whether the definitions are those of this version, and whether a policy refuses it"
        }
    };
    let message = limited(format!("the API server refuses what Usher writes of {what}: {message}; {advice}"));
    Notice::warning(told, message)
}

fn later(failure: Failure) -> Failure {
    match failure {
        Failure::Refused { message, .. } => Failure::Later(message),
        other => other,
    }
}

fn maintenance_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(NodeMaintenance::api_version(&()).into_owned()),
        kind: Some(NodeMaintenance::kind(&()).into_owned()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.to_string()),
        namespace: Some(pod.key.namespace.to_string()),
        ..ObjectReference::default()
    }
}

fn workload_reference(workload: &Owner, namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(workload.api_version.to_string()),
        kind: Some(workload.kind.to_string()),
        name: Some(workload.name.to_string()),
        uid: Some(workload.uid.to_string()),
        namespace: Some(namespace.to_string()),
        ..ObjectReference::default()
    }
}

fn node_reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.name.to_string()),
        uid: Some(node.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_will_never_take_is_told_from_what_it_could_not_do_now() {
        let rows = [
            (413, "Request entity too large: limit is 3145728", Some(RefusedWrite::StatusTooLarge)),
            (500, "etcdserver: request is too large", Some(RefusedWrite::StatusTooLarge)),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)",
                Some(RefusedWrite::StatusTooLarge),
            ),
            (
                422,
                "NodeMaintenance \"m\" is invalid: status.nodes: Invalid value",
                Some(RefusedWrite::StatusRefused),
            ),
            (500, "etcdserver: request timed out", None),
            (409, "the object has been modified", None),
            (403, "forbidden", Some(RefusedWrite::StatusRefused)),
            (401, "unauthorized", None),
            (400, "the patch is malformed", Some(RefusedWrite::StatusRefused)),
        ];
        for (code, message, wanted) in rows {
            let status =
                kube::core::Status { code, message: message.to_string(), ..kube::core::Status::default() };
            let found = refusal_of_write(&kube::Error::Api(Box::new(status)));
            let reason = found.map(|failure| match failure {
                Failure::Refused { reason, .. } => reason,
                other => panic!("{other:?}"),
            });
            assert_eq!(reason, wanted, "{code} {message}");
        }
    }
}
