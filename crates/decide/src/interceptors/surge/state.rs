//! Where the pods of a Deployment stand: who waits, who goes, and who is missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};

use super::super::availability::{Unavailable, why_unavailable};
use super::super::{has_turn, is_wanted};
use super::hand_over::{is_labelled, is_replaced, replacement};
use super::preference::mark_of;
use super::size::{Size, size};
use super::{Case, is_completed, patience_ends, place_of_active};
use crate::snapshot::{Key, Pod, Request};

/// Where the pods of the Deployment stand.
#[derive(Debug)]
pub struct SurgeState<'a> {
    pub size: Size,
    /// Pods that wait for a replacement, in the order in which they go.
    pub waiting: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// Pods whose replacement was available, and which the ReplicaSet is to delete, in the order in which they go.
    pub given_over: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// The same, but the next interceptor, of these or another one, has not got its turn yet.
    pub in_between: Vec<(&'a Arc<Pod>, &'a Arc<Request>)>,
    /// So many of those that were given over go for the surge that there is. For the others it was lost.
    pub for_surge: usize,
    /// So many of those that wait go next.
    pub batch: usize,
    /// So many of all pods are available.
    pub available: usize,
    /// Those that stay when these are gone, and are not available.
    pub unavailable: Vec<(&'a Arc<Pod>, Unavailable)>,
    /// So many are to stay and are not there.
    pub missing: usize,
    /// There are more than should stay.
    pub surplus: usize,
    pub is_rolling_out: bool,
    /// A ReplicaSet has more pods than it should, and is about to delete some: those that are marked.
    pub is_shrinking: bool,
}

impl<'a> SurgeState<'a> {
    /// All pods that are ours to replace.
    pub(super) fn asked(&self) -> impl Iterator<Item = &(&'a Arc<Pod>, &'a Arc<Request>)> {
        self.waiting.iter().chain(&self.given_over).chain(&self.in_between)
    }

    /// So many are available beside those that its owner wants.
    pub(super) fn spare(&self) -> u32 {
        u32::try_from(self.available).unwrap_or(u32::MAX).saturating_sub(self.size.wanted)
    }

    /// All that are to stay are available.
    pub(super) fn is_replaced(&self) -> bool {
        self.unavailable.is_empty() && self.missing == 0 && self.surplus == 0
    }
}

pub fn state<'a>(case: &Case<'a>, now: Timestamp) -> SurgeState<'a> {
    let (mut waiting, mut given_over, mut in_between) = (Vec::new(), Vec::new(), Vec::new());
    for pod in case.pods.values().filter(|pod| !pod.is_terminating()) {
        let Some(request) = case.requests.get(&pod.uid) else { continue };
        if has_turn(request, DEPLOYMENT_CLASS) || has_turn(request, HORIZONTAL_POD_AUTOSCALER_CLASS) {
            waiting.push((pod, request));
        } else if has_turn(request, REPLICA_SET_CLASS) {
            given_over.push((pod, request));
        } else if let Some(has_next) = has_next(request) {
            // If it is nobody's of these any more, it is the eviction API's; but with a replacement the pod need not wait for that.
            let list = if has_next { &mut in_between } else { &mut given_over };
            list.push((pod, request));
        }
    }
    let is_handed = case.hands_over();
    // Each goes as soon as its own replacement is available.
    let is_next = |request: &Request| is_handed && is_replaced(case, request, now);
    // A ReplicaSet gives up pods first that are not ready.
    let in_order = |(pod, request): &(&Arc<Pod>, &Arc<Request>)| {
        let mark = mark_of(pod).unwrap_or(i32::MAX);
        (!is_next(request), pod.is_ready(), mark, request.created, pod.key.clone())
    };
    waiting.sort_by_cached_key(in_order);
    given_over.sort_by_cached_key(in_order);
    let size = size(case);
    // One that is the eviction API's already is waited for as long as it can be helped.
    let can_be_helped = |request: &Request| {
        (size.by > 0 || replacement(case, request).is_some())
            && patience_ends(case, request).is_some_and(|ends| now < ends)
    };
    given_over.retain(|(_, request)| !is_completed(request) || can_be_helped(request));
    let for_surge = if is_handed {
        given_over.iter().take_while(|(_, request)| is_next(request)).count()
    } else {
        given_over.len().min(size.by as usize)
    };
    let batch = if is_handed {
        waiting.iter().take_while(|(_, request)| is_next(request)).count()
    } else if given_over.is_empty() && in_between.is_empty() {
        waiting.len().min(size.by as usize)
    } else {
        // One batch after the other.
        0
    };
    let going = given_over.iter().take(for_surge).chain(&in_between).chain(waiting.iter().take(batch));
    let new: Vec<&Arc<Pod>> = if is_handed {
        going.clone().filter_map(|(_, request)| replacement(case, request)).collect()
    } else {
        Vec::new()
    };
    let going: BTreeSet<&Key> = going.map(|(pod, _)| &pod.key).collect();
    let stay = case
        .pods
        .values()
        .filter(|pod| !pod.is_terminating() && !pod.phase.is_terminal() && !going.contains(&pod.key))
        .chain(new);
    let mut unavailable = Vec::new();
    let mut there = 0;
    let asked: BTreeSet<&Key> = waiting.iter().chain(&given_over).map(|(pod, _)| &pod.key).collect();
    for pod in stay {
        there += 1;
        // One that waits itself and is down goes before others: nobody waits for it.
        if !pod.is_ready() && asked.contains(&pod.key) {
            continue;
        }
        unavailable
            .extend(why_unavailable(pod, case.deployment.min_ready_seconds, now).map(|why| (pod, why)));
    }
    let is_available =
        |pod: &&Arc<Pod>| why_unavailable(pod, case.deployment.min_ready_seconds, now).is_none();
    let total = size.wanted.saturating_add(size.by) as usize;
    // What is handed over comes beside the replicas.
    let should = if is_handed { size.wanted as usize } else { total.saturating_sub(going.len()) };
    SurgeState {
        missing: should.saturating_sub(there),
        surplus: there.saturating_sub(should),
        is_rolling_out: !case.deployment.is_observed || case.deployment.has_old_pods,
        is_shrinking: is_shrinking(case),
        available: case.pods.values().filter(is_available).count(),
        size,
        waiting,
        given_over,
        in_between,
        for_surge,
        batch,
        unavailable,
    }
}

/// In a rollout there are more than wanted anyway, and what is being deleted is not scaled any more.
fn is_shrinking(case: &Case<'_>) -> bool {
    let is_there = |pod: &&Arc<Pod>| !pod.is_terminating() && !pod.phase.is_terminal();
    let adopted = case.handed.iter().filter(|pod| is_labelled(pod));
    let there = case.pods.values().chain(adopted).filter(is_there).count();
    let deployment = case.deployment;
    !deployment.has_old_pods && !deployment.is_deleting && there > deployment.replicas as usize
}

/// One of these interceptors has completed: whether there is a next one.
fn has_next(request: &Request) -> Option<bool> {
    let active = request.status.active_interceptor_class.as_deref();
    let is_ours = matches!(active, Some(DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS));
    let is_over = request.status.active_interceptor_completed && request.skips_interceptors().is_none();
    if !(is_ours && is_over && is_wanted(request)) {
        return None;
    }
    // If it is somebody else's, nothing goes before that one has had its turn.
    Some(place_of_active(request).is_some_and(|at| request.interceptors.len() > at + 1))
}
