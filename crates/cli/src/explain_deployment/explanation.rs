//! The explanation of a Deployment as data.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::workloads::{BundledInterceptor, Strategy, UnknownStrategy};
use usher_decide::interceptors::deployment::CLASSES;
use usher_decide::interceptors::is_wanted;
use usher_decide::interceptors::surge::{Case, describe, strategy_of};
use usher_decide::node_state::Urgency;
use usher_decide::snapshot::{Autoscaler, Deployment, Request};

use crate::explain::{PodFound, UnavailableFacts, slim_pod, slim_request};
use crate::explain_node::{Group, groups};

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
    let slim = pods.iter().filter_map(|found| slim_pod(found.pod.as_ref()?)).map(Arc::new);
    let (handed, slim): (Vec<_>, Vec<_>) = slim.partition(|pod| pod.hand_over().is_some());
    let slim: BTreeMap<_, _> = slim.into_iter().map(|pod| (pod.key.clone(), pod)).collect();
    let requests: HashMap<_, _> = pods
        .iter()
        .filter_map(|found| slim_request(found.request.as_ref()?))
        .map(|request| (request.pod_uid.clone(), Arc::new(request)))
        .collect();
    let is_asked = |uid: &Arc<str>| requests.contains_key(uid);
    let handed_asked = handed.iter().map(|pod| pod.uid.clone()).filter(is_asked).collect();
    let strategy = Strategy::of(
        BundledInterceptor::Deployment,
        deployment.strategy.as_deref(),
        namespace_strategy.as_deref(),
    );
    let unknown_strategy = strategy.as_ref().err().map(UnknownStrategy::describe);
    let said = strategy.unwrap_or_else(|unknown| unknown.instead);
    let strategy = strategy_of(deployment, autoscaler.as_ref(), said);
    // A manager that must not make pods surges by replicas instead, and nobody tells so but by doing it.
    let surges = deployment.surge.as_ref().is_some_and(|it| it.by > 0)
        || autoscaler.as_ref().and_then(|it| it.raised.as_ref()).is_some_and(|it| it.by > 0);
    let is_instead = strategy == Strategy::HandOver && handed.is_empty() && surges;
    let case = Case {
        deployment,
        strategy: if is_instead { Strategy::Default } else { strategy },
        autoscaler: autoscaler.as_ref(),
        pods: &slim,
        requests: &requests,
        handed: &handed,
        handed_asked: &handed_asked,
        may_hand_over: !handed.is_empty(),
        taken: &HashMap::new(),
        moved: Timestamp::MIN,
        refused: None,
    };
    let described = describe(&case, now);
    let unavailable: Vec<UnavailableFacts> = described
        .unavailable
        .into_iter()
        .map(|(pod, why)| UnavailableFacts { pod, reason: why.reason(), message: why.words() })
        .collect();
    let is_leaving = |found: &&PodFound| {
        let uid = found.pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref());
        uid.and_then(|uid| requests.get(uid)).is_some_and(|request| is_wanted(request))
    };
    let leaving = || pods.iter().filter(is_leaving);
    // Pods that only the eviction API is to evict are not in progress, in the specification's words.
    let is_intercepted = |request: &Arc<Request>| {
        let status = &request.status;
        is_wanted(request)
            && status.active_interceptor_class.is_some()
            && !status.active_interceptor_completed
    };
    let mut groups = groups(leaving(), None, now);
    let is_own_turn =
        |group: &Group| group.waiting_on.names.iter().any(|name| CLASSES.contains(&name.as_str()));
    // Where the manager does not run, that is told.
    for group in groups.iter_mut().filter(|group| is_own_turn(group) && group.urgency != Urgency::Late) {
        if !unavailable.is_empty() || described.missing > 0 {
            // The same is told above.
            group.said = None;
        }
        group.advice = "wait until enough others of its pods are available".to_owned();
    }
    let is_available = |name: &str| !unavailable.iter().any(|it| it.pod == name);
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
        available_replicas: slim.values().filter(|pod| pod.is_ready() && is_available(&pod.key.name)).count(),
        replicas_to_evict: leaving().count(),
        eviction_request_in_progress: requests.values().any(is_intercepted),
        waiting: described.waiting,
        replaced: described.replaced,
        unavailable,
        missing: described.missing,
        replica_failure: deployment.replica_failure.clone(),
        is_rolling_out: described.is_rolling_out,
        unknown_strategy,
        declines: described.declines,
        groups,
    }
}
