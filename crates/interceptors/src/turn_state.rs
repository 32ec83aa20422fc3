//! Whose turn it is, as an interceptor reads it from a request. Pure: the runner and every write judge by this.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use usher_api::names::requester_of;
use usher_api::{EvictionRequest, EvictionRequestStatus};

use crate::class::InterceptorClass;

/// Why a turn is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// All requesters have withdrawn and the request is deleted, while the pod goes on: undo what can be undone.
    #[error("the eviction was cancelled: the request is deleted and the pod stays")]
    Cancelled,
    /// Another interceptor is active: the deadline passed without a sign of progress.
    #[error("the turn has passed to {}: no progress was reported in time", .to.as_deref().unwrap_or("nobody"))]
    Passed {
        /// Who is active now.
        to: Option<String>,
    },
    /// Somebody else has set `activeInterceptorCompleted` for our class: another replica, or a person.
    #[error("somebody else has marked this turn as completed")]
    CompletedByOthers,
    /// This handler has completed or declined.
    #[error("this interceptor has completed its turn")]
    Completed,
    /// The pod is gone or has ended: there is nothing left to do.
    #[error("the pod is gone")]
    PodGone,
    /// The runner has stopped. After a restart the handler is called again if it is still our turn.
    #[error("the interceptor is stopping")]
    Stopped,
}

/// What is known of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodState {
    /// Nobody has looked. Looking costs a call, so that it is done only when the answer matters.
    NotLooked,
    /// The very pod is there and has not ended.
    There,
    /// No pod of that UID exists, or it has reached a terminal phase.
    Gone,
}

impl PodState {
    /// What an answer to "get the pod of this name" says of the pod of this UID.
    #[must_use]
    pub fn of(found: Option<&Pod>, uid: &str) -> Self {
        match found {
            Some(pod) if pod.uid().as_deref() == Some(uid) && !has_ended(pod) => Self::There,
            _ => Self::Gone,
        }
    }
}

/// Whether a pod has reached a terminal phase.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// What a request means to one interceptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnState {
    /// Ours, and not completed: act.
    Ours,
    /// It was never ours: nothing to do.
    NotOurs,
    /// It is over, and whether the pod is there decides how to say it.
    LookAtPod,
    /// It was ours and is not any more.
    Lost(Lost),
}

/// Judges what was seen of a request. `held` is the UID of the request whose turn we have, if we have one; a request of another
/// UID is another request.
#[must_use]
pub fn judge(
    class: &InterceptorClass,
    held: Option<&str>,
    seen: Option<&EvictionRequest>,
    pod: PodState,
) -> TurnState {
    let same = |request: &&EvictionRequest| held.is_none() || request.metadata.uid.as_deref() == held;
    let ended = match seen.filter(same) {
        None => true,
        Some(request) => is_cancelled(request),
    };
    let over = |why: Lost| if held.is_some() { TurnState::Lost(why) } else { TurnState::NotOurs };
    if pod == PodState::Gone {
        return over(Lost::PodGone);
    }
    if ended {
        return match (held, pod) {
            (None, _) => TurnState::NotOurs,
            (Some(_), PodState::NotLooked) => TurnState::LookAtPod,
            (Some(_), _) => TurnState::Lost(Lost::Cancelled),
        };
    }
    let status = seen.and_then(|request| request.status.as_ref());
    let active = status.and_then(|status| status.active_interceptor_class.as_deref());
    if active != Some(class.as_str()) {
        return over(Lost::Passed { to: active.map(str::to_owned) });
    }
    if status.is_some_and(|status: &EvictionRequestStatus| status.active_interceptor_completed) {
        return over(Lost::CompletedByOthers);
    }
    TurnState::Ours
}

/// Being deleted with no requester left. While a requester remains the request is not cancelled, whoever called delete.
fn is_cancelled(request: &EvictionRequest) -> bool {
    let requested = request.finalizers().iter().any(|finalizer| requester_of(finalizer).is_some());
    request.metadata.deletion_timestamp.is_some() && !requested
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const REQUESTER: &str = "requester.evictionrequest.coordination.k8s.io/name_drain.example.com";

    fn request(finalizers: &[&str], deleting: bool, status: Value) -> EvictionRequest {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": "p", "uid": "r", "finalizers": finalizers, "deletionTimestamp": deleted},
            "spec": {"podRef": {"name": "p-1", "uid": "p"}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_turn_is_judged_by_status_class_and_pod() {
        use PodState::{Gone, NotLooked, There};
        use TurnState::{LookAtPod, Lost as Over, NotOurs, Ours};
        let class = InterceptorClass::new("db.example.com").unwrap();
        let asked = |status| Some(request(&[REQUESTER], false, status));
        let ours = || json!({"activeInterceptorClass": "db.example.com"});
        let completed =
            || json!({"activeInterceptorClass": "db.example.com", "activeInterceptorCompleted": true});
        let others = || json!({"activeInterceptorClass": "next.example.com"});
        let passed = || Lost::Passed { to: Some("next.example.com".to_owned()) };
        let (new, held, recreated) = (None, Some("r"), Some("an older request"));
        for (what, held, seen, pod, expected) in [
            ("nobody chosen yet", new, asked(Value::Null), NotLooked, NotOurs),
            ("chosen", new, asked(ours()), NotLooked, Ours),
            ("going on", held, asked(ours()), NotLooked, Ours),
            ("going on, pod seen", held, asked(ours()), There, Ours),
            ("another's turn", new, asked(others()), NotLooked, NotOurs),
            ("passed on", held, asked(others()), NotLooked, Over(passed())),
            ("status lost its class", held, asked(json!({})), NotLooked, Over(Lost::Passed { to: None })),
            ("completed in a former life", new, asked(completed()), NotLooked, NotOurs),
            ("completed by others", held, asked(completed()), NotLooked, Over(Lost::CompletedByOthers)),
            ("pod gone, request still there", held, asked(ours()), Gone, Over(Lost::PodGone)),
            ("pod gone before we began", new, asked(ours()), Gone, NotOurs),
            ("request gone, why?", held, None, NotLooked, LookAtPod),
            ("request gone, pod there", held, None, There, Over(Lost::Cancelled)),
            ("request gone, pod gone", held, None, Gone, Over(Lost::PodGone)),
            ("request gone, never ours", new, None, NotLooked, NotOurs),
            ("made anew, pod there", recreated, asked(ours()), There, Over(Lost::Cancelled)),
            ("made anew", recreated, asked(ours()), NotLooked, LookAtPod),
            (
                "deleted, a requester remains",
                held,
                Some(request(&[REQUESTER], true, ours())),
                NotLooked,
                Ours,
            ),
            ("deleted, no requester", held, Some(request(&["a/b"], true, ours())), NotLooked, LookAtPod),
            ("deleted, pod there", held, Some(request(&["a/b"], true, ours())), There, Over(Lost::Cancelled)),
            ("deleted before we began", new, Some(request(&["a/b"], true, ours())), NotLooked, NotOurs),
            ("withdrawn, not yet deleted", held, Some(request(&[], false, ours())), NotLooked, Ours),
        ] {
            assert_eq!(judge(&class, held, seen.as_ref(), pod), expected, "{what}");
        }
    }

    #[test]
    fn a_pod_of_another_uid_or_that_has_ended_is_gone() {
        let pod = |uid: &str, phase: &str| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": "p-1", "uid": uid}, "status": {"phase": phase}}),
            )
            .unwrap()
        };
        for (found, expected) in [
            (None, PodState::Gone),
            (Some(pod("p", "Running")), PodState::There),
            (Some(pod("p", "Pending")), PodState::There),
            (Some(pod("p", "Succeeded")), PodState::Gone),
            (Some(pod("p", "Failed")), PodState::Gone),
            (Some(pod("q", "Running")), PodState::Gone),
        ] {
            assert_eq!(PodState::of(found.as_ref(), "p"), expected, "{found:?}");
        }
    }
}
