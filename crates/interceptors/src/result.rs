//! What a requester learns of its request: how far it is, and how it has ended. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use usher_api::names::requester_of;
use usher_api::{EvictionRequest, EvictionRequestCancellationPolicy};

use crate::turn_state::has_ended;

/// How a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pod does not exist any more.
    PodGone,
    /// The pod has ended (`Succeeded` or `Failed`) and is still there to be looked at.
    PodTerminal,
    /// This requester has withdrawn. Others may still want the pod gone.
    Withdrawn,
    /// The request was deleted while the pod runs, and not by us.
    RequestDeleted,
}

/// How far a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The interceptor whose turn it is.
    pub active_interceptor: Option<String>,
    /// Whether it has completed its part.
    pub completed: bool,
    /// What it or the controller says.
    pub message: String,
    /// The last sign of progress.
    pub reported: Option<Timestamp>,
    /// When the interceptor expects to be done.
    pub expected_finish: Option<Timestamp>,
    /// Whether withdrawing can still stop it.
    pub cancellable: bool,
    /// Evictions that were refused so far.
    pub failed_evictions: i32,
    /// Everybody who asks for it, by requester name.
    pub requesters: Vec<String>,
}

/// A step on the way, or the end of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The request has changed.
    Progress(Progress),
    /// It is over; nothing follows.
    Ended(Outcome),
}

/// One object that is watched. What was not read yet is neither there nor gone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WatchedObject<K> {
    Unread,
    Gone,
    There(Box<K>),
}

impl<K> From<Option<K>> for WatchedObject<K> {
    fn from(found: Option<K>) -> Self {
        found.map_or(Self::Gone, |object| Self::There(Box::new(object)))
    }
}

impl Progress {
    /// What a request says.
    #[must_use]
    pub fn of(request: &EvictionRequest) -> Self {
        let status = request.status.clone().unwrap_or_default();
        Self {
            active_interceptor: status.active_interceptor_class,
            completed: status.active_interceptor_completed,
            message: status.message,
            reported: status.progress_timestamp.map(|time| time.0),
            expected_finish: status.expected_interceptor_finish_time.map(|time| time.0),
            cancellable: status.eviction_request_cancellation_policy
                == EvictionRequestCancellationPolicy::Allow,
            failed_evictions: status.failed_api_eviction_counter,
            requesters: request
                .finalizers()
                .iter()
                .filter_map(|f| requester_of(f))
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// How the pod of this UID has ended, if it has.
pub(crate) fn end_of_pod(pod: &WatchedObject<Pod>, uid: &str) -> Option<Outcome> {
    match pod {
        WatchedObject::Unread => None,
        WatchedObject::There(pod) if pod.uid().as_deref() == Some(uid) => {
            has_ended(pod).then_some(Outcome::PodTerminal)
        }
        WatchedObject::There(_) | WatchedObject::Gone => Some(Outcome::PodGone),
    }
}

/// Whether our ask still stands in what was seen of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnAsk {
    /// Not read yet.
    Unknown,
    /// Our finalizer is there.
    Stands,
    /// The request is there without our finalizer, and can take it.
    Removed,
    /// The request is gone, or goes and takes no more finalizers.
    Deleted,
}

pub(crate) fn own_ask(request: &WatchedObject<EvictionRequest>, finalizer: &str) -> OwnAsk {
    match request {
        WatchedObject::Unread => OwnAsk::Unknown,
        WatchedObject::Gone => OwnAsk::Deleted,
        WatchedObject::There(request) if request.finalizers().iter().any(|f| f == finalizer) => {
            OwnAsk::Stands
        }
        WatchedObject::There(request) if request.metadata.deletion_timestamp.is_some() => OwnAsk::Deleted,
        WatchedObject::There(_) => OwnAsk::Removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, phase: &str) -> WatchedObject<Pod> {
        let pod = json!({"metadata": {"name": "p-1", "uid": uid}, "status": {"phase": phase}});
        Some(serde_json::from_value(pod).unwrap()).into()
    }

    fn request(finalizers: &[&str], deleting: bool) -> WatchedObject<EvictionRequest> {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": "p", "finalizers": finalizers, "deletionTimestamp": deleted},
            "spec": {"podRef": {"name": "p-1", "uid": "p"}},
        });
        Some(serde_json::from_value(request).unwrap()).into()
    }

    #[test]
    fn the_pod_decides_how_it_ended() {
        for (seen, expected) in [
            (WatchedObject::Unread, None),
            (pod("p", "Running"), None),
            (pod("p", "Succeeded"), Some(Outcome::PodTerminal)),
            (pod("p", "Failed"), Some(Outcome::PodTerminal)),
            (pod("q", "Running"), Some(Outcome::PodGone)),
            (pod("q", "Failed"), Some(Outcome::PodGone)),
            (WatchedObject::Gone, Some(Outcome::PodGone)),
        ] {
            assert_eq!(end_of_pod(&seen, "p"), expected, "{seen:?}");
        }
    }

    #[test]
    fn an_ask_is_a_finalizer_on_a_request() {
        for (seen, expected) in [
            (WatchedObject::Unread, OwnAsk::Unknown),
            (WatchedObject::Gone, OwnAsk::Deleted),
            (request(&["a/mine", "a/other"], false), OwnAsk::Stands),
            (request(&["a/mine"], true), OwnAsk::Stands),
            (request(&["a/other"], false), OwnAsk::Removed),
            (request(&[], false), OwnAsk::Removed),
            (request(&["a/other"], true), OwnAsk::Deleted),
        ] {
            assert_eq!(own_ask(&seen, "a/mine"), expected, "{seen:?}");
        }
    }
}
