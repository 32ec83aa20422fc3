//! The whole cluster, page by page, with no more of each object than the dry run looks at.

use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, ResourceExt as _};
use usher_api::names::INTERCEPTORS_RESOLVED_ANNOTATION;
use usher_api::workloads::BundledInterceptor;
use usher_api::{Interceptor, NodeMaintenance};
use usher_decide::snapshot::{DaemonSetOnWire, DeploymentOnWire, NamespaceOnWire, StatefulSetOnWire};
use usher_forecast::outlook::{Cluster, NodeOnWire, Pod, PodOnWire, Workloads};

use crate::ask::{Asked, PodTarget, ask};
use crate::reading::Read;
use crate::world::list_as;
use crate::{DEFAULT_REQUESTER, Error, arguments};

/// So long an answer of admission is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub struct ClusterRead {
    pub cluster: Cluster,
    /// Budgets may not be read, so nothing can be said about them.
    pub budgets_are_hidden: bool,
}

pub async fn cluster(client: &Client) -> Result<ClusterRead, Error> {
    let nodes: Api<Read<NodeOnWire>> = Api::all(client.clone());
    let pods: Api<Read<PodOnWire>> = Api::all(client.clone());
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    let budgets: Api<Read<PodDisruptionBudget>> = Api::all(client.clone());
    let budgets = if_allowed(list_as(&budgets, None).await)?;
    let budgets_are_hidden = budgets.is_none();
    let namespaces: Api<Read<NamespaceOnWire>> = Api::all(client.clone());
    let daemon_sets: Api<Read<DaemonSetOnWire>> = Api::all(client.clone());
    let stateful_sets: Api<Read<StatefulSetOnWire>> = Api::all(client.clone());
    let workloads = Workloads::new(
        if_allowed(list_as(&daemon_sets, None).await)?,
        if_allowed(list_as(&stateful_sets, None).await)?.unwrap_or_default(),
        if_allowed(list_as(&namespaces, None).await)?.unwrap_or_default(),
    );
    let deployments: Api<Read<DeploymentOnWire>> = Api::all(client.clone());
    let workloads =
        workloads.with_deployments(if_allowed(list_as(&deployments, None).await)?.unwrap_or_default());
    let pods: Vec<Pod> = list_as(&pods, None).await?;
    let cluster = Cluster {
        workloads: workloads.without(switched_off(client, &pods).await),
        maintenances: list_as(&maintenances, None).await?,
        nodes: list_as(&nodes, None).await?,
        pods,
        budgets: budgets.unwrap_or_default(),
    };
    Ok(ClusterRead { cluster, budgets_are_hidden })
}

/// The bundled interceptors that the manager runs without. No object tells, but admission does: it is asked what it would make of a
/// request for one pod of each kind, which is not stored. Where it does not say, such as to who may not create requests, they count as on.
async fn switched_off(client: &Client, pods: &[Pod]) -> Vec<BundledInterceptor> {
    let mut off = Vec::new();
    for which in BundledInterceptor::ALL {
        let is_its = |pod: &&Pod| {
            let owner = pod.pod.owner.as_ref();
            owner.and_then(|owner| BundledInterceptor::of_owner(&owner.api_version, &owner.kind))
                == Some(which)
                && pod.has_bundled_controller()
                && !pod.pod.is_terminating()
                && !pod.pod.phase.is_terminal()
        };
        let Some(pod) = pods.iter().find(is_its) else { continue };
        let asked = tokio::time::timeout(ANSWER_WITHIN, would_answer(client, pod, which)).await;
        if asked == Ok(Some(false)) {
            off.push(which);
        }
    }
    off
}

/// Whether a request for the pod would have the interceptor. `None`: it is not known.
async fn would_answer(client: &Client, pod: &Pod, which: BundledInterceptor) -> Option<bool> {
    let (key, uid) = (&pod.pod.key, pod.pod.uid.to_string());
    let target = PodTarget { namespace: key.namespace.to_string(), name: key.name.to_string(), uid };
    let requester = arguments::requester(DEFAULT_REQUESTER).ok()?;
    let asked = ask(client, &target, &requester, None, true).await.ok()?;
    let (Asked::Created(request) | Asked::Joined(request) | Asked::Already(request)) = asked;
    let is_its = |it: &Interceptor| it.interceptor_class == which.class();
    let resolved = request.annotations().get(INTERCEPTORS_RESOLVED_ANNOTATION).is_some_and(|it| it == "true");
    let interceptors = &request.spec.interceptors;
    (resolved || !interceptors.is_empty()).then(|| interceptors.iter().any(is_its))
}

/// `None` for who may not read it.
fn if_allowed<T>(list: Result<Vec<T>, Error>) -> Result<Option<Vec<T>>, Error> {
    match list {
        Ok(list) => Ok(Some(list)),
        Err(Error::Forbidden(_)) => Ok(None),
        Err(why) => Err(why),
    }
}
