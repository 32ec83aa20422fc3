//! How a request ends: the pod is gone, or nobody wants it to go any more.

use jiff::{SignedDuration, Timestamp};
use usher_api::EvictionRequestCancellationPolicy as Policy;

use super::{BLOCKED_CONDITION, Decision};
use crate::decision::{About, Effect, Ending, Notice};
use crate::snapshot::{Pod, Request};
use crate::waiting_on::WaitingOn;

/// The finalizers by which the garbage collector holds what is deleted with others.
const OF_THE_GARBAGE_COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Who holds it once it is deleted. A deletion in the background takes off what is the garbage collector's, and nobody can add to a
/// request that is being deleted; to one that others have deleted, the garbage collector still attends.
fn held_by(request: &Request) -> Vec<String> {
    let mut others = request.other_finalizers();
    others.retain(|name| request.is_deleting || !OF_THE_GARBAGE_COLLECTOR.contains(&name.as_str()));
    others
}

/// The pod has left: it is gone, or this one has ended and is still there. The request goes, with the requesters' finalizers; what others
/// put there still holds it.
pub fn finish(request: &Request, ended: Option<&Pod>) -> Decision {
    let mut decision = Decision::default();
    // A pod in a terminal phase still exists, and Forbid would keep the request as long as it does. Who holds the request by
    // another finalizer reads what came of it.
    let held_by = held_by(request);
    let forbidden = request.status.eviction_request_cancellation_policy == Policy::Forbid;
    let was_blocked = request.condition(BLOCKED_CONDITION).is_some_and(|known| known.status == "True");
    if forbidden || (was_blocked && !held_by.is_empty()) {
        let mut status = request.status.clone();
        status.eviction_request_cancellation_policy = Policy::Allow;
        status.message = "the pod has terminated".to_string();
        for condition in status.conditions.iter_mut().filter(|known| known.type_ == BLOCKED_CONDITION) {
            condition.status = "False".to_string();
            condition.reason = "Terminated".to_string();
            condition.message.clone_from(&status.message);
        }
        decision = decision.act(Effect::WriteStatus(Box::new(status)));
    }
    if !request.is_deleting {
        decision = decision.act(Effect::Delete(Ending::PodLeft));
        if let Some(pod) = ended {
            let phase = pod.phase;
            let message = if pod.is_terminating() {
                format!(
                    "the pod has ended ({phase:?}) and is being deleted; the eviction request is complete"
                )
            } else {
                format!("the pod has ended ({phase:?}) and is kept; the eviction request is complete")
            };
            decision = decision.act(Notice::normal(&[About::Pod], "EvictionRequestCompleted", message));
        }
    }
    if request.requesters().next().is_some() {
        decision = decision.act(Effect::KeepFinalizers(held_by.clone()));
    }
    if !held_by.is_empty() {
        decision.waiting_on = Some(WaitingOn::Finalizers { names: held_by });
    }
    decision
}

/// Who holds a request that is withdrawn by a finalizer has so long: nobody can ask for the pod before it is gone.
const HOLDING_MAX: SignedDuration = SignedDuration::from_secs(60);

/// No requester is left. Whoever wants to hear of it has a finalizer of its own.
pub fn withdraw(request: &Request, now: Timestamp) -> Decision {
    let held_by = held_by(request);
    let mut decision = Decision::default();
    let until = request.deleted().map(|at| at.checked_add(HOLDING_MAX).unwrap_or(Timestamp::MAX));
    if until.is_some_and(|until| now >= until) && !held_by.is_empty() {
        let message = format!(
            "{} held the withdrawn request for {} seconds, and nobody could ask for the pod; taken off",
            held_by.join(", "),
            HOLDING_MAX.as_secs()
        );
        return decision.act(Effect::KeepFinalizers(Vec::new())).act(Notice::warning(
            &[About::Request, About::Pod],
            "FinalizersRemoved",
            message,
        ));
    }
    if !request.is_deleting {
        decision = decision.act(Effect::Delete(Ending::Withdrawn)).act(Notice::normal(
            &[About::Pod, About::Owner],
            "EvictionRequestCancelled",
            "withdrawn: no requesters remain".to_string(),
        ));
    }
    if !held_by.is_empty() {
        decision.waiting_on = Some(WaitingOn::Finalizers { names: held_by });
        decision.recheck_at = until;
    }
    decision
}
