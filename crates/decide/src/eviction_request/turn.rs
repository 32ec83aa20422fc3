//! Whose turn it is.

use jiff::{SignedDuration, Timestamp};
use usher_api::Interceptor;

use super::Case;
use crate::snapshot::Request;

/// What the request's interceptors are at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<'a> {
    /// This interceptor comes next.
    Pass { to: &'a Interceptor, why: Passing<'a> },
    /// This one is at it, and has until then to report.
    Active { class: &'a str, until: Timestamp },
    /// Nobody is left who could end the pod more gently than the eviction API.
    Nobody(Left<'a>),
    /// The status names somebody whom the spec does not know.
    Unknown { class: &'a str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing<'a> {
    First,
    Completed { class: &'a str },
    Silent { class: &'a str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left<'a> {
    NoInterceptor,
    Completed {
        class: &'a str,
    },
    Silent {
        class: &'a str,
    },
    /// An administrator wants them to be skipped, for this reason.
    Skipped {
        why: &'a str,
    },
    /// They took longer than the cluster gives to all of them together.
    OutOfTime {
        limit: SignedDuration,
    },
}

/// When all interceptors together have taken as long as they may.
pub fn limit_at(case: &Case<'_>) -> Option<Timestamp> {
    let limit = case.interceptors_limit?;
    Some(case.request.created.checked_add(limit).unwrap_or(Timestamp::MAX))
}

/// Whether no interceptor is waited for, whosever turn it is.
pub fn none_left<'a>(case: &Case<'a>, now: Timestamp) -> Option<Left<'a>> {
    past_interceptors(case.request, case.interceptors_limit, now)
}

/// The same of a request by itself.
fn past_interceptors(request: &Request, limit: Option<SignedDuration>, now: Timestamp) -> Option<Left<'_>> {
    if request.interceptors.is_empty() || matches!(turn(request, now), Turn::Nobody(_)) {
        return None;
    }
    if let Some(why) = request.skips_interceptors() {
        return Some(Left::Skipped { why });
    }
    let limit = limit?;
    let at = request.created.checked_add(limit).unwrap_or(Timestamp::MAX);
    (now >= at).then_some(Left::OutOfTime { limit })
}

/// Whether nobody is left who could end the pod more gently than the eviction API. An interceptor that the spec does not know is nobody.
pub fn is_nobodys(request: &Request, limit: Option<SignedDuration>, now: Timestamp) -> bool {
    matches!(turn(request, now), Turn::Nobody(_) | Turn::Unknown { .. })
        || past_interceptors(request, limit, now).is_some()
}

/// When the progress of whoever has the turn is overdue: counted from its last report, else from the creation.
pub fn overdue_at(request: &Request) -> Timestamp {
    let since = request.status.progress_timestamp.as_ref().map_or(request.created, |time| time.0);
    since.checked_add(request.deadline).unwrap_or(Timestamp::MAX)
}

pub fn turn(request: &Request, now: Timestamp) -> Turn<'_> {
    let Some(class) = request.status.active_interceptor_class.as_deref() else {
        return match request.interceptors.first() {
            Some(first) => Turn::Pass { to: first, why: Passing::First },
            None => Turn::Nobody(Left::NoInterceptor),
        };
    };
    let position = request.interceptors.iter().position(|interceptor| interceptor.interceptor_class == class);
    let Some(position) = position else { return Turn::Unknown { class } };
    let next = request.interceptors.get(position + 1);
    let until = overdue_at(request);
    if request.status.active_interceptor_completed {
        match next {
            Some(next) => Turn::Pass { to: next, why: Passing::Completed { class } },
            None => Turn::Nobody(Left::Completed { class }),
        }
    } else if now >= until {
        match next {
            Some(next) => Turn::Pass { to: next, why: Passing::Silent { class } },
            None => Turn::Nobody(Left::Silent { class }),
        }
    } else {
        Turn::Active { class, until }
    }
}
