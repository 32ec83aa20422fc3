//! Pods that are looked up while a drain of many nodes is followed by its status. Watching ten thousand pods that leave, and as many
//! that come up elsewhere, costs a hundred times as much as reading what the manager has counted; so only those pods are asked for
//! that something is to be said of: those whose requests are blocked, and those on the nodes that are shown.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::Instant;
use usher_decide::snapshot::{Key, Pod, PodOnWire, Request};
use usher_forecast::request_state::may_be_blocked;

use crate::Error;
use crate::error::is_missing;
use crate::live::Changed;
use crate::reading::Read;
use crate::world::{World, list_as};

/// Up to so many pods are asked for one by one.
const FEW: usize = 20;
/// So many requests are under way at a time.
const AT_ONCE: usize = 5;
/// Nodes that are shown are looked at so often, and all pods so often.
const NODES_EVERY: Duration = Duration::from_secs(2);
const ALL_EVERY: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    all: bool,
    pods: Vec<Key>,
    /// All pods of these.
    nodes: Vec<String>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        !self.all && self.pods.is_empty() && self.nodes.is_empty()
    }
}

pub type LookedUp = (Wanted, Result<Vec<Pod>, Error>);

#[derive(Default)]
pub struct Lookups {
    under_way: Option<BoxFuture<'static, LookedUp>>,
    all_at: Option<Instant>,
    nodes_at: Option<Instant>,
    /// Those that were looked at last.
    nodes: BTreeSet<String>,
}

impl Lookups {
    /// Asks for what is missing, unless something is being looked up already. `shown` are the nodes of which each pod is told.
    pub fn start(&mut self, client: &Client, world: &World, shown: Vec<String>) {
        if self.under_way.is_some() {
            return;
        }
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        let shown = if is_due(self.nodes_at, NODES_EVERY) { shown } else { Vec::new() };
        let mut wanted = Wanted { pods: unknown(world), nodes: shown, all: false };
        if wanted.pods.len() > FEW {
            wanted.all = is_due(self.all_at, ALL_EVERY);
            wanted.pods.clear();
        }
        if wanted.all {
            self.all_at = Some(Instant::now());
        } else if wanted.is_empty() {
            return;
        }
        if !wanted.nodes.is_empty() {
            self.nodes_at = Some(Instant::now());
        }
        let client = client.clone();
        self.under_way = Some(
            async move {
                let found = read(client, wanted.clone()).await;
                (wanted, found)
            }
            .boxed(),
        );
    }

    /// Waits for what was asked for. Nothing may be under way; then this waits for ever.
    pub async fn finished(&mut self) -> LookedUp {
        let found = match &mut self.under_way {
            Some(under_way) => under_way.await,
            None => std::future::pending().await,
        };
        self.under_way = None;
        found
    }

    /// Takes in what was found.
    pub fn take_in(&mut self, world: &mut World, (wanted, found): LookedUp) -> Changed {
        let mut changed = Changed::default();
        // What cannot be read now is asked for again.
        if let Ok(found) = found {
            self.replace(world, &wanted, found, &mut changed);
        }
        changed
    }

    fn replace(&mut self, world: &mut World, wanted: &Wanted, found: Vec<Pod>, changed: &mut Changed) {
        if !wanted.nodes.is_empty() {
            self.nodes = wanted.nodes.iter().cloned().collect();
        }
        let names: BTreeSet<Key> = found.iter().map(|pod| pod.key.clone()).collect();
        let is_asked_for = |pod: &Pod| {
            wanted.all
                || wanted.pods.contains(&pod.key)
                || wanted.nodes.iter().any(|node| **node == *pod.node)
        };
        world.pods.retain(|key, pod| {
            let stays = names.contains(key) || !is_asked_for(pod);
            if !stays {
                changed.pod(Some(pod), None);
            }
            stays
        });
        for pod in found {
            changed.pod(world.pods.get(&pod.key), Some(&pod));
            world.pods.insert(pod.key.clone(), pod);
        }
        self.forget(world, changed);
    }

    /// Forgets pods that nothing is to be said of any more: nobody would notice when they go.
    pub fn forget(&self, world: &mut World, changed: &mut Changed) {
        let requests = &world.requests;
        world.pods.retain(|_, pod| {
            let stays = requests.contains_key(&pod.request_key()) || self.nodes.contains(&*pod.node);
            if !stays {
                changed.pod(Some(pod), None);
            }
            stays
        });
    }
}

/// The pods of requests that seem to be blocked, as far as they are not known.
fn unknown(world: &World) -> Vec<Key> {
    let blocked = world.requests.values().filter(|request| may_be_blocked(request));
    blocked.map(Request::pod_key).filter(|pod| !world.pods.contains_key(pod)).collect()
}

async fn read(client: Client, wanted: Wanted) -> Result<Vec<Pod>, Error> {
    if wanted.all {
        return list_as::<PodOnWire, Pod>(&Api::all(client), None).await;
    }
    let mut found = Vec::new();
    for pods in wanted.pods.chunks(AT_ONCE) {
        let pods = pods.iter().map(|pod| read_pod(client.clone(), pod.clone()));
        found.extend(try_join_all(pods).await?.into_iter().flatten());
    }
    for nodes in wanted.nodes.chunks(AT_ONCE) {
        let nodes = nodes.iter().map(|node| read_node(client.clone(), node.clone()));
        found.extend(try_join_all(nodes).await?.into_iter().flatten());
    }
    Ok(found)
}

async fn read_pod(client: Client, key: Key) -> Result<Option<Pod>, Error> {
    let pods: Api<Read<PodOnWire>> = Api::namespaced(client, &key.namespace);
    match pods.get(&key.name).await {
        Ok(pod) => Ok(pod.object().map(Pod::from)),
        Err(why) if is_missing(&why) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

async fn read_node(client: Client, node: String) -> Result<Vec<Pod>, Error> {
    let pods: Api<Read<PodOnWire>> = Api::all(client);
    let there = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await?;
    Ok(there.items.into_iter().filter_map(Read::object).map(Pod::from).collect())
}
