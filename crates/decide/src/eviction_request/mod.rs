//! The life of one eviction request.
//!
//! [`decide`] is the whole of it, in the order in which it looks: has somebody stopped asking ([`withdrawal`]), is the pod gone ([`end`]), is the request withdrawn,
//! whose turn is it ([`turn`]), and if nobody's, may the pod be evicted ([`evict`]).

mod end;
mod evict;
pub mod index;
pub mod message;
mod refusal;
#[cfg(test)]
mod tests;
mod turn;
mod withdrawal;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::EvictionRequestCancellationPolicy as Policy;
use usher_api::workloads::Strategy;

pub use evict::BLOCKED_CONDITION;
pub use refusal::{Answer, Attempt, LONGEST_PAUSE, SelectingBudget, recorded_refusal};
pub use turn::{Left, Passing, Turn, is_nobodys, overdue_at, turn};
pub use usher_api::{Refusal, RefusalReason};

use message::GivenTurn;

use crate::decision::{self, About, Effect, Notice};
use crate::snapshot::{Budget, Pod, Request};
use crate::waiting_on::WaitingOn;

/// The reasons of the events that tell of a turn: an interceptor is next, and the one before it was silent for too long.
pub const INTERCEPTOR_SELECTED: &str = "InterceptorSelected";
pub const INTERCEPTOR_SILENT: &str = "InterceptorSilent";

/// What is decided on a request.
pub type Decision = decision::Decision<Effect, WaitingOn>;

/// What is known of the pod that a request names.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The pod under that name; it may have another UID.
    Found(&'a Pod),
    /// It was there and is not any more.
    Gone,
    /// Nobody here has ever seen it.
    NeverSeen,
}

/// Everything that a decision on one request depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub request: &'a Request,
    pub pod: Target<'a>,
    /// The budgets that select the pod.
    pub budgets: &'a [&'a Budget],
    /// What became of the last eviction that was tried.
    pub attempt: Option<&'a Attempt>,
    /// What the DaemonSet that the pod names says of eviction requests, if there is such a DaemonSet.
    pub daemon_set: Option<Strategy>,
    /// How long all interceptors of a pod may take together.
    pub interceptors_limit: Option<SignedDuration>,
    /// Who asked by a plain eviction, and has not done so again for this long, has withdrawn.
    pub withdraw_after: Option<SignedDuration>,
}

/// What a budget answers to a pod that wants to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// There is room, and it is this pod's: it goes now.
    Granted,
    /// The room is this pod's, and others with room go before it. It is told when its turn comes.
    Later,
    /// There is no room.
    Waits,
}

/// Who gives out the room that budgets have: see [`crate::budgets::Ledger`].
pub trait Room {
    fn claim(&mut self, case: &Case<'_>, pod: &Pod, budget: &Budget) -> Claim;
}

/// There is room for everybody, or for nobody.
impl Room for bool {
    fn claim(&mut self, _: &Case<'_>, _: &Pod, _: &Budget) -> Claim {
        if *self { Claim::Granted } else { Claim::Waits }
    }
}

pub fn decide(case: &Case<'_>, room: &mut dyn Room, now: Timestamp) -> Decision {
    if let Some(decision) = withdrawal::decide(case, now) {
        return decision;
    }
    let mut decision = decide_turn(case, room, now);
    decision.recheck_at = decision.recheck_at.into_iter().chain(withdrawal::next(case)).min();
    decision
}

fn decide_turn(case: &Case<'_>, room: &mut dyn Room, now: Timestamp) -> Decision {
    let request = case.request;
    let pod = match case.pod {
        Target::NeverSeen => return Decision::wait(WaitingOn::PodLookup).act(Effect::LookUpPod),
        Target::Gone => return end::finish(request, None),
        Target::Found(pod) if pod.uid != request.pod_uid => return end::finish(request, None),
        Target::Found(pod) if pod.phase.is_terminal() => {
            return end::finish(request, Some(pod));
        }
        Target::Found(pod) => pod,
    };
    if is_withdrawn(request) {
        return end::withdraw(request, now);
    }
    if let Some(left) = turn::none_left(case, now) {
        return evict::decide(case, room, pod, left, now);
    }
    match turn(request, now) {
        Turn::Pass { to, why } => pass(request, &to.interceptor_class, why, now),
        Turn::Active { class, until } => {
            let waiting_on = WaitingOn::Interceptor {
                class: class.to_string(),
                progress: request.status.progress_timestamp.as_ref().map(|time| time.0),
                until,
                expected_finish: request.status.expected_interceptor_finish_time.as_ref().map(|time| time.0),
                message: message::said_in_turn(request).unwrap_or_default().to_string(),
            };
            let decision = evict::unblocked(request, waiting_on, now);
            let recheck_at = decision.recheck_at.into_iter().chain(turn::limit_at(case)).min();
            Decision { recheck_at, ..decision }
        }
        Turn::Unknown { class } => Decision::wait(WaitingOn::UnknownInterceptor { class: class.to_string() }),
        Turn::Nobody(left) => evict::decide(case, room, pod, left, now),
    }
}

/// Nobody asks any more, and the interceptor has not forbidden to stop.
pub fn is_withdrawn(request: &Request) -> bool {
    let may_be_withdrawn = request.status.eviction_request_cancellation_policy == Policy::Allow;
    request.requesters().next().is_none() && may_be_withdrawn
}

/// The turn goes to `to`; what the one before said of its own progress does not hold any more.
fn pass(request: &Request, to: &str, why: Passing<'_>, now: Timestamp) -> Decision {
    let message = GivenTurn { to, why, request }.to_string();
    let mut status = request.status.clone();
    status.active_interceptor_class = Some(to.to_string());
    status.active_interceptor_completed = false;
    status.progress_timestamp = Some(Time(whole_second(now)));
    status.expected_interceptor_finish_time = None;
    status.message.clone_from(&message);
    let effect = match why {
        Passing::Silent { .. } => {
            Notice::warning(&[About::Request, About::Pod, About::Owner], INTERCEPTOR_SILENT, message)
        }
        Passing::First | Passing::Completed { .. } => {
            Notice::normal(&[About::Request], INTERCEPTOR_SELECTED, message)
        }
    };
    let decision = Decision::default().act(Effect::WriteStatus(Box::new(status))).act(effect);
    if why != Passing::First || request.asks().is_empty() {
        return decision;
    }
    let who: Vec<&str> = request.asks().iter().map(|(_, ask)| ask.by.as_str()).collect();
    let message = format!("{} evicted the pod: its interceptors go first", who.join(", "));
    decision.act(Notice::normal(&[About::Pod, About::Owner], "PlainEviction", message))
}

/// Rounded up to a second, as most clients write and read times: never less than a deadline after another time.
fn whole_second(time: Timestamp) -> Timestamp {
    let up = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second() + up).unwrap_or(time)
}
