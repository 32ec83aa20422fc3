//! `usher cancel`: withdraws eviction requests, and says what that means.

use kube::{Api, Client, ResourceExt as _};
use usher_api::names::{NODE_MAINTENANCE_GROUP, requester_of};
use usher_api::{EvictionRequest, EvictionRequestCancellationPolicy as Policy};

use crate::arguments::{self, Connection, DEFAULT_REQUESTER, PodArguments, Requester};
use crate::ask::{Whose, Withdrawn, withdraw};
use crate::evict::find;
use crate::reading::Read;
use crate::world::list;
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pods: PodArguments,
    /// The requester that withdraws.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_REQUESTER, value_parser = arguments::requester)]
    requester: Requester,
    /// Withdraw for all requesters, controllers included. Needs --force.
    #[arg(long, requires = "force", conflicts_with = "requester")]
    all_requesters: bool,
    /// Confirms --all-requesters.
    #[arg(long, requires = "all_requesters")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let connected = arguments.connection.open(environment).await?;
    let (client, namespace) = (&connected.client, connected.namespace.as_str());
    let whose = if arguments.all_requesters { Whose::All } else { Whose::One(arguments.requester.clone()) };
    let mut ending = Ending::Done;
    let mut taken_back = 0;
    for found in find(client, namespace, &arguments.pods).await? {
        let (pod, request, is_terminating) = match found {
            Ok(pod) => {
                (pod.name_any(), pod.uid().unwrap_or_default(), pod.metadata.deletion_timestamp.is_some())
            }
            // The pod may be gone and its request still there.
            Err(Error::NoSuchPod { name, namespace: place }) => {
                match of_pod_that_is_gone(client, namespace, &name).await? {
                    Some(request) => (name, request, true),
                    None => {
                        writeln!(streams.err, "error: {}", Error::NoSuchPod { name, namespace: place })?;
                        ending = Ending::Incomplete;
                        continue;
                    }
                }
            }
            Err(why) => return Err(why),
        };
        let withdrawn = withdraw(client, namespace, &request, &whose).await?;
        let (is_done, text) = message_of(&withdrawn, &whose, is_terminating, &environment.program);
        if is_done {
            taken_back += 1;
            writeln!(streams.out, "pod/{pod}: {text}")?;
        } else if arguments.pods.selector.is_none() {
            writeln!(streams.err, "error: pod/{pod}: {text}")?;
            ending = Ending::Incomplete;
        }
    }
    // Of many pods that are selected, only some may have been asked.
    if let (Some(selector), 0) = (&arguments.pods.selector, taken_back) {
        let whose = match &whose {
            Whose::One(requester) => format!(" by {}", requester.name),
            Whose::All => String::new(),
        };
        return Err(Error::Refused(format!(
            "no eviction is requested{whose} of pods with the labels {selector:?}: see {} requests -n {namespace}",
            environment.program
        )));
    }
    Ok(ending)
}

async fn of_pod_that_is_gone(client: &Client, namespace: &str, pod: &str) -> Result<Option<String>, Error> {
    let requests: Api<Read<EvictionRequest>> = Api::namespaced(client.clone(), namespace);
    let all = list(&requests, None).await?;
    Ok(all.into_iter().find(|request| request.spec.pod_ref.name == pod).map(|request| request.name_any()))
}

/// Whether it was done, and what is to be said.
fn message_of(withdrawn: &Withdrawn, whose: &Whose, is_terminating: bool, program: &str) -> (bool, String) {
    let who = match whose {
        Whose::One(requester) => requester.name.clone(),
        Whose::All => "all requesters".to_string(),
    };
    match withdrawn {
        Withdrawn::NoRequest => (false, "it has no eviction request".to_string()),
        Withdrawn::HadNotAsked(request) => {
            let others = requesters(request);
            let text = match (&others[..], whose) {
                ([], _) => "its eviction request has no requesters any more".to_string(),
                (others, Whose::One(_)) => format!(
                    "its eviction is not requested by {who}, but by {}: to withdraw that, use {program} cancel --requester {}",
                    others.join(", "),
                    others[0]
                ),
                (_, Whose::All) => "its eviction request has no requesters".to_string(),
            };
            (false, text)
        }
        Withdrawn::Now(request) => {
            let others = requesters(request);
            let status = request.status.clone().unwrap_or_default();
            let text = if !others.is_empty() {
                format!(
                    "withdrawn for {who}; still requested by {}, so the eviction goes on",
                    others.join(", ")
                )
            } else if is_terminating {
                format!("withdrawn for {who}, but the pod is already terminating, which cannot be undone")
            } else if status.eviction_request_cancellation_policy == Policy::Forbid {
                format!(
                    "withdrawn for {who}, but {} forbids cancellation: the eviction goes on until the pod is gone",
                    status.active_interceptor_class.as_deref().unwrap_or("its interceptor")
                )
            } else if who == NODE_MAINTENANCE_GROUP {
                format!(
                    "withdrawn for {who}; a maintenance that drains its node requests it again: see {program} maintenance list"
                )
            } else {
                format!("withdrawn for {who}; no requesters remain, so the pod stays")
            };
            (true, text)
        }
    }
}

fn requesters(request: &EvictionRequest) -> Vec<&str> {
    request.finalizers().iter().filter_map(|finalizer| requester_of(finalizer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use usher_api::names::requester_finalizer;

    fn request(requesters: &[&str], policy: &str) -> Box<EvictionRequest> {
        let finalizers: Vec<String> =
            requesters.iter().map(|name| requester_finalizer(name).unwrap()).collect();
        Box::new(
            serde_json::from_value(json!({
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": "u", "finalizers": finalizers},
                "spec": {"podRef": {"name": "p", "uid": "u"}},
                "status": {"activeInterceptorClass": "db.example.com", "evictionRequestCancellationPolicy": policy},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn what_taking_back_means_is_said() {
        let whose = Whose::One(arguments::requester("admin.usher.dev").unwrap());
        let ending = |withdrawn: Withdrawn, terminating| message_of(&withdrawn, &whose, terminating, "usher");
        for (withdrawn, terminating, is_done, text) in [
            (
                Withdrawn::Now(request(&[], "Allow")),
                false,
                true,
                "withdrawn for admin.usher.dev; no requesters remain, so the pod stays",
            ),
            (
                Withdrawn::Now(request(&["a.example.com"], "Allow")),
                false,
                true,
                "withdrawn for admin.usher.dev; still requested by a.example.com, so the eviction goes on",
            ),
            (
                Withdrawn::Now(request(&[], "Forbid")),
                false,
                true,
                "withdrawn for admin.usher.dev, but db.example.com forbids cancellation: the eviction goes on until the \
                 pod is gone",
            ),
            (
                Withdrawn::Now(request(&[], "Allow")),
                true,
                true,
                "withdrawn for admin.usher.dev, but the pod is already terminating, which cannot be undone",
            ),
            (
                Withdrawn::HadNotAsked(request(&["a.example.com"], "Allow")),
                false,
                false,
                "its eviction is not requested by admin.usher.dev, but by a.example.com: to withdraw that, use usher cancel \
                 --requester a.example.com",
            ),
            (Withdrawn::NoRequest, false, false, "it has no eviction request"),
        ] {
            assert_eq!(ending(withdrawn, terminating), (is_done, text.to_string()));
        }
        let maintenance = Whose::One(arguments::requester(NODE_MAINTENANCE_GROUP).unwrap());
        let (is_done, text) =
            message_of(&Withdrawn::Now(request(&[], "Allow")), &maintenance, false, "usher");
        assert!(is_done && text.contains("requests it again"), "{text}");
    }
}
