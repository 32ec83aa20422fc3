//! Nobody is left who could end the pod more gently: may it be evicted, and if not now, why?

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Answer, Attempt, Case, Left, Refusal, overdue_at};
use crate::decision::{About, Decision, Effect, Notice};
use crate::snapshot::{Pod, Request};
use crate::waiting_on::{Unevictable, WaitingOn};

/// Tells that the eviction is wanted now and does not happen, since when, and why. `False` with the reason
/// `ProgressReported` means that it was called off by progress.
pub const BLOCKED_CONDITION: &str = "EvictionBlocked";

const EVERYBODY: &[About] = &[About::Request, About::Pod, About::Owner];

pub fn decide(case: &Case<'_>, pod: &Pod, left: Left<'_>, now: Timestamp) -> Decision {
    let request = case.request;
    if let Some(deletion) = pod.deletion {
        return Decision::wait(WaitingOn::Termination {
            grace_ends: deletion,
            finalizers: pod.finalizers.clone(),
        });
    }
    if let Some(decision) = called_off(request, now) {
        return decision;
    }
    let unevictable = if pod.is_mirror {
        Some(Unevictable::MirrorPod)
    } else {
        pod.is_daemon().then_some(Unevictable::DaemonSetPod)
    };
    if let Some(pod) = unevictable {
        return blocked(request, WaitingOn::NotEvictable { pod }, 0, now);
    }

    let in_the_way: Vec<_> = case.budgets.iter().filter(|budget| budget.selects(pod)).collect();
    let free = in_the_way.iter().all(|budget| budget.lets_pass(pod));
    let two = in_the_way.len() > 1 && !pod_skips_budgets(pod);
    if let Some(Attempt { at, answer: Answer::Accepted, .. }) = case.attempt {
        let waiting_on = WaitingOn::Evicted { at: *at };
        let until = case.attempt.map(|attempt| attempt.retry_at(&request.pod_uid));
        if until.is_some_and(|until| now < until) {
            return Decision { waiting_on: Some(waiting_on), recheck_at: until, effects: Vec::new() };
        }
    }
    if let Some(attempt) = case.attempt
        && let Answer::Refused(given) = &attempt.answer
    {
        let refusal = if two {
            let names = in_the_way.iter().map(|budget| budget.key.name.to_string()).collect();
            Refusal::TwoBudgets { names }
        } else {
            given.clone()
        };
        // The account of the budget tells when there is room again; a back-off is for what cannot be predicted.
        let predictable = matches!(refusal, Refusal::Budget { .. }) && in_the_way.len() == 1 && !free;
        let is_recent = !predictable && now < attempt.retry_at(&request.pod_uid);
        if is_recent || !is_counted(request, attempt) {
            return refused(request, attempt, refusal, now);
        }
    }
    match &in_the_way[..] {
        [budget] if !free && !case.granted => {
            let waiting_on = WaitingOn::Budget {
                name: budget.key.name.to_string(),
                rule: budget.rule.clone(),
                allowed: budget.allowed,
                current_healthy: budget.current_healthy,
                desired_healthy: budget.desired_healthy,
                expected_pods: budget.expected_pods,
            };
            blocked(request, waiting_on, 0, now)
        }
        _ => {
            let why = match left {
                Left::NoInterceptor => "it has no interceptor".to_string(),
                Left::Completed { class } => format!("its last interceptor {class} completed"),
                Left::Silent { class } => format!("its last interceptor {class} is silent"),
            };
            let requesters: Vec<&str> = request.requesters().collect();
            let message = format!("evicting the pod as {} asked: {why}", requesters.join(", "));
            Decision::default().act(Effect::Confirm).act(Effect::Evict).act(Notice::normal(
                &[About::Pod, About::Owner],
                "Evicting",
                message,
            ))
        }
    }
}

/// The server deletes such pods without asking any budget (rule 2).
fn pod_skips_budgets(pod: &Pod) -> bool {
    pod.phase.is_terminal() || pod.phase == crate::snapshot::Phase::Pending
}

/// Somebody reported progress after the eviction had begun to fail: it has the usual time again.
fn called_off(request: &Request, now: Timestamp) -> Option<Decision> {
    let condition = request.condition(BLOCKED_CONDITION)?;
    let at = request.status.progress_timestamp.as_ref()?.0;
    let until = overdue_at(request);
    let called_off_before = condition.status == "False" && condition.reason == "ProgressReported";
    if now >= until || !(called_off_before || at > condition.last_transition_time.0) {
        return None;
    }
    Some(unblocked(request, WaitingOn::Progress { at, until }, now))
}

/// Waits for somebody who makes progress. If the eviction was blocked before, it is not any more: nobody wants it now.
pub fn unblocked(request: &Request, waiting_on: WaitingOn, now: Timestamp) -> Decision {
    let was_blocked = request.condition(BLOCKED_CONDITION).is_some_and(|known| known.status == "True");
    let decision = Decision::wait(waiting_on);
    if !was_blocked {
        return decision;
    }
    let message = "progress was reported, so the pod is not evicted".to_string();
    let condition = condition("False", "ProgressReported", message, now);
    decision.act(Effect::WriteStatus(Box::new(with_condition(request, condition))))
}

fn is_counted(request: &Request, attempt: &Attempt) -> bool {
    request.status.failed_api_eviction_counter > attempt.counter
}

/// After a failure: count it once, tell people once per reason, and wait.
fn refused(request: &Request, attempt: &Attempt, refusal: Refusal, now: Timestamp) -> Decision {
    let retry_at = attempt.retry_at(&request.pod_uid);
    let failures = request.status.failed_api_eviction_counter.max(attempt.counter + 1);
    let counted = failures - request.status.failed_api_eviction_counter;
    blocked(request, WaitingOn::Refused { refusal, failures, retry_at }, counted, now)
}

/// Waits, and says so in the status and an event if that is news.
fn blocked(request: &Request, waiting_on: WaitingOn, more_failures: i32, now: Timestamp) -> Decision {
    let known = request.condition(BLOCKED_CONDITION).filter(|condition| condition.status == "True");
    let is_news = known.is_none_or(|condition| condition.reason != waiting_on.reason());
    let mut decision = Decision::wait(waiting_on.clone());
    if is_news || more_failures > 0 {
        let since = known.map_or(now, |condition| condition.last_transition_time.0);
        let condition = self::condition("True", waiting_on.reason(), waiting_on.sentence(), since);
        let mut status = with_condition(request, condition);
        status.failed_api_eviction_counter += more_failures;
        status.message = waiting_on.sentence();
        decision = decision.act(Effect::WriteStatus(Box::new(status)));
    }
    if is_news {
        let message = format!("{}; {}", waiting_on.sentence(), waiting_on.advice());
        decision = decision.act(Notice::warning(EVERYBODY, "EvictionBlocked", message));
    }
    decision
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
    status.conditions.push(condition);
    status
}
