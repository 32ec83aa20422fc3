//! What becomes of a plan: who is asked to leave and how, who is given up on, and who may stay after all.
//!
//! A pod is asked by an eviction request in the name of the descheduler. One that has the annotation `request-evict-only` is evicted by the
//! eviction API instead, whose refusal may mean that somebody moves it in the background; so is every pod where eviction requests are
//! switched off, unless it names interceptors. What is under way counts against the limits of the next cycle, whoever asked for it.
//!
//! A request that takes too long is given up, one that no plugin wants any more is withdrawn, and so is one that somebody has deleted.
//! All of that only where the interceptor has not forbidden it; the pod is not asked again before its cool-down is over, whatever the
//! reason, so that nobody is asked in a loop.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use usher_api::EvictionRequestCancellationPolicy as CancellationPolicy;
use usher_api::names::{DESCHEDULER_REQUESTER as REQUESTER, INTERCEPTOR_ANNOTATION_PREFIX};
use usher_decide::snapshot::{Key, Request};

use crate::{InProgress, Plan, PodRef, Proposal};

/// On a pod whose eviction only begins something: somebody moves it in the background.
const REQUEST_EVICT_ONLY_ANNOTATION: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On a pod that is being moved in the background.
const EVICTION_IN_PROGRESS_ANNOTATION: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";

/// Who counts for a pod with the annotation, since no request tells.
const IN_BACKGROUND: &str = "eviction in the background";
/// A pod that could not be asked is tried again after this, and later and later.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// A watch is late by no more than this.
const WATCH_IS_LATE: SignedDuration = SignedDuration::from_mins(1);
/// So many pods of each kind are remembered across restarts.
const REMEMBERED: usize = 2_000;

/// How pods are asked.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which descheduler this is: others may ask in the same name by policies of their own, and their requests are left alone.
    pub instance: String,
    /// Pods are asked by eviction requests; otherwise by the eviction API.
    pub requests: bool,
    /// Pods with the annotation are moved in the background, and are asked by the eviction API.
    pub in_background: bool,
    /// What takes longer is given up.
    pub time_to_live: Option<SignedDuration>,
    /// Whoever promised to move a pod in the background marks it within this, or is not believed.
    pub assumed_for: SignedDuration,
    /// A pod whose request was withdrawn or given up is not asked again before.
    pub cool_down: SignedDuration,
    /// A request that no plugin wants is withdrawn after so many cycles: what is counted may change from one to the next.
    pub unwanted_cycles: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            instance: String::new(),
            requests: true,
            in_background: true,
            time_to_live: Some(SignedDuration::from_hours(1)),
            assumed_for: SignedDuration::from_mins(10),
            cool_down: SignedDuration::from_hours(1),
            unwanted_cycles: 2,
        }
    }
}

/// A pod: another one of the same name is another pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId {
    pub key: Key,
    pub uid: Arc<str>,
}

impl PodId {
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self { key: Key::new(namespace, name), uid: uid.into() }
    }

    fn of(request: &Request) -> Self {
        Self { key: request.pod_key(), uid: request.pod_uid.clone() }
    }
}

impl From<&PodRef> for PodId {
    fn from(pod: &PodRef) -> Self {
        Self::new(&pod.namespace, &pod.name, &pod.uid)
    }
}

/// As it is remembered: `namespace/name/uid`.
impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.key, self.uid)
    }
}

impl FromStr for PodId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some(uid), None) => Ok(Self::new(namespace, name, uid)),
            _ => Err(()),
        }
    }
}

/// What the requester looks at in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodMarks {
    /// Its eviction only begins something.
    pub request_evict_only: bool,
    /// It is being moved in the background.
    pub in_progress: bool,
    pub names_interceptors: bool,
    pub is_terminating: bool,
}

impl PodMarks {
    pub fn of(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let has = |name: &str| annotations.is_some_and(|all| all.contains_key(name));
        Self {
            request_evict_only: has(REQUEST_EVICT_ONLY_ANNOTATION),
            in_progress: has(EVICTION_IN_PROGRESS_ANNOTATION),
            names_interceptors: annotations
                .is_some_and(|all| all.keys().any(|name| name.starts_with(INTERCEPTOR_ANNOTATION_PREFIX))),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A pod that is moved in the background.
#[derive(Debug, Clone, Copy)]
struct Background {
    since: Timestamp,
    /// Somebody has marked it.
    is_marked: bool,
    is_given_up: bool,
}

/// What outlives the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Until when pods are not asked.
    pub cooling: BTreeMap<PodId, Timestamp>,
    /// Since when pods are moved in the background, and whether they are marked.
    pub background: BTreeMap<PodId, (Timestamp, bool)>,
}

const MARKED: &str = "marked";
const PROMISED: &str = "promised";

impl Memory {
    /// A line for each pod that is not asked, and for each that is moved in the background.
    pub fn to_texts(&self) -> (String, String) {
        let cooling = self.cooling.iter().map(|(pod, until)| format!("{pod} {until}"));
        let background = self.background.iter().map(|(pod, (since, is_marked))| {
            let word = if *is_marked { MARKED } else { PROMISED };
            format!("{pod} {since} {word}")
        });
        (cooling.collect::<Vec<_>>().join("\n"), background.collect::<Vec<_>>().join("\n"))
    }

    /// What cannot be understood is left out.
    pub fn of_texts(cooling: &str, background: &str) -> Self {
        let of_line = |line: &str| {
            let mut words = line.split(' ');
            let (pod, time) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((pod, time, words.next().map(str::to_owned)))
        };
        let cooling = cooling.lines().filter_map(of_line).map(|(pod, until, _)| (pod, until));
        let background = background.lines().filter_map(of_line).filter_map(|(pod, since, word)| {
            let is_marked = word? == MARKED;
            Some((pod, (since, is_marked)))
        });
        Self { cooling: cooling.collect(), background: background.collect() }
    }
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Remembers, before anything is withdrawn or asked that has to be remembered.
    Remember(Memory),
    /// Takes the descheduler off a request.
    Withdraw {
        request: Arc<Request>,
        why: Withdrawal,
    },
    Ask {
        proposal: Box<Proposal>,
        by: Way,
    },
}

/// How a pod is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Request,
    /// By the eviction API; its refusal may mean that somebody moves the pod in the background.
    Eviction {
        in_background: bool,
    },
}

/// Why a request is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// No plugin wants the pod to leave any more.
    NotNeeded,
    TookTooLong {
        after: SignedDuration,
    },
    /// Somebody has deleted the request, which only waits for its requesters.
    Deleted,
}

impl Withdrawal {
    /// The place of the pod is given to others in the same cycle: they are not asked where the withdrawal fails.
    pub fn gives_place(self) -> bool {
        self != Self::NotNeeded
    }
}

/// What came of asking a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// There is a request, of ours or of somebody else who was faster.
    Requested,
    /// The eviction API has taken it.
    Evicted,
    /// Somebody has promised to move it in the background.
    InBackground,
    /// It is gone, or another pod has its name.
    Gone,
    Refused,
    /// There was no answer: it may have been asked.
    Unknown,
}

/// What is known of pods that were asked to leave.
#[derive(Debug, Default)]
pub struct Requester {
    options: Options,
    requests: HashMap<Key, Arc<Request>>,
    /// Pods with a mark.
    marks: HashMap<PodId, PodMarks>,
    background: BTreeMap<PodId, Background>,
    /// In how many cycles nobody has wanted a pod that was asked.
    unwanted: HashMap<PodId, u32>,
    /// Pods that were given up, and until when they are not asked.
    cooling: BTreeMap<PodId, Timestamp>,
    /// Requests that are to be withdrawn in this cycle, and do not count in it.
    given_up: Vec<(Arc<Request>, Withdrawal)>,
    /// Something that should be remembered is not yet.
    is_unsaved: bool,
    /// How often pods could not be asked, and until when they are not tried.
    failed: BTreeMap<PodId, (u32, Timestamp)>,
    /// Pods that were asked, and no watch has told of it yet.
    unseen: BTreeMap<PodId, Timestamp>,
}

impl Requester {
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// What was remembered before this process began.
    pub fn remembered(&mut self, memory: Memory) {
        self.cooling = memory.cooling;
        for (pod, (since, is_marked)) in memory.background {
            let known = self.background.entry(pod);
            let known = known.or_insert(Background { since, is_marked, is_given_up: false });
            known.since = known.since.min(since);
        }
    }

    /// What was to be remembered is.
    pub fn saved(&mut self) {
        self.is_unsaved = false;
    }

    pub fn request_changed(&mut self, key: &Key, request: Option<Arc<Request>>) {
        match request {
            Some(request) => {
                let pod = PodId::of(&request);
                self.unseen.remove(&pod);
                self.failed.remove(&pod);
                self.requests.insert(key.clone(), request)
            }
            None => self.requests.remove(key),
        };
    }

    /// The keys of all requests that are known.
    pub fn requests(&self) -> &HashMap<Key, Arc<Request>> {
        &self.requests
    }

    /// A pod has come or changed.
    pub fn pod_changed(&mut self, pod: &PodId, marks: PodMarks, now: Timestamp) {
        if marks == PodMarks::default() {
            self.marks.remove(pod);
        } else {
            self.marks.insert(pod.clone(), marks);
        }
        if !self.options.in_background {
            return;
        }
        let known = self.background.get_mut(pod);
        match (known, marks.request_evict_only && marks.in_progress) {
            (Some(known), true) if !known.is_marked => (known.is_marked, known.since) = (true, now),
            (None, true) => {
                let marked = Background { since: now, is_marked: true, is_given_up: false };
                self.background.insert(pod.clone(), marked);
            }
            // It was moved, or that has failed: it may be asked again.
            (Some(known), false) if known.is_marked => drop(self.background.remove(pod)),
            _ => return,
        }
        self.is_unsaved = true;
    }

    pub fn pod_gone(&mut self, pod: &PodId) {
        self.marks.remove(pod);
        self.background.remove(pod);
        self.unwanted.remove(pod);
        self.failed.remove(pod);
        self.unseen.remove(pod);
    }

    /// What counts as under way in a cycle, after giving up on what took too long.
    pub fn in_progress(&mut self, now: Timestamp) -> InProgress {
        self.cooling.retain(|_, until| *until > now);
        self.failed
            .retain(|_, (_, until)| until.saturating_add(LONGEST_PAUSE).is_ok_and(|until| until > now));
        self.unseen.retain(|_, asked| elapsed(*asked, now) < WATCH_IS_LATE);
        let mut in_progress = InProgress::default();
        let mut leaves = |pod: &PodId, by: &str| {
            in_progress.set_leaving(&pod.key.namespace, &pod.key.name, &pod.uid, by);
        };
        for pod in self.unseen.keys() {
            leaves(pod, REQUESTER);
        }
        let mut requests: Vec<&Arc<Request>> = self.requests.values().collect();
        requests.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut given_up = Vec::new();
        for request in requests {
            let pod = PodId::of(request);
            let why = self.gives_up(request, now);
            let stays = |requester: &&str| why.is_none() || *requester != REQUESTER;
            request.requesters().filter(stays).for_each(|requester| leaves(&pod, requester));
            if !may_withdraw(request) {
                leaves(&pod, IN_BACKGROUND);
            }
            given_up.extend(why.map(|why| (request.clone(), why)));
        }
        // What is not marked as one that may be moved in the background is not.
        self.background.retain(|pod, _| self.marks.contains_key(pod));
        for (pod, background) in &mut self.background {
            let live_for =
                if background.is_marked { self.options.time_to_live } else { Some(self.options.assumed_for) };
            let is_over = live_for.is_some_and(|live_for| elapsed(background.since, now) >= live_for);
            if is_over && !background.is_given_up {
                background.is_given_up = true;
                self.is_unsaved = true;
                self.cooling.entry(pod.clone()).or_insert(later(now, self.options.cool_down));
            }
            if !background.is_given_up {
                leaves(pod, IN_BACKGROUND);
            }
        }
        // What nobody has marked, and nobody believes in any more, is forgotten.
        self.background.retain(|_, background| background.is_marked || !background.is_given_up);
        for (request, _) in &given_up {
            self.cool_down(PodId::of(request), now);
        }
        self.given_up = given_up;
        let failed = self.failed.iter().map(|(pod, (_, until))| (pod, until));
        for (pod, until) in failed.filter(|(pod, _)| !self.cooling.contains_key(pod)).chain(&self.cooling) {
            in_progress.set_cool_down(&pod.key.namespace, &pod.key.name, &pod.uid, *until);
        }
        in_progress
    }

    /// Why this request of ours is to be withdrawn, whatever plugins want.
    fn gives_up(&self, request: &Request, now: Timestamp) -> Option<Withdrawal> {
        if !self.is_ours(request) || !may_withdraw(request) || self.is_terminating(&PodId::of(request)) {
            return None;
        }
        // Requests of pods that are gone are deleted too, and end by themselves.
        if request.deleted.is_some_and(|deleted| elapsed(deleted, now) >= WATCH_IS_LATE) {
            return Some(Withdrawal::Deleted);
        }
        let after = elapsed(request.created, now);
        let is_over = self.options.time_to_live.is_some_and(|live_for| after >= live_for);
        is_over.then_some(Withdrawal::TookTooLong { after })
    }

    fn cool_down(&mut self, pod: PodId, now: Timestamp) {
        self.cooling.insert(pod, later(now, self.options.cool_down));
        self.is_unsaved = true;
    }

    /// The request is one that this descheduler has made.
    fn is_ours(&self, request: &Request) -> bool {
        request.requesters().any(|requester| requester == REQUESTER)
            && request.descheduler.as_deref().unwrap_or_default() == self.options.instance
    }

    fn is_terminating(&self, pod: &PodId) -> bool {
        self.marks.get(pod).is_some_and(|marks| marks.is_terminating)
    }

    /// What is done about a plan that was made with what is under way.
    pub fn decide(&mut self, plan: &Plan, now: Timestamp) -> Vec<Effect> {
        let mut withdrawals = std::mem::take(&mut self.given_up);
        for request in self.not_needed(plan, &withdrawals) {
            self.cool_down(PodId::of(&request), now);
            withdrawals.push((request, Withdrawal::NotNeeded));
        }
        let mut asks = Vec::new();
        for proposal in &plan.proposals {
            let by = self.way_of(&proposal.pod);
            if by == (Way::Eviction { in_background: true }) {
                // It is remembered before it is asked, so that it is waited for whatever happens to this process.
                let asked = Background { since: now, is_marked: false, is_given_up: false };
                self.background.insert(PodId::from(&proposal.pod), asked);
                self.is_unsaved = true;
            }
            asks.push(Effect::Ask { by, proposal: Box::new(proposal.clone()) });
        }
        let mut effects = Vec::new();
        if self.is_unsaved {
            effects.push(Effect::Remember(self.memory()));
        }
        effects.extend(withdrawals.into_iter().map(|(request, why)| Effect::Withdraw { request, why }));
        effects.extend(asks);
        effects
    }

    /// Our requests that no plugin has wanted for some cycles.
    fn not_needed(&mut self, plan: &Plan, given_up: &[(Arc<Request>, Withdrawal)]) -> Vec<Arc<Request>> {
        // Then not all pods were looked at.
        if !plan.problems.is_empty() || plan.stops.iter().any(|stopped| !stopped.by.is_limit()) {
            return Vec::new();
        }
        let wanted: HashSet<&str> = plan.still_wanted.iter().map(String::as_str).collect();
        let given_up: HashSet<&Key> = given_up.iter().map(|(request, _)| &request.key).collect();
        let ours = self.requests.values().filter(|it| self.is_ours(it) && !given_up.contains(&it.key));
        let mut ours: Vec<Arc<Request>> = ours.cloned().collect();
        ours.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut not_needed = Vec::new();
        for request in ours {
            let pod = PodId::of(&request);
            if wanted.contains(&*pod.uid) || self.is_terminating(&pod) || !may_withdraw(&request) {
                self.unwanted.remove(&pod);
                continue;
            }
            let cycles = self.unwanted.entry(pod.clone()).or_default();
            *cycles += 1;
            if *cycles >= self.options.unwanted_cycles {
                self.unwanted.remove(&pod);
                not_needed.push(request);
            }
        }
        not_needed
    }

    /// How the pod would be asked. One that names interceptors is never evicted past them: the manager's own evictions pass every gateway.
    pub fn way_of(&self, pod: &PodRef) -> Way {
        let marks = self.marks.get(&pod.into()).copied().unwrap_or_default();
        let in_background = self.options.in_background && marks.request_evict_only;
        if marks.names_interceptors || (self.options.requests && !in_background) {
            Way::Request
        } else {
            Way::Eviction { in_background }
        }
    }

    /// The pod was not asked after all.
    pub fn not_asked(&mut self, pod: &PodRef) {
        self.is_unsaved |= self.background.remove(&PodId::from(pod)).is_some();
    }

    /// What came of it.
    pub fn asked(&mut self, pod: &PodRef, asked: &Asked, now: Timestamp) {
        if matches!(asked, Asked::Evicted | Asked::Gone | Asked::Refused) {
            self.not_asked(pod);
        }
        let pod = PodId::from(pod);
        match asked {
            Asked::InBackground => {
                let is_marked = self.marks.get(&pod).is_some_and(|marks| marks.in_progress);
                self.background.insert(pod, Background { since: now, is_marked, is_given_up: false });
            }
            Asked::Refused | Asked::Unknown => {
                if *asked == Asked::Unknown {
                    self.unseen.insert(pod.clone(), now);
                }
                let (times, until) = self.failed.entry(pod).or_insert((0, now));
                let pause = FIRST_PAUSE.checked_mul(1_i32 << (*times).min(10)).unwrap_or(LONGEST_PAUSE);
                (*times, *until) = (times.saturating_add(1), later(now, pause.min(LONGEST_PAUSE)));
            }
            Asked::Requested | Asked::Evicted => {
                self.failed.remove(&pod);
                self.unseen.insert(pod, now);
            }
            Asked::Gone => drop(self.failed.remove(&pod)),
        }
    }

    /// How many pods are under way by the descheduler.
    pub fn under_way(&self) -> usize {
        let background = self.background.values().filter(|background| !background.is_given_up).count();
        self.requests.values().filter(|request| self.is_ours(request)).count() + background
    }

    /// The latest of each kind, if there are more than fit.
    fn memory(&self) -> Memory {
        Memory {
            cooling: latest(self.cooling.iter().map(|(pod, until)| (pod, *until))),
            background: latest(self.background.iter().map(|(pod, it)| (pod, (it.since, it.is_marked)))),
        }
    }
}

fn latest<'a, T: Ord + Copy>(all: impl Iterator<Item = (&'a PodId, T)>) -> BTreeMap<PodId, T> {
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    all.into_iter().take(REMEMBERED).map(|(pod, time)| (pod.clone(), time)).collect()
}

fn may_withdraw(request: &Request) -> bool {
    request.status.eviction_request_cancellation_policy == CancellationPolicy::Allow
}

fn elapsed(since: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(since)
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "requester_tests.rs"]
mod tests;
