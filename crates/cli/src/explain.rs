//! `usher explain`: why a pod has not left yet, since when, until when, and what the reader can do. Nodes are explained
//! by [`crate::explain_node`], from the explanations of their pods.

mod explanation;
mod manager;
#[cfg(test)]
mod tests;
mod text;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod as FullPod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use usher_api::EvictionRequest;

use crate::arguments::{Connection, pod_name};
use crate::error::{is_code, is_missing};
use crate::output::Structured;
use crate::requests::say_if_hidden;
use crate::world::{World, list};
use crate::{Ending, Error, Streams, Surroundings};
pub use explanation::{Explanation, Found, event_time, explain};
pub use manager::Leader;
pub use text::advice;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A pod, as NAME or pod/NAME, or a node, as node/NAME.
    #[arg(value_name = "POD|node/NODE", num_args = 1..=2, required = true)]
    what: Vec<String>,
    /// Print all that is known in this format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structured>,
    #[command(flatten)]
    connection: Connection,
}

/// Where the managers agree on who leads.
const MANAGER_NAMESPACE: &str = "usher-system";
const MANAGER_LEASE: &str = "usher-manager";
/// What marks events as Usher's.
const REPORTER: &str = "usher";

pub async fn run(
    arguments: Arguments,
    surroundings: &Surroundings,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let subject = subject(&arguments.what).map_err(Error::Refused)?;
    let connected = arguments.connection.open(surroundings).await?;
    let pod = match subject {
        Subject::Pod(name) => name,
        Subject::Node(name) => {
            let output = arguments.output;
            return crate::explain_node::run(&connected.client, &name, output, surroundings, streams).await;
        }
    };
    let found = find(&connected.client, &connected.namespace, &pod).await?;
    say_if_hidden(&found.world, streams.err)?;
    let now = surroundings.now();
    let explanation = explain(&found, now);
    let text = match arguments.output {
        Some(format) => format.render(&explanation)?,
        None => text::render(&explanation, surroundings, now),
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(Ending::Done)
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Pod(String),
    Node(String),
}

/// `web-1`, `pod/web-1`, `pod web-1`, `node/n1` or `node n1`.
fn subject(words: &[String]) -> Result<Subject, String> {
    let text = words.join("/");
    match text.split_once('/') {
        Some(("node" | "nodes" | "no", name)) if usher_api::domain::is_subdomain(name) => {
            Ok(Subject::Node(name.to_string()))
        }
        Some(("node" | "nodes" | "no", name)) => {
            Err(format!("{name:?} cannot be the name of a node: see kubectl get nodes for the names"))
        }
        _ => pod_name(&text).map(Subject::Pod),
    }
}

async fn find(client: &Client, namespace: &str, name: &str) -> Result<Found, Error> {
    let pods: Api<FullPod> = Api::namespaced(client.clone(), namespace);
    let requests: Api<EvictionRequest> = Api::namespaced(client.clone(), namespace);
    let pod = match pods.get(name).await {
        Ok(pod) => Some(pod),
        Err(why) if is_missing(&why) => None,
        Err(why) => return Err(why.into()),
    };
    let request = match &pod {
        Some(pod) => match requests.get(&pod.uid().unwrap_or_default()).await {
            Ok(request) => Some(request),
            Err(why) if is_missing(&why) => None,
            Err(why) => return Err(why.into()),
        },
        // The pod may be gone while something still holds its request.
        None => list(&requests, None).await?.into_iter().find(|request| request.spec.pod_ref.name == name),
    };
    if pod.is_none() && request.is_none() {
        return Err(Error::NoSuchPod { namespace: namespace.to_string(), name: name.to_string() });
    }
    let mut world = World::default();
    world.read_budgets(client, Some(namespace)).await?;
    let mut events = Vec::new();
    if let Some(request) = &request {
        events.extend(events_of(client, namespace, &request.uid().unwrap_or_default()).await?);
        let of_pod = events_of(client, namespace, &request.spec.pod_ref.uid).await?;
        events.extend(
            of_pod.into_iter().filter(|event| event.reporting_component.as_deref() == Some(REPORTER)),
        );
    }
    Ok(Found {
        namespace: namespace.to_string(),
        name: name.to_string(),
        pod,
        request,
        world,
        events,
        leader: leader(client).await,
    })
}

/// Who may not read events gets an explanation without them.
pub async fn events_of(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match events.list(&ListParams::default().fields(&format!("involvedObject.uid={uid}"))).await {
        Ok(events) => Ok(events.items),
        Err(why) if is_code(&why, 403) => Ok(Vec::new()),
        Err(why) => Err(why.into()),
    }
}

pub async fn leader(client: &Client) -> Leader {
    let leases: Api<Lease> = Api::namespaced(client.clone(), MANAGER_NAMESPACE);
    match leases.get(MANAGER_LEASE).await {
        Ok(lease) => match lease.spec.and_then(|spec| spec.renew_time) {
            Some(time) => Leader::Renewed { at: time.0 },
            None => Leader::Missing,
        },
        Err(why) if is_missing(&why) => Leader::Missing,
        Err(_) => Leader::Unknown,
    }
}
