//! Where a Deployment stands with the pods that are asked to leave, for people.

use jiff::Timestamp;
use usher_api::workloads::Strategy;

use super::max_unavailable::{in_order, max_unavailable};
use super::size::max_surge;
use super::{Case, declines, state};
use crate::interceptors::availability::{Unavailable, why_unavailable};

#[derive(Debug)]
pub struct Description {
    /// So many pods its owner wants.
    pub wanted: u32,
    /// So many more it has for now.
    pub surge: u32,
    /// So many more it may have at most.
    pub max_surge: u32,
    /// It does not surge: so many of its pods go at a time, and others come for them.
    pub max_unavailable: Option<u32>,
    /// Its new pods come beside the replicas, and are handed over.
    pub hands_over: bool,
    /// How often somebody has set the surge back.
    pub reverted: u32,
    /// Pods that wait for a replacement, in the order in which they go.
    pub waiting: Vec<String>,
    /// Pods whose replacement is available, and which the ReplicaSet deletes.
    pub replaced: Vec<String>,
    /// Pods that stay, and are not available.
    pub unavailable: Vec<(String, Unavailable)>,
    /// So many are to come that nobody has made yet.
    pub missing: usize,
    pub is_rolling_out: bool,
    /// Why its pods are left to the eviction API, if they are.
    pub declines: Option<String>,
}

pub fn describe(case: &Case<'_>, now: Timestamp) -> Description {
    let state = state(case, now);
    let update = case.deployment.rolling_update.as_ref();
    let going = state.given_over.iter().chain(&state.in_between);
    let hands_over = case.hands_over();
    let max_surge = update.map_or(0, |update| max_surge(case, update, &state.size));
    let new = case.handed.iter().filter(|_| hands_over);
    let new: Vec<(String, Unavailable)> = new
        .filter_map(|pod| Some((pod, why_unavailable(pod, case.deployment.min_ready_seconds, now)?)))
        .filter(|(pod, _)| !state.unavailable.iter().any(|(known, _)| known.key == pod.key))
        .map(|(pod, why)| (pod.key.name.to_string(), why))
        .collect();
    let most = state.waiting.len().min(max_surge as usize);
    let to_come = if hands_over { most.saturating_sub(case.handed.len()) } else { 0 };
    let mut waiting: Vec<_> = state.waiting.iter().collect();
    if case.strategy == Strategy::MaxUnavailable {
        in_order(&mut waiting);
    }
    Description {
        wanted: state.size.wanted,
        surge: state.size.by,
        max_surge,
        max_unavailable: (case.strategy == Strategy::MaxUnavailable)
            .then(|| max_unavailable(case.deployment, state.size.wanted)),
        hands_over,
        reverted: state.size.reverted,
        waiting: waiting.into_iter().map(|(pod, _)| pod.key.name.to_string()).collect(),
        replaced: going.map(|(pod, _)| pod.key.name.to_string()).collect(),
        declines: declines(case, &state, now),
        missing: state.missing + to_come,
        is_rolling_out: state.is_rolling_out,
        unavailable: state
            .unavailable
            .into_iter()
            .map(|(pod, why)| (pod.key.name.to_string(), why))
            .chain(new)
            .collect(),
    }
}
