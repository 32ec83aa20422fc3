//! What is done for the pods of one Deployment that are asked to leave: new ones come first.
//!
//! The Deployment is scaled up by as many as are asked for, `maxSurge` at most. Once as many pods as its owner wants are available
//! without those that leave, these are given over to the ReplicaSet, which is the next interceptor, and in its turn the surge is taken
//! back: they have the lowest deletion cost, so that the ReplicaSet deletes exactly them. Taking back is scaling down, and that never
//! costs an available pod that is needed, since a ReplicaSet gives up pods that are not ready first. No budget is asked, and none is
//! broken.
//!
//! An autoscaler over the Deployment writes its replicas, so that its limits are raised instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::names::{
    DEPLOYMENT_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION, HORIZONTAL_POD_AUTOSCALER_CLASS,
    REPLICA_SET_CLASS,
};
use usher_api::report::Report;
use usher_api::workloads::{BundledInterceptor as Bundled, Strategy};

use super::availability::{Unavailable, batch, later, moved_at, why_unavailable};
use super::{Decision, Effect, Wait, complete, has_turn, is_wanted, next_beat, owner_of};
use crate::snapshot::{Autoscaler, Deployment, DeploymentUpdate, Key, Pod, RaisedLimits, Request, Surge};

/// So often a surge is tried where somebody sets it back.
const TRIES: u32 = 2;
/// A pod that was given over to the ReplicaSet waits for so long if its replacement is not available any more.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// What is waited for is told again after so long, if it is something else by then and something has moved.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);
/// So many pods are named in a message.
const NAMED: usize = 3;

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
}

/// How large the Deployment is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// As its owner wants it.
    pub wanted: u32,
    /// So many more it is to have for now.
    pub by: u32,
    /// How often somebody has set that back.
    pub reverted: u32,
    /// What others have done to it since.
    pub change: Option<Change>,
}

/// Somebody else has written the number that the surge was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// As it was before the surge.
    Reverted,
    /// To another number, which counts from now on.
    Scaled,
}

/// Where the pods of the Deployment stand.
#[derive(Debug)]
pub struct SurgeState<'a> {
    pub size: Size,
    /// Pods that wait for a replacement, in the order in which they go.
    pub waiting: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// Pods whose replacement was available, and which the ReplicaSet is to delete.
    pub given_over: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// The same, but the next interceptor has not got its turn yet.
    pub in_between: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// So many of those that wait go next.
    pub batch: usize,
    /// Those that stay when these are gone, and are not available.
    pub unavailable: Vec<(&'a Arc<Pod>, Unavailable)>,
    /// So many are to stay and are not there.
    pub missing: usize,
    /// There are more than should stay.
    pub surplus: usize,
    pub is_rolling_out: bool,
}

impl SurgeState<'_> {
    /// All that are to stay are available.
    fn is_replaced(&self) -> bool {
        self.unavailable.is_empty() && self.missing == 0 && self.surplus == 0
    }
}

pub fn size(case: &Case<'_>) -> Size {
    let deployment = case.deployment;
    let record = deployment.surge.clone().unwrap_or_default();
    let plain = Size { wanted: deployment.replicas, by: 0, reverted: record.reverted, change: None };
    if let Some(autoscaler) = case.autoscaler
        && let Some(raised) = autoscaler.raised.as_ref().filter(|raised| raised.by > 0)
    {
        return if autoscaler.min_replicas == raised.min_replicas {
            if deployment.replicas > raised.min_replicas || raised.by > raised.min_replicas {
                // The load wants more than that.
                plain
            } else {
                Size { wanted: raised.min_replicas - raised.by, by: raised.by, ..plain }
            }
        } else if autoscaler.min_replicas == raised.min_replicas.saturating_sub(raised.min_by) {
            Size { change: Some(Change::Reverted), ..plain }
        } else {
            Size { change: Some(Change::Scaled), ..plain }
        };
    }
    if record.by == 0 {
        plain
    } else if record.replicas == deployment.replicas && record.by <= deployment.replicas {
        Size { wanted: deployment.replicas - record.by, by: record.by, ..plain }
    } else if case.autoscaler.is_some()
        && (record.replicas.saturating_sub(record.by)..record.replicas).contains(&deployment.replicas)
    {
        // The autoscaler takes back by itself what its limits do not ask for any more.
        let wanted = record.replicas.saturating_sub(record.by);
        Size { wanted, by: deployment.replicas - wanted, ..plain }
    } else if deployment.replicas == record.replicas.saturating_sub(record.by) {
        Size { change: Some(Change::Reverted), ..plain }
    } else {
        Size { change: Some(Change::Scaled), ..plain }
    }
}

/// By so much it may surge. An autoscaler surges also where the Deployment itself would not, as soon as it has its turn.
fn max_surge(case: &Case<'_>, update: &DeploymentUpdate, size: &Size) -> u32 {
    let own = update.max_surge.up(size.wanted);
    let is_by_autoscaler = |request: &Arc<Request>| {
        let autoscaler = place(request, HORIZONTAL_POD_AUTOSCALER_CLASS);
        autoscaler.is_some() && place_of_active(request) >= autoscaler && is_wanted(request)
    };
    let is_with_autoscaler = || case.autoscaler.is_some() && case.requests.values().any(is_by_autoscaler);
    if own == 0 && is_with_autoscaler() { 1 } else { own }
}

/// Where in the order of turns this class is.
fn place(request: &Request, class: &str) -> Option<usize> {
    request.interceptors.iter().position(|it| it.interceptor_class == class)
}

fn place_of_active(request: &Request) -> Option<usize> {
    place(request, request.status.active_interceptor_class.as_deref()?)
}

pub fn state<'a>(case: &Case<'a>, now: Timestamp) -> SurgeState<'a> {
    let (mut waiting, mut given_over, mut in_between) = (Vec::new(), Vec::new(), Vec::new());
    for pod in case.pods.values().filter(|pod| !pod.is_terminating()) {
        let Some(request) = case.requests.get(&pod.uid) else { continue };
        if has_turn(request, DEPLOYMENT_CLASS) || has_turn(request, HORIZONTAL_POD_AUTOSCALER_CLASS) {
            waiting.push((pod, request));
        } else if has_turn(request, REPLICA_SET_CLASS) {
            given_over.push((pod, request));
        } else if let Some(is_next_ours) = next_is_ours(request) {
            // If it is nobody's of these any more, it is the eviction API's; but with a replacement the pod need not wait for that.
            let list = if is_next_ours { &mut in_between } else { &mut given_over };
            list.push((pod, request));
        }
    }
    // A ReplicaSet gives up pods first that are not ready.
    waiting.sort_by_cached_key(|(pod, request)| {
        (pod.is_ready(), mark_of(pod).unwrap_or(i32::MAX), request.created, request.key.clone())
    });
    let size = size(case);
    // One that is the eviction API's already is waited for as long as it can be helped.
    let can_be_helped =
        |request: &Request| size.by > 0 && patience_ends(request).is_some_and(|ends| now < ends);
    given_over.retain(|(_, request)| !is_completed(request) || can_be_helped(request));
    let batch = waiting.len().min(size.by as usize);
    let going = given_over.iter().chain(&in_between);
    // One batch after the other.
    let batch = if going.clone().next().is_some() { 0 } else { batch };
    let going: BTreeSet<&Key> = going.chain(waiting.iter().take(batch)).map(|(pod, _)| &pod.key).collect();
    let stay = case
        .pods
        .values()
        .filter(|pod| !pod.is_terminating() && !pod.phase.is_terminal() && !going.contains(&pod.key));
    let mut unavailable = Vec::new();
    let mut there = 0;
    let asked: BTreeSet<&Key> = waiting.iter().map(|(pod, _)| &pod.key).collect();
    for pod in stay {
        there += 1;
        // One that waits itself and is down goes before others: nobody waits for it.
        if !pod.is_ready() && asked.contains(&pod.key) {
            continue;
        }
        unavailable
            .extend(why_unavailable(pod, case.deployment.min_ready_seconds, now).map(|why| (pod, why)));
    }
    let total = size.wanted.saturating_add(size.by) as usize;
    let should = total.saturating_sub(going.len());
    SurgeState {
        missing: should.saturating_sub(there),
        surplus: there.saturating_sub(should),
        is_rolling_out: !case.deployment.is_observed || case.deployment.has_old_pods,
        size,
        waiting,
        given_over,
        in_between,
        batch,
        unavailable,
    }
}

/// One of these interceptors has completed: whether another of them is the next.
fn next_is_ours(request: &Request) -> Option<bool> {
    let active = request.status.active_interceptor_class.as_deref();
    let is_ours = matches!(active, Some(DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS));
    let is_over = request.status.active_interceptor_completed && request.skips_interceptors.is_none();
    if !(is_ours && is_over && is_wanted(request)) {
        return None;
    }
    let next = place_of_active(request).and_then(|at| request.interceptors.get(at + 1));
    match next.map(|next| next.interceptor_class.as_str()) {
        Some(DEPLOYMENT_CLASS | REPLICA_SET_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS) => Some(true),
        // It is about to be somebody else's turn.
        Some(_) => None,
        None => Some(false),
    }
}

/// Marks are below this.
const MARKS: i32 = i32::MIN + (1 << 24);

/// The place of the pod among those that go first, unless somebody has written another cost since.
fn mark_of(pod: &Pod) -> Option<i32> {
    pod.preferred.as_ref().map(|preferred| preferred.cost).filter(|cost| *cost < MARKS)
}

/// As the ReplicaSet reads it.
fn cost_of(pod: &Pod) -> i32 {
    pod.deletion_cost.as_ref().and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let deployment = case.deployment;
    let name = &deployment.key.name;
    let state = state(case, now);
    let declines = declines(case, &state);
    let preferences = preferences(case, declines.is_none());
    let is_settled = !preferences.iter().any(|effect| matches!(effect, Effect::Prefer { cost: None, .. }));
    let mut decision = Decision { effects: preferences, ..Decision::default() };

    if let Some(change) = state.size.change {
        decision.effects.extend(accept(case, &state, change));
        return decision;
    }
    let is_raised = case.autoscaler.is_some_and(|autoscaler| autoscaler.raised.is_some());
    let is_over = (deployment.surge.is_some() || is_raised) && case.requests.is_empty();
    // What is scaled down in the middle of a rollout is shared by old and new pods, and old ones that are needed would go.
    // And one that is ready, but not yet for long enough, would stay for one that is available.
    let soon =
        case.pods.values().filter(|pod| !pod.is_terminating()).filter_map(|pod| {
            match why_unavailable(pod, deployment.min_ready_seconds, now) {
                Some(Unavailable::NotReadyLongEnough { until }) => Some(until),
                _ => None,
            }
        });
    let soon = soon.min();
    let may_shrink = is_settled && (state.size.by == 0 || (!state.is_rolling_out && soon.is_none()));
    let looked_at_again = |decision: Decision| Decision {
        recheck_at: decision.recheck_at.into_iter().chain(soon).min(),
        ..decision
    };
    decision.effects.extend(remember(case).or_else(|| release_limit(case, &state)));
    if let Some(message) = declines {
        if (state.size.by > 0 || is_over) && may_shrink {
            decision.effects.extend(lower(case, &state, 0));
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

    if !state.in_between.is_empty() {
        decision.waiting_on = Some(Wait::Others);
    } else if !state.given_over.is_empty() {
        decision.effects.extend(delete(case, &state, now));
        let beats = state.given_over.iter().filter_map(|(_, request)| patience_ends(request));
        decision.recheck_at = beats.filter(|at| *at > now).min();
        decision.waiting_on = Some(Wait::Others);
    } else {
        let target = u32::try_from(state.waiting.len().min(most)).unwrap_or(u32::MAX);
        if state.size.by > target {
            // Some were called off: the surplus goes, and pods that stay must not go for it.
            if may_shrink {
                decision.effects.extend(lower(case, &state, target));
            }
        } else if state.size.by < target && !state.is_rolling_out && state.surplus == 0 {
            // Before all else: it takes the longest.
            decision.effects.splice(0..0, raise(case, &state, target));
        } else if state.batch > 0 && !state.is_rolling_out && state.is_replaced() && comes_first(case, &state)
        {
            let total = state.size.wanted;
            for (pod, request) in state.waiting.iter().take(state.batch) {
                let message = format!(
                    "Deployment {name}: {} goes now, {total} of {total} pods are available without it",
                    pod.key.name
                );
                decision.effects.push(complete(request, message));
            }
            return decision;
        } else if is_over {
            decision.effects.extend(lower(case, &state, 0));
        }
    }
    decision.effects.extend(tell_progress(case, &state, most, now));
    if !state.waiting.is_empty() {
        decision.waiting_on = Some(Wait::Others);
        let beats = state
            .waiting
            .iter()
            .flat_map(|(_, request)| [next_beat(request), later(progress_of(request), SETTLE)]);
        let ready = state.unavailable.iter().filter_map(|(_, why)| match why {
            Unavailable::NotReadyLongEnough { until } => Some(*until),
            _ => None,
        });
        let next = beats.chain(ready).filter(|at| *at > now);
        decision.recheck_at = decision.recheck_at.into_iter().chain(next).min();
    }
    looked_at_again(decision)
}

fn is_completed(request: &Request) -> bool {
    request.status.active_interceptor_completed
}

/// What an autoscaler has made of its raised limits is remembered on the Deployment too, in case the autoscaler goes.
fn remember(case: &Case<'_>) -> Option<Effect> {
    let deployment = case.deployment;
    let raised = case.autoscaler?.raised.as_ref().filter(|raised| raised.by > 0)?;
    let reverted = deployment.surge.as_ref().map_or(0, |surge| surge.reverted);
    let held = Surge { by: raised.by, replicas: raised.min_replicas, reverted };
    let is_grown = deployment.replicas == raised.min_replicas && deployment.surge.as_ref() != Some(&held);
    is_grown.then(|| resize(deployment, deployment.replicas, Some(held)))
}

/// The largest number of an autoscaler goes back when it is not in the way any more.
fn release_limit(case: &Case<'_>, state: &SurgeState<'_>) -> Option<Effect> {
    let autoscaler = case.autoscaler?;
    autoscaler.raised.as_ref().filter(|raised| raised.by == 0)?;
    let (_, most) = own_limits(autoscaler);
    (state.size.by == 0 && case.deployment.replicas <= most).then(|| restored(autoscaler))
}

/// Why nothing is done for its pods.
fn declines(case: &Case<'_>, state: &SurgeState<'_>) -> Option<String> {
    let deployment = case.deployment;
    let name = &deployment.key.name;
    let left = "it is left to the eviction API";
    let annotation = EVICTION_REQUEST_STRATEGY_ANNOTATION;
    let Some(update) = &deployment.rolling_update else {
        return Some(format!(
            "Deployment {name} has the strategy Recreate, which takes all pods down first: {left}"
        ));
    };
    if deployment.is_deleting {
        return Some(format!("Deployment {name} is being deleted: {left}"));
    }
    if deployment.is_paused && deployment.has_old_pods {
        return Some(format!("Deployment {name} is paused in the middle of a rollout: {left}"));
    }
    match case.strategy {
        Strategy::Off => Some(format!("Deployment {name} opted out: {left}")),
        Strategy::MaxUnavailable if update.max_unavailable.down(deployment.replicas) == 0 => {
            Some(format!("Deployment {name} asks for MaxUnavailable, and its maxUnavailable is 0: {left}"))
        }
        Strategy::MaxUnavailable => None,
        Strategy::Default if max_surge(case, update, &state.size) == 0 => Some(format!(
            "Deployment {name} has no maxSurge: {left}; it opts in to its maxUnavailable by the annotation {annotation}=MaxUnavailable"
        )),
        Strategy::Default if state.size.reverted >= TRIES => Some(format!(
            "Deployment {name} was scaled back {TRIES} times by somebody else while it surged: {left}"
        )),
        Strategy::Default => None,
    }
}

/// Which pods the ReplicaSet is to delete before others, in the order in which they go, and which of them not any more.
fn preferences(case: &Case<'_>, is_on: bool) -> Vec<Effect> {
    let is_preferred = |pod: &Arc<Pod>| {
        case.requests.get(&pod.uid).is_some_and(|request| {
            let active = request.status.active_interceptor_class.as_deref();
            let is_ours = match active {
                Some(DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS) => true,
                Some(REPLICA_SET_CLASS) => !request.status.active_interceptor_completed,
                _ => false,
            };
            is_on && is_ours && is_wanted(request)
        })
    };
    let present = || case.pods.values().filter(|pod| !pod.is_terminating());
    let undo = present()
        .filter(|pod| pod.preferred.is_some() && !is_preferred(pod))
        .map(|pod| Effect::Prefer { pod: pod.clone(), cost: None });
    let mut new: Vec<&Arc<Pod>> =
        present().filter(|pod| mark_of(pod).is_none() && is_preferred(pod)).collect();
    new.sort_by_cached_key(|pod| {
        let request = case.requests.get(&pod.uid);
        (request.map(|request| request.created), pod.key.clone())
    });
    let known = present().filter_map(|pod| mark_of(pod)).max();
    let first = known.map_or(i32::MIN, |cost| cost.saturating_add(1));
    let costs = (first..MARKS).zip(new);
    let set = costs.map(|(cost, pod)| Effect::Prefer { pod: pod.clone(), cost: Some(cost) });
    undo.chain(set).collect()
}

/// Those that go have lower costs than all others.
fn comes_first(case: &Case<'_>, state: &SurgeState<'_>) -> bool {
    let going = state.waiting.iter().take(state.batch);
    let going: BTreeMap<&Key, &Arc<Pod>> =
        going.chain(&state.given_over).map(|(pod, _)| (&pod.key, *pod)).collect();
    // Those that are not ready go before all others anyway.
    let ready: Vec<&&Arc<Pod>> = going.values().filter(|pod| pod.is_ready()).collect();
    let Some(highest) = ready.iter().map(|pod| cost_of(pod)).max() else { return true };
    let mut others = case
        .pods
        .values()
        .filter(|pod| !pod.is_terminating() && pod.is_ready() && !going.contains_key(&pod.key));
    ready.iter().all(|pod| mark_of(pod).is_some()) && others.all(|pod| cost_of(pod) > highest)
}

/// The number of somebody else counts from now on.
fn accept(case: &Case<'_>, state: &SurgeState<'_>, change: Change) -> Vec<Effect> {
    let deployment = case.deployment;
    let reverted = match change {
        Change::Reverted => state.size.reverted.saturating_add(1),
        Change::Scaled => state.size.reverted,
    };
    let mut effects = Vec::new();
    let mut record = Surge { by: 0, replicas: 0, reverted };
    if let Some(autoscaler) = case.autoscaler
        && let Some(raised) = &autoscaler.raised
    {
        effects.push(restored(autoscaler));
        if deployment.replicas == raised.min_replicas {
            // It has acted on them already.
            record = Surge { by: raised.by, replicas: deployment.replicas, reverted };
        }
    }
    let record = (record.by > 0 || reverted > 0).then_some(record);
    effects.push(resize(deployment, deployment.replicas, record));
    if change == Change::Reverted && state.size.reverted == 0 && is_asked(state) {
        effects.push(Effect::Tell {
            namespace: deployment.key.namespace.clone(),
            workload: owner_of(Bundled::Deployment, &deployment.key, &deployment.uid),
            is_warning: true,
            reason: "SurgeReverted",
            message: format!(
                "Somebody else set the replicas of Deployment {} back while it surged for pods that are about to leave. It is tried \
                 once more; then these pods are left to the eviction API and their disruption budgets. A tool that keeps replicas as \
                 they are in a repository should ignore that field",
                deployment.key.name
            ),
        });
    }
    effects
}

fn is_asked(state: &SurgeState<'_>) -> bool {
    !state.waiting.is_empty() || !state.given_over.is_empty()
}

fn resize(deployment: &Deployment, replicas: u32, surge: Option<Surge>) -> Effect {
    Effect::Resize { deployment: Box::new(deployment.clone()), replicas, surge }
}

/// The limits as their owner wants them.
pub(super) fn restored(autoscaler: &Autoscaler) -> Effect {
    let (min_replicas, max_replicas) = own_limits(autoscaler);
    Effect::Limit { autoscaler: Box::new(autoscaler.clone()), min_replicas, max_replicas, raised: None }
}

/// What was written is taken back, and what somebody else has written since counts.
fn own_limits(autoscaler: &Autoscaler) -> (u32, u32) {
    let raised = autoscaler.raised.clone().unwrap_or_default();
    let back = |is: u32, written: u32, by: u32| if is == written { is.saturating_sub(by) } else { is };
    (
        back(autoscaler.min_replicas, raised.min_replicas, raised.min_by),
        back(autoscaler.max_replicas, raised.max_replicas, raised.max_by),
    )
}

/// A larger surge. An autoscaler that is about to make the Deployment larger by itself is waited for.
fn raise(case: &Case<'_>, state: &SurgeState<'_>, by: u32) -> Option<Effect> {
    let total = state.size.wanted.saturating_add(by);
    let Some(autoscaler) = case.autoscaler else {
        let surge = Surge { by, replicas: total, reverted: state.size.reverted };
        return Some(resize(case.deployment, total, Some(surge)));
    };
    let (least, most) = own_limits(autoscaler);
    if least > state.size.wanted {
        return None;
    }
    let raised = RaisedLimits {
        by,
        min_by: total - least,
        min_replicas: total,
        max_by: total.saturating_sub(most),
        max_replicas: most.max(total),
    };
    Some(Effect::Limit {
        autoscaler: Box::new(autoscaler.clone()),
        min_replicas: total,
        max_replicas: raised.max_replicas,
        raised: Some(raised),
    })
}

/// A smaller surge. What an autoscaler has made of its limits is the Deployment's before the limits are as they were.
fn lower(case: &Case<'_>, state: &SurgeState<'_>, by: u32) -> Option<Effect> {
    let deployment = case.deployment;
    let Size { wanted, reverted, .. } = state.size;
    let total = wanted.saturating_add(by);
    if let Some(autoscaler) = case.autoscaler {
        if let Some(raised) = autoscaler.raised.as_ref().filter(|raised| raised.by > 0) {
            if remember(case).is_some() {
                // That comes first.
                return None;
            }
            let (least, most) = own_limits(autoscaler);
            // The largest number stays for as long as there are more: the autoscaler would cut them off by itself.
            let is_needed = deployment.replicas > most;
            let kept = RaisedLimits { by: 0, min_by: 0, min_replicas: least, ..raised.clone() };
            return Some(Effect::Limit {
                autoscaler: Box::new(autoscaler.clone()),
                min_replicas: least,
                max_replicas: if is_needed { autoscaler.max_replicas } else { most },
                raised: is_needed.then_some(kept),
            });
        }
        if !autoscaler.is_observed {
            return None;
        }
    }
    let is_kept = by > 0 || (reverted > 0 && is_asked(state));
    let record = is_kept.then_some(Surge { by, replicas: if by > 0 { total } else { 0 }, reverted });
    // Where nothing is more than wanted, only the record goes.
    let total = if state.size.by == 0 { deployment.replicas } else { total };
    (deployment.replicas != total || deployment.surge != record).then(|| resize(deployment, total, record))
}

fn progress_of(request: &Request) -> Timestamp {
    request.status.progress_timestamp.as_ref().map_or(request.created, |time| time.0)
}

fn patience_ends(request: &Request) -> Option<Timestamp> {
    request.status.progress_timestamp.as_ref().map(|time| later(time.0, PATIENCE))
}

/// The turn of the ReplicaSet: pods whose replacement is available are deleted by taking the surge back.
fn delete(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Vec<Effect> {
    let name = &case.deployment.key.name;
    let count = u32::try_from(state.given_over.len()).unwrap_or(u32::MAX);
    // As many as there should be, so that it is not done again for those that are about to be deleted.
    if count <= state.size.by && state.is_replaced() && !state.is_rolling_out && comes_first(case, state) {
        return lower(case, state, state.size.by - count).into_iter().collect();
    }
    let message = format!(
        "Deployment {name} has no available replacement of the pod any more: it is left to the eviction API"
    );
    let is_lost = |request: &Request| patience_ends(request).is_none_or(|ends| ends <= now);
    let turns = state.given_over.iter().filter(|(_, request)| !is_completed(request));
    let lost = turns.filter(|(_, request)| is_lost(request));
    lost.map(|(_, request)| complete(request, message.clone())).collect()
}

/// Opted in: at most `maxUnavailable` at a time are given over to the eviction API.
fn let_go(case: &Case<'_>, state: &SurgeState<'_>, mut decision: Decision, now: Timestamp) -> Decision {
    let deployment = case.deployment;
    let name = &deployment.key.name;
    let update = deployment.rolling_update.as_ref();
    let most = update.map_or(0, |update| update.max_unavailable.down(deployment.replicas)) as usize;
    let message = format!("Deployment {name} has nothing to add: it is left to the eviction API");
    let (of_autoscaler, waiting): (Vec<_>, Vec<_>) =
        state.waiting.iter().partition(|(_, request)| has_turn(request, HORIZONTAL_POD_AUTOSCALER_CLASS));
    let others = state.given_over.iter().chain(of_autoscaler).filter(|(_, request)| !is_completed(request));
    decision.effects.extend(others.map(|(_, request)| complete(request, message.clone())));
    let is_up = |pod: &&Arc<Pod>| {
        let is_given_over = || {
            case.requests.get(&pod.uid).is_some_and(|request| {
                let (active, ours) = (place_of_active(request), place(request, DEPLOYMENT_CLASS));
                is_wanted(request) && (active > ours || (active == ours && is_completed(request)))
            })
        };
        !pod.is_terminating()
            && why_unavailable(pod, deployment.min_ready_seconds, now).is_none()
            && !is_given_over()
    };
    let up = case.pods.values().filter(is_up).count();
    let mut room = (up + most).saturating_sub(deployment.replicas as usize);
    if state.is_rolling_out {
        room = 0;
    }
    for (pod, request) in &waiting {
        let is_down = why_unavailable(pod, deployment.min_ready_seconds, now).is_some();
        if room == 0 && !is_down {
            break;
        }
        room = room.saturating_sub(usize::from(!is_down));
        let message = format!(
            "Deployment {name}: {} goes now, at most {most} of {} may be unavailable",
            pod.key.name, deployment.replicas
        );
        decision.effects.push(complete(request, message));
    }
    let gone: BTreeSet<&Key> = decision
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Report { request, .. } => Some(&request.key),
            _ => None,
        })
        .collect();
    let moved = moved_at(case.pods.values());
    let still = waiting.iter().filter(|(_, request)| !gone.contains(&request.key));
    let reports: Vec<Effect> = still
        .clone()
        .filter_map(|(pod, request)| {
            let until =
                if state.is_rolling_out { "its rollout is done" } else { "others are available again" };
            let words = format!("{} waits until {until}", pod.key.name);
            report(case, pod, request, (&words, None, moved), now)
        })
        .collect();
    decision.recheck_at = still.map(|(_, request)| next_beat(request)).filter(|at| *at > now).min();
    decision.waiting_on = decision.recheck_at.map(|_| Wait::Others);
    decision.effects.extend(reports);
    decision
}

fn tell_progress(case: &Case<'_>, state: &SurgeState<'_>, most: usize, now: Timestamp) -> Vec<Effect> {
    let deployment = case.deployment;
    let min_ready = SignedDuration::from_secs(deployment.min_ready_seconds.into());
    let one = batch(case.pods.values()).saturating_add(min_ready);
    let at_once = most.max(1);
    let waits_for = waits_for(case, state);
    let moved = moved_at(case.pods.values());
    let mut effects = Vec::new();
    for (place, (pod, request)) in state.waiting.iter().enumerate() {
        let batches = i32::try_from(place / at_once + 1).unwrap_or(i32::MAX);
        let finish = later(now, one.saturating_mul(batches));
        let words = if place < at_once {
            format!("{} waits until {waits_for}", pod.key.name)
        } else {
            format!("{} waits for its turn, {at_once} at a time", pod.key.name)
        };
        effects.extend(report(case, pod, request, (&words, Some(finish), moved), now));
    }
    effects
}

/// What is said at the beginning of the turn, when it changes what is waited for, and with every sign of life. That there is progress
/// is said only if there was any.
fn report(
    case: &Case<'_>,
    pod: &Pod,
    request: &Arc<Request>,
    (words, finish, moved): (&str, Option<Timestamp>, Timestamp),
    now: Timestamp,
) -> Option<Effect> {
    let start = format!("Deployment {}: {}", case.deployment.key.name, pod.key.name);
    let is_first = !request.status.message.starts_with(&start);
    let message = format!("Deployment {}: {words}", case.deployment.key.name);
    let since = progress_of(request);
    let has_moved = moved > since;
    let is_news = message != request.status.message && has_moved && now >= later(since, SETTLE);
    if !is_first && !is_news && now < next_beat(request) {
        return None;
    }
    let progress = is_first || has_moved;
    if !progress && message == request.status.message {
        return None;
    }
    let finish = finish.filter(|_| progress);
    let report = Report { progress, finish, message: Some(message), ..Report::default() };
    Some(Effect::Report { request: request.clone(), report: Box::new(report) })
}

/// What the next batch waits for.
fn waits_for(case: &Case<'_>, state: &SurgeState<'_>) -> String {
    if state.is_rolling_out {
        return "the rollout of its Deployment is done".to_owned();
    }
    if let Some(autoscaler) = case.autoscaler
        && autoscaler.raised.is_some()
        && case.deployment.replicas < state.size.wanted.saturating_add(state.size.by)
    {
        return format!("HorizontalPodAutoscaler {} has scaled it up", autoscaler.key.name);
    }
    let mut parts: Vec<String> = state
        .unavailable
        .iter()
        .map(|(pod, why)| format!("{} is available, which {}", pod.key.name, why.words()))
        .collect();
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    if state.missing > 0 {
        let why = case.deployment.replica_failure.as_ref();
        let why = why.map(|why| format!(", which cannot be made: {why}")).unwrap_or_default();
        let pods =
            if state.missing == 1 { "1 more pod is" } else { &format!("{} more pods are", state.missing) };
        parts.push(format!("{pods} there{why}"));
    }
    if parts.is_empty() {
        return "its replacement is there".to_owned();
    }
    let list = parts.join(", and ");
    if more > 0 { format!("{list}, and {more} more are") } else { list }
}

#[cfg(test)]
#[path = "surge_tests.rs"]
mod tests;
