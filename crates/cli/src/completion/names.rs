//! Names that the cluster knows.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::{Client, Resource};
use usher_api::NodeMaintenance;

use super::Kind;
use crate::arguments::Connection;
use crate::connect::Connected;
use crate::reading;
use crate::{Environment, Error};

/// Who presses Tab does not wait longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than so many names help nobody.
const MANY: u32 = 1000;

/// None if the cluster does not tell: a line that is being typed is no place for errors.
pub async fn names(kind: Kind, connection: &Connection, environment: &Environment) -> Vec<String> {
    let found = tokio::time::timeout(PATIENCE, find(kind, connection, environment)).await;
    found.ok().and_then(Result::ok).unwrap_or_default()
}

async fn find(kind: Kind, connection: &Connection, environment: &Environment) -> Result<Vec<String>, Error> {
    if kind == Kind::Contexts {
        return connection.contexts();
    }
    let Connected { client, namespace } = connection.open(environment).await?;
    let pods = || of::<Pod>(&client, Some(&namespace));
    match kind {
        Kind::Pods => pods().await,
        Kind::Nodes => of::<Node>(&client, None).await,
        Kind::Deployments => of::<Deployment>(&client, Some(&namespace)).await,
        Kind::PodsAndNodes => {
            let (pods, nodes) = tokio::try_join!(pods(), of::<Node>(&client, None))?;
            Ok(pods.into_iter().chain(nodes.iter().map(|node| format!("node/{node}"))).collect())
        }
        Kind::Maintenances => of::<NodeMaintenance>(&client, None).await,
        Kind::Namespaces => of::<Namespace>(&client, None).await,
        Kind::Contexts => Ok(Vec::new()),
    }
}

async fn of<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Vec<String>, Error> {
    Ok(reading::names::<K>(client, namespace, &ListParams::default().limit(MANY)).await?)
}
