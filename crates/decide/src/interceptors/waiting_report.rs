//! What a bundled interceptor says of a request while its pod waits, and when.

use std::sync::Arc;

use jiff::Timestamp;
use usher_api::report::Report;

use super::{Effect, is_first_report, next_beat};
use crate::eviction_request::message::is_of_condition;
use crate::snapshot::Request;

/// What is to be said of a pod that waits.
pub(super) struct Waiting<M> {
    /// It is put together where it is said: it may name what many pods wait for, and most decisions say nothing.
    pub message: M,
    /// When the interceptor expects to be done. `None`: nobody knows, and what was expected before is taken back.
    pub finish: Option<Timestamp>,
    /// When something moved last that brings the pod nearer to its turn.
    pub moved: Timestamp,
    /// It is too different from what was said before to wait for the next sign of life.
    pub is_urgent: bool,
}

/// The report at the beginning of the turn, with every sign of life, and when something else is to be said at once. That there is
/// progress is said only if there was any. What blocks the eviction, which another author has told, is not talked over unless something
/// moves.
pub(super) fn waiting_report(
    request: &Arc<Request>,
    waiting: Waiting<impl FnOnce() -> String>,
    now: Timestamp,
) -> Option<Effect> {
    let Waiting { message, finish, moved, is_urgent } = waiting;
    let status = &request.status;
    let is_first = is_first_report(request, now);
    if !is_first && !is_urgent && now < next_beat(request) {
        return None;
    }
    let since = status.progress_timestamp.as_ref().map_or(request.created, |time| time.0);
    let progress = is_first || moved > since;
    let has_no_estimate = finish.is_none() && status.expected_interceptor_finish_time.is_some();
    let message = message();
    let is_told = message == status.message;
    if !progress && (is_of_condition(request) || (is_told && !has_no_estimate)) {
        return None;
    }
    // An estimate is renewed with progress alone: time that passes makes it no better.
    let finish = finish.filter(|_| progress);
    let report = Report { progress, finish, has_no_estimate, message: Some(message), ..Report::default() };
    Some(Effect::Report { request: request.clone(), report: Box::new(report) })
}

#[cfg(test)]
#[path = "waiting_report_tests.rs"]
mod tests;
