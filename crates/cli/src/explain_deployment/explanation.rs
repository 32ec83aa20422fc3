//! The explanation of a Deployment as data.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::workloads::UnknownStrategy;
use usher_decide::interceptors::surge::describe;
use usher_decide::snapshot::{Autoscaler, Deployment, Pod};

use crate::explain::{PodFound, UnavailableFacts, slim_request};
use crate::explain_node::{Beside, Group, groups};

/// What the explanation is made from.
pub struct DeploymentFound {
    pub deployment: Deployment,
    /// What its namespace says of workloads.
    pub namespace_strategy: Option<String>,
    pub autoscaler: Option<Autoscaler>,
    pub pods: Vec<PodFound>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentExplanation {
    pub namespace: String,
    pub name: String,
    /// So many pods its owner wants.
    pub wanted_replicas: u32,
    /// So many more it has for now.
    pub surge: u32,
    pub max_surge: u32,
    /// It does not surge: so many of its pods go at a time, and others come for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<u32>,
    /// Its new pods come beside the replicas, and are handed over.
    pub hands_over: bool,
    /// How often somebody has set the surge back.
    pub reverted: u32,
    /// The autoscaler over it, whose limits are raised instead of the replicas.
    pub autoscaler: Option<String>,
    pub available_replicas: usize,
    /// So many of its pods are asked to leave.
    pub replicas_to_evict: usize,
    pub eviction_request_in_progress: bool,
    /// Pods that wait for a replacement, in the order in which they go.
    pub waiting: Vec<String>,
    /// Pods whose replacement is available, and which the ReplicaSet deletes.
    pub replaced: Vec<String>,
    /// Pods that stay, and are not available.
    pub unavailable: Vec<UnavailableFacts>,
    /// So many are to come that nobody has made yet.
    pub missing: usize,
    /// Why nobody can make them, in the server's words.
    pub replica_failure: Option<String>,
    pub is_rolling_out: bool,
    /// Its annotation for the strategy, or its namespace's, says nothing known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_strategy: Option<String>,
    /// Why its pods are left to the eviction API, if they are.
    pub declines: Option<String>,
    /// What the pods that are asked to leave wait on, worst first.
    pub groups: Vec<Group>,
}

pub fn explain(found: &DeploymentFound, now: Timestamp) -> DeploymentExplanation {
    let DeploymentFound { deployment, namespace_strategy, autoscaler, pods } = found;
    let slim = pods.iter().filter_map(|found| found.pod.clone().map(Pod::from)).map(Arc::new);
    let requests = pods.iter().filter_map(|found| slim_request(found.request.as_ref()?)).map(Arc::new);
    let described =
        describe(deployment, namespace_strategy.as_deref(), autoscaler.as_ref(), slim, requests, now);
    let is_leaving = |found: &&PodFound| {
        let uid = found.pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref());
        uid.is_some_and(|uid| described.leaving.contains(uid))
    };
    let beside = Beside::Deployment { names_what_is_missing: described.names_what_is_missing() };
    let groups = groups(pods.iter().filter(is_leaving), beside, now);
    let unavailable = described.unavailable.into_iter().map(|(pod, why)| UnavailableFacts {
        pod,
        reason: why.reason(),
        message: why.words(),
    });
    DeploymentExplanation {
        namespace: deployment.key.namespace.to_string(),
        name: deployment.key.name.to_string(),
        wanted_replicas: described.wanted,
        surge: described.surge,
        max_surge: described.max_surge,
        max_unavailable: described.max_unavailable,
        hands_over: described.hands_over,
        reverted: described.reverted,
        autoscaler: autoscaler.as_ref().map(|it| it.key.name.to_string()),
        available_replicas: described.available,
        replicas_to_evict: described.leaving.len(),
        eviction_request_in_progress: described.is_in_progress,
        waiting: described.waiting,
        replaced: described.replaced,
        unavailable: unavailable.collect(),
        missing: described.missing,
        replica_failure: deployment.replica_failure.clone(),
        is_rolling_out: described.is_rolling_out,
        unknown_strategy: described.unknown_strategy.as_ref().map(UnknownStrategy::describe),
        declines: described.declines,
        groups,
    }
}
