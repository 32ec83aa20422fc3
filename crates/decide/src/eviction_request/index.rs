//! What is known of requests, their pods and budgets, kept up with every change.
//!
//! A plain struct: changes go in, keys of the requests that they concern come out. Decisions read it through
//! [`Index::decide`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::budgets::{Ledger, PATIENCE, WaitingRequest};
use crate::decision::{Effect, Ending};
use crate::eviction_request::{
    Answer, Attempt, Case, Claim, Decision, Refusal, Room, SelectingBudget, Target, decide,
};
use crate::snapshot::{Budget, DaemonSet, Key, Namespace, Pod, Request, WatchEvent};
use jiff::{SignedDuration, Timestamp};
use usher_api::workloads::{BundledInterceptor, Strategy};

#[derive(Debug, Default)]
pub struct Index {
    pods: HashMap<Key, Arc<Pod>>,
    requests: BTreeMap<Key, Entry>,
    /// By namespace.
    budgets: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Budget>>,
    daemon_sets: HashMap<Key, Arc<DaemonSet>>,
    /// What they say for the workloads in them.
    namespaces: HashMap<Arc<str>, Arc<Namespace>>,
    /// How long all interceptors of a pod may take together.
    interceptors_limit: Option<SignedDuration>,
    /// See [`Case::withdraw_after`].
    withdraw_after: Option<SignedDuration>,
    ledger: Ledger,
    /// Budgets at which somebody may have room now.
    to_ask: BTreeSet<Key>,
}

#[derive(Debug)]
struct Entry {
    request: Arc<Request>,
    attempt: Option<Box<Attempt>>,
    /// Nothing was decided on it yet: another manager may have tried to evict its pod.
    is_new: bool,
    /// The pod of that UID has been here.
    seen: bool,
    /// It was deleted and nothing holds it any more: only the watch has not told yet.
    over: bool,
}

/// A decision, and what it was made from.
#[derive(Debug)]
pub struct Decided {
    pub request: Arc<Request>,
    pub pod: Option<Arc<Pod>>,
    pub decision: Decision,
    /// Another one whose turn has begun at the budget, and that is to be looked at.
    pub turn: Option<Key>,
    /// The budgets that select the pod.
    pub budgets: Vec<SelectingBudget>,
}

impl Decided {
    fn evicts(&self) -> bool {
        self.decision.effects.contains(&Effect::Evict)
    }

    /// How the request ends, if that was decided.
    pub fn ending(&self) -> Option<Ending> {
        self.decision.effects.iter().find_map(|effect| match effect {
            Effect::Delete(ending) => Some(*ending),
            _ => None,
        })
    }
}

impl Index {
    pub fn new(interceptors_limit: Option<SignedDuration>) -> Self {
        Self { interceptors_limit, ..Self::default() }
    }

    /// Who asks by plain evictions, and has not done so for this long, has withdrawn.
    #[must_use]
    pub fn withdrawing_after(mut self, silence: Option<SignedDuration>) -> Self {
        self.withdraw_after = silence;
        self
    }

    pub fn request(&self, key: &Key) -> Option<&Arc<Request>> {
        self.requests.get(key).map(|entry| &entry.request)
    }

    pub fn request_keys(&self) -> Vec<Key> {
        self.requests.keys().cloned().collect()
    }

    pub fn pod_seen(&mut self, pod: impl Into<Arc<Pod>>) -> Vec<Key> {
        let pod = pod.into();
        let request = pod.request_key();
        if let Some(entry) = self.requests.get_mut(&request) {
            entry.seen = true;
        }
        let before = self.pods.insert(pod.key.clone(), pod.clone()).filter(|before| before.uid != pod.uid);
        let concerned = before.as_deref().map(Pod::request_key).into_iter().chain([request]);
        concerned.filter(|request| self.requests.contains_key(request)).collect()
    }

    /// The request that it concerns.
    pub fn pod_gone(&mut self, key: &Key) -> Option<Key> {
        let gone = self.pods.remove(key)?;
        Some(gone.request_key()).filter(|request| self.requests.contains_key(request))
    }

    /// Pods that are not in a new list are gone.
    pub fn only_pods(&mut self, there: &HashSet<Key>) -> Vec<Key> {
        let mut gone: Vec<Key> = self.pods.keys().filter(|key| !there.contains(key)).cloned().collect();
        // In an order that does not depend on hashes: the same history gives the same decisions.
        gone.sort_unstable();
        gone.iter().filter_map(|key| self.pod_gone(key)).collect()
    }

    pub fn request_seen(&mut self, request: impl Into<Arc<Request>>, now: Timestamp) -> Key {
        let request = request.into();
        let key = request.key.clone();
        let known = self.requests.get(&key).map(|entry| entry.request.clone());
        let request = with_true_progress(request, known.as_deref(), now);
        let seen = self.pods.get(&request.pod_key()).is_some_and(|pod| pod.uid == request.pod_uid);
        match self.requests.get_mut(&key) {
            // The server was asked meanwhile, and the watch is behind what it said.
            Some(entry) if entry.request.uid == request.uid && is_older(&request, &entry.request) => {}
            Some(entry) if entry.request.uid == request.uid => {
                entry.request = request;
                entry.seen |= seen;
            }
            known => {
                if known.is_some() {
                    self.request_gone(&key);
                }
                let entry = Entry { request, attempt: None, is_new: true, seen, over: false };
                self.requests.insert(key.clone(), entry);
            }
        }
        key
    }

    pub fn request_gone(&mut self, key: &Key) {
        if self.requests.remove(key).is_some() {
            self.leave(key);
        }
    }

    /// The requests for which the budget means something else than before.
    pub fn budget_seen(&mut self, budget: Budget, now: Timestamp) -> Vec<Key> {
        let key = budget.key.clone();
        self.ledger.observe(&budget, now);
        self.to_ask.insert(key.clone());
        let known = self.budgets.entry(key.namespace.clone()).or_default();
        let before = known.insert(key.name.clone(), budget);
        let after = &known[&key.name];
        let means_the_same = before.is_some_and(|before| {
            let healthy = |b: &Budget| b.current_healthy >= b.desired_healthy && b.desired_healthy > 0;
            before.selector == after.selector
                && before.policy == after.policy
                && healthy(&before) == healthy(after)
                && before.can_never_free() == after.can_never_free()
        });
        if means_the_same { Vec::new() } else { self.requests_in(&key.namespace) }
    }

    pub fn budget_gone(&mut self, key: &Key) -> Vec<Key> {
        if let Some(known) = self.budgets.get_mut(&key.namespace) {
            known.remove(&key.name);
            if known.is_empty() {
                self.budgets.remove(&key.namespace);
            }
        }
        self.ledger.forget(key);
        self.requests_in(&key.namespace)
    }

    pub fn only_budgets(&mut self, there: &HashSet<Key>) -> Vec<Key> {
        let all = self.budgets.values().flat_map(BTreeMap::values).map(|budget| budget.key.clone());
        let gone: Vec<Key> = all.filter(|key| !there.contains(key)).collect();
        gone.iter().flat_map(|key| self.budget_gone(key)).collect()
    }

    /// The requests whose pods may be evicted now, or not any more.
    pub fn daemon_sets_changed(&mut self, event: WatchEvent<Arc<DaemonSet>, Key>) -> Vec<Key> {
        let changed = event.store(&mut self.daemon_sets, |set| set.key.clone());
        let differ =
            |(key, before): &(Key, Option<Arc<DaemonSet>>)| before.as_ref() != self.daemon_sets.get(key);
        let namespaces: BTreeSet<_> =
            changed.into_iter().filter(differ).map(|(key, _)| key.namespace.clone()).collect();
        namespaces.iter().flat_map(|namespace| self.requests_in(namespace)).collect()
    }

    pub fn namespaces_changed(&mut self, event: WatchEvent<Arc<Namespace>, Arc<str>>) -> Vec<Key> {
        let changed = event.store(&mut self.namespaces, |namespace| namespace.name.clone());
        let says = |namespace: Option<&Arc<Namespace>>| namespace.and_then(|it| it.strategy.clone());
        let differ = |(name, before): &(Arc<str>, Option<Arc<Namespace>>)| {
            says(before.as_ref()) != says(self.namespaces.get(name))
        };
        changed.into_iter().filter(differ).flat_map(|(name, _)| self.requests_in(&name)).collect()
    }

    /// What the DaemonSet that the pod names says, if it is there.
    fn daemon_set(&self, pod: &Pod) -> Option<Strategy> {
        let owner = pod.owner.as_ref().filter(|_| pod.is_daemon())?;
        let key = Key::new(pod.key.namespace.clone(), owner.name.clone());
        let set = self.daemon_sets.get(&key).filter(|set| set.uid == owner.uid && !set.is_deleting)?;
        let namespace =
            self.namespaces.get(&key.namespace).and_then(|namespace| namespace.strategy.as_deref());
        let strategy = Strategy::of(BundledInterceptor::DaemonSet, set.strategy.as_deref(), namespace);
        Some(strategy.unwrap_or_else(|unknown| unknown.instead))
    }

    fn requests_in(&self, namespace: &str) -> Vec<Key> {
        let from = self.requests.range(Key::new(namespace, "")..);
        from.map(|(key, _)| key).take_while(|key| &*key.namespace == namespace).cloned().collect()
    }

    /// What the manager before has tried is in the status.
    fn remember_attempt(&mut self, key: &Key, now: Timestamp) {
        let Some(entry) = self.requests.get_mut(key).filter(|entry| entry.is_new) else { return };
        entry.is_new = false;
        let pod = self.pods.get(&entry.request.pod_key());
        let budgets = self.budgets.get(&key.namespace).map(|all| all.values().collect::<Vec<_>>());
        let budgets = pod.zip(budgets).map(|(pod, all)| SelectingBudget::all(&all, pod)).unwrap_or_default();
        entry.attempt = Attempt::remembered(&entry.request, budgets, now).map(Box::new);
    }

    /// Decides on a request. Where it depends on a budget, the request claims room there, else it leaves the budget at which it was.
    pub fn decide(&mut self, key: &Key, now: Timestamp) -> Option<Decided> {
        self.remember_attempt(key, now);
        let entry = self.requests.get(key).filter(|entry| !entry.over)?;
        let request = entry.request.clone();
        let pod = self.pods.get(&request.pod_key()).cloned();
        let target = match &pod {
            Some(pod) if pod.uid == request.pod_uid => Target::Found(pod),
            // Another pod has the name: ours was here before it, seen or not.
            Some(pod) if entry.seen => Target::Found(pod),
            None if entry.seen => Target::Gone,
            _ => Target::NeverSeen,
        };
        let selecting: Vec<&Budget> = match (&pod, self.budgets.get(&key.namespace)) {
            (Some(pod), Some(budgets)) => budgets.values().filter(|budget| budget.selects(pod)).collect(),
            _ => Vec::new(),
        };
        let case = Case {
            request: &request,
            pod: target,
            budgets: &selecting,
            attempt: entry.attempt.as_deref(),
            daemon_set: pod.as_deref().and_then(|pod| self.daemon_set(pod)),
            interceptors_limit: self.interceptors_limit,
            withdraw_after: self.withdraw_after,
        };
        let mut room = Claims { ledger: &mut self.ledger, now, claimed: None };
        let decision = decide(&case, &mut room, now);
        let claimed = room.claimed;
        let budgets = pod.as_deref().map(|pod| SelectingBudget::all(&selecting, pod)).unwrap_or_default();
        let mut decided = Decided { request, pod, decision, turn: None, budgets };
        match claimed {
            Some(Claimed { to_ask, turn }) => {
                self.to_ask.extend(to_ask);
                decided.turn = turn.filter(|turn| turn != key);
            }
            None if !decided.evicts() => self.leave(key),
            None => {}
        }
        Some(decided)
    }

    /// Whose turn begins at a budget, because it has room or to try a budget that does not move. Also when to ask again.
    pub fn grant(&mut self, budget: &Key, now: Timestamp) -> (Option<Key>, Option<Timestamp>) {
        let turn = self.ledger.grant(budget, now).or_else(|| self.ledger.probe(budget, now));
        let again = self.ledger.probe_at(budget);
        (turn, again)
    }

    /// All effects of a decision on it were carried out.
    pub fn carried_out(&mut self, decided: &Decided) {
        let Some(entry) = self.requests.get_mut(&decided.request.key) else { return };
        let effects = &decided.decision.effects;
        let is_deleted = decided.request.is_deleting || decided.ending().is_some();
        let kept = effects.iter().find_map(|effect| match effect {
            Effect::KeepFinalizers(names) => Some(&names[..]),
            _ => None,
        });
        let is_free = kept.unwrap_or(&decided.request.finalizers[..]).is_empty();
        entry.over |= entry.request.uid == decided.request.uid && is_deleted && is_free;
    }

    /// It did not come to an answer of the server: the room is for somebody else until it is tried again.
    pub fn not_carried_out(&mut self, key: &Key) {
        self.leave(key);
    }

    fn leave(&mut self, key: &Key) {
        self.to_ask.extend(self.ledger.leave(key));
    }

    /// The budgets that are to be asked for room: see [`Index::grant`].
    pub fn budgets_to_ask(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.to_ask)
    }

    /// What the server said to the eviction of a request's pod.
    pub fn answered(&mut self, key: &Key, answer: Answer, budgets: Vec<SelectingBudget>, now: Timestamp) {
        match &answer {
            Answer::Accepted => self.to_ask.extend(self.ledger.evicted(key)),
            Answer::Refused(Refusal::Budget { .. } | Refusal::BudgetNotReady { .. }) => {
                self.to_ask.extend(self.ledger.refused(key));
            }
            Answer::Refused(_) => self.leave(key),
        }
        if let Some(entry) = self.requests.get_mut(key) {
            let counter = entry.request.status.failed_api_eviction_counter;
            entry.attempt = Some(Box::new(Attempt { at: now, answer, counter, budgets }));
        }
    }

    /// The server says that the pod of this request does not exist.
    pub fn pod_is_gone(&mut self, key: &Key) {
        self.leave(key);
        let Some(entry) = self.requests.get_mut(key) else { return };
        entry.seen = true;
        let (pod_key, uid) = (entry.request.pod_key(), entry.request.pod_uid.clone());
        // The watch is behind: the pod must not look alive until it has caught up.
        if self.pods.get(&pod_key).is_some_and(|pod| pod.uid == uid) {
            self.pods.remove(&pod_key);
        }
    }
}

/// Claims room of the ledger for one request.
struct Claims<'a> {
    ledger: &'a mut Ledger,
    now: Timestamp,
    claimed: Option<Claimed>,
}

#[derive(Default)]
struct Claimed {
    /// The budget at which the request has begun to wait.
    to_ask: Option<Key>,
    /// Whose turn has begun there.
    turn: Option<Key>,
}

impl Room for Claims<'_> {
    fn claim(&mut self, case: &Case<'_>, pod: &Pod, budget: &Budget) -> Claim {
        let request = case.request;
        let mut claimed = Claimed::default();
        if !self.ledger.is_granted(&request.key) {
            let back_off =
                case.attempt.map(|attempt| attempt.retry_at(&request.pod_uid).max(attempt.at + PATIENCE));
            // Whom somebody else than the budget refuses does not keep those behind it from being tried.
            let refused_by_others = case
                .attempt
                .filter(|attempt| attempt.refusal().is_some_and(|refusal| !refusal.is_about_budgets()));
            let place = WaitingRequest {
                request: request.key.clone(),
                pod: pod.key.name.clone(),
                node: pod.node.clone(),
                since: refused_by_others.map_or(request.created, |attempt| attempt.at),
                not_before: back_off.unwrap_or(self.now),
            };
            self.ledger.wait(&budget.key, place, back_off.is_some());
            claimed.to_ask = Some(budget.key.clone());
            claimed.turn = self.ledger.grant(&budget.key, self.now);
        }
        self.claimed = Some(claimed);
        if !self.ledger.is_granted(&request.key) {
            Claim::Waits
        } else if self.ledger.comes_later(&request.key) {
            Claim::Later
        } else {
            Claim::Granted
        }
    }
}

/// The same one, unless there is something to correct: both controllers share what they hold.
fn with_true_progress(request: Arc<Request>, known: Option<&Request>, now: Timestamp) -> Arc<Request> {
    let Some(progress) = request.true_progress(known, now) else { return request };
    let mut corrected = Request::clone(&request);
    corrected.status.progress_timestamp = Some(progress);
    corrected.is_progress_corrected = true;
    Arc::new(corrected)
}

/// Versions of one object count up.
fn is_older(request: &Request, known: &Request) -> bool {
    let version = |request: &Request| request.resource_version.parse::<u64>().ok();
    version(request).zip(version(known)).is_some_and(|(new, known)| new < known)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
