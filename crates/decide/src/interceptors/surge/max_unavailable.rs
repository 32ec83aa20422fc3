//! Deployments that opted in to their `maxUnavailable`: nothing comes before, and not more than that go at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS};

use super::super::at_a_time::{self, Asked};
use super::super::availability::why_unavailable;
use super::super::{
    AvailablePods, Decision, Effect, Wait, complete, completion, has_turn, is_wanted, next_beat,
    was_given_over,
};
use super::state::SurgeState;
use super::telling::report;
use super::{Case, is_completed, place};
use crate::snapshot::{Deployment, Key, Pod, Request, SomeAtATime};

/// So many may go at a time. Where neither that nor maxSurge is anybody, the Deployment controller takes one.
pub(super) fn max_unavailable(deployment: &Deployment, wanted: u32) -> u32 {
    let update = deployment.rolling_update.as_ref();
    update.map_or(1, |update| update.max_unavailable.down(wanted).max(1))
}

/// The order in which they go, whatever was marked since: who decides again, without knowing whether the last report has arrived, takes
/// the same ones again.
pub(super) fn in_order(waiting: &mut [&(&Arc<Pod>, &Arc<Request>)]) {
    waiting.sort_by_cached_key(|&&(pod, request)| (pod.is_ready(), request.created, pod.key.clone()));
}

/// Opted in: at most `maxUnavailable` at a time are given over to the eviction API.
pub(super) fn let_go(
    case: &Case<'_>,
    state: &SurgeState<'_>,
    mut decision: Decision,
    now: Timestamp,
) -> Decision {
    let deployment = case.deployment;
    let name = &deployment.key.name;
    let most = max_unavailable(deployment, state.size.wanted) as usize;
    let message = format!("Deployment {name} has nothing to add: it is left to the eviction API");
    let (of_autoscaler, mut waiting): (Vec<_>, Vec<_>) =
        state.waiting.iter().partition(|(_, request)| has_turn(request, HORIZONTAL_POD_AUTOSCALER_CLASS));
    in_order(&mut waiting);
    let others = state.given_over.iter().chain(of_autoscaler).filter(|(_, request)| !is_completed(request));
    decision.effects.extend(others.map(|(_, request)| complete(request, message.clone())));
    let is_given_over = |pod: &Pod| {
        let is_past_us = |request: &Request| {
            was_given_over(request, DEPLOYMENT_CLASS) || place(request, DEPLOYMENT_CLASS).is_none()
        };
        case.requests.get(&pod.uid).is_some_and(|request| is_wanted(request) && is_past_us(request))
    };
    let is_up = |pod: &&Arc<Pod>| why_unavailable(pod, deployment.min_ready_seconds, now).is_none();
    let (going, up): (Vec<_>, Vec<_>) =
        case.pods.values().filter(|pod| !pod.is_terminating()).partition(|pod| is_given_over(pod));
    // One that is down may be ready again before it has left: not all of them go at once either.
    let mut room_for_down = most.saturating_sub(going.len());
    let mut going = going.into_iter().filter(is_up).count();
    let mut room = (up.into_iter().filter(is_up).count() + most).saturating_sub(deployment.replicas as usize);
    let is_strict = deployment.at_a_time.is_some();
    if let Some(at_a_time) = deployment.at_a_time {
        let (replicas, min_ready_seconds) = (deployment.replicas, deployment.min_ready_seconds);
        let asked = |pod: &Pod| match case.requests.get(&pod.uid) {
            Some(request) if has_turn(request, DEPLOYMENT_CLASS) => Asked::Waits,
            Some(_) if is_given_over(pod) => Asked::Goes,
            _ => Asked::No,
        };
        room = at_a_time::room(
            case.pods.values(),
            asked,
            SomeAtATime { at_a_time, replicas, min_ready_seconds },
            now,
        );
    }
    if state.is_rolling_out || state.is_shrinking {
        (room, room_for_down) = (0, 0);
    }
    let mut completions = Vec::new();
    for (pod, request) in &waiting {
        let is_down = !pod.is_ready();
        let room = if is_down && !is_strict { &mut room_for_down } else { &mut room };
        if *room == 0 {
            continue;
        }
        *room -= 1;
        let message = format!(
            "Deployment {name}: {} goes now, at most {most} of {} may be unavailable",
            pod.key.name, deployment.replicas
        );
        let selector = deployment.selector.as_ref().filter(|_| !is_down);
        let Some((selector, owner)) = selector.zip(pod.owner.as_ref()) else {
            completions.push(complete(request, message));
            continue;
        };
        going += 1;
        // Those that go are still among them.
        let at_least = (deployment.replicas as usize + going).saturating_sub(most);
        let (owner_uid, selector) = (owner.uid.clone(), selector.clone());
        let min_ready_seconds = deployment.min_ready_seconds;
        let pods = Arc::new(AvailablePods { owner_uid, selector, min_ready_seconds });
        let (request, report) = ((*request).clone(), completion(message));
        completions.push(Effect::ReportIfAvailable { request, report, pods, at_least });
    }
    let gone: BTreeSet<&Key> = completions
        .iter()
        .filter_map(|effect| match effect {
            Effect::Report { request, .. } | Effect::ReportIfAvailable { request, .. } => Some(&request.key),
            _ => None,
        })
        .collect();
    let moved = case.moved;
    let still = waiting.iter().filter(|(_, request)| !gone.contains(&request.key));
    let reports: Vec<Effect> = still
        .clone()
        .filter_map(|(pod, request)| {
            let until =
                if state.is_rolling_out { "its rollout is done" } else { "others are available again" };
            let words = format!("{} waits until {until}", pod.key.name);
            report(case, request, (&words, None, moved), now)
        })
        .collect();
    decision.recheck_at = still.map(|(_, request)| next_beat(request)).filter(|at| *at > now).min();
    decision.waiting_on = decision.recheck_at.map(|_| Wait::Others);
    decision.effects.extend(reports);
    // However many there are, the others are not silent meanwhile.
    decision.effects.extend(completions);
    decision
}
