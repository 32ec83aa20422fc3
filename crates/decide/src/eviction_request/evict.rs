//! Nobody is left who could end the pod more gently: may it be evicted, and if not now, why?

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use usher_api::CONDITIONS_MAX;
use usher_api::eviction_request::FAILED_API_EVICTIONS_MAX;
use usher_api::workloads::Strategy;

use super::{
    Answer, Attempt, Case, Claim, Decision, INTERCEPTOR_SILENT, Left, Refusal, RefusalReason, Room,
    SelectingBudget, message, recorded_refusal,
};
use crate::budgets::PATIENCE;
use crate::decision::{About, Effect, Notice, limited};
use crate::interceptors::surge::has_failed;
use crate::later;
use crate::snapshot::{Pod, Request};
use crate::waiting_on::{QUEUED, Unevictable, WaitingOn};

/// Tells that the eviction is wanted now and does not happen, since when, and why. `False` tells why it is not blocked any
/// more (`Terminating`), or not yet (`Queued` at a budget that moves or has room for it, `ProgressReported`).
pub const BLOCKED_CONDITION: &str = "EvictionBlocked";

const EVERYBODY: &[About] = &[About::Request, About::Pod, About::Owner];

pub fn decide(case: &Case<'_>, room: &mut dyn Room, pod: &Pod, left: Left<'_>, now: Timestamp) -> Decision {
    let request = case.request;
    if let Some(waiting_on) = WaitingOn::termination(pod) {
        return corrected(request, waiting_on, now);
    }
    if left == Left::NoInterceptor && pod.names_interceptors && !request.interceptors_are_resolved {
        return blocked(request, WaitingOn::InterceptorsNotResolved, 0, now);
    }
    let unevictable = if pod.is_mirror {
        Some(Unevictable::MirrorPod)
    } else {
        case.daemon_set.filter(|_| pod.is_daemon()).map(|strategy| match strategy {
            Strategy::Off => Unevictable::DaemonSetStays,
            Strategy::Default | Strategy::MaxUnavailable | Strategy::Surge | Strategy::HandOver => {
                Unevictable::DaemonSetPod
            }
        })
    };
    if let Some(pod) = unevictable {
        return blocked(request, WaitingOn::NotEvictable { pod }, 0, now);
    }

    let in_the_way: Vec<_> = case.budgets.iter().filter(|budget| budget.selects(pod)).collect();
    let free = in_the_way.iter().all(|budget| budget.lets_pass(pod));
    if let Some(attempt) = case.attempt
        && let Some(decision) = after(attempt, case, pod, free, now)
    {
        return decision;
    }
    let [budget] = &in_the_way[..] else { return evict(request, left) };
    if free {
        return evict(request, left);
    }
    let waiting_on = match room.claim(case, pod, budget) {
        Claim::Granted => return evict(request, left),
        Claim::Later => WaitingOn::TurnAtBudget { name: budget.key.name.to_string() },
        Claim::Waits => WaitingOn::Budget {
            name: budget.key.name.to_string(),
            rule: budget.rule.clone(),
            allowed: budget.allowed,
            current_healthy: budget.current_healthy,
            desired_healthy: budget.desired_healthy,
            expected_pods: budget.expected_pods,
            disrupted_pods: budget.disrupted_pods.len(),
            said: message::said_at_last(request).map(str::to_owned),
            has_surge_failed: has_failed(request),
        },
    };
    // Who else has refused the eviction is asked again in its turn, and until then that is what people are to know. Where the budget
    // lets nobody ask by then, the budget is.
    if recorded_refusal(request, &[]).is_some_and(|refusal| !refusal.reason().is_about_budgets()) {
        let until = case.attempt.map(|attempt| later(attempt.retry_at(&request.pod_uid), PATIENCE));
        let decision = Decision::wait(waiting_on.clone());
        match until.filter(|until| now < *until) {
            _ if !waiting_on.is_blocked() => return decision,
            Some(until) => return Decision { recheck_at: Some(until), ..decision },
            None => {}
        }
    }
    match waiting_on {
        // Most are gone before anybody could read it, so it is written only where it would stay that they are blocked.
        WaitingOn::TurnAtBudget { .. } => {
            let is_blocked = request.condition(BLOCKED_CONDITION).is_some_and(|known| known.status == "True");
            if is_blocked { corrected(request, waiting_on, now) } else { Decision::wait(waiting_on) }
        }
        _ if waiting_on.is_blocked() => blocked(request, waiting_on, 0, now),
        _ => queued(request, waiting_on, now),
    }
}

/// What is to be waited for after the last attempt, if anything.
fn after(attempt: &Attempt, case: &Case<'_>, pod: &Pod, free: bool, now: Timestamp) -> Option<Decision> {
    let request = case.request;
    let retry_at = attempt.retry_at(&request.pod_uid);
    if attempt.answer == Answer::Accepted {
        let waiting_on = Some(WaitingOn::Evicted { at: attempt.at });
        return (now < retry_at).then(|| Decision {
            waiting_on,
            recheck_at: Some(retry_at),
            effects: Vec::new(),
        });
    }
    let refusal = attempt.refusal()?;
    let selecting = SelectingBudget::all(case.budgets, pod);
    // The account of the budget tells when there is room again; a back-off is for what cannot be predicted.
    let predictable = refusal.reason() == RefusalReason::DisruptionBudget && selecting.len() == 1 && !free;
    let cause_is_gone = refusal.is_about_budgets() && selecting != attempt.budgets;
    let is_recent = !predictable && !cause_is_gone && now < retry_at;
    (is_recent || !is_counted(request, attempt)).then(|| refused(request, attempt, refusal, now))
}

fn evict(request: &Request, left: Left<'_>) -> Decision {
    let why = match left {
        Left::NoInterceptor => "it has no interceptor".to_string(),
        Left::Completed { class } => match message::said_at_last(request) {
            None => format!("its last interceptor {class} completed"),
            Some(said) => format!("its last interceptor {class} completed: {said}"),
        },
        Left::Silent { class } => format!("its last interceptor {class} is silent"),
        Left::Skipped { why } => {
            format!("its interceptors are skipped, as an administrator asked for: {why}")
        }
        Left::OutOfTime { limit } => {
            format!("its interceptors took longer than {} seconds together", limit.as_secs())
        }
    };
    let requesters: Vec<&str> = request.requesters().collect();
    let message = if requesters.is_empty() {
        format!("evicting the pod although no requester is left, since cancellation is forbidden: {why}")
    } else {
        format!("evicting the pod for {}: {why}", requesters.join(", "))
    };
    let told = Notice::normal(&[About::Pod, About::Owner], "Evicting", message);
    let decision = Decision::default().act(Effect::Confirm).act(Effect::Evict).act(told);
    match left {
        Left::Silent { .. } => decision.act(Notice::warning(EVERYBODY, INTERCEPTOR_SILENT, why)),
        Left::Skipped { .. } | Left::OutOfTime { .. } => {
            decision.act(Notice::warning(EVERYBODY, "InterceptorsSkipped", why))
        }
        Left::NoInterceptor | Left::Completed { .. } => decision,
    }
}

/// Waits for the interceptor whose turn it is. If the eviction was wanted before, its progress calls it off; one that has completed,
/// or that never was, calls nothing off.
pub fn unblocked(request: &Request, waiting_on: WaitingOn, now: Timestamp) -> Decision {
    let was_wanted = request
        .condition(BLOCKED_CONDITION)
        .is_some_and(|known| known.status == "True" || known.reason == QUEUED);
    let decision = Decision::wait(waiting_on);
    if was_wanted {
        let message = "progress was reported, so the pod is not evicted".to_string();
        let condition = condition("False", "ProgressReported", message, now);
        let mut status = with_condition(request, condition);
        // What was said here does not hold any more.
        if message::is_of_condition(request) {
            status.message.clear();
        }
        decision.act(Effect::WriteStatus(Box::new(status)))
    } else if request.is_progress_corrected {
        decision.act(Effect::WriteStatus(Box::new(request.status.clone())))
    } else {
        decision
    }
}

/// Waits for what comes by itself. What was told of the way there does not hold any more.
fn corrected(request: &Request, waiting_on: WaitingOn, now: Timestamp) -> Decision {
    let told_otherwise =
        request.condition(BLOCKED_CONDITION).is_some_and(|known| known.reason != waiting_on.reason());
    let decision = Decision::wait(waiting_on.clone());
    if !told_otherwise {
        return decision;
    }
    let status = with_message(request, "False", &waiting_on, now);
    decision.act(Effect::WriteStatus(Box::new(status)))
}

fn is_counted(request: &Request, attempt: &Attempt) -> bool {
    let counter = request.status.failed_api_eviction_counter;
    counter > attempt.counter || counter >= FAILED_API_EVICTIONS_MAX
}

/// After a failure: count it once, tell people once per reason, and wait.
fn refused(request: &Request, attempt: &Attempt, refusal: Refusal, now: Timestamp) -> Decision {
    let retry_at = attempt.retry_at(&request.pod_uid);
    let known = request.status.failed_api_eviction_counter;
    let failures = known.max(attempt.counter.saturating_add(1).min(FAILED_API_EVICTIONS_MAX));
    blocked(request, WaitingOn::Refused { refusal, failures, retry_at }, failures.saturating_sub(known), now)
}

/// Others are first, or on their way: that is how a budget works, and nothing to be warned of.
fn queued(request: &Request, waiting_on: WaitingOn, now: Timestamp) -> Decision {
    let known = request.condition(BLOCKED_CONDITION);
    let decision = Decision::wait(waiting_on.clone());
    if known.is_some_and(|known| known.reason == waiting_on.reason() && known.status == "False") {
        return decision;
    }
    let status = with_message(request, "False", &waiting_on, now);
    let told = Notice::normal(&[About::Request, About::Pod], "EvictionQueued", waiting_on.sentence());
    decision.act(Effect::WriteStatus(Box::new(status))).act(told)
}

/// Waits, and says so in the status and an event if that is news.
fn blocked(request: &Request, waiting_on: WaitingOn, more_failures: i32, now: Timestamp) -> Decision {
    let known = request.condition(BLOCKED_CONDITION).filter(|condition| condition.status == "True");
    let is_new_reason = known.is_none_or(|condition| condition.reason != waiting_on.reason());
    let mut decision = Decision::wait(waiting_on.clone());
    if is_new_reason || more_failures > 0 {
        let since = known.map_or(now, |condition| condition.last_transition_time.0);
        let mut status = with_message(request, "True", &waiting_on, since);
        status.failed_api_eviction_counter = status.failed_api_eviction_counter.saturating_add(more_failures);
        decision = decision.act(Effect::WriteStatus(Box::new(status)));
    }
    if is_new_reason {
        let said = waiting_on.said().map(|said| format!(": {said}")).unwrap_or_default();
        let message = format!("{}{said}; {}", waiting_on.sentence(), waiting_on.advice());
        decision = decision.act(Notice::warning(EVERYBODY, "EvictionBlocked", message));
    }
    decision
}

/// The status with what is waited for, as message and condition. What the last interceptor has said stays before it, as it may be the
/// cause.
fn with_message(
    request: &Request,
    blocked: &str,
    waiting_on: &WaitingOn,
    since: Timestamp,
) -> usher_api::EvictionRequestStatus {
    let message = limited(waiting_on.sentence());
    let mut status = with_condition(request, condition(blocked, waiting_on.reason(), message.clone(), since));
    let may_be_cause = matches!(
        waiting_on,
        WaitingOn::Budget { .. } | WaitingOn::TurnAtBudget { .. } | WaitingOn::Refused { .. }
    );
    let said = message::said_at_last(request).filter(|_| may_be_cause);
    status.message = said.map_or(message.clone(), |said| message::joined(said, &message));
    status
}

fn condition(status: &str, reason: &str, message: String, since: Timestamp) -> Condition {
    Condition {
        type_: BLOCKED_CONDITION.to_string(),
        status: status.to_string(),
        reason: reason.to_string(),
        message,
        last_transition_time: Time(Timestamp::from_second(since.as_second()).unwrap_or(since)),
        observed_generation: None,
    }
}

fn with_condition(request: &Request, condition: Condition) -> usher_api::EvictionRequestStatus {
    let mut status = request.status.clone();
    status.conditions.retain(|other| other.type_ != condition.type_);
    // Whoever filled the list does not keep us from saying what is the matter.
    status.conditions.truncate(CONDITIONS_MAX - 1);
    status.conditions.push(condition);
    status
}
