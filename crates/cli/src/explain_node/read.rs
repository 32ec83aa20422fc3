//! A node with its maintenances, its pods, and their requests and budgets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize;
use usher_api::names::NODE_AGENT_ANNOTATION;
use usher_api::node_agent::NodeAgentMark;
use usher_api::{EvictionRequest, NodeMaintenance, stands_for};
use usher_decide::snapshot::{Maintenance, NodeOnWire, Phase, PodOnWire};

use super::explanation::NodeFound;
use crate::Error;
use crate::error::is_missing;
use crate::explain::{PodFound, leader};
use crate::reading::{self, Read};
use crate::world::{World, list_as};

/// So many requests are asked for at a time.
const AT_ONCE: usize = 16;
/// So many names are offered for one that is wrong.
const OFFERED: usize = 3;

/// The metadata of a node as the server sends it. What decisions look at leaves out who wrote which field.
#[derive(Debug, Clone, Deserialize)]
struct NodeMetadata {
    metadata: ObjectMeta,
}

stands_for!(NodeMetadata, Node);

pub async fn find(client: &Client, name: &str) -> Result<NodeFound, Error> {
    let nodes: Api<Read<NodeMetadata>> = Api::all(client.clone());
    let node = match nodes.get(name).await {
        Ok(node) => node,
        Err(why) if is_missing(&why) => return Err(unknown(client, name).await?),
        Err(why) => return Err(why.into()),
    };
    let cordoned_by = node.as_object().and_then(cordoned_by);
    let agent = node.as_object().and_then(|node| {
        NodeAgentMark::read(node.metadata.annotations.as_ref()?.get(NODE_AGENT_ANNOTATION)?).map(Box::new)
    });
    let node = node.again::<NodeOnWire>().wanted()?.into();
    let maintenances: Vec<Maintenance> =
        list_as(&Api::<Read<NodeMaintenance>>::all(client.clone()), None).await?;
    Ok(NodeFound { pods: pods_of(client, name).await?, maintenances, node, cordoned_by, agent })
}

/// The pods that a drain waits for, each with its request and the budgets of its namespace.
async fn pods_of(client: &Client, node: &str) -> Result<Vec<PodFound>, Error> {
    let pods: Api<Read<PodOnWire>> = Api::all(client.clone());
    let pods = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await?;
    let is_there = |pod: &PodOnWire| !Phase::parse(pod.phase()).is_terminal();
    let pods: Vec<PodOnWire> = pods.items.into_iter().filter_map(Read::object).filter(is_there).collect();
    let mut worlds: BTreeMap<String, World> = BTreeMap::new();
    for pod in &pods {
        let namespace = pod.namespace().unwrap_or_default();
        if let Entry::Vacant(unread) = worlds.entry(namespace.clone()) {
            unread.insert(World::default()).read_budgets(client, Some(&namespace)).await?;
        }
    }
    let leader = leader(client).await;
    let (worlds, leader) = (&worlds, &leader);
    let found = stream::iter(pods).map(|pod| async move {
        let namespace = pod.namespace().unwrap_or_default();
        let requests: Api<Read<EvictionRequest>> = Api::namespaced(client.clone(), &namespace);
        let request = match requests.get(&pod.uid().unwrap_or_default()).await {
            Ok(request) => request.object(),
            Err(why) if is_missing(&why) => None,
            Err(why) => return Err(Error::from(why)),
        };
        Ok(PodFound {
            name: pod.name_any(),
            world: worlds.get(&namespace).cloned().unwrap_or_default(),
            namespace,
            pod: Some(pod),
            request,
            events: Vec::new(),
            leader: leader.clone(),
            set: None,
        })
    });
    found.buffered(AT_ONCE).try_collect().await
}

/// Who wrote last that the node takes no pods, by the name under which he writes.
fn cordoned_by(node: &NodeMetadata) -> Option<String> {
    let writes = node.metadata.managed_fields.iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:unschedulable").is_some())
    });
    writes.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}

async fn unknown(client: &Client, name: &str) -> Result<Error, Error> {
    let names = reading::names::<NodeOnWire>(client, None, &ListParams::default()).await?;
    let close = close_to(name, &names);
    let offer = if close.is_empty() { String::new() } else { format!("did you mean {}? ", close.join(", ")) };
    Ok(Error::Refused(format!("there is no node {name:?}: {offer}kubectl get nodes lists all")))
}

/// The names that somebody may have meant, the likeliest first.
pub fn close_to<'a>(name: &str, names: &'a [String]) -> Vec<&'a str> {
    let near = |other: &&'a str| -> Option<usize> {
        let changes = changes(name, other);
        let is_part = other.contains(name) || (!other.is_empty() && name.contains(*other));
        (changes <= 2 || is_part).then_some(changes)
    };
    let mut close: Vec<(usize, &str)> =
        names.iter().map(String::as_str).filter_map(|other| Some((near(&other)?, other))).collect();
    close.sort_unstable();
    close.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// How many letters have to be changed, added or left out to come from one to the other.
fn changes(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, other) in b.iter().enumerate() {
            let cost = diagonal + usize::from(letter != *other);
            diagonal = row[place + 1];
            row[place + 1] = cost.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[b.len()]
}
