//! Names that the cluster knows.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use usher_api::NodeMaintenance;

use super::Kind;
use crate::arguments::Connection;
use crate::connect::Connected;
use crate::{Error, Surroundings};

/// Who presses Tab does not wait longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than so many names help nobody.
const MANY: u32 = 1000;

/// None if the cluster does not tell: a line that is being typed is no place for errors.
pub async fn names(kind: Kind, connection: &Connection, surroundings: &Surroundings) -> Vec<String> {
    let found = tokio::time::timeout(PATIENCE, find(kind, connection, surroundings)).await;
    found.ok().and_then(Result::ok).unwrap_or_default()
}

async fn find(
    kind: Kind,
    connection: &Connection,
    surroundings: &Surroundings,
) -> Result<Vec<String>, Error> {
    if kind == Kind::Contexts {
        return connection.contexts();
    }
    let Connected { client, namespace } = connection.open(surroundings).await?;
    let pods = || Api::<Pod>::namespaced(client.clone(), &namespace);
    match kind {
        Kind::Pods => of(pods()).await,
        Kind::Nodes => of(everywhere::<Node>(&client)).await,
        Kind::PodsAndNodes => {
            let (pods, nodes) = tokio::try_join!(of(pods()), of(everywhere::<Node>(&client)))?;
            Ok(pods.into_iter().chain(nodes.iter().map(|node| format!("node/{node}"))).collect())
        }
        Kind::Maintenances => of(everywhere::<NodeMaintenance>(&client)).await,
        Kind::Namespaces => of(everywhere::<Namespace>(&client)).await,
        Kind::Contexts => Ok(Vec::new()),
    }
}

fn everywhere<K: Resource<DynamicType = ()>>(client: &Client) -> Api<K> {
    Api::all(client.clone())
}

async fn of<K>(api: Api<K>) -> Result<Vec<String>, Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = api.list_metadata(&ListParams::default().limit(MANY)).await?;
    Ok(list.items.iter().map(|object| object.name_any()).collect())
}
