//! What is done for the pods of one Deployment that are asked to leave: new ones come first.
//!
//! The Deployment is scaled up by as many as are asked for, `maxSurge` at most. Once as many pods as its owner wants are available
//! without those that leave, these are given over to the ReplicaSet, which is the next interceptor, and in its turn the surge is taken
//! back: they have the lowest deletion cost, so that the ReplicaSet deletes exactly them. Taking back is scaling down, and that never
//! costs an available pod that is needed, since a ReplicaSet gives up pods that are not ready first. No budget is asked, and none is
//! broken.
//!
//! Where its owner wants it so, or keeps setting `replicas` back, new pods are handed over instead ([`hand_over`]).
//!
//! An autoscaler over the Deployment writes its replicas, so that its limits are raised instead.

mod describe;
mod hand_over;
mod limits;
mod max_unavailable;
mod preference;
mod size;
mod state;
mod telling;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use usher_api::CONDITIONS_MAX;
use usher_api::names::{
    DEPLOYMENT_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION, HORIZONTAL_POD_AUTOSCALER_CLASS,
    SURGE_ANNOTATION, SURGE_FAILED_CONDITION, SURGE_LABEL,
};
use usher_api::report::{ConditionReport, ConditionStatus, Report};
use usher_api::workloads::{BundledInterceptor, Strategy};

use super::availability::{Unavailable, why_unavailable};
use super::deployment::answers_for;
use super::{Decision, Effect, Wait, complete, completion, has_turn, next_beat, owner_of};
use crate::decision::limited;
use crate::later;
use crate::snapshot::{Autoscaler, Deployment, Key, OWN_CONDITIONS, Pod, Request, StaleRecord, is_of_others};
pub use describe::{Description, describe};
pub use hand_over::{NewHandOver, name as hand_over_name};
pub(super) use limits::{left_behind, restored};
use limits::{release_limit, remember};
use max_unavailable::let_go;
use preference::{called_off, comes_first, is_below_marks, mark_of, preferences};
pub(super) use preference::{prefer, prefer_no_more};
use size::{accept, lower, max_surge, raise, resize};
use state::{SurgeState, state};
pub(super) use telling::stuck;
use telling::{HeldUpBy, SETTLE, missing_pods_reports, obstacles, progress_reports, warned_at};

/// So often a surge is tried where somebody sets it back.
const TRIES: u32 = 2;

/// A pod that was given over to the ReplicaSet waits for so long if there is no surge for it any more, and cannot be.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// So long it takes until a new pod that has no room, or does not start, is not waited for, if others are available.
const ROOM: SignedDuration = SignedDuration::from_secs(30);

/// Everything that a decision on the requests of one Deployment depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub deployment: &'a Deployment,
    pub strategy: Strategy,
    pub autoscaler: Option<&'a Autoscaler>,
    /// The pods of all its ReplicaSets.
    pub pods: &'a BTreeMap<Key, Arc<Pod>>,
    /// Requests for them, by the UID of the pod, whosever turn it is.
    pub requests: &'a HashMap<Arc<str>, Arc<Request>>,
    /// Pods that are to be handed over to its ReplicaSets.
    pub handed: &'a [Arc<Pod>],
    /// Those of them that are asked to leave themselves, by their UID.
    pub handed_asked: &'a HashSet<Arc<str>>,
    /// The manager hands over where surging did not work.
    pub may_hand_over: bool,
    /// How many names of pods to be handed over were taken by others, by the UID of the request.
    pub taken: &'a HashMap<Arc<str>, u32>,
    /// When more new pods were ready than ever before.
    pub moved: Timestamp,
    /// What the server does not let us do, in its own words.
    pub refused: Option<&'a str>,
}

impl Case<'_> {
    /// New pods come beside the replicas.
    fn hands_over(&self) -> bool {
        let is_reverted = self.deployment.surge.as_ref().is_some_and(|surge| surge.reverted >= TRIES);
        match self.strategy {
            Strategy::HandOver => true,
            Strategy::Default => self.may_hand_over && is_reverted,
            Strategy::Off | Strategy::MaxUnavailable | Strategy::Surge => false,
        }
    }
}

/// Where in the order of turns this class is.
fn place(request: &Request, class: &str) -> Option<usize> {
    request.interceptors.iter().position(|it| it.interceptor_class == class)
}

fn place_of_active(request: &Request) -> Option<usize> {
    place(request, request.status.active_interceptor_class.as_deref()?)
}

fn is_completion(effect: &Effect) -> bool {
    matches!(effect, Effect::Report { report, .. } if report.completed)
}

fn is_completed(request: &Request) -> bool {
    request.status.active_interceptor_completed
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let mut decision = decide_on_requests(case, now);
    let resized = decision.effects.iter().find_map(|effect| match effect {
        Effect::Resize { replicas, .. } => Some(*replicas),
        _ => None,
    });
    match resized {
        None => decision.effects.extend(without_stale_record(case.deployment)),
        Some(replicas) if case.requests.is_empty() && replicas < case.deployment.replicas => {
            decision.effects.push(taken_back(case.deployment, replicas));
        }
        Some(_) => {
            let then = "it is overwritten, and new pods come on top of those for now";
            decision.effects.extend(stale_record_event(case.deployment, then));
        }
    }
    decision
}

/// Nobody is asked to leave any more, or nobody was: a label that somebody has copied counts as well, and must not do so in silence.
fn taken_back(deployment: &Deployment, replicas: u32) -> Effect {
    let message = format!(
        "None of its pods is asked to leave: scaled from {} to {replicas}, as its record of a surge ({SURGE_LABEL}) says that the rest was for a while",
        deployment.replicas
    );
    event_on(deployment, false, "SurgeTakenBack", message)
}

/// An event on the Deployment.
pub(super) fn event_on(
    deployment: &Deployment,
    is_warning: bool,
    reason: &'static str,
    message: String,
) -> Effect {
    let workload = owner_of(BundledInterceptor::Deployment, &deployment.key, &deployment.uid);
    Effect::RecordEvent { namespace: deployment.key.namespace.clone(), workload, is_warning, reason, message }
}

/// Only the record goes, and what it was is told.
fn without_stale_record(deployment: &Deployment) -> Vec<Effect> {
    let told = stale_record_event(deployment, "it was removed, and the replicas stay as they are");
    told.into_iter().flat_map(|told| [resize(deployment, deployment.replicas, None), told]).collect()
}

fn stale_record_event(deployment: &Deployment, then: &str) -> Option<Effect> {
    let replicas = deployment.replicas;
    let stale = deployment.stale_record.filter(|_| deployment.surge.is_none())?;
    let what = match stale {
        StaleRecord::Label => format!(
            "Somebody else has written the label {SURGE_LABEL}, which says by how much Usher has scaled a Deployment up for a while. \
             It makes no sense"
        ),
        StaleRecord::Annotation { surplus: Some(by) } => format!(
            "The annotation {SURGE_ANNOTATION} says that {by} of {replicas} replicas are there for a while only, but the label of that \
             name is missing, and somebody else has written the annotation (scale to {} if nobody wants {replicas})",
            replicas.saturating_sub(by)
        ),
        StaleRecord::Annotation { surplus: None } => format!(
            "The annotation {SURGE_ANNOTATION} is of another time, such as kubectl rollout undo brings it back from a ReplicaSet"
        ),
    };
    let is_warning = stale != StaleRecord::Annotation { surplus: None };
    let message = format!("{what}: {then}");
    Some(event_on(deployment, is_warning, "UnknownSurge", message))
}

fn decide_on_requests(case: &Case<'_>, now: Timestamp) -> Decision {
    let deployment = case.deployment;
    let state = state(case, now);
    let declines = declines(case, &state, now);
    let called_off = called_off(case, &state);
    let mut preferences = preferences(case, &state, &called_off, declines.is_none());
    let is_undone = |effect: &Effect| matches!(effect, Effect::Prefer { before: None, .. });
    let is_settled = !preferences.iter().any(is_undone);
    if state.is_shrinking {
        // Without its mark it would stay for another one that is needed.
        preferences.retain(|effect| !is_undone(effect));
    }
    let mut decision = Decision { effects: preferences, ..Decision::default() };

    if let Some(change) = state.size.change {
        decision.effects.extend(accept(case, &state, change));
        return decision;
    }
    let is_raised = case.autoscaler.is_some_and(|autoscaler| autoscaler.raised.is_some());
    // The autoscaler itself has taken back all of it: what it scales to from now on is no surge.
    let is_taken_back = state.size.by == 0 && deployment.surge.as_ref().is_some_and(|surge| surge.by > 0);
    let is_over = (is_taken_back && !is_raised)
        || ((deployment.surge.is_some() || is_raised) && case.requests.is_empty());
    // What is scaled down in the middle of a rollout is shared by old and new pods, and old ones that are needed would go.
    // And one that is ready, but not yet for long enough, would stay for one that is available.
    let soon = case.pods.values().chain(case.handed).filter(|pod| !pod.is_terminating()).filter_map(|pod| {
        match why_unavailable(pod, deployment.min_ready_seconds, now) {
            Some(Unavailable::NotReadyLongEnough { until }) => Some(until),
            _ => None,
        }
    });
    let soon = soon.min();
    let is_marked = case.refused.is_some() || called_off.iter().all(|pod| mark_of(pod).is_some());
    let may_shrink =
        is_settled && (state.size.by == 0 || (!state.is_rolling_out && soon.is_none() && is_marked));
    let looked_at_again = |decision: Decision| Decision {
        recheck_at: decision.recheck_at.into_iter().chain(soon).min(),
        ..decision
    };
    let is_handed = case.hands_over() && declines.is_none();
    decision.effects.extend(hand_over::dropped(case, &state, is_handed, now));
    decision.effects.extend(remember(case).or_else(|| release_limit(case, &state)));
    if let Some(message) = declines {
        if (state.size.by > 0 || is_over) && may_shrink {
            decision.effects.extend(lower(case, &state, 0));
        }
        let is_taken_back = state.size.by > 0 && !state.is_rolling_out && !deployment.is_deleting;
        let is_ours = deployment.surge.is_some() || !state.given_over.is_empty();
        if is_taken_back || (state.is_shrinking && is_ours) {
            // The eviction API would take one more than the ReplicaSet.
            decision.waiting_on = Some(Wait::Others);
            return looked_at_again(decision);
        }
        let asked =
            state.waiting.iter().chain(&state.given_over).filter(|(_, request)| !is_completed(request));
        decision.effects.extend(asked.map(|(_, request)| complete(request, message.clone())));
        return looked_at_again(decision);
    }
    if case.strategy == Strategy::MaxUnavailable {
        if (state.size.by > 0 || is_over) && may_shrink {
            decision.effects.extend(lower(case, &state, 0));
        }
        return looked_at_again(let_go(case, &state, decision, now));
    }
    let update = deployment.rolling_update.as_ref();
    let most = update.map_or(0, |update| max_surge(case, update, &state.size)) as usize;

    if is_handed {
        if (state.size.by > 0 || is_over) && may_shrink {
            decision.effects.extend(lower(case, &state, 0));
        }
        decision = hand_over::hand_over(case, &state, decision, most);
        decision.effects.extend(tried_before(case, &state, state.batch, now));
        if !(state.is_rolling_out || state.is_shrinking) {
            decision.effects.extend(lost(case, &state, now));
        }
        if decision.effects.iter().any(is_completion) {
            return decision;
        }
        let beats = state.given_over.iter().filter_map(|(_, request)| patience_ends(case, request));
        decision.recheck_at = beats.filter(|at| *at > now).min();
        decision.waiting_on = state.asked().next().map(|_| Wait::Others);
    } else if !state.in_between.is_empty() {
        decision.waiting_on = Some(Wait::Others);
    } else if !state.given_over.is_empty() {
        let deleted = delete(case, &state, (most, may_shrink), now);
        if deleted.is_empty() {
            decision.effects.extend(missing_pods_reports(case, &state, now));
        }
        decision.effects.extend(deleted);
        let beats = state.given_over.iter().filter_map(|(_, request)| patience_ends(case, request));
        let told = state.given_over.iter().filter(|_| !state.is_replaced());
        let told = told.map(|(_, request)| later(progress_of(request), SETTLE));
        let fewer = without_others(case, &state).map(|(_, at)| at);
        decision.recheck_at = beats.chain(told).chain(fewer).filter(|at| *at > now).min();
        decision.waiting_on = Some(Wait::Others);
    } else {
        let target = u32::try_from(state.waiting.len().min(most)).unwrap_or(u32::MAX);
        let is_replaced = state.batch > 0 && !state.is_rolling_out && state.is_replaced();
        let fewer = without_others(case, &state);
        if !is_replaced {
            decision.effects.extend(tried_before(case, &state, 0, now));
        }
        if is_replaced && comes_first(case, &state) {
            decision.effects.extend(give_over(case, &state));
            return decision;
        } else if state.size.by > target {
            // Some were called off: the surplus goes, and pods that stay must not go for it.
            if may_shrink {
                decision.effects.extend(lower(case, &state, target));
            }
        } else if state.size.by < target && !is_replaced && !state.is_rolling_out && state.surplus == 0 {
            // Before all else: it takes the longest.
            decision.effects.splice(0..0, raise(case, &state, target));
        } else if let Some((by, at)) = fewer {
            if at > now {
                decision.recheck_at = Some(at);
            } else if may_shrink {
                decision.effects.extend(lower(case, &state, by));
            }
        } else if is_over {
            decision.effects.extend(lower(case, &state, 0));
        }
    }
    decision.effects.extend(progress_reports(case, &state, most, now));
    if !state.waiting.is_empty() {
        decision.waiting_on = Some(wait_of(case, &state, now));
        let beats = state
            .waiting
            .iter()
            .flat_map(|(_, request)| {
                let told = later(progress_of(request), SETTLE);
                let passed = request.status.expected_interceptor_finish_time.as_ref().map(|time| time.0);
                warned_at(request).into_iter().chain([next_beat(request), told]).chain(passed)
            })
            .chain(state.waiting.iter().filter_map(|(_, request)| ends_after_autoscaler(case, request)))
            .chain(paused_until(case, &state));
        let ready = state.unavailable.iter().filter_map(|(_, why)| match why {
            Unavailable::NotReadyLongEnough { until } => Some(*until),
            _ => None,
        });
        let next = beats.chain(ready).filter(|at| *at > now);
        decision.recheck_at = decision.recheck_at.into_iter().chain(next).min();
    }
    looked_at_again(decision)
}

/// Some of the new pods are available, and the others cannot be: by so many it surges then, from that time on. Those that have come are
/// enough for some that wait, and a ReplicaSet gives up pods first that are not ready.
fn without_others(case: &Case<'_>, state: &SurgeState<'_>) -> Option<(u32, Timestamp)> {
    let patience = |why: &Unavailable| match why {
        Unavailable::Unschedulable { .. }
        | Unavailable::VolumeCannotMove { .. }
        | Unavailable::NotStarted { .. } => Some(ROOM),
        // It may only be slow.
        Unavailable::NotReady => Some(PATIENCE),
        Unavailable::Missing | Unavailable::Terminating | Unavailable::NotReadyLongEnough { .. } => None,
    };
    let cannot_come = state.missing == 0 || case.deployment.replica_failure.is_some();
    if !cannot_come || state.is_rolling_out {
        return None;
    }
    let mut longest = ROOM;
    for (_, why) in &state.unavailable {
        longest = longest.max(patience(why)?);
    }
    let spare = state.spare();
    let made = state.unavailable.iter().map(|(pod, _)| pod.created);
    let ready = case.pods.values().filter_map(|pod| pod.ready_since);
    let moved = made.chain(ready).max()?;
    (spare > 0 && spare < state.size.by).then(|| (spare, later(moved, longest)))
}

/// The Deployment itself has tried it, and its autoscaler, whose turn came after that, would try the same once more; or the other way
/// round. The first are replaced.
fn tried_before<'a>(
    case: &'a Case<'_>,
    state: &'a SurgeState<'_>,
    replaced: usize,
    now: Timestamp,
) -> impl Iterator<Item = Effect> + use<'a> {
    let update = case.deployment.rolling_update.as_ref();
    let surges = update.is_some_and(|update| update.max_surge.up(state.size.wanted) > 0);
    let tried = state.waiting.iter().skip(replaced).filter(move |(_, request)| {
        surges && comes_after(request, DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS)
            || ends_after_autoscaler(case, request).is_some_and(|ends| ends <= now)
    });
    tried.map(|(_, request)| {
        // Why it did not help stays told.
        if let Some(known) = failure(request) {
            return complete(request, known.message.clone());
        }
        let name = &case.deployment.key.name;
        let said = "has surged for it already, and it did not help";
        fail(request, "Tried", format!("Deployment {name} {said}: {LEFT}"))
    })
}

/// The second of these interceptors has the turn, and the first had it before.
fn comes_after(request: &Request, first: &str, second: &str) -> bool {
    let before = place(request, first);
    has_turn(request, second) && before.is_some() && before < place(request, second)
}

/// What the autoscaler has begun in its turn before, the Deployment goes on with as long as patience lasts.
fn ends_after_autoscaler(case: &Case<'_>, request: &Request) -> Option<Timestamp> {
    let comes_after = comes_after(request, HORIZONTAL_POD_AUTOSCALER_CLASS, DEPLOYMENT_CLASS);
    patience_ends(case, request).filter(|_| case.autoscaler.is_some() && comes_after)
}

/// The replacements of the batch are available: the next interceptor ends its pods.
fn give_over<'a>(case: &'a Case<'_>, state: &'a SurgeState<'_>) -> impl Iterator<Item = Effect> + use<'a> {
    let (name, total) = (&case.deployment.key.name, state.size.wanted);
    state.waiting.iter().take(state.batch).map(move |(pod, request)| {
        let message = format!(
            "Deployment {name}: {} goes now, {total} of {total} pods are available without it",
            pod.key.name
        );
        complete(request, message)
    })
}

/// What the next batch waits for, in a word.
fn wait_of(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Wait {
    if let Some(held_up_by) = HeldUpBy::of(case.deployment) {
        return Wait::Unavailable { reason: held_up_by.reason() };
    }
    let new = hand_over::awaited(case, state, now);
    let reason = match state.unavailable.first() {
        _ if case.refused.is_some() => "Refused",
        None if new.is_some() => new.map_or(Unavailable::Missing.reason(), |why| why.reason()),
        Some((_, why)) => why.reason(),
        None if state.missing > 0 && case.deployment.replica_failure.is_some() => "ReplicaFailure",
        None if state.missing > 0 => Unavailable::Missing.reason(),
        None => return Wait::Others,
    };
    Wait::Unavailable { reason }
}

/// A rollout that is paused may go on in a moment: so long that is waited for.
fn paused_until(case: &Case<'_>, state: &SurgeState<'_>) -> Option<Timestamp> {
    let is_paused = case.deployment.is_paused && case.deployment.has_old_pods;
    let waiting = state.waiting.iter().filter(|_| is_paused && case.strategy != Strategy::MaxUnavailable);
    waiting.map(|(_, request)| patience_ends(case, request).unwrap_or(Timestamp::MAX)).min()
}

/// Why nothing is done for its pods.
fn declines(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Option<String> {
    let deployment = case.deployment;
    let most = deployment.rolling_update.as_ref().map_or(0, |update| max_surge(case, update, &state.size));
    let is_reverted = state.size.reverted >= TRIES && !case.hands_over();
    let may_go_on = paused_until(case, state).is_some_and(|until| now < until);
    let paused = || why_paused(deployment).filter(|_| !may_go_on);
    why_never(deployment, case.strategy, most, is_reverted).or_else(paused).or_else(|| {
        if matches!(case.strategy, Strategy::Off | Strategy::MaxUnavailable) {
            return None;
        }
        let is_asked = |pod: &Pod| case.requests.contains_key(&pod.uid);
        let mut present = case.pods.values().filter(|pod| !pod.is_terminating());
        let low = present.find(|pod| is_below_marks(pod) && !is_asked(pod))?;
        Some(format!(
            "Deployment {} has pods of the lowest deletion cost, such as {}, so that no other one can be made to go first: {LEFT}",
            deployment.key.name, low.key.name
        ))
    })
}

const LEFT: &str = "it is left to the eviction API";

/// The turn is over: new pods were to come for this one, and did not. Where others have filled the list of conditions, that is told in the
/// message alone.
fn fail(request: &Arc<Request>, reason: &str, message: String) -> Effect {
    let others = request.status.conditions.iter().filter(|condition| is_of_others(condition)).count();
    let condition = (others + OWN_CONDITIONS.len() <= CONDITIONS_MAX).then(|| ConditionReport {
        type_: SURGE_FAILED_CONDITION.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message: limited(message.clone()),
    });
    let report = Report { condition, ..*completion(message) };
    Effect::Report { request: request.clone(), report: Box::new(report) }
}

/// Whether an interceptor of Deployments had the last turn, and new pods were to come for the pod and did not.
pub fn has_failed(request: &Request) -> bool {
    request.status.active_interceptor_class.as_deref().is_some_and(answers_for) && failure(request).is_some()
}

/// What is said of new pods that did not come.
fn failure(request: &Request) -> Option<&Condition> {
    request.condition(SURGE_FAILED_CONDITION).filter(|condition| condition.status == "True")
}

/// Why nothing would be done for the pods of a Deployment now, whichever they are.
fn why_not(deployment: &Deployment, strategy: Strategy, max_surge: u32, is_reverted: bool) -> Option<String> {
    why_never(deployment, strategy, max_surge, is_reverted).or_else(|| why_paused(deployment))
}

fn why_paused(deployment: &Deployment) -> Option<String> {
    let name = &deployment.key.name;
    (deployment.is_paused && deployment.has_old_pods)
        .then(|| format!("Deployment {name} is paused in the middle of a rollout: {LEFT}"))
}

/// The same, whether a rollout is paused or not.
fn why_never(
    deployment: &Deployment,
    strategy: Strategy,
    max_surge: u32,
    is_reverted: bool,
) -> Option<String> {
    let name = &deployment.key.name;
    let annotation = EVICTION_REQUEST_STRATEGY_ANNOTATION;
    if deployment.rolling_update.is_none() {
        return Some(format!(
            "Deployment {name} has the strategy Recreate, which takes all pods down first: {LEFT}"
        ));
    }
    if deployment.is_deleting {
        return Some(format!("Deployment {name} is being deleted: {LEFT}"));
    }
    if deployment.has_lowest_cost
        && matches!(strategy, Strategy::Default | Strategy::Surge | Strategy::HandOver)
    {
        return Some(format!(
            "Deployment {name} gives all its pods the lowest deletion cost, so that none can be made to go first: {LEFT}"
        ));
    }
    match strategy {
        Strategy::Off => Some(format!("Deployment {name} opted out: {LEFT}")),
        Strategy::MaxUnavailable => None,
        Strategy::Default | Strategy::Surge | Strategy::HandOver if max_surge == 0 => Some(format!(
            "Deployment {name} has no maxSurge: {LEFT}; it opts in to its maxUnavailable by the annotation {annotation}=MaxUnavailable"
        )),
        Strategy::Default | Strategy::Surge if is_reverted => Some(format!(
            "Deployment {name} was scaled back {TRIES} times by somebody else while it surged: {LEFT}"
        )),
        Strategy::Default | Strategy::Surge | Strategy::HandOver => None,
    }
}

/// What counts for a Deployment. With a `maxSurge` it is asked to take its `maxUnavailable` by itself alone, since a namespace asks all its
/// workloads; and where that is nobody, it surges all the same.
pub(super) fn strategy_of(
    deployment: &Deployment,
    autoscaler: Option<&Autoscaler>,
    said: Strategy,
) -> Strategy {
    let Some(update) = deployment.rolling_update.as_ref().filter(|_| said == Strategy::MaxUnavailable) else {
        return said;
    };
    let is_own =
        Strategy::of(BundledInterceptor::Deployment, deployment.strategy.as_deref(), None) == Ok(said);
    // As many as its owner wants: while it surges, a part of all would be more.
    let raised = autoscaler.and_then(|it| it.raised.as_ref());
    let raised = raised.filter(|raised| raised.min_replicas == deployment.replicas).map_or(0, |it| it.by);
    let by = deployment.surge.as_ref().map_or(raised, |surge| surge.by.max(raised));
    let wanted = deployment.replicas.saturating_sub(by);
    let surges = update.max_surge.up(wanted) > 0;
    let is_nobody = update.max_unavailable.down(wanted) == 0;
    if surges && (!is_own || is_nobody) { Strategy::Default } else { said }
}

/// By how many it would surge for pods that are asked to leave, as far as that can be told before any is: `None` if it would not.
pub fn would_surge_by(deployment: &Deployment, strategy: Strategy) -> Option<u32> {
    let strategy = strategy_of(deployment, None, strategy);
    let most = deployment.rolling_update.as_ref()?.max_surge.up(wanted_without(deployment));
    let reverted = deployment.surge.as_ref().map_or(0, |surge| surge.reverted);
    let is_off = strategy == Strategy::MaxUnavailable
        || why_not(deployment, strategy, most, reverted >= TRIES).is_some();
    (!is_off).then_some(most)
}

/// How many it would let go at a time without surging, as far as that can be told before any is asked: `None` if that is not its way.
pub fn would_let_go(deployment: &Deployment, strategy: Strategy) -> Option<u32> {
    let strategy = strategy_of(deployment, None, strategy);
    if strategy != Strategy::MaxUnavailable || why_not(deployment, strategy, 0, false).is_some() {
        return None;
    }
    Some(max_unavailable::max_unavailable(deployment, wanted_without(deployment)))
}

/// As many as its owner wants, where nothing is known of an autoscaler: who has scaled it since it surged is right.
fn wanted_without(deployment: &Deployment) -> u32 {
    let surge = deployment.surge.as_ref().filter(|surge| surge.replicas == deployment.replicas);
    deployment.replicas.saturating_sub(surge.map_or(0, |surge| surge.by))
}

fn is_asked(state: &SurgeState<'_>) -> bool {
    !state.waiting.is_empty() || !state.given_over.is_empty()
}

fn progress_of(request: &Request) -> Timestamp {
    request.status.progress_timestamp.as_ref().map_or(request.created, |time| time.0)
}

/// As long as new pods become ready, nobody who waits for one loses patience.
fn patience_ends(case: &Case<'_>, request: &Request) -> Option<Timestamp> {
    let progress = request.status.progress_timestamp.as_ref()?.0;
    let min_ready = SignedDuration::from_secs(case.deployment.min_ready_seconds.into());
    Some(later(progress.max(case.moved), PATIENCE.saturating_add(min_ready)))
}

/// The turn of the ReplicaSet: pods whose replacement is available are deleted by taking the surge back.
fn delete(
    case: &Case<'_>,
    state: &SurgeState<'_>,
    (most, may_shrink): (usize, bool),
    now: Timestamp,
) -> Vec<Effect> {
    if state.is_shrinking {
        // It is done already: they go as soon as the controllers follow.
        return Vec::new();
    }
    let is_steady = !state.is_rolling_out && state.surplus == 0;
    if state.for_surge > 0 {
        // One whose replacement is not available, or not any more, is waited for in patience.
        if !(is_steady && state.is_replaced() && comes_first(case, state)) {
            return match without_others(case, state) {
                _ if state.is_rolling_out => Vec::new(),
                Some((by, at)) if at <= now && may_shrink => lower(case, state, by).into_iter().collect(),
                _ => {
                    let lost = lost(case, state, now);
                    // First those go that came for them and are not available: after the eviction they would stay in their place.
                    let kept = state.size.by.saturating_sub(u32::try_from(lost.len()).unwrap_or(u32::MAX));
                    let lower = lower(case, state, kept).filter(|_| may_shrink && !lost.is_empty());
                    lower.into_iter().chain(lost).collect()
                }
            };
        }
        let count = u32::try_from(state.for_surge).unwrap_or(u32::MAX);
        return lower(case, state, state.size.by.saturating_sub(count)).into_iter().collect();
    }
    let lost = lost(case, state, now);
    if !is_steady || (case.refused.is_some() && !lost.is_empty()) {
        return lost;
    }
    // Others went for their surge, such as pods that somebody evicted meanwhile.
    let target = u32::try_from(state.given_over.len().min(most)).unwrap_or(u32::MAX);
    raise(case, state, target).map_or(lost, |raised| vec![raised])
}

/// Pods that were given over, and for which there is no new one in all patience.
fn lost(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Vec<Effect> {
    let name = &case.deployment.key.name;
    let why = obstacles(case, state).map(|why| format!(" ({why})")).unwrap_or_default();
    let message = format!("Deployment {name} has no available replacement of the pod{why}: {LEFT}");
    let is_lost = |request: &Request| patience_ends(case, request).is_none_or(|ends| ends <= now);
    // For the first of them there are new pods, and they go for those, if the server lets them.
    let replaced = match case.refused {
        _ if case.hands_over() => state.for_surge,
        Some(_) => 0,
        None => state.for_surge.min(state.spare() as usize),
    };
    let turns = state.given_over.iter().skip(replaced);
    let lost = turns.filter(|(_, request)| !is_completed(request) && is_lost(request));
    lost.map(|(_, request)| fail(request, "NotReplaced", message.clone())).collect()
}

#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod max_unavailable_tests;
#[cfg(test)]
mod tests;
