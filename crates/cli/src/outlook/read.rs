//! The whole cluster, page by page, with no more of each object than the dry run looks at.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use usher_api::NodeMaintenance;
use usher_decide::outlook::{Cluster, NodeOnWire, PodOnWire};

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
    let (budgets, budgets_are_hidden) = match list_as(&budgets, None).await {
        Ok(budgets) => (budgets, false),
        Err(Error::Forbidden(_)) => (Vec::new(), true),
        Err(why) => return Err(why),
    };
    let cluster = Cluster {
        maintenances: list_as(&maintenances, None).await?,
        nodes: list_as(&nodes, None).await?,
        pods: list_as(&pods, None).await?,
        budgets,
    };
    Ok(ClusterRead { cluster, budgets_are_hidden })
}
