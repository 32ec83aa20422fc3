//! `usher explain`: why a pod has not left yet, since when, until when, and what the reader can do. Nodes are explained
//! by [`crate::explain_node`] and Deployments by [`crate::explain_deployment`], from the explanations of their pods.

mod explanation;
mod manager;
mod stateful_set;
#[cfg(test)]
mod tests;
mod text;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use usher_api::EvictionRequest;
use usher_decide::snapshot::PodOnWire;
use usher_forecast::request_state::Leader;

use crate::arguments::{Connection, kind_and_name, pod_name};
use crate::connect::Connected;
use crate::error::{is_code, is_missing};
use crate::explain_deployment::{self, DeploymentExplanation};
use crate::explain_node::{self, NodeExplanation};
use crate::output::{Structured, list_of};
use crate::reading::{Read, exactly};
use crate::world::{World, list};
use crate::{Ending, Environment, Error, Streams};
pub use explanation::{Explanation, PodFound, event_time, explain, slim_request};
use stateful_set::SetFound;
pub use stateful_set::UnavailableFacts;
pub use text::advice;

/// What can be explained, in the help text.
pub const EXPLAINED: &str = "POD|node/NODE|deployment/NAME";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Pods, as NAME or pod/NAME, nodes, as node/NAME, or Deployments, as deployment/NAME.
    #[arg(value_name = EXPLAINED, required = true)]
    what: Vec<String>,
    /// Print all that is known in this format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structured>,
    #[command(flatten)]
    connection: Connection,
}

/// By which the managers agree on who leads, and where it is unless somebody chose another namespace.
const MANAGER_LEASE: &str = "usher-manager";
const DEFAULT_NAMESPACE: &str = "usher-system";
/// What marks events as Usher's.
const REPORTER: &str = "usher";

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    if arguments.output.is_some() {
        return exactly(Box::pin(explain_all(arguments, environment, streams))).await;
    }
    Box::pin(explain_all(arguments, environment, streams)).await
}

async fn explain_all(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let subjects = subjects(&arguments.what).map_err(Error::Usage)?;
    let Connected { client, namespace } = arguments.connection.open(environment).await?;
    let [subject] = &subjects[..] else {
        return several(&client, &namespace, &subjects, arguments.output, environment, streams).await;
    };
    let explained = Explained::of(subject, &client, &namespace, environment).await?;
    let text = match arguments.output {
        Some(format) => format.render(&explained)?,
        None => explained.render(environment),
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(Ending::Done)
}

/// One after the other, also if some of them cannot be explained.
async fn several(
    client: &Client,
    namespace: &str,
    subjects: &[Subject],
    output: Option<Structured>,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let mut ending = Ending::Done;
    let mut all = Vec::new();
    for subject in subjects {
        match Explained::of(subject, client, namespace, environment).await {
            Ok(explained) if output.is_some() => all.push(explained),
            Ok(explained) => {
                let space = if all.is_empty() { "" } else { "\n" };
                write!(streams.out, "{space}{}", explained.render(environment))?;
                all.push(explained);
            }
            Err(why) => {
                writeln!(streams.err, "error: {why}")?;
                ending = Ending::Incomplete;
            }
        }
    }
    if let Some(format) = output {
        streams.out.write_all(format.render(&list_of(&all))?.as_bytes())?;
    }
    Ok(ending)
}

/// A pod, a node or a Deployment, explained.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Explained {
    Pod(Box<Explanation>),
    Node(Box<NodeExplanation>),
    Deployment(Box<DeploymentExplanation>),
}

impl Explained {
    async fn of(
        subject: &Subject,
        client: &Client,
        namespace: &str,
        environment: &Environment,
    ) -> Result<Self, Error> {
        match subject {
            Subject::Pod(name) => {
                let found = find(client, namespace, name).await?;
                Ok(Self::Pod(Box::new(explain(&found, environment.now()))))
            }
            Subject::Node(name) => {
                let explanation = explain_node::read(client, name, environment.now()).await?;
                Ok(Self::Node(Box::new(explanation)))
            }
            Subject::Deployment(name) => {
                let explanation =
                    explain_deployment::read(client, namespace, name, environment.now()).await?;
                Ok(Self::Deployment(Box::new(explanation)))
            }
        }
    }

    fn render(&self, environment: &Environment) -> String {
        match self {
            Self::Pod(explanation) => text::render(explanation, environment, environment.now()),
            Self::Node(explanation) => explain_node::render(explanation, environment, environment.now()),
            Self::Deployment(explanation) => {
                explain_deployment::render(explanation, environment, environment.now())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Pod(String),
    Node(String),
    Deployment(String),
}

/// `web-1 web-2`, `pod/web-1 node/n1 deployment/web`, `pods web-1 web-2` or `node n1 n2`.
fn subjects(words: &[String]) -> Result<Vec<Subject>, String> {
    match words {
        [kind, names @ ..] if !names.is_empty() && is_kind(&kind.to_lowercase()) => {
            names.iter().map(|name| subject(&format!("{kind}/{name}"))).collect()
        }
        [kind] if is_kind(&kind.to_lowercase()) => Err(format!(
            "which one is meant? Name it after {kind}, as in {kind}/NAME; a pod that is called so is pod/{kind}"
        )),
        names => names.iter().map(|name| subject(name)).collect(),
    }
}

/// A pod may be called so, too: that is written `pod/deployment`.
fn is_kind(word: &str) -> bool {
    matches!(word, "pod" | "pods" | "po" | "node" | "nodes" | "no")
        || is_deployment(word)
        || is_maintenance(word)
}

fn is_deployment(word: &str) -> bool {
    matches!(word, "deployment" | "deployments" | "deploy" | "deployment.apps" | "deployments.apps")
}

fn is_maintenance(word: &str) -> bool {
    matches!(word, "nm" | "nodemaintenance" | "nodemaintenances")
}

fn subject(text: &str) -> Result<Subject, String> {
    let parts = kind_and_name(text);
    match parts.as_ref().map(|(kind, name)| (kind.as_str(), *name)) {
        Some(("node" | "nodes" | "no", name)) if usher_api::domain::is_subdomain(name) => {
            Ok(Subject::Node(name.to_string()))
        }
        Some(("node" | "nodes" | "no", name)) => {
            Err(format!("{name:?} cannot be the name of a node: see kubectl get nodes for the names"))
        }
        Some((kind, name)) if is_deployment(kind) => match usher_api::domain::is_subdomain(name) {
            true => Ok(Subject::Deployment(name.to_string())),
            false => Err(format!(
                "{name:?} cannot be the name of a Deployment: see kubectl get deployments for the names"
            )),
        },
        Some((kind, name)) if is_maintenance(kind) => Err(format!(
            "only pods, nodes and Deployments are explained: name a pod, node/NODE or deployment/NAME; for a maintenance: usher maintenance describe {name}"
        )),
        Some((kind, _)) if !is_kind(kind) => {
            Err(format!("{kind:?} cannot be explained: name a pod, node/NODE or deployment/NAME"))
        }
        _ => pod_name(text).map(Subject::Pod),
    }
}

async fn find(client: &Client, namespace: &str, name: &str) -> Result<PodFound, Error> {
    let pods: Api<Read<PodOnWire>> = Api::namespaced(client.clone(), namespace);
    let requests: Api<Read<EvictionRequest>> = Api::namespaced(client.clone(), namespace);
    let pod = match pods.get(name).await {
        Ok(pod) => Some(pod.wanted()?),
        Err(why) if is_missing(&why) => None,
        Err(why) => return Err(why.into()),
    };
    let request = match &pod {
        Some(pod) => match requests.get(&pod.uid().unwrap_or_default()).await {
            Ok(request) => request.object(),
            Err(why) if is_missing(&why) => None,
            Err(why) => return Err(why.into()),
        },
        // The pod may be gone while something still holds its request.
        None => list(&requests, None).await?.into_iter().find(|request| request.spec.pod_ref.name == name),
    };
    if pod.is_none() && request.is_none() {
        return Err(Error::NoSuchPod { namespace: namespace.to_string(), name: name.to_string() });
    }
    let set = match (&pod, &request) {
        (Some(pod), Some(request)) => SetFound::read(client, pod, request).await,
        _ => None,
    };
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
    Ok(PodFound {
        namespace: namespace.to_string(),
        name: name.to_string(),
        pod,
        request,
        world,
        events,
        leader: leader(client).await,
        set,
    })
}

/// Who may not read events gets an explanation without them.
pub async fn events_of(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, Error> {
    let events: Api<Read<Event>> = Api::namespaced(client.clone(), namespace);
    match events.list(&ListParams::default().fields(&format!("involvedObject.uid={uid}"))).await {
        Ok(events) => Ok(events.items.into_iter().filter_map(Read::object).collect()),
        Err(why) if is_code(&why, 403) => Ok(Vec::new()),
        Err(why) => Err(why.into()),
    }
}

/// The manager may be installed in any namespace. Who may not look into all of them looks into the usual one.
pub async fn leader(client: &Client) -> Leader {
    let everywhere: Api<Read<Lease>> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={MANAGER_LEASE}"));
    let leases = match everywhere.list(&named).await {
        Ok(leases) => leases.items,
        Err(_) => {
            let usual: Api<Read<Lease>> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
            match usual.get(MANAGER_LEASE).await {
                Ok(lease) => vec![lease],
                Err(_) => return Leader::Unknown,
            }
        }
    };
    let renewed = leases.into_iter().filter_map(Read::object).filter_map(|lease| {
        let namespace = lease.namespace()?;
        Some((lease.spec?.renew_time?.0, namespace))
    });
    match renewed.max() {
        Some((at, namespace)) => Leader::Renewed { at, namespace },
        None => Leader::Missing,
    }
}
