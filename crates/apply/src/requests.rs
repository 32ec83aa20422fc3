//! The effects of a decision on an eviction request, carried out in their order, up to the first that fails.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Status;
use kube::{Client, Error, Resource as _};
use serde_json::json;
use tracing::{Instrument as _, Span};
use usher_api::EvictionRequestStatus;
use usher_api::lenient::{Lenient, Unreadable};
use usher_api::names::FIELD_MANAGER;
use usher_client::{Evicted, EvictionOptions, FailureClass, Version, Writer, evict, kind_of};
use usher_decide::admission::Rule;
use usher_decide::decision::{About, Effect, Notice, limited};
use usher_decide::eviction_request::{Answer, Refusal};
use usher_decide::snapshot::{Pod, PodOnWire, Request, RequestOnWire, is_of_others};

use crate::events::Events;
use crate::{spans, status};

/// Carries out effects with this client.
#[derive(Clone)]
pub struct Requests {
    client: Client,
    events: Events,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct RequestApplied {
    /// The server's word on the eviction, if there was one.
    pub answer: Option<Answer>,
    /// A look-up, or an eviction, found that the pod of that UID does not exist.
    pub pod_is_gone: bool,
    /// The request as it is on the server, where that is not what was looked at.
    pub fresh: Option<Box<Request>>,
    /// A look-up found the pod.
    pub pod_found: Option<Box<Pod>>,
    /// Something else failed, and the rest was not done.
    pub failure: Option<Failure>,
    /// All effects were carried out.
    pub is_complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The request has changed meanwhile, or is gone: what was decided does not hold any more, and an event is coming.
    Outdated,
    /// The server could not, or would not; try again later. In words that hold nothing of its answer.
    Later(String),
    /// A defect of ours.
    Panicked,
    /// What was to be made has the name of something else.
    NameTaken,
    /// The server does not take what was written, and will not the next time: too large, or not valid.
    Refused { reason: RefusedWrite, message: String },
}

/// Why the server does not take what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedWrite {
    /// Our account may not, or an admission policy denies it.
    NotAllowed,
    /// It breaks a rule of the API, or is too large.
    Invalid,
    /// What was to be written into it has no namespace.
    NoNamespace,
    /// A status of a maintenance that etcd does not take.
    StatusTooLarge,
    /// A status of a maintenance that is not allowed, or not valid.
    StatusRefused,
}

impl RefusedWrite {
    /// Those of a status of a maintenance.
    pub const OF_STATUS: [Self; 2] = [Self::StatusTooLarge, Self::StatusRefused];

    /// Why a write that failed so is not taken. `None`: it may be, the next time.
    pub(crate) fn of(class: FailureClass) -> Option<Self> {
        match class {
            FailureClass::NotAuthenticated | FailureClass::Forbidden => Some(Self::NotAllowed),
            FailureClass::Invalid | FailureClass::TooLarge => Some(Self::Invalid),
            FailureClass::NotFound
            | FailureClass::Conflict
            | FailureClass::Busy
            | FailureClass::Server
            | FailureClass::Unexpected
            | FailureClass::NoAnswer => None,
        }
    }

    /// One word, for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowed => "NotAllowed",
            Self::Invalid => "Invalid",
            Self::NoNamespace => "NoNamespace",
            Self::StatusTooLarge => "StatusTooLarge",
            Self::StatusRefused => "StatusRefused",
        }
    }
}

impl Failure {
    /// One word, for labels of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Outdated => "Outdated",
            Self::Later(_) => "Server",
            Self::Panicked => "Panicked",
            Self::NameTaken => "NameTaken",
            Self::Refused { reason, .. } => reason.as_str(),
        }
    }
}

impl Requests {
    pub fn new(client: Client, events: Events) -> Self {
        Self { client, events }
    }

    /// `pod` is the one that was looked at, as the subject of events.
    pub async fn carry_out(
        &self,
        request: &Request,
        pod: Option<&Pod>,
        effects: &[Effect],
    ) -> RequestApplied {
        let mut outcome = RequestApplied::default();
        let mut version = request.resource_version.clone();
        for effect in effects {
            let span = span_of(effect, request);
            let done = self.one(request, pod, effect, &mut version, &mut outcome);
            let done = done.instrument(span.clone()).await;
            spans::end(&span, &done);
            if let Err(failure) = done {
                if let Failure::Refused { reason, message } = &failure {
                    self.events.record(request, pod, &refused_write(*reason, message));
                }
                outcome.failure = Some(failure);
                return outcome;
            }
            if outcome.pod_is_gone || matches!(outcome.answer, Some(Answer::Refused(_))) {
                return outcome;
            }
        }
        outcome.is_complete = true;
        outcome
    }

    async fn one(
        &self,
        request: &Request,
        pod: Option<&Pod>,
        effect: &Effect,
        version: &mut String,
        outcome: &mut RequestApplied,
    ) -> Result<(), Failure> {
        match effect {
            Effect::LookUpPod => self.look_up(request, outcome).await,
            Effect::Confirm => self.confirm(request, outcome).await,
            Effect::Evict => {
                let evicted = self.evict(request, outcome).await;
                if let Some(answer) = &outcome.answer {
                    Span::current().record("usher.answer", answer.reason());
                }
                evicted
            }
            Effect::WriteStatus(status) => self.write_status(request, version, status).await,
            Effect::Delete(_) => self.delete(request, version).await,
            Effect::KeepFinalizers(names) => self.keep_finalizers(request, version, names).await,
            Effect::RecordEvent(notice) | Effect::RecordWithdrawal(notice) => {
                self.events.record(request, pod, notice);
                Ok(())
            }
        }
    }

    fn requests(&self, request: &Request) -> Api<Lenient<RequestOnWire>> {
        Api::namespaced(self.client.clone(), &request.key.namespace)
    }

    async fn look_up(&self, request: &Request, outcome: &mut RequestApplied) -> Result<(), Failure> {
        let pods: Api<Lenient<PodOnWire>> = Api::namespaced(self.client.clone(), &request.key.namespace);
        match pods.get_opt(&request.pod_name).await {
            Ok(Some(pod)) => {
                let pod = Pod::from(pod.read().map_err(unreadable)?);
                outcome.pod_is_gone = pod.uid != request.pod_uid;
                outcome.pod_found = Some(Box::new(pod));
                Ok(())
            }
            Ok(None) => {
                outcome.pod_is_gone = true;
                Ok(())
            }
            Err(why) => Err(failure_of_write(why)),
        }
    }

    async fn confirm(&self, request: &Request, outcome: &mut RequestApplied) -> Result<(), Failure> {
        let fresh = match self.requests(request).get_opt(&request.key.name).await {
            Ok(Some(fresh)) => Request::from(fresh.read().map_err(unreadable)?),
            Ok(None) => return Err(Failure::Outdated),
            Err(why) => return Err(failure_of_write(why)),
        };
        if fresh.resource_version == request.resource_version {
            return Ok(());
        }
        outcome.fresh = Some(Box::new(fresh));
        Err(Failure::Outdated)
    }

    async fn evict(&self, request: &Request, outcome: &mut RequestApplied) -> Result<(), Failure> {
        let (namespace, name, uid) = (&request.key.namespace, &request.pod_name, &request.pod_uid);
        let grace_period_seconds = request.grace_period_seconds();
        let options = EvictionOptions { grace_period_seconds, ..EvictionOptions::default() };
        match evict(self.client.clone(), namespace, name, uid, options).await {
            Ok(Evicted::Accepted) => outcome.answer = Some(Answer::Accepted),
            Ok(Evicted::Gone) => outcome.pod_is_gone = true,
            Ok(Evicted::Conflict(refusal)) => {
                self.look_up(request, outcome).await?;
                if !outcome.pod_is_gone {
                    outcome.answer = Some(Answer::Refused(refusal));
                }
            }
            Ok(Evicted::Refused(refusal)) => outcome.answer = Some(Answer::Refused(refusal)),
            // No answer: whether the pod was evicted, its watch will tell.
            Err(why) => {
                let refusal = Refusal::Server { code: 0, message: why.to_string() };
                outcome.answer = Some(Answer::Refused(refusal));
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        request: &Request,
        version: &mut String,
        status: &EvictionRequestStatus,
    ) -> Result<(), Failure> {
        let mut patch = if status.conditions.iter().any(is_of_others) {
            status::of_request(&self.with_conditions_of_others(request, version, status).await?)
        } else {
            status::of_request(status)
        };
        patch["metadata"] = json!({"uid": &*request.uid, "resourceVersion": version});
        let written = self
            .requests(request)
            .patch_status(&request.key.name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch))
            .await;
        written.map(|written| remember(written.meta(), version)).map_err(failure_of_write)
    }

    /// The conditions of others are not kept in memory, and are written back as they are on the server.
    async fn with_conditions_of_others(
        &self,
        request: &Request,
        version: &str,
        status: &EvictionRequestStatus,
    ) -> Result<EvictionRequestStatus, Failure> {
        let mut stored = stored_status(&self.requests(request), request, version).await?.conditions;
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().filter(|condition| is_of_others(condition)) {
            if let Some(stored) = stored.iter_mut().find(|stored| stored.type_ == condition.type_) {
                std::mem::swap(condition, stored);
            }
        }
        Ok(status)
    }

    async fn delete(&self, request: &Request, version: &mut String) -> Result<(), Failure> {
        let preconditions =
            Preconditions { uid: Some(request.uid.to_string()), resource_version: Some(version.clone()) };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let deleted = self.requests(request).delete(&request.key.name, &parameters).await;
        deleted
            .map(|deleted| {
                if let Some(left) = deleted.left() {
                    remember(left.meta(), version);
                }
            })
            .map_err(failure_of_write)
    }

    async fn keep_finalizers(
        &self,
        request: &Request,
        version: &mut String,
        names: &[String],
    ) -> Result<(), Failure> {
        let read = Version { uid: &request.uid, resource_version: &version.clone() };
        let requests = self.requests(request);
        let written = Writer::named(FIELD_MANAGER).keep(&requests, &request.key.name, read, names).await;
        written.map(|written| remember(written.meta(), version)).map_err(failure_of_write)
    }
}

fn span_of(effect: &Effect, request: &Request) -> Span {
    let call = match effect {
        Effect::LookUpPod => "get Pod",
        Effect::Confirm => "get EvictionRequest",
        Effect::Evict => "evict Pod",
        Effect::WriteStatus(_) => "write status of EvictionRequest",
        Effect::Delete(_) => "delete EvictionRequest",
        Effect::KeepFinalizers(_) => "write finalizers of EvictionRequest",
        // Events are written by somebody else, later.
        Effect::RecordEvent(_) | Effect::RecordWithdrawal(_) => return Span::none(),
    };
    spans::about_request(call, request)
}

pub(crate) fn remember(written: &ObjectMeta, version: &mut String) {
    if let Some(new) = &written.resource_version {
        version.clone_from(new);
    }
}

/// Gone, now or before.
pub(crate) fn is_gone<T>(deleted: Result<T, Error>) -> Result<(), Failure> {
    match deleted {
        Ok(_) => Ok(()),
        Err(why) if FailureClass::of(&why) == FailureClass::NotFound => Ok(()),
        Err(why) => Err(failure_of_write(why)),
    }
}

/// What the server will not take before somebody changes something: it is tried again, later and later, and told.
pub(crate) fn failure_of_write(why: Error) -> Failure {
    match (RefusedWrite::of(FailureClass::of(&why)), &why) {
        (_, Error::Api(status)) if says_that_the_pod_has_gone(status) => Failure::Outdated,
        (Some(reason), Error::Api(status)) => {
            Failure::Refused { reason, message: limited(status.message.clone()) }
        }
        _ => failure_of(why),
    }
}

/// The pod has ended since its watch told of it, or another one has its name: our own admission says so, and the watch will.
pub(crate) fn says_that_the_pod_has_gone(status: &Status) -> bool {
    breaks_only(status, &[Rule::PodExists, Rule::PodHasUid, Rule::PodIsNotTerminal])
}

/// Our own admission refuses it for these rules, and for no other.
pub(crate) fn breaks_only(status: &Status, rules: &[Rule]) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes[..]).unwrap_or_default();
    let is_one = |reason: &str| rules.iter().any(|rule| rule.name() == reason);
    !causes.is_empty() && causes.iter().all(|cause| is_one(&cause.reason))
}

fn refused_write(reason: RefusedWrite, message: &str) -> Notice {
    let advice = match reason {
        RefusedWrite::NotAllowed => {
            "give Usher's account its roles back (deploy/), and see whether an admission policy refuses it"
        }
        RefusedWrite::Invalid
        | RefusedWrite::NoNamespace
        | RefusedWrite::StatusTooLarge
        | RefusedWrite::StatusRefused => {
            "see whether the definitions are those of this version, and who else writes this request"
        }
    };
    Notice {
        about: &[About::Request, About::Pod],
        is_warning: true,
        reason: "EvictionRequestNotWritten",
        message: limited(format!("the API server refuses what Usher asks for: {message}; {advice}")),
    }
}

pub(crate) fn failure_of(why: Error) -> Failure {
    if FailureClass::of(&why).is_outdated() {
        return Failure::Outdated;
    }
    tracing::debug!(%why, "a call failed");
    Failure::Later(kind_of(&why))
}

/// The status of a version that was read before, with what is not kept of it in memory.
pub(crate) async fn stored_status(
    requests: &Api<Lenient<RequestOnWire>>,
    request: &Request,
    version: &str,
) -> Result<EvictionRequestStatus, Failure> {
    let stored = requests.get(&request.key.name).await.map_err(failure_of_write)?;
    let stored = stored.read().map_err(unreadable)?;
    if stored.metadata.resource_version.as_deref() != Some(version) {
        return Err(Failure::Outdated);
    }
    Ok(stored.status.unwrap_or_default())
}

fn unreadable(object: Box<Unreadable>) -> Failure {
    Failure::Later(object.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_will_not_take_is_told_with_what_to_do() {
        let answered = |code: u16| {
            let status = json!({"code": code, "message": "no", "status": "Failure", "reason": ""});
            failure_of_write(Error::Api(serde_json::from_value(status).unwrap()))
        };
        assert_eq!(answered(409), Failure::Outdated);
        assert!(matches!(answered(500), Failure::Later(_)));
        for (code, wanted, advice) in
            [(403, RefusedWrite::NotAllowed, "its roles back"), (422, RefusedWrite::Invalid, "definitions")]
        {
            let failure = answered(code);
            assert_eq!(failure.reason(), wanted.as_str());
            let Failure::Refused { reason, message } = failure else { panic!("{code}") };
            assert_eq!(reason, wanted);
            let told = refused_write(reason, &message);
            assert!(told.is_warning && told.message.contains(advice), "{}", told.message);
        }
    }

    #[test]
    fn that_a_pod_has_gone_meanwhile_is_no_refusal_to_tell_of() {
        let answered = |reasons: &[&str]| {
            let causes: Vec<_> =
                reasons.iter().map(|reason| json!({"reason": reason, "field": "", "message": ""})).collect();
            let status = json!({
                "code": 422, "message": "no", "status": "Failure", "reason": "Invalid", "details": {"causes": causes},
            });
            failure_of_write(Error::Api(serde_json::from_value(status).unwrap()))
        };
        for gone in ["pod-exists", "pod-has-uid", "pod-is-not-terminal"] {
            assert_eq!(answered(&[gone]), Failure::Outdated);
        }
        for refused in [&["name-is-pod-uid"][..], &["pod-exists", "name-is-pod-uid"], &[]] {
            assert_eq!(answered(refused).reason(), "Invalid", "{refused:?}");
        }
    }
}
