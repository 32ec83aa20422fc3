//! Which pods a ReplicaSet deletes before others: their deletion cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};

use super::super::{Effect, is_wanted};
use super::Case;
use super::state::SurgeState;
use crate::snapshot::{Key, Pod, PreferredForDeletion};

/// The place of the pod among those that go first, unless somebody has written another cost since.
pub(super) fn mark_of(pod: &Pod) -> Option<i32> {
    pod.preferred.as_ref().filter(|preferred| preferred.is_mark()).map(|preferred| preferred.cost)
}

/// As the ReplicaSet reads it.
fn cost_of(pod: &Pod) -> i32 {
    pod.deletion_cost.as_ref().and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Which pods the ReplicaSet is to delete before others, in the order in which they go, and which of them not any more.
///
/// No two have the same mark, and none that waits a lower one than one that goes, whatever a late watch, another manager or somebody else
/// has made of them: those are marked anew, behind all others. A mark is only ever raised, so that nobody goes for it who should stay.
pub(super) fn preferences(case: &Case<'_>, state: &SurgeState<'_>, is_on: bool) -> Vec<Effect> {
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

    // Those that go first, then those that go next, if these are not simply the first of the others.
    let go = state.given_over.iter().chain(&state.in_between).map(|(pod, _)| (&pod.key, 0));
    let next = state.waiting.iter().take(if case.hands_over() { state.batch } else { 0 });
    let place: BTreeMap<&Key, usize> = next.map(|(pod, _)| (&pod.key, 1)).chain(go).collect();
    let mut groups: [Vec<&Arc<Pod>>; 3] = Default::default();
    for pod in present().filter(|pod| is_preferred(pod)) {
        groups[place.get(&pod.key).copied().unwrap_or(2)].push(pod);
    }
    let known = present().filter_map(|pod| mark_of(pod)).max();
    let mut free = known.map_or(i32::MIN, |cost| cost.saturating_add(1))..PreferredForDeletion::MARKS;
    let mut last = None;
    let mut set = Vec::new();
    for mut group in groups {
        group.sort_by_cached_key(|pod| {
            let request = case.requests.get(&pod.uid);
            (mark_of(pod).unwrap_or(i32::MAX), request.map(|request| request.created), pod.key.clone())
        });
        let mut new = Vec::new();
        for pod in group {
            match mark_of(pod) {
                mark @ Some(_) if mark > last => last = mark,
                _ => new.push(pod),
            }
        }
        for (pod, cost) in new.into_iter().zip(free.by_ref()) {
            last = Some(cost);
            set.push(Effect::Prefer { pod: pod.clone(), cost: Some(cost) });
        }
    }
    undo.chain(set).collect()
}

/// Those that go have lower costs than all others.
pub(super) fn comes_first(case: &Case<'_>, state: &SurgeState<'_>) -> bool {
    let next = state.waiting.iter().take(state.batch);
    let going = state.given_over.iter().take(state.for_surge).chain(next);
    let going: BTreeMap<&Key, &Arc<Pod>> = going.map(|(pod, _)| (&pod.key, *pod)).collect();
    // Those that are not ready go before all others anyway.
    let ready: Vec<&&Arc<Pod>> = going.values().filter(|pod| pod.is_ready()).collect();
    let Some(highest) = ready.iter().map(|pod| cost_of(pod)).max() else { return true };
    let mut others = case
        .pods
        .values()
        .filter(|pod| !pod.is_terminating() && pod.is_ready() && !going.contains_key(&pod.key));
    ready.iter().all(|pod| mark_of(pod).is_some()) && others.all(|pod| cost_of(pod) > highest)
}
