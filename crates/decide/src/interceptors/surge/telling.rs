//! What requests say while their pods wait.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::names::REPLICA_SET_CLASS;
use usher_api::report::Report;
use usher_api::workloads::Strategy;

use super::super::availability::{Unavailable, batch, only_time_is_left, why_unavailable};
use super::super::waiting_report::{Waiting, waiting_report};
use super::super::{Effect, has_turn, next_beat};
use super::hand_over::{awaited, replacement};
use super::state::{SurgeState, state};
use super::{Case, PATIENCE, ends_after_autoscaler, paused_until, place, progress_of};
use crate::decision::limited;
use crate::eviction_request::overdue_at;
use crate::later;
use crate::snapshot::{Deployment, Request};

/// What is waited for is told again after so long, if it is something else by then.
pub(super) const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// So many pods are named in a message.
const NAMED: usize = 3;

pub(super) fn progress_reports(
    case: &Case<'_>,
    state: &SurgeState<'_>,
    most: usize,
    now: Timestamp,
) -> Vec<Effect> {
    let deployment = case.deployment;
    let min_ready = SignedDuration::from_secs(deployment.min_ready_seconds.into());
    let pods = || case.pods.values().chain(case.handed);
    let one = batch(pods()).saturating_add(min_ready);
    let at_once = most.max(1);
    let moved = if is_settling(case, state, later(case.moved, min_ready), now) { now } else { case.moved };
    let is_stuck = is_stuck(case, state, now);
    let mut effects = Vec::new();
    for (place, (pod, request)) in state.waiting.iter().enumerate() {
        let batches = i32::try_from(place / at_once + 1).unwrap_or(i32::MAX);
        let finish = later(now, one.saturating_mul(batches));
        // A rollout holds up all of them alike. What is only not observed yet, as after each batch, is none for those who come later.
        let words = if place < at_once || deployment.has_old_pods {
            format!("{} waits until {}", pod.key.name, waits_for(case, state, request, now))
        } else {
            format!("{} waits for its turn, {at_once} at a time", pod.key.name)
        };
        // One that has passed was wrong, and is no better for those that could be made now.
        let has_passed =
            request.status.expected_interceptor_finish_time.as_ref().is_some_and(|time| time.0 <= now)
                && moved <= progress_of(request);
        let finish = (!is_stuck && !has_passed).then_some(finish);
        effects.extend(report(case, request, (&words, finish, moved), now));
    }
    effects
}

/// What its owner is warned of in time, and for whose pod: new pods do not come, and some time after the deadline the others go without
/// them.
pub fn stuck(case: &Case<'_>, now: Timestamp) -> Option<(Arc<str>, String)> {
    let state = state(case, now);
    let (pod, request) = state.waiting.first().filter(|_| case.strategy != Strategy::MaxUnavailable)?;
    let paused = paused_until(case, &state);
    let [soon, late] = warned_at(request);
    let is_time = match paused {
        Some(_) => now >= next_beat(request),
        None => now >= late || (now >= soon && is_stuck(case, &state, now)),
    };
    if !is_time {
        return None;
    }
    let overdue = overdue_at(request);
    let overdue =
        if place(request, REPLICA_SET_CLASS).is_some() { later(overdue, PATIENCE) } else { overdue };
    let at = paused.into_iter().chain(ends_after_autoscaler(case, request)).chain([overdue]).min()?;
    let message = format!(
        "{} is asked to leave, and waits until {}. Without progress it is left to the eviction API at about {}, which asks its \
         disruption budget and makes no other pod first",
        pod.key.name,
        waits_for(case, &state, request, now),
        at.strftime("%Y-%m-%d %H:%M:%SZ")
    );
    Some((request.uid.clone(), message))
}

/// When a warning is due where it is known that new pods cannot come, and from when on it does not matter why they do not: half of the
/// time is over.
pub(super) fn warned_at(request: &Request) -> [Timestamp; 2] {
    let half = request.deadline / 2;
    [PATIENCE.min(half), half].map(|span| later(progress_of(request), span))
}

/// What is waited for does not come by itself, and nobody knows when it does.
fn is_stuck(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> bool {
    let cannot_come = |why: &Unavailable| {
        matches!(
            why,
            Unavailable::Unschedulable { .. }
                | Unavailable::VolumeCannotMove { .. }
                | Unavailable::NotStarted { .. }
        )
    };
    let cannot_be_made = state.missing > 0 && case.deployment.replica_failure.is_some();
    case.refused.is_some()
        || cannot_be_made
        || awaited(case, state, now).is_some_and(|why| cannot_come(&why))
        || state.unavailable.iter().any(|(_, why)| cannot_come(why))
}

/// All new pods are ready, and only `minReadySeconds` are waited for: that goes on by itself. Whose readiness comes and goes is not
/// waited for longer than that.
fn is_settling(case: &Case<'_>, state: &SurgeState<'_>, until: Timestamp, now: Timestamp) -> bool {
    let waiting = state.waiting.iter().filter(|_| case.hands_over());
    let new = waiting.filter_map(|(_, request)| replacement(case, request));
    let new: Vec<Unavailable> =
        new.filter_map(|pod| why_unavailable(pod, case.deployment.min_ready_seconds, now)).collect();
    let unavailable = state.unavailable.iter().map(|(_, why)| why).chain(&new);
    state.missing == 0 && now <= until && only_time_is_left(unavailable)
}

/// What is said at the beginning of the turn, when it changes what is waited for, and with every sign of life.
pub(super) fn report(
    case: &Case<'_>,
    request: &Arc<Request>,
    (words, finish, moved): (&str, Option<Timestamp>, Timestamp),
    now: Timestamp,
) -> Option<Effect> {
    let message = limited(format!("Deployment {}: {words}", case.deployment.key.name));
    let before = &request.status.message;
    let is_other = is_other(&message, before) && now >= later(progress_of(request), SETTLE);
    let is_urgent = is_other || (message != *before && case.refused.is_some());
    waiting_report(request, Waiting { message: || message, finish, moved, is_urgent }, now)
}

/// Whether something else is said. Only figures that differ, such as those of nodes without room, can wait for the next sign of life.
fn is_other(message: &str, before: &str) -> bool {
    let letters = |text: &'_ str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    letters(message) != letters(before)
}

/// What of the Deployment itself holds up its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldUpBy {
    Rollout,
    /// Its controller has not observed a change yet, which may be a rollout, or somebody who scaled.
    Unobserved,
}

impl HeldUpBy {
    /// What is not observed may be a surge as well, and is one where there is a record of it.
    pub(super) fn of(deployment: &Deployment) -> Option<Self> {
        let is_unobserved = !deployment.is_observed && deployment.surge.is_none();
        let unobserved = is_unobserved.then_some(Self::Unobserved);
        if deployment.has_old_pods { Some(Self::Rollout) } else { unobserved }
    }

    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Rollout => "Rollout",
            Self::Unobserved => "Unobserved",
        }
    }

    fn words(self, deployment: &Deployment) -> String {
        let paused = if deployment.is_paused { ", which is paused" } else { "" };
        match self {
            Self::Rollout => format!("the rollout of its Deployment is done{paused}"),
            Self::Unobserved => "the Deployment controller has observed its last change".to_owned(),
        }
    }
}

/// In the turn of the ReplicaSet: what those wait for that have no replacement any more. That is no progress.
pub(super) fn missing_pods_reports(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Vec<Effect> {
    if state.is_replaced() || state.is_shrinking {
        return Vec::new();
    }
    let asked = state.given_over.iter().filter(|(_, request)| {
        has_turn(request, REPLICA_SET_CLASS) && now >= later(progress_of(request), SETTLE)
    });
    asked
        .filter_map(|(pod, request)| {
            let words = waits_for(case, state, request, now);
            let (deployment, pod) = (&case.deployment.key.name, &pod.key.name);
            let message = limited(format!("Deployment {deployment}: {pod} waits until {words}"));
            let report = Report { message: Some(message), ..Report::default() };
            let is_news = is_other(report.message.as_deref()?, &request.status.message);
            is_news.then(|| Effect::Report { request: (*request).clone(), report: Box::new(report) })
        })
        .collect()
}

/// Why those that are to stay are not available.
pub(super) fn obstacles(case: &Case<'_>, state: &SurgeState<'_>) -> Option<String> {
    let mut causes: Vec<(String, &str, usize)> = Vec::new();
    for (pod, why) in &state.unavailable {
        let words = why.words();
        match causes.iter_mut().find(|(known, ..)| *known == words) {
            Some((_, _, more)) => *more += 1,
            None => causes.push((words, &pod.key.name, 0)),
        }
    }
    let mut parts: Vec<String> = causes
        .into_iter()
        .take(NAMED)
        .map(|(words, pod, more)| match more {
            0 => format!("{pod} {words}"),
            more => format!("{pod} and {more} more: {words}"),
        })
        .collect();
    let why = case.refused.or(case.deployment.replica_failure.as_deref());
    parts.extend(why.map(|why| format!("one cannot be made: {why}")));
    (!parts.is_empty()).then(|| parts.join(", and "))
}

/// What the pod of a request waits for.
fn waits_for(case: &Case<'_>, state: &SurgeState<'_>, request: &Request, now: Timestamp) -> String {
    if let Some(held_up_by) = HeldUpBy::of(case.deployment) {
        return held_up_by.words(case.deployment);
    }
    if let Some(autoscaler) = case.autoscaler
        && autoscaler.raised.is_some()
        && case.deployment.replicas < state.size.wanted.saturating_add(state.size.by)
    {
        return format!("HorizontalPodAutoscaler {} has scaled it up", autoscaler.key.name);
    }
    if let Some(refused) = case.refused.filter(|_| !case.hands_over()) {
        return format!("the API server takes what surges it, which it refuses: {refused}");
    }
    let new = replacement(case, request).filter(|_| case.hands_over());
    let own = new.and_then(|pod| Some((pod, why_unavailable(pod, case.deployment.min_ready_seconds, now)?)));
    let mut parts: Vec<String> = own
        .iter()
        .chain(&state.unavailable)
        .map(|(pod, why)| format!("{} is available, which {}", pod.key.name, why.words()))
        .collect();
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    let missing = state.missing + usize::from(case.hands_over() && new.is_none());
    if missing > 0 {
        let why = case.refused.or(case.deployment.replica_failure.as_deref());
        let why = why.map(|why| format!(", which cannot be made: {why}")).unwrap_or_default();
        let pods = if missing == 1 { "1 more pod is" } else { &format!("{missing} more pods are") };
        parts.push(format!("{pods} there{why}"));
    }
    if parts.is_empty() {
        return "its replacement is there".to_owned();
    }
    let list = parts.join(", and ");
    if more > 0 { format!("{list}, and {more} more are") } else { list }
}
