//! Which pods a ReplicaSet deletes before others: their deletion cost.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};
use usher_api::workloads::Strategy;

use super::super::{Effect, is_wanted};
use super::hand_over::replacement;
use super::state::SurgeState;
use super::{Case, is_completed};
use crate::snapshot::{Key, Pod, PreferredForDeletion};

/// The place of the pod among those that go first, unless somebody has written another cost since.
pub(super) fn mark_of(pod: &Pod) -> Option<i32> {
    pod.preferred().filter(|preferred| preferred.is_mark()).map(|preferred| preferred.cost)
}

/// The cost that its owner gave it: what is there may be a mark of ours, or what the owner has written since.
fn own_cost(pod: &Pod) -> Option<&str> {
    match pod.preferred().filter(|preferred| preferred.is_mark()) {
        Some(marked) => marked.before.as_deref(),
        None => pod.deletion_cost(),
    }
}

/// It goes before others, in the order of these marks. What its owner wants is kept beside, also that it wants nothing.
pub(in super::super) fn prefer(pod: &Arc<Pod>, mark: i32) -> Effect {
    let before = own_cost(pod).unwrap_or_default().to_owned();
    Effect::Prefer { pod: pod.clone(), cost: Some(mark.to_string()), before: Some(before) }
}

/// It goes as its owner wants it.
pub(in super::super) fn prefer_no_more(pod: &Arc<Pod>) -> Effect {
    Effect::Prefer { pod: pod.clone(), cost: own_cost(pod).map(str::to_owned), before: None }
}

/// As the ReplicaSet reads it.
fn cost_of(pod: &Pod) -> i32 {
    pod.deletion_cost().and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Its owner gave it a cost that no mark goes below, such as by the template: it would go for one that is asked to leave.
pub(super) fn is_below_marks(pod: &Pod) -> bool {
    mark_of(pod).is_none() && cost_of(pod) < PreferredForDeletion::MARKS
}

/// It is asked to leave, and one of these interceptors has the turn, or had it and is waited for.
fn is_ours(case: &Case<'_>, pod: &Pod, is_under_way: bool) -> bool {
    case.requests.get(&pod.uid).is_some_and(|request| {
        let is_ours = match request.status.active_interceptor_class.as_deref() {
            Some(DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS) => true,
            Some(REPLICA_SET_CLASS) => is_under_way || !is_completed(request),
            _ => false,
        };
        is_ours && is_wanted(request)
    })
}

/// Which pods the ReplicaSet is to delete before others, in the order in which they go, and which of them not any more.
///
/// No two have the same mark, and none that waits a lower one than one that goes, whatever a late watch, another manager or somebody else
/// has made of them: those are marked anew, behind all others. A mark is only ever raised, so that nobody goes for it who should stay.
pub(super) fn preferences(
    case: &Case<'_>,
    state: &SurgeState<'_>,
    called_off: &[&Arc<Pod>],
    is_on: bool,
) -> Vec<Effect> {
    // While a surge is taken back, those that leave go for it, whoever's turn it is by now.
    let is_under_way = state.size.by > 0 || state.is_shrinking;
    let is_preferred = |pod: &Arc<Pod>| (is_on || is_under_way) && is_ours(case, pod, is_under_way);
    let is_called_off = |pod: &Arc<Pod>| called_off.iter().any(|other| other.uid == pod.uid);
    let present = || case.pods.values().filter(|pod| !pod.is_terminating());
    let undo = present()
        .filter(|pod| pod.preferred().is_some() && !is_preferred(pod) && !is_called_off(pod))
        .map(prefer_no_more);

    // Those that go, those that go next, those that wait, and those that are nobody's of these any more or came for nothing.
    // Where pods are handed over, one that has no new pod waits for it, but not while its ReplicaSet is about to delete it for that one.
    let is_gone_for = |at: usize| !case.hands_over() || at < state.for_surge || state.is_shrinking;
    // Where nothing comes for them, the eviction API takes them in an order of its own.
    let first = if case.strategy == Strategy::MaxUnavailable { 2 } else { 0 };
    let given_over = state.given_over.iter().enumerate();
    let go = given_over.map(|(at, (pod, _))| (&pod.key, if is_gone_for(at) { first } else { 2 }));
    let go = go.chain(state.in_between.iter().map(|(pod, _)| (&pod.key, first)));
    let is_next = |at: usize| case.hands_over() && at < state.batch;
    let wait =
        state.waiting.iter().enumerate().map(|(at, (pod, _))| (&pod.key, if is_next(at) { 1 } else { 2 }));
    let place: BTreeMap<&Key, usize> = go.chain(wait).collect();
    // Where pods are handed over, the others need no mark before there is one for them.
    let is_early = |pod: &Arc<Pod>| {
        let request = case.requests.get(&pod.uid);
        case.hands_over()
            && mark_of(pod).is_none()
            && request.is_none_or(|request| replacement(case, request).is_none())
    };
    let mut groups: [Vec<&Arc<Pod>>; 4] = Default::default();
    for pod in present().filter(|pod| (is_on && is_preferred(pod)) || is_called_off(pod)) {
        let group = place.get(&pod.key).copied().unwrap_or(3);
        if group == 0 || !is_early(pod) {
            groups[group].push(pod);
        }
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
            set.push(prefer(pod, cost));
        }
    }
    undo.chain(set).collect()
}

/// Pods that came for others which are not asked to leave any more: the newest that nobody asks for, as many as there are too many. Without
/// a mark one that is older could go for them, such as one of several on a node, which a ReplicaSet gives up first.
pub(super) fn called_off<'a>(case: &Case<'a>, state: &SurgeState<'_>) -> Vec<&'a Arc<Pod>> {
    if case.hands_over() || state.is_rolling_out {
        return Vec::new();
    }
    let present = || case.pods.values().filter(|pod| !pod.is_terminating() && !pod.phase.is_terminal());
    let leaving = present().filter(|pod| is_ours(case, pod, true)).count();
    let too_many = present().count().saturating_sub(state.size.wanted as usize);
    let too_many = too_many.min((state.size.by as usize).saturating_sub(leaving));
    let is_asked = |pod: &&Arc<Pod>| case.requests.get(&pod.uid).is_some_and(|request| is_wanted(request));
    let mut others: Vec<&Arc<Pod>> = present().filter(|pod| !is_asked(pod)).collect();
    others.sort_by_cached_key(|pod| (pod.is_ready(), Reverse((pod.created, pod.key.clone()))));
    others.truncate(too_many);
    others
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::samples;
    use super::*;

    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    const BEFORE: &str = usher_api::names::DELETION_COST_BEFORE_ANNOTATION;

    fn pod(annotations: Value) -> Arc<Pod> {
        samples::pod("a", "ReplicaSet", "web", "n1", json!({"metadata": {"annotations": annotations}}))
    }

    /// The cost, and the one before it.
    fn written(effect: Effect) -> (Option<String>, Option<String>) {
        match effect {
            Effect::Prefer { cost, before, .. } => (cost, before),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_its_owner_wants_is_kept_beside_a_mark_and_given_back() {
        let mark = i32::MIN.to_string();
        for (annotations, owner) in [
            (json!({}), None),
            (json!({COST: "7"}), Some("7")),
            (json!({COST: mark, BEFORE: ""}), None),
            (json!({COST: mark, BEFORE: "7"}), Some("7")),
            // Its owner has written another one since it was marked.
            (json!({COST: "9", BEFORE: "7"}), Some("9")),
        ] {
            let (pod, owner) = (pod(annotations), owner.map(str::to_owned));
            let kept = owner.clone().unwrap_or_default();
            assert_eq!(written(prefer(&pod, -5)), (Some("-5".to_owned()), Some(kept)), "{pod:?}");
            assert_eq!(written(prefer_no_more(&pod)), (owner, None), "{pod:?}");
        }
    }
}
