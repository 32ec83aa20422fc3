//! The whole cluster, page by page, with no more of each object than the dry run looks at.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use usher_api::NodeMaintenance;
use usher_decide::outlook::{Cluster, NodeOnWire, PodOnWire, Workloads};
use usher_decide::snapshot::{DaemonSetOnWire, DeploymentOnWire, NamespaceOnWire, StatefulSetOnWire};

use crate::Error;
use crate::reading::Read;
use crate::world::list_as;

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
    let cluster = Cluster {
        workloads,
        maintenances: list_as(&maintenances, None).await?,
        nodes: list_as(&nodes, None).await?,
        pods: list_as(&pods, None).await?,
        budgets: budgets.unwrap_or_default(),
    };
    Ok(ClusterRead { cluster, budgets_are_hidden })
}

/// `None` for who may not read it.
fn if_allowed<T>(list: Result<Vec<T>, Error>) -> Result<Option<Vec<T>>, Error> {
    match list {
        Ok(list) => Ok(Some(list)),
        Err(Error::Forbidden(_)) => Ok(None),
        Err(why) => Err(why),
    }
}
