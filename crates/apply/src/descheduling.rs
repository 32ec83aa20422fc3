//! What becomes of a descheduler's plan: requests, evictions that go on in the background, withdrawals, and what is remembered.

use std::collections::HashMap;
use std::fmt;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::Api;
use kube::core::Status;
use kube::{Client, Error};
use tracing::Instrument as _;
use usher_api::names::{
    DESCHEDULER_CONFIG_MAP_SUFFIX, DESCHEDULER_FINALIZER, DESCHEDULER_INSTANCE_ANNOTATION,
    DESCHEDULER_REASON_ANNOTATION,
};
use usher_api::{EvictionRequest, Refusal};
use usher_client::requests::new_request;
use usher_client::{Evicted, EvictionOptions, FailureClass, Writer, evict};
use usher_decide::decision::limited;
use usher_decide::snapshot::{Key, Request};
use usher_descheduler::requester::{AskOutcome, Effect, Memory, PodId, Way, Withdrawal};
use usher_descheduler::{Asks, CarryOut, OwnerRef, Place, PodRef, Policy, Proposal};

use crate::events::Events;
use crate::requests::{Failure, RefusedWrite, failure_of, failure_of_write, says_that_the_pod_has_gone};
use crate::{config_map, requesters, spans};

/// So many pods are asked at a time.
const AT_A_TIME: usize = 16;

/// The name under which the descheduler's writes appear in `managedFields`.
const WRITER: Writer = Writer::named("usher-descheduler");

/// Carries out what a descheduler decides.
#[derive(Clone)]
pub struct Descheduling {
    client: Client,
    events: Events,
    name: DeschedulerName,
}

/// What came of a cycle.
#[derive(Debug, Default)]
pub struct DeschedulingApplied {
    pub outcomes: Vec<(Proposal, Way, AskOutcome)>,
    pub not_asked: Vec<Proposal>,
    pub withdrawn: usize,
    pub not_withdrawn: Vec<Key>,
    pub saved: Option<Memory>,
    /// There was something to do, which was not tried as it could not be remembered.
    pub is_dropped: bool,
    /// What failed first, other than for a change that is coming.
    pub failure: Option<Failure>,
}

/// Which descheduler it is, by the namespace and name of its lease.
#[derive(Debug, Clone)]
pub struct DeschedulerName {
    pub namespace: String,
    pub name: String,
}

impl DeschedulerName {
    /// Where it remembers.
    pub fn config_map(&self) -> String {
        format!("{}{DESCHEDULER_CONFIG_MAP_SUFFIX}", self.name)
    }
}

impl fmt::Display for DeschedulerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Descheduling {
    pub fn new(client: Client, events: Events, name: DeschedulerName) -> Self {
        Self { client, events, name }
    }

    /// Waits until all events are written: for who is about to end.
    pub async fn flush(&self) {
        self.events.flush().await;
    }

    /// Remembers, withdraws and asks, in this order; what fails on the way decides about what comes after it.
    pub async fn carry_out(
        &self,
        effects: Vec<Effect>,
        policy: &Policy,
        places: &HashMap<Key, Place>,
    ) -> DeschedulingApplied {
        let mut applied = DeschedulingApplied::default();
        let mut carry_out = CarryOut::new(policy.limits, places);
        let mut asks = Vec::new();
        for effect in effects {
            let done = match effect {
                Effect::Remember(memory) => {
                    let done = self.remember(&memory).await;
                    match &done {
                        Ok(()) => applied.saved = Some(memory),
                        Err(failure) => {
                            let what = self.not_saved(failure);
                            tracing::warn!(
                                "{what}; nothing is withdrawn or asked that would have to be remembered"
                            );
                            carry_out.not_remembered();
                        }
                    }
                    done
                }
                Effect::Withdraw { request, why, gives_place } if carry_out.may_withdraw() => {
                    let done = self.withdraw(&request, why).await;
                    match &done {
                        Ok(()) => applied.withdrawn += 1,
                        Err(failure) => {
                            let why = in_words(failure);
                            tracing::warn!(request = %request.key, "a request could not be withdrawn: {why}");
                            carry_out.not_withdrawn(&request.key, gives_place);
                            applied.not_withdrawn.push(request.key.clone());
                        }
                    }
                    done
                }
                Effect::Withdraw { .. } => Ok(()),
                Effect::Ask { proposal, by } => {
                    asks.push((*proposal, by));
                    Ok(())
                }
            };
            // Somebody else has changed the request: the next cycle looks again.
            let failure = done.err().filter(|failure| *failure != Failure::Outdated);
            applied.failure = applied.failure.or(failure);
        }
        let Asks { asks, not_asked, is_dropped } = carry_out.asks(asks);
        let asked = futures::stream::iter(asks).map(|(proposal, by)| async move {
            let asked = self.ask(&proposal, by, policy).await;
            (proposal, by, asked)
        });
        let outcomes = asked.buffered(AT_A_TIME).collect().await;
        DeschedulingApplied { outcomes, not_asked, is_dropped, ..applied }
    }

    /// Asks a pod to leave, and tells of it.
    pub async fn ask(&self, proposal: &Proposal, by: Way, policy: &Policy) -> AskOutcome {
        let pod = &proposal.pod;
        let reason = limited(format!("{}: {}", proposal.plugin, proposal.reason));
        let asked = match by {
            Way::Request => {
                let span = spans::about_pod("create EvictionRequest", &PodId::from(pod).key, &pod.uid);
                self.request(pod, &reason).instrument(span).await
            }
            Way::Eviction { in_background } => {
                let span = spans::about_pod("evict Pod", &PodId::from(pod).key, &pod.uid);
                self.evict(pod, in_background, policy).instrument(span).await
            }
        };
        if let Ok(asked) = &asked {
            log(proposal, by, asked);
        }
        match &asked {
            Ok(AskOutcome::Requested | AskOutcome::Evicted | AskOutcome::InBackground) => {
                let message = format!("asked to leave {}: {reason}", pod.node);
                if let Some(owner) = &proposal.owner {
                    let owner = owner_reference(owner, &pod.namespace);
                    self.events.record_on_owner(owner, "Descheduled", &pod.name, &message);
                }
                self.events.record_on(reference(pod), "Descheduled", message, false);
            }
            Ok(_) => {}
            Err((_, why)) => {
                let (namespace, name, plugin) = (&pod.namespace, &pod.name, proposal.plugin);
                tracing::warn!(namespace, name, %plugin, why, "a pod could not be asked to leave");
                if policy.eviction_failure_event_notification {
                    let message = limited(format!("could not be asked to leave {}: {why}", pod.node));
                    self.events.record_on(reference(pod), "DescheduleFailed", message, true);
                }
            }
        }
        asked.unwrap_or_else(|(asked, _)| asked)
    }

    async fn request(&self, pod: &PodRef, reason: &str) -> Result<AskOutcome, (AskOutcome, String)> {
        let mut request = new_request(&pod.namespace, &pod.name, &pod.uid, DESCHEDULER_FINALIZER, None);
        let annotations = [
            (DESCHEDULER_REASON_ANNOTATION.to_owned(), reason.to_owned()),
            (DESCHEDULER_INSTANCE_ANNOTATION.to_owned(), self.name.to_string()),
        ];
        request.metadata.annotations = Some(annotations.into());
        let requests: Api<EvictionRequest> = Api::namespaced(self.client.clone(), &pod.namespace);
        match WRITER.create(&requests, &request).await {
            Ok(_) => Ok(AskOutcome::Requested),
            Err(why) if FailureClass::of(&why) == FailureClass::Conflict => Ok(AskOutcome::ByOthers),
            Err(Error::Api(status)) if says_that_there_is_no_pod(&status) => Ok(AskOutcome::Gone),
            Err(why) => Err(not_asked(why)),
        }
    }

    async fn evict(
        &self,
        pod: &PodRef,
        in_background: bool,
        policy: &Policy,
    ) -> Result<AskOutcome, (AskOutcome, String)> {
        // The pod's own grace period holds, whatever the policy says.
        let options = EvictionOptions::default();
        match evict(self.client.clone(), &pod.namespace, &pod.name, &pod.uid, options).await {
            Ok(Evicted::Accepted) => Ok(AskOutcome::Evicted),
            Ok(Evicted::Gone) => Ok(AskOutcome::Gone),
            Ok(Evicted::Refused(refusal)) => {
                match (AskOutcome::of_refusal(&refusal, in_background, policy), refusal) {
                    (AskOutcome::InBackground, _) => Ok(AskOutcome::InBackground),
                    (outcome @ AskOutcome::Unknown, Refusal::Server { message, .. }) => {
                        Err((outcome, message))
                    }
                    (outcome, refusal) => Err((outcome, refusal.to_string())),
                }
            }
            Ok(Evicted::Conflict(refusal)) => Err((AskOutcome::Refused, refusal.to_string())),
            Err(why) => Err(not_asked(why)),
        }
    }

    /// Takes the descheduler off a request.
    ///
    /// # Errors
    /// It was changed meanwhile, or the server did not take it: the next cycle looks again.
    pub async fn withdraw(&self, request: &Request, why: Withdrawal) -> Result<(), Failure> {
        let withdrawn = requesters::withdraw(&self.client, WRITER, request, DESCHEDULER_FINALIZER).await;
        withdrawn.map_err(failure_of)?;
        let message = match why {
            Withdrawal::NotNeeded => {
                "no plugin of the descheduler wants it to leave any more: withdrawn".to_owned()
            }
            Withdrawal::TookTooLong { after } => {
                format!("did not leave within {} seconds: the descheduler gives up for now", after.as_secs())
            }
            Withdrawal::Deleted => {
                "somebody has deleted the request: the descheduler gives up for now".to_owned()
            }
        };
        let pod = PodRef {
            namespace: request.key.namespace.to_string(),
            name: request.pod_name.to_string(),
            uid: request.pod_uid.to_string(),
            node: String::new(),
        };
        self.events.record_on(reference(&pod), "DescheduleWithdrawn", message, false);
        Ok(())
    }

    /// Writes what has to outlive this process.
    ///
    /// # Errors
    /// The server did not take it.
    pub async fn remember(&self, memory: &Memory) -> Result<(), Failure> {
        let (namespace, name) = (&self.name.namespace, &self.name.config_map());
        config_map::write(&self.client, namespace, name, memory.to_data()).await
    }

    /// That it was not saved, and what to do about it.
    pub fn not_saved(&self, failure: &Failure) -> String {
        let advice = match failure {
            Failure::Refused { reason: RefusedWrite::NotAllowed, .. } => {
                "; let the descheduler create and update it, as the role in deploy/descheduler/role.yaml does"
            }
            _ => "",
        };
        let why = in_words(failure);
        format!("what is to be remembered could not be saved in {}: {why}{advice}", self.place())
    }

    /// Where it remembers.
    pub fn place(&self) -> String {
        format!("ConfigMap {}/{}", self.name.namespace, self.name.config_map())
    }

    /// What was written before this process began. What cannot be understood is left out.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn remembered(&self) -> Result<Memory, Failure> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.name.namespace);
        let map = maps.get_opt(&self.name.config_map()).await.map_err(failure_of_write)?;
        Ok(Memory::of_data(&map.and_then(|map| map.data).unwrap_or_default()))
    }
}

/// Why something failed.
pub fn in_words(failure: &Failure) -> String {
    match failure {
        Failure::Refused { message, .. } | Failure::Later(message) => message.clone(),
        Failure::Outdated => "it has changed meanwhile, or is gone".to_owned(),
        Failure::NameTaken => "something else has its name".to_owned(),
        Failure::Panicked => "it panicked, which is a defect of Usher".to_owned(),
    }
}

/// A line for each pod that was asked, or would have been if somebody had not been faster.
fn log(proposal: &Proposal, by: Way, asked: &AskOutcome) {
    let (namespace, pod, node) = (&proposal.pod.namespace, &proposal.pod.name, &proposal.pod.node);
    let (plugin, profile, reason) = (proposal.plugin, &proposal.profile, &proposal.reason);
    // A request has the name of its pod's UID.
    let request = matches!(by, Way::Request).then_some(proposal.pod.uid.as_str());
    let what = match asked {
        AskOutcome::Requested => "asked to leave by an EvictionRequest",
        AskOutcome::ByOthers => "asked to leave already by an EvictionRequest of somebody else",
        AskOutcome::Evicted => "evicted by the eviction API",
        AskOutcome::InBackground => "evicted by the eviction API, and is moved in the background",
        AskOutcome::Gone | AskOutcome::Refused | AskOutcome::Unknown => return,
    };
    tracing::info!(namespace, pod, node, %plugin, profile, %reason, request, "{what}");
}

/// It is the pod that is not there. Otherwise it is the namespace, or the cluster does not know eviction requests.
fn says_that_there_is_no_pod(status: &Status) -> bool {
    let is_about_pods = status.details.as_ref().is_some_and(|details| details.kind == "pods");
    says_that_the_pod_has_gone(status) || (status.code == 404 && is_about_pods)
}

/// Why a pod was not asked, and whether it may have been all the same.
fn not_asked(why: Error) -> (AskOutcome, String) {
    let asked = AskOutcome::of_failure(FailureClass::of(&why).may_be_done());
    let why = match why {
        Error::Api(status) if status.code == 404 => return (asked, limited(status.message.clone())),
        why => failure_of_write(why),
    };
    (asked, in_words(&why))
}

fn reference(pod: &PodRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        namespace: Some(pod.namespace.clone()),
        ..ObjectReference::default()
    }
}

fn owner_reference(owner: &OwnerRef, namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
#[path = "descheduling_tests.rs"]
mod tests;
