//! StatefulSets that opt in: their pods leave from the highest ordinal to the lowest, at most `maxUnavailable` not available at a time,
//! across all nodes and maintenances.
//!
//! A pod whose turn has come is given over to the eviction API by completing: so budgets hold on top, and what they say is told as for
//! every other pod. While a batch moves, those that wait report progress. When nothing moves, for example because a new pod does not
//! become ready, none is claimed, and the deadline passes the turn on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::names::{EVICTION_REQUEST_STRATEGY_ANNOTATION, STATEFUL_SET_CLASS};
use usher_api::workloads::{BundledInterceptor, Strategy, UnknownStrategy};

use super::at_a_time::{Asked, room};
use super::availability::{Unavailable, asked_at, batch, moved_at, only_time_is_left, why_unavailable};
use super::waiting_report::{Waiting, waiting_report};
use super::{
    AvailablePods, Decision, Effect, EffectOutcome, Event, Item, Pending, Wait, Watch, WorkloadInterceptor,
};
use super::{
    Namespaces, complete, completion, has_turn, next_beat, owner_of, unknown_strategy_event, unread_report,
    was_given_over,
};
use crate::later;
use crate::snapshot::{Key, Pod, Request, RollingUpdate, SomeAtATime, StatefulSet};

/// The label by which the StatefulSet controller tells revisions apart.
const REVISION_LABEL: &str = "controller-revision-hash";
/// The requests of one drain come one after the other: so long the first of them waits for those of higher ordinals. Times of creation
/// have whole seconds, so that it is two at least.
const SETTLE: SignedDuration = SignedDuration::from_secs(3);
/// The label by which the StatefulSet controller names its pods; they keep it when they are orphaned.
const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// A set that is deleted without its pods (`--cascade=orphan`) and made anew takes them over within this.
const ADOPTION: SignedDuration = SignedDuration::from_mins(1);
/// So many pods are named in a message.
const NAMED: usize = 3;

/// Everything that a decision on the requests of one set depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub set: &'a StatefulSet,
    pub strategy: Strategy,
    /// Its pods, by ordinal.
    pub pods: &'a BTreeMap<u32, Arc<Pod>>,
    /// Requests for its pods, by the UID of the pod, whosever turn it is.
    pub requests: &'a HashMap<Arc<str>, Arc<Request>>,
}

/// Where a set stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetState {
    /// Its pods that are not available.
    pub unavailable: BTreeMap<u32, Unavailable>,
    /// Available pods that were given over to the eviction API.
    pub going: BTreeSet<u32>,
    /// Requests that wait for it, from the highest ordinal down.
    pub waiting: Vec<u32>,
    /// So many more may go now.
    pub room: usize,
    /// So many more that are not available may go: each costs nothing now, and one when it becomes available before it has left.
    pub room_for_down: usize,
    /// It is being updated, and has its own pods to take down.
    pub is_rolling_out: bool,
    /// How long one batch took to be replaced, as far as that can be told from its pods.
    pub batch: SignedDuration,
}

/// Where the set stands.
pub fn state(case: &Case<'_>, update: &RollingUpdate, now: Timestamp) -> SetState {
    let set = case.set;
    let last = set.first_ordinal.saturating_add(set.replicas);
    let (mut unavailable, mut going, mut waiting) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let (mut there, mut given_over) = (0, 0);
    // What there is counts, and not how many there should be: that is a number that anybody can write.
    for (ordinal, pod) in case.pods.range(set.first_ordinal..last).rev() {
        there += 1;
        let why = why_unavailable(pod, set.min_ready_seconds, now);
        match case.requests.get(&pod.uid) {
            Some(request) if has_turn(request, STATEFUL_SET_CLASS) && !pod.is_terminating() => {
                waiting.push(*ordinal)
            }
            Some(request) if was_given_over(request, STATEFUL_SET_CLASS) && !pod.is_terminating() => {
                given_over += 1;
                if why.is_none() {
                    going.insert(*ordinal);
                }
            }
            _ => {}
        }
        unavailable.extend(why.map(|why| (*ordinal, why)));
    }
    let missing = (set.replicas as usize).saturating_sub(there);
    let down = unavailable.len() + missing + going.len();
    let gaps = (set.first_ordinal..last).rev().take(there + NAMED).filter(|it| !case.pods.contains_key(it));
    unavailable.extend(gaps.take(NAMED).map(|ordinal| (ordinal, Unavailable::Missing)));
    let first_new = set.first_ordinal.saturating_add(update.partition);
    let is_old = |(ordinal, pod): (&u32, &Arc<Pod>)| {
        *ordinal >= first_new && pod.labels.get(REVISION_LABEL) != Some(&set.update_revision)
    };
    let shared = set.at_a_time.map(|at_a_time| {
        let by = SomeAtATime { at_a_time, replicas: set.replicas, min_ready_seconds: set.min_ready_seconds };
        room(case.pods.range(set.first_ordinal..last).map(|(_, pod)| pod), |pod| asked(case, pod), by, now)
    });
    if shared.is_some() {
        // Those that are down cost nothing.
        waiting.sort_by_key(|ordinal| !unavailable.contains_key(ordinal));
    }
    SetState {
        room: shared.unwrap_or((update.max_unavailable as usize).saturating_sub(down)),
        room_for_down: shared.unwrap_or((update.max_unavailable as usize).saturating_sub(given_over)),
        is_rolling_out: !set.is_observed || (!set.update_revision.is_empty() && case.pods.iter().any(is_old)),
        batch: batch(case.pods.values()),
        unavailable,
        going,
        waiting,
    }
}

fn asked(case: &Case<'_>, pod: &Pod) -> Asked {
    match case.requests.get(&pod.uid) {
        Some(request) if has_turn(request, STATEFUL_SET_CLASS) => Asked::Waits,
        Some(request) if was_given_over(request, STATEFUL_SET_CLASS) => Asked::Goes,
        _ => Asked::No,
    }
}

/// Which pods of a set are not available, by ordinal, and why: what those that wait are waiting for.
pub fn unavailable(
    set: &StatefulSet,
    pods: impl IntoIterator<Item = Arc<Pod>>,
    now: Timestamp,
) -> BTreeMap<u32, Unavailable> {
    let is_its = |pod: &Arc<Pod>| pod.owner.as_ref().is_some_and(|owner| owner.uid == set.uid);
    let its = pods.into_iter().filter(is_its);
    let pods = its.filter_map(|pod| Some((ordinal_of(&pod, &set.key.name)?, pod))).collect();
    let Some(update) = &set.rolling_update else { return BTreeMap::new() };
    let case = Case { set, strategy: Strategy::MaxUnavailable, pods: &pods, requests: &HashMap::new() };
    state(&case, update, now).unavailable
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let set = case.set;
    let name = &set.key.name;
    let annotation = EVICTION_REQUEST_STRATEGY_ANNOTATION;
    let declines = match (&set.rolling_update, case.strategy) {
        // Whoever deletes it so makes it anew, which then takes its pods over.
        _ if set.orphans_pods => return waits_for_set(None),
        _ if set.is_deleting => Some(format!("StatefulSet {name} is being deleted")),
        (_, Strategy::Default | Strategy::Surge | Strategy::HandOver) => Some(format!(
            "StatefulSet {name} is left to the eviction API: it opts in by the annotation {annotation}=MaxUnavailable"
        )),
        (_, Strategy::Off) => Some(format!("StatefulSet {name} opted out: it is left to the eviction API")),
        (None, _) => Some(format!(
            "StatefulSet {name} has the update strategy OnDelete, which eviction requests do not support: it is left to the eviction API"
        )),
        (Some(_), Strategy::MaxUnavailable) => None,
    };
    let ours = |request: &&Arc<Request>| has_turn(request, STATEFUL_SET_CLASS);
    let (Some(update), None) = (&set.rolling_update, &declines) else {
        let message = declines.unwrap_or_default();
        let mut requests: Vec<_> = case.requests.values().filter(ours).collect();
        requests.sort_by(|a, b| a.key.cmp(&b.key));
        let effects = requests.into_iter().map(|request| complete(request, message.clone())).collect();
        return Decision { effects, ..Decision::default() };
    };
    if !case.requests.values().any(|request| has_turn(request, STATEFUL_SET_CLASS)) {
        return Decision::default();
    }
    let mut state = state(case, update, now);
    let mut decision = Decision::default();
    let last = set.first_ordinal.saturating_add(set.replicas);
    let beyond = case.pods.iter().filter(|(ordinal, _)| **ordinal < set.first_ordinal || **ordinal >= last);
    for request in beyond.filter_map(|(_, pod)| case.requests.get(&pod.uid)).filter(ours) {
        let message =
            format!("StatefulSet {name} has no place for the pod any more: it is left to the eviction API");
        decision.effects.push(complete(request, message));
    }
    let asked = state.waiting.iter().filter_map(|ordinal| case.requests.get(&case.pods.get(ordinal)?.uid));
    let settled = asked.map(|request| later(request.created, SETTLE)).min().filter(|at| now < *at);
    if settled.is_some() {
        // Nothing is said before it is known who goes first.
        return Decision { waiting_on: Some(Wait::Others), recheck_at: settled, ..decision };
    }
    let mut room = if state.is_rolling_out { 0 } else { state.room };
    let mut room_for_down = state.room_for_down;
    let mut waiting = 0;
    let moved = moved_at(case.pods.values(), asked_at(case.requests.values()));
    let min_ready = SignedDuration::from_secs(set.min_ready_seconds.into());
    let is_settling = now <= later(moved, min_ready) && only_time_is_left(state.unavailable.values());
    let moved = if is_settling { now } else { moved };
    let available = set.selector.as_ref().map(|selector| {
        let (owner_uid, selector) = (set.uid.clone(), selector.clone());
        Arc::new(AvailablePods { owner_uid, selector, min_ready_seconds: set.min_ready_seconds })
    });
    for ordinal in state.waiting.clone() {
        let Some(pod) = case.pods.get(&ordinal) else { continue };
        let Some(request) = case.requests.get(&pod.uid) else { continue };
        // One that is not available already costs nothing.
        let is_down = state.unavailable.contains_key(&ordinal);
        let may_go = if is_down { room_for_down > 0 && !state.is_rolling_out } else { room > 0 };
        if may_go {
            if is_down || set.at_a_time.is_some() {
                room_for_down -= 1;
            }
            if !is_down || set.at_a_time.is_some() {
                room -= 1;
            }
            let message = format!(
                "StatefulSet {name}: {} goes now, at most {} of {} may be unavailable",
                pod.key.name, update.max_unavailable, set.replicas
            );
            if is_down {
                decision.effects.push(complete(request, message));
                continue;
            }
            state.going.insert(ordinal);
            // Those that go are still among them.
            let at_least =
                (set.replicas as usize + state.going.len()).saturating_sub(update.max_unavailable as usize);
            decision.effects.extend(available.clone().map(|pods| Effect::ReportIfAvailable {
                request: request.clone(),
                report: completion(message),
                pods,
                at_least,
            }));
            continue;
        }
        let before = state.unavailable.len() + state.going.len() + waiting;
        waiting += 1;
        let batches = before / update.max_unavailable as usize + 1;
        let finish = later(now, state.batch.saturating_mul(i32::try_from(batches).unwrap_or(i32::MAX)));
        decision.effects.extend(report(case, &state, pod, request, (moved, finish), now));
        let beat = Some(next_beat(request)).filter(|beat| *beat > now);
        decision.recheck_at = decision.recheck_at.into_iter().chain(beat).min();
        let why = state.unavailable.values().next();
        let wait = why.map_or(Wait::Others, |why| Wait::Unavailable { reason: why.reason() });
        decision.waiting_on = Some(wait);
    }
    let until = state.unavailable.values().filter_map(|why| match why {
        Unavailable::NotReadyLongEnough { until } => Some(*until),
        _ => None,
    });
    if decision.waiting_on.is_some() {
        decision.recheck_at = decision.recheck_at.into_iter().chain(until).min();
    }
    decision
}

fn waits_for_set(recheck_at: Option<Timestamp>) -> Decision {
    Decision { waiting_on: Some(Wait::Others), recheck_at, ..Decision::default() }
}

/// What is said on a request that waits: at the beginning of its turn, and then with every sign of life.
fn report(
    case: &Case<'_>,
    state: &SetState,
    pod: &Pod,
    request: &Arc<Request>,
    (moved, finish): (Timestamp, Timestamp),
    now: Timestamp,
) -> Option<Effect> {
    let message = || {
        let waits_for = waits_for(case, state);
        format!("StatefulSet {}: {} waits until {waits_for}", case.set.key.name, pod.key.name)
    };
    waiting_report(request, Waiting { message, finish: Some(finish), moved, is_urgent: false }, now)
}

fn waits_for(case: &Case<'_>, state: &SetState) -> String {
    if state.is_rolling_out {
        return "its rolling update is done".to_owned();
    }
    let name = |ordinal: &u32| format!("{}-{ordinal}", case.set.key.name);
    let mut parts: Vec<String> = state
        .unavailable
        .iter()
        .rev()
        .map(|(ordinal, why)| format!("{} is available, which {}", name(ordinal), why.words()))
        .collect();
    parts.extend(
        state.going.iter().rev().map(|ordinal| format!("{} has left and is available again", name(ordinal))),
    );
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    let list = parts.join(", and ");
    if more > 0 { format!("{list}, and {more} more are") } else { list }
}

/// What the interceptor of StatefulSets knows.
#[derive(Debug, Default)]
pub struct StatefulSets {
    pods: HashMap<Key, Arc<Pod>>,
    /// By the set that they name, in their own namespace.
    of_set: HashMap<Key, BTreeSet<Key>>,
    /// Requests that have this interceptor.
    requests: HashMap<Key, Arc<Request>>,
    sets: HashMap<Key, StatefulSet>,
    namespaces: Namespaces,
    pending: BTreeSet<Item>,
    told: HashMap<Key, String>,
    /// Requests that were completed here, for as long as the watch has not told so: another pod must not be given over meanwhile.
    completed: HashSet<Key>,
    /// Requests in this one's turn whose pods have lost their set, and when that was seen.
    orphaned: HashMap<Key, Timestamp>,
    /// Kinds that the manager must not read.
    unread: BTreeSet<Watch>,
}

impl WorkloadInterceptor for StatefulSets {
    fn watches(&self) -> &'static [Watch] {
        &[Watch::Pods, Watch::Requests, Watch::Namespaces, Watch::StatefulSets]
    }

    fn observe(&mut self, event: Event, _: Timestamp) {
        if event.is_listed() && self.unread.remove(&event.watch()) {
            self.pending.extend(self.requests.keys().cloned().map(Item::Request));
            self.pending.extend(self.sets.keys().cloned().map(Item::Workload));
        }
        match event {
            Event::NotAllowed(watch) => {
                self.unread.insert(watch);
                self.pending.extend(self.requests.keys().cloned().map(Item::Request));
            }
            Event::Pod(event) => {
                for (key, before) in event.store(&mut self.pods, |pod| pod.key.clone()) {
                    self.pod_changed(&key, before.as_deref());
                }
            }
            Event::Request(event) => {
                for (key, before) in event.store(&mut self.requests, |request| request.key.clone()) {
                    let has_us = |it: &Arc<Request>| {
                        it.interceptors.iter().any(|it| it.interceptor_class == STATEFUL_SET_CLASS)
                    };
                    if !self.requests.get(&key).is_some_and(has_us) {
                        self.requests.remove(&key);
                        self.orphaned.remove(&key);
                    }
                    if !self.requests.get(&key).is_some_and(|it| has_turn(it, STATEFUL_SET_CLASS)) {
                        self.completed.remove(&key);
                    }
                    let pod = self.requests.get(&key).or(before.as_ref()).map(|request| request.pod_key());
                    if !self.unread.is_empty() {
                        self.pending.insert(Item::Request(key));
                    } else if let Some(workload) =
                        pod.and_then(|pod| self.pods.get(&pod)).and_then(|pod| workload_of(pod))
                    {
                        self.pending.insert(Item::Workload(workload));
                    } else if self.requests.contains_key(&key) {
                        self.pending.insert(Item::Request(key));
                    }
                }
            }
            Event::StatefulSet(event) => {
                for (key, before) in event.store(&mut self.sets, |set| set.key.clone()) {
                    if before.as_ref() != self.sets.get(&key) {
                        self.enqueue(key);
                    }
                }
            }
            Event::Namespace(event) => {
                for name in self.namespaces.changed(event) {
                    let of = self.sets.keys().filter(|key| key.namespace == name).cloned();
                    self.pending.extend(of.map(Item::Workload));
                }
            }
            Event::DaemonSet(_)
            | Event::Maintenance(_)
            | Event::Deployment(_)
            | Event::ReplicaSet(_)
            | Event::Autoscaler(_) => {}
        }
    }

    fn pending(&mut self) -> Pending {
        std::mem::take(&mut self.pending).into()
    }

    fn decide(&mut self, item: &Item, now: Timestamp) -> Decision {
        match item {
            Item::Request(key) if !self.unread.is_empty() => {
                let request = self.requests.get(key).filter(|it| has_turn(it, STATEFUL_SET_CLASS));
                unread_report(request, &self.unread, BundledInterceptor::StatefulSet)
            }
            // What is known of it may be long past.
            _ if !self.unread.is_empty() => Decision::default(),
            Item::Workload(key) => self.decide_workload(key, now),
            Item::Request(key) => self.decide_request(key, now),
            Item::HeldNodes | Item::ReplicaSet(_) | Item::GatedPod(_) => Decision::default(),
        }
    }

    fn carried_out(&mut self, effect: &Effect, outcome: &EffectOutcome, _: Timestamp) {
        if let Effect::Report { request, report } | Effect::ReportIfAvailable { request, report, .. } = effect
            && report.completed
            && *outcome == EffectOutcome::Done
        {
            self.completed.insert(request.key.clone());
        }
    }
}

impl StatefulSets {
    fn pod_changed(&mut self, key: &Key, before: Option<&Pod>) {
        let workload = before.and_then(workload_of);
        if let Some(workload) = &workload
            && let Some(of_set) = self.of_set.get_mut(workload)
        {
            of_set.remove(key);
            if of_set.is_empty() {
                self.of_set.remove(workload);
            }
        }
        self.pending.extend(workload.map(Item::Workload));
        let Some(pod) = self.pods.get(key) else { return };
        let Some(workload) = workload_of(pod) else {
            // Somebody may have annotated it with this class all the same.
            let request = pod.request_key();
            if self.requests.contains_key(&request) {
                self.pending.insert(Item::Request(request));
            } else if !pod.names_interceptors {
                self.pods.remove(key);
            }
            return;
        };
        self.of_set.entry(workload.clone()).or_default().insert(key.clone());
        self.pending.insert(Item::Workload(workload));
    }

    /// Something else may decide on its pods from now on: those that have no set any more are looked at one by one.
    fn enqueue(&mut self, key: Key) {
        let of = |request: &&Arc<Request>| request.key.namespace == key.namespace;
        self.pending
            .extend(self.requests.values().filter(of).map(|request| Item::Request(request.key.clone())));
        self.pending.insert(Item::Workload(key));
    }

    fn strategy(&self, set: &StatefulSet) -> Result<Strategy, UnknownStrategy> {
        self.namespaces.strategy(BundledInterceptor::StatefulSet, &set.key, set.strategy.as_deref())
    }

    fn decide_workload(&mut self, key: &Key, now: Timestamp) -> Decision {
        let Some(set) = self.sets.get(key) else {
            self.told.remove(key);
            return Decision::default();
        };
        let (mut pods, mut requests) = (BTreeMap::new(), HashMap::new());
        let pods_of = self.of_set.get(key).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let is_its = |pod: &&Arc<Pod>| pod.owner.as_ref().is_some_and(|owner| owner.uid == set.uid);
        for pod in pods_of.filter(is_its) {
            if let Some(ordinal) = ordinal_of(pod, &set.key.name) {
                pods.insert(ordinal, pod.clone());
            }
            if let Some(request) = self.requests.get(&pod.request_key()) {
                let mut request = request.clone();
                if self.completed.contains(&request.key) {
                    Arc::make_mut(&mut request).status.active_interceptor_completed = true;
                }
                requests.insert(pod.uid.clone(), request);
            }
        }
        let strategy = self.strategy(set);
        let case = Case {
            set,
            strategy: strategy.as_ref().map_or_else(|unknown| unknown.instead, |strategy| *strategy),
            pods: &pods,
            requests: &requests,
        };
        let decision = decide(&case, now);
        match strategy {
            Ok(_) => {
                self.told.remove(key);
                decision
            }
            Err(unknown) => {
                let told = unknown_strategy_event(
                    &mut self.told,
                    key,
                    owner_of(BundledInterceptor::StatefulSet, &set.key, &set.uid),
                    &unknown,
                );
                Decision { effects: decision.effects.into_iter().chain(told.effects).collect(), ..decision }
            }
        }
    }

    /// A request for a pod that no StatefulSet has, though it names this interceptor: there is nothing to do for it, unless a set may
    /// take the pod over in a moment.
    fn decide_request(&mut self, key: &Key, now: Timestamp) -> Decision {
        let Some(request) = self.requests.get(key).filter(|it| has_turn(it, STATEFUL_SET_CLASS)) else {
            return Decision::default();
        };
        let Some(pod) = self.pods.get(&request.pod_key()).filter(|pod| pod.uid == request.pod_uid) else {
            return Decision::default();
        };
        let set = workload_of(pod).and_then(|key| self.sets.get(&key));
        let is_its = |set: &StatefulSet| {
            pod.owner.as_ref().is_some_and(|owner| owner.uid == set.uid)
                && ordinal_of(pod, &set.key.name).is_some()
        };
        if set.is_some_and(is_its) {
            self.orphaned.remove(key);
            return Decision::default();
        }
        let could_be_adopted = pod.labels.get(POD_NAME_LABEL).is_some_and(|name| *name == *pod.key.name)
            && (pod.owner.is_none() || workload_of(pod).is_some());
        if could_be_adopted {
            let until = later(*self.orphaned.entry(key.clone()).or_insert(now), ADOPTION);
            if now < until {
                return waits_for_set(Some(until));
            }
        }
        Decision::default().act(complete(request, "no StatefulSet controls the pod".to_owned()))
    }
}

/// The StatefulSet that the pod names.
fn workload_of(pod: &Pod) -> Option<Key> {
    let owner = pod.owner.as_ref()?;
    let bundled = BundledInterceptor::of_owner(&owner.api_version, &owner.kind);
    (bundled == Some(BundledInterceptor::StatefulSet))
        .then(|| Key::new(pod.key.namespace.clone(), owner.name.clone()))
}

fn ordinal_of(pod: &Pod, set: &str) -> Option<u32> {
    let text = pod.key.name.strip_prefix(set)?.strip_prefix('-')?;
    // As the StatefulSet controller writes it: db-01 is not its pod.
    text.parse().ok().filter(|ordinal: &u32| ordinal.to_string() == text)
}

#[cfg(test)]
#[path = "stateful_set_tests.rs"]
mod tests;
