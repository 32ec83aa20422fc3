//! Which pods a ReplicaSet deletes before others: their deletion cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};

use super::super::{Effect, is_wanted};
use super::Case;
use super::state::SurgeState;
use crate::snapshot::{Key, Pod};

/// Marks are below this.
const MARKS: i32 = i32::MIN + (1 << 24);

/// The place of the pod among those that go first, unless somebody has written another cost since.
pub(super) fn mark_of(pod: &Pod) -> Option<i32> {
    pod.preferred.as_ref().map(|preferred| preferred.cost).filter(|cost| *cost < MARKS)
}

/// As the ReplicaSet reads it.
fn cost_of(pod: &Pod) -> i32 {
    pod.deletion_cost.as_ref().and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Which pods the ReplicaSet is to delete before others, in the order in which they go, and which of them not any more.
pub(super) fn preferences(case: &Case<'_>, is_on: bool) -> Vec<Effect> {
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
pub(super) fn comes_first(case: &Case<'_>, state: &SurgeState<'_>) -> bool {
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
