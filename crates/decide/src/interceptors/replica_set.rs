//! ReplicaSets without a Deployment that say how many of their pods are evicted at a time: each of these is given over to the eviction API
//! when its turn has come, so that budgets hold on top.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::REPLICA_SET_CLASS;

use super::at_a_time::{Asked, room};
use super::availability::{asked_at, ready_at, why_unavailable};
use super::waiting_report::{Waiting, waiting_report};
use super::{Decision, Wait, complete, has_turn, is_wanted, next_beat, was_given_over};
use crate::eviction_request::message::is_of_condition;
use crate::snapshot::{Pod, Request, SomeAtATime};

/// Everything that a decision depends on, but the time.
#[derive(Debug)]
pub struct Case<'a> {
    /// Its name.
    pub set: &'a str,
    pub evicts: SomeAtATime,
    pub pods: Vec<&'a Arc<Pod>>,
    /// Requests for its pods, by the UID of the pod.
    pub requests: HashMap<Arc<str>, &'a Arc<Request>>,
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let asked = |pod: &Pod| match case.requests.get(&pod.uid) {
        Some(request) if was_given_over(request, REPLICA_SET_CLASS) && is_wanted(request) => Asked::Goes,
        Some(request) if has_turn(request, REPLICA_SET_CLASS) => Asked::Waits,
        _ => Asked::No,
    };
    let mut waiting: Vec<(&Arc<Pod>, &Arc<Request>)> = case
        .pods
        .iter()
        .filter(|pod| !pod.is_terminating() && asked(pod) == Asked::Waits)
        .filter_map(|pod| Some((*pod, *case.requests.get(&pod.uid)?)))
        .collect();
    let is_up = |pod: &Pod| why_unavailable(pod, case.evicts.min_ready_seconds, now).is_none();
    // Those that are down cost nothing.
    waiting.sort_by_cached_key(|(pod, request)| (is_up(pod), request.created, request.key.clone()));
    let room = room(case.pods.iter().copied(), asked, case.evicts, now);
    let SomeAtATime { at_a_time, replicas, .. } = case.evicts;
    let mut decision = Decision::default();
    for (number, (pod, request)) in waiting.into_iter().enumerate() {
        let start = format!("ReplicaSet {}: {}", case.set, pod.key.name);
        if number < room {
            let message = format!("{start} goes now, at most {at_a_time} of {replicas} at a time");
            decision.effects.push(complete(request, message));
            continue;
        }
        let message = format!(
            "{start} waits until those before it are replaced, at most {at_a_time} of {replicas} at a time"
        );
        let moved = ready_at(case.pods.iter().copied(), asked_at(case.requests.values().copied()));
        let is_urgent = message != request.status.message && !is_of_condition(request);
        let waiting = Waiting { message: || message, finish: None, moved, is_urgent };
        decision.effects.extend(waiting_report(request, waiting, now));
        decision.waiting_on = Some(Wait::Others);
        let beat = Some(next_beat(request)).filter(|beat| *beat > now);
        decision.recheck_at = decision.recheck_at.into_iter().chain(beat).min();
    }
    decision
}
