//! Whose turn it is, and when it may pass on.
//!
//! The highest priority first, then one after the other in `selection_order`. A turn is over once the interceptor has
//! completed or has been silent for `spec.progressDeadlineSeconds`: since `status.progressTimestamp`, or since the creation of
//! the request if it never reported.

use jiff::{SignedDuration, Timestamp};
use usher_api::eviction_request::selection_order;
use usher_api::{EvictionRequest, EvictionRequestStatus, Interceptor};

use super::{CLOCK_SKEW_SECONDS, Refusal, Rule};

const ACTIVE: &str = "status.activeInterceptorClass";

/// What is wrong with the active interceptor of `new`.
pub(super) fn check(
    old: &EvictionRequest,
    new: &EvictionRequest,
    now: Timestamp,
    refusals: &mut Vec<Refusal>,
) {
    let no_status = EvictionRequestStatus::default();
    let before = old.status.as_ref().unwrap_or(&no_status);
    let after = new.status.as_ref().unwrap_or(&no_status);
    let order = in_order(&new.spec.interceptors);
    let position = |class: &str| order.iter().position(|i| i.interceptor_class == class);
    let name_at = |position: usize| order.get(position).map_or("", |i| i.interceptor_class.as_str());

    match (before.active_interceptor_class.as_deref(), after.active_interceptor_class.as_deref()) {
        (None, None) => {}
        (Some(from), Some(to)) if from == to => {}
        (Some(from), None) => refusals.push(Refusal::new(
            Rule::ActiveInterceptorStays,
            ACTIVE,
            format!("{ACTIVE} cannot be removed: leave {from}, or set status.activeInterceptorCompleted to end its turn"),
        )),
        (from, Some(to)) => {
            let Some(found) = position(to) else {
                refusals.push(Refusal::new(
                    Rule::ActiveInterceptorIsKnown,
                    ACTIVE,
                    format!("{to} is not in spec.interceptors: choose one of {}", classes(&order)),
                ));
                return;
            };
            match from {
                None if found != 0 => refusals.push(Refusal::new(
                    Rule::HighestPriorityFirst,
                    ACTIVE,
                    format!(
                        "{to} cannot be the first: the interceptor of the highest priority is, start with {}",
                        name_at(0)
                    ),
                )),
                None => {}
                Some(from) => {
                    check_next(from, to, position(from), found, &name_at, refusals);
                    check_over(old, before, from, now, refusals);
                    check_fresh(after, to, refusals);
                }
            }
        }
    }
}

fn check_next<'a>(
    from: &str,
    to: &str,
    at: Option<usize>,
    found: usize,
    name_at: &impl Fn(usize) -> &'a str,
    refusals: &mut Vec<Refusal>,
) {
    // A class that is not in the list has no successor; any other one is as good as the first.
    let next = at.map_or(0, |at| at + 1);
    if found == next {
        return;
    }
    let what_to_do = match name_at(next) {
        "" => format!("{from} is the last, leave it"),
        next => format!("the next one is {next}"),
    };
    let message = format!("the turn cannot move from {from} to {to}: {what_to_do}");
    refusals.push(Refusal::new(Rule::NextInOrder, ACTIVE, message));
}

fn check_over(
    old: &EvictionRequest,
    before: &EvictionRequestStatus,
    from: &str,
    now: Timestamp,
    refusals: &mut Vec<Refusal>,
) {
    if before.active_interceptor_completed {
        return;
    }
    let since = before.progress_timestamp.as_ref().or(old.metadata.creation_timestamp.as_ref());
    let Some(since) = since else { return };
    let patience = SignedDuration::from_secs(old.spec.progress_deadline_seconds.into());
    let deadline = since.0.saturating_add(patience).unwrap_or(Timestamp::MAX);
    let skew = SignedDuration::from_secs(CLOCK_SKEW_SECONDS);
    if now.saturating_add(skew).unwrap_or(Timestamp::MAX) < deadline {
        let message = format!(
            "it is still the turn of {from}: wait until it sets status.activeInterceptorCompleted, or until {deadline} if it \
             reports no further progress"
        );
        refusals.push(Refusal::new(Rule::TurnIsOver, ACTIVE, message));
    }
}

fn check_fresh(after: &EvictionRequestStatus, to: &str, refusals: &mut Vec<Refusal>) {
    if after.active_interceptor_completed {
        let message = format!("the turn of {to} begins: set status.activeInterceptorCompleted to false");
        refusals.push(Refusal::new(Rule::TurnStartsFresh, "status.activeInterceptorCompleted", message));
    }
    if after.expected_interceptor_finish_time.is_some() {
        let message = format!("the turn of {to} begins: leave status.expectedInterceptorFinishTime empty");
        refusals.push(Refusal::new(Rule::TurnStartsFresh, "status.expectedInterceptorFinishTime", message));
    }
}

fn in_order(interceptors: &[Interceptor]) -> Vec<&Interceptor> {
    let mut order: Vec<&Interceptor> = interceptors.iter().collect();
    order.sort_by(|a, b| selection_order(a, b));
    order
}

fn classes(interceptors: &[&Interceptor]) -> String {
    match interceptors {
        [] => "none, there are no interceptors".to_owned(),
        some => some.iter().map(|i| i.interceptor_class.as_str()).collect::<Vec<_>>().join(", "),
    }
}
