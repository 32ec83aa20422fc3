//! An eviction request, without what only people read.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use usher_api::eviction_request::{PROGRESS_DEADLINE_SECONDS_DEFAULT, selection_order};
use usher_api::gateway::Ask;
use usher_api::names::{
    DESCHEDULER_INSTANCE_ANNOTATION, INTERCEPTORS_RESOLVED_ANNOTATION, SKIP_INTERCEPTORS_ANNOTATION,
    SURGE_FAILED_CONDITION, requester_of,
};
use usher_api::{EvictionRequestStatus, Interceptor};

use super::wire::RequestOnWire;
use super::{Key, Pod};
use crate::eviction_request::BLOCKED_CONDITION;
use crate::waiting_on::{Unevictable, WaitingOn};

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub key: Key,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub created: Timestamp,
    pub is_deleting: bool,
    pub finalizers: Arc<[String]>,
    pub pod_name: Arc<str>,
    pub pod_uid: Arc<str>,
    /// In the order of their turns.
    pub interceptors: Arc<[Interceptor]>,
    /// Admission has looked which interceptors the pod names.
    pub interceptors_are_resolved: bool,
    pub deadline: SignedDuration,
    /// What few requests have.
    pub rare: Option<Box<RareOfRequest>>,
    /// The time of the last progress is a report, as far as the server tells who wrote it; otherwise the manager wrote it when it gave the
    /// turn.
    pub is_progress_reported: bool,
    /// Of the conditions of others only their types are kept: they may be half a megabyte, and nobody decides by them.
    pub status: EvictionRequestStatus,
    /// The stored progress was undone, or lies in the future: `status` has it as it should be, and it is to be written.
    pub is_progress_corrected: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RareOfRequest {
    /// When it was deleted, if it is held by finalizers.
    pub deleted: Option<Timestamp>,
    /// Why its interceptors are to be skipped, in the words of the administrator who wants it.
    pub skips_interceptors: Option<Arc<str>>,
    /// The descheduler that asked, where there are several.
    pub descheduler: Option<Arc<str>>,
    /// What requesters have asked by plain evictions, through the gateway.
    pub asks: Box<[(String, Ask)]>,
}

/// The name under which the manager writes.
const MANAGER: &str = "usher";

/// No clock of the cluster is ahead by more than this.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

impl Request {
    /// The request that there would be if the pod were asked to leave now, as the server would store it: made with admission, and with
    /// interceptors in the order of their turns.
    pub fn if_asked(
        pod: &Pod,
        finalizers: Arc<[String]>,
        interceptors: Arc<[Interceptor]>,
        now: Timestamp,
    ) -> Self {
        Self {
            rare: None,
            key: pod.request_key(),
            uid: "".into(),
            resource_version: String::new(),
            created: now,
            is_deleting: false,
            finalizers,
            pod_name: pod.key.name.clone(),
            pod_uid: pod.uid.clone(),
            interceptors,
            interceptors_are_resolved: true,
            deadline: SignedDuration::from_secs(PROGRESS_DEADLINE_SECONDS_DEFAULT.into()),
            is_progress_reported: false,
            status: EvictionRequestStatus::default(),
            is_progress_corrected: false,
        }
    }

    /// The progress that counts, if it is not what is stored: nobody undoes it during a turn, and none lies in the future. What the
    /// server takes while the webhook is away may be otherwise.
    pub fn true_progress(&self, known: Option<&Self>, now: Timestamp) -> Option<Time> {
        let stored = self.status.progress_timestamp.as_ref().map(|time| time.0);
        let same_turn = known.filter(|known| {
            known.uid == self.uid
                && known.status.active_interceptor_class == self.status.active_interceptor_class
        });
        let before = same_turn.and_then(|known| known.status.progress_timestamp.clone());
        if stored.is_some_and(|stored| stored > now + CLOCK_SKEW) {
            let first_seen = Timestamp::from_second(now.as_second()).unwrap_or(now);
            return before.or(Some(Time(first_seen)));
        }
        before.filter(|before| {
            !self.status.active_interceptor_completed && stored.is_none_or(|stored| stored < before.0)
        })
    }

    pub fn deleted(&self) -> Option<Timestamp> {
        self.rare.as_ref()?.deleted
    }

    pub fn skips_interceptors(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.skips_interceptors.as_ref()
    }

    pub fn descheduler(&self) -> Option<&str> {
        self.rare.as_ref()?.descheduler.as_deref()
    }

    pub fn asks(&self) -> &[(String, Ask)] {
        self.rare.as_ref().map(|rare| &rare.asks[..]).unwrap_or_default()
    }

    /// Who wants the pod to leave.
    pub fn requesters(&self) -> impl Iterator<Item = &str> {
        self.finalizers.iter().filter_map(|finalizer| requester_of(finalizer))
    }

    /// The plain eviction by which this requester asked, if it did so.
    pub fn ask_of(&self, requester: &str) -> Option<&Ask> {
        self.asks().iter().find(|(name, _)| name == requester).map(|(_, ask)| ask)
    }

    /// The grace period that all who want the pod to leave agree on: the longest, and the pod's own if anybody gave none.
    pub fn grace_period_seconds(&self) -> Option<i64> {
        let given = self.requesters().map(|name| self.ask_of(name).and_then(|ask| ask.grace_period_seconds));
        given.collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// The finalizers of others, who have something to do before the request may go.
    pub fn other_finalizers(&self) -> Vec<String> {
        self.finalizers.iter().filter(|finalizer| requester_of(finalizer).is_none()).cloned().collect()
    }

    pub fn pod_key(&self) -> Key {
        Key::new(self.key.namespace.clone(), self.pod_name.clone())
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Its condition says that the eviction API must not evict the pod, because it is one of these.
    pub fn is_blocked_as(&self, pods: &[Unevictable]) -> bool {
        let Some(blocked) = self.condition(BLOCKED_CONDITION) else { return false };
        let reasons = || pods.iter().map(|pod| WaitingOn::NotEvictable { pod: *pod }.reason());
        blocked.status == "True" && reasons().any(|reason| reason == blocked.reason)
    }
}

/// The conditions that the manager writes, itself or as an interceptor.
pub const OWN_CONDITIONS: [&str; 2] = [BLOCKED_CONDITION, SURGE_FAILED_CONDITION];

/// Whether somebody else writes the condition.
pub fn is_of_others(condition: &Condition) -> bool {
    !OWN_CONDITIONS.contains(&condition.type_.as_str())
}

fn without_words_of_others(mut status: EvictionRequestStatus) -> EvictionRequestStatus {
    for condition in status.conditions.iter_mut().filter(|condition| is_of_others(condition)) {
        (condition.reason, condition.message) = (String::new(), String::new());
    }
    status
}

impl From<RequestOnWire> for Request {
    fn from(request: RequestOnWire) -> Self {
        let meta = request.metadata;
        let text = |text: Option<String>| Arc::<str>::from(text.unwrap_or_default());
        let mut interceptors = request.spec.interceptors;
        interceptors.sort_by(selection_order);
        let annotations = meta.annotations.unwrap_or_default();
        let marked = annotations.get(INTERCEPTORS_RESOLVED_ANNOTATION).is_some_and(|value| value == "true");
        let skip = annotations.get(SKIP_INTERCEPTORS_ANNOTATION).filter(|why| !why.is_empty());
        let finalizers: Arc<[String]> = meta.finalizers.unwrap_or_default().into();
        let asks = annotations.iter().filter_map(|(key, value)| Ask::of_annotation(key, value));
        // Whoever has withdrawn asks no more, and nobody else is spoken for.
        let asks = asks.filter(|(name, _)| finalizers.iter().any(|it| requester_of(it) == Some(*name)));
        let rare = RareOfRequest {
            deleted: meta.deletion_timestamp.as_ref().map(|time| time.0),
            skips_interceptors: skip.map(|why| why.as_str().into()),
            descheduler: annotations.get(DESCHEDULER_INSTANCE_ANNOTATION).map(|name| name.as_str().into()),
            asks: asks.map(|(name, ask)| (name.to_owned(), ask)).collect(),
        };
        Self {
            rare: (rare != RareOfRequest::default()).then(|| Box::new(rare)),
            is_progress_reported: meta.managed_fields.is_none_or(|reporters| {
                reporters.iter().any(|reporter| reporter.manager.as_deref() != Some(MANAGER))
            }),
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid),
            resource_version: meta.resource_version.unwrap_or_default(),
            created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_deleting: meta.deletion_timestamp.is_some(),
            finalizers,
            pod_name: request.spec.pod_ref.name.into(),
            pod_uid: request.spec.pod_ref.uid.into(),
            interceptors_are_resolved: !interceptors.is_empty() || marked,
            interceptors: interceptors.into(),
            deadline: SignedDuration::from_secs(request.spec.progress_deadline_seconds.into()),
            status: request.status.map(without_words_of_others).unwrap_or_default(),
            is_progress_corrected: false,
        }
    }
}
