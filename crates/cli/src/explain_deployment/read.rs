//! A Deployment with its pods, their requests and budgets, and the autoscalers over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt as _};
use usher_api::EvictionRequest;
use usher_api::names::HAND_OVER_ANNOTATION;
use usher_decide::snapshot::{
    Autoscaler, AutoscalerOnWire, Deployment, DeploymentOnWire, Namespace, NamespaceOnWire, PodOnWire,
    ReplicaSet, ReplicaSetOnWire,
};

use super::explanation::DeploymentFound;
use crate::Error;
use crate::error::is_missing;
use crate::explain::{PodFound, leader};
use crate::explain_node::close_to;
use crate::reading::{self, Read};
use crate::world::{World, list, list_as, scoped};

pub async fn find(client: &Client, namespace: &str, name: &str) -> Result<DeploymentFound, Error> {
    let deployments: Api<Read<DeploymentOnWire>> = scoped(client, Some(namespace));
    let deployment = match deployments.get(name).await {
        Ok(deployment) => deployment.wanted()?,
        Err(why) if is_missing(&why) => return Err(unknown(client, namespace, name).await?),
        Err(why) => return Err(why.into()),
    };
    let labels = Selector::try_from(deployment.selector().clone()).ok().map(|it| it.to_string());
    let deployment = Deployment::from(deployment);
    let pods = pods_of(client, &deployment, labels.as_deref()).await?;
    // Who may not read autoscalers or the namespace gets an explanation without them.
    let autoscalers: Vec<Autoscaler> =
        list_as(&scoped::<AutoscalerOnWire>(client, Some(namespace)), None).await.unwrap_or_default();
    let over = Autoscaler::over(name, &autoscalers).cloned();
    let namespaces: Api<Read<NamespaceOnWire>> = Api::all(client.clone());
    let within = namespaces.get(namespace).await.ok().and_then(Read::object).map(Namespace::from);
    Ok(DeploymentFound {
        autoscaler: over,
        namespace_strategy: within.and_then(|within| within.strategy),
        deployment,
        pods,
    })
}

/// The pods of its ReplicaSets, each with its request and the budgets of the namespace.
async fn pods_of(
    client: &Client,
    deployment: &Deployment,
    labels: Option<&str>,
) -> Result<Vec<PodFound>, Error> {
    let namespace = deployment.key.namespace.to_string();
    let sets: Vec<ReplicaSet> =
        list_as(&scoped::<ReplicaSetOnWire>(client, Some(&namespace)), labels).await?;
    let is_its = |set: &ReplicaSet| set.deployment.as_ref().is_some_and(|(_, uid)| *uid == deployment.uid);
    let sets: BTreeMap<Arc<str>, Arc<str>> =
        sets.into_iter().filter(is_its).map(|set| (set.uid, set.key.name.clone())).collect();
    let pods: Vec<PodOnWire> = list(&scoped(client, Some(&namespace)), labels).await?;
    let is_its = |pod: &PodOnWire| {
        let mut owners = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
        // Or they are to be handed over to one of them.
        let handed = pod.annotations().get(HAND_OVER_ANNOTATION);
        owners.any(|owner| sets.contains_key(owner.uid.as_str()))
            || handed.is_some_and(|set| sets.values().any(|name| **name == *set))
    };
    let requests: Vec<EvictionRequest> = list(&scoped(client, Some(&namespace)), None).await?;
    let mut requests: BTreeMap<String, EvictionRequest> =
        requests.into_iter().map(|request| (request.spec.pod_ref.uid.clone(), request)).collect();
    let mut world = World::default();
    world.read_budgets(client, Some(&namespace)).await?;
    let leader = leader(client).await;
    let found = pods.into_iter().filter(is_its).map(|pod| PodFound {
        namespace: namespace.clone(),
        name: pod.name_any(),
        request: requests.remove(&pod.uid().unwrap_or_default()),
        pod: Some(pod),
        world: world.clone(),
        events: Vec::new(),
        leader: leader.clone(),
        set: None,
    });
    Ok(found.collect())
}

async fn unknown(client: &Client, namespace: &str, name: &str) -> Result<Error, Error> {
    let names = reading::names::<DeploymentOnWire>(client, Some(namespace), &ListParams::default()).await?;
    let close = close_to(name, &names);
    let offer = if close.is_empty() { String::new() } else { format!("did you mean {}? ", close.join(", ")) };
    Ok(Error::Refused(format!(
        "there is no Deployment {name:?} in namespace {namespace}: {offer}kubectl get deployments -n {namespace} lists all"
    )))
}
