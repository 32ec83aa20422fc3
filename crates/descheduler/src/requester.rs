//! What becomes of a plan: who is asked to leave and how, who is given up on, and who may stay after all.
//!
//! A pod is asked by an eviction request in the name of the descheduler. One that has the annotation `request-evict-only` is evicted by the
//! eviction API instead, whose refusal may mean that somebody moves it in the background; so is every pod where eviction requests are
//! switched off, unless it names interceptors. What is under way counts against the limits of the next cycle, whoever asked for it.
//!
//! A request that takes too long is given up, one that no plugin wants any more is withdrawn, and so is one that somebody has deleted.
//! All of that only where the interceptor has not forbidden it; the pod is not asked again before its cool-down is over, whatever the
//! reason, so that nobody is asked in a loop. A pod that has left may come back under another name, and be wanted again at once: where the
//! scheduler may do so, its replacement is left alone by the same plugin for as long.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use usher_api::EvictionRequestCancellationPolicy as CancellationPolicy;
use usher_api::names::{DESCHEDULER_REQUESTER as REQUESTER, INTERCEPTOR_ANNOTATION_PREFIX};
use usher_decide::snapshot::{Key, Request};

use crate::cluster::pod::Phase;
pub use crate::memory::{Memory, Moved, Moving, Requested};
pub use crate::promises::MoveChange;
use crate::promises::Promises;
use crate::{InProgress, Plan, PodRef, Problem, Proposal};

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
    /// A pod whose request was withdrawn or given up is not asked again before, nor is the replacement of one that has left.
    pub cool_down: SignedDuration,
    /// A request that no plugin wants is withdrawn after so many cycles: what is counted may change from one to the next.
    pub unwanted_cycles: u32,
    /// Cycles that are closer to each other count as one of them.
    pub interval: SignedDuration,
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
            interval: SignedDuration::ZERO,
        }
    }
}

impl Options {
    /// For cycles that begin so long after each other. Without that there is one cycle: the next one may be hours away, and begins with
    /// nothing.
    #[must_use]
    pub fn in_cycles(self, interval: Option<SignedDuration>) -> Self {
        Self {
            unwanted_cycles: if interval.is_none() { 1 } else { self.unwanted_cycles },
            // Cycles that changes call for come in between.
            interval: interval.unwrap_or_default(),
            ..self
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
    /// It has succeeded or failed: nobody has to move it.
    pub is_over: bool,
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
            is_over: Phase::parse(pod.status.as_ref().and_then(|status| status.phase.as_deref())).is_over(),
        }
    }

    fn is_moving(self) -> bool {
        self.request_evict_only && self.in_progress && !self.is_over
    }

    /// It goes by itself, or has no need to go anywhere.
    fn is_ending(self) -> bool {
        self.is_terminating || self.is_over
    }
}

/// A pod that is moved in the background.
#[derive(Debug, Clone, Copy)]
struct Background {
    since: Timestamp,
    state: Moving,
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
        /// The place of its pod is given to others in the same cycle: who needs it is not asked where the withdrawal fails.
        gives_place: bool,
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

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "an EvictionRequest",
            Self::Eviction { in_background: false } => "the eviction API",
            Self::Eviction { in_background: true } => "the eviction API, to be moved in the background",
        })
    }
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

/// What came of asking a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskOutcome {
    /// There is a request of ours.
    Requested,
    /// Somebody else was faster, and the pod is asked.
    ByOthers,
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
    promises: Promises,
    /// In how many cycles nobody has wanted a pod that was asked, and when that was counted.
    unwanted: HashMap<PodId, (u32, Timestamp)>,
    /// Pods that were given up, and until when they are not asked.
    cooling: BTreeMap<PodId, Timestamp>,
    /// Pods that were asked, for the sake of their replacements.
    moved: BTreeMap<PodId, Moved>,
    /// Since when requests are there by the clock of this process. They are written by that of the server.
    begun: HashMap<Key, Timestamp>,
    /// Requests that are to be withdrawn in this cycle, and do not count in it.
    given_up: Vec<(Arc<Request>, Withdrawal)>,
    /// Requests that could not be withdrawn: they are tried again, and count.
    stuck: HashSet<Key>,
    /// Something that should be remembered is not yet.
    is_unsaved: bool,
    /// Until when pods that could not be asked are not tried, and how often that was so.
    failed: BTreeMap<PodId, (Timestamp, u32)>,
    /// Pods that have a request of ours, by all that is known.
    asked: BTreeMap<PodId, Requested>,
    /// Pods that were asked, and no watch has told of it yet.
    unseen: BTreeMap<PodId, Timestamp>,
    /// Pods that were asked in this cycle: they keep their places in it, also when they have gone.
    asked_in_cycle: Vec<PodRef>,
}

impl Requester {
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// What was remembered before this process began.
    pub fn remembered(&mut self, memory: Memory) {
        self.cooling = memory.cooling;
        self.failed = memory.failed;
        self.moved = memory.moved;
        self.asked.extend(memory.asked);
        for (pod, (since, state)) in memory.background {
            let known = self.background.entry(pod).or_insert(Background { since, state });
            known.since = known.since.min(since);
            known.state = known.state.max(state);
        }
    }

    /// This is remembered. What has changed since is not.
    pub fn saved(&mut self, memory: &Memory) {
        self.is_unsaved = self.memory() != *memory;
    }

    /// Something that should be remembered is not yet.
    pub fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }

    /// All requests and pods are known for the first time. A pod that was asked, is there and has no request any more is one whose request
    /// somebody has withdrawn meanwhile: it is left alone as if that had been seen.
    pub fn synced(&mut self, is_there: impl Fn(&PodId) -> bool, now: Timestamp) {
        let ours = self.requests.values().filter(|request| self.is_ours(request));
        let ours: HashSet<PodId> = ours.map(|request| PodId::of(request)).collect();
        let without: Vec<PodId> = self.asked.keys().filter(|pod| !ours.contains(pod)).cloned().collect();
        for pod in without {
            self.asked.remove(&pod);
            if is_there(&pod) && !self.is_ending(&pod) && !self.cooling.contains_key(&pod) {
                self.cool_down(pod, now);
            }
        }
    }

    pub fn request_changed(&mut self, key: &Key, request: Option<Arc<Request>>, now: Timestamp) {
        match request {
            Some(request) => {
                let pod = PodId::of(&request);
                let asked = self.unseen.remove(&pod);
                self.begun.entry(key.clone()).or_insert(asked.unwrap_or(request.created.min(now)));
                let is_ours = self.is_ours(&request);
                if is_ours && !self.cooling.contains_key(&pod) {
                    let requested = Requested { since: request.created, by: None };
                    self.asked.entry(pod.clone()).or_insert(requested);
                }
                if let Some(moved) = self.moved.get_mut(&pod).filter(|_| is_ours) {
                    // By the clock that writes when pods are created.
                    moved.asked = request.created;
                }
                self.failed.remove(&pod);
                self.requests.insert(key.clone(), request);
            }
            None => {
                self.stuck.remove(key);
                self.begun.remove(key);
                if let Some(request) = self.requests.remove(key) {
                    let pod = PodId::of(&request);
                    self.asked.remove(&pod);
                    self.unwanted.remove(&pod);
                }
            }
        }
    }

    /// A request of ours was this before it changed, and its pod is still there. Who has withdrawn it, if it was not this descheduler,
    /// had a reason: the pod is left alone for a while.
    pub fn request_was(&mut self, before: &Request, now: Timestamp) {
        let pod = PodId::of(before);
        let is_there = self.requests.get(&before.key).is_some_and(|request| self.is_ours(request));
        if !self.is_ours(before) || is_there {
            return;
        }
        self.asked.remove(&pod);
        self.unwanted.remove(&pod);
        if !self.is_ending(&pod) && !self.cooling.contains_key(&pod) {
            self.cool_down(pod, now);
        }
    }

    /// The request could not be withdrawn. It is tried again, and counts for as long as it is there.
    pub fn not_withdrawn(&mut self, request: &Key) {
        if self.requests.contains_key(request) {
            self.stuck.insert(request.clone());
        }
    }

    /// The keys of all requests that are known.
    pub fn requests(&self) -> &HashMap<Key, Arc<Request>> {
        &self.requests
    }

    /// A pod has come or changed.
    pub fn pod_changed(&mut self, pod: &PodId, marks: PodMarks, now: Timestamp) -> MoveChange {
        let was_moving = self.is_in_background(pod);
        self.marks_changed(pod, marks, now);
        self.promises.pod_changed(pod, was_moving, self.is_in_background(pod), marks.is_over)
    }

    fn marks_changed(&mut self, pod: &PodId, marks: PodMarks, now: Timestamp) {
        if marks == PodMarks::default() {
            self.marks.remove(pod);
        } else {
            self.marks.insert(pod.clone(), marks);
        }
        if !self.options.in_background {
            return;
        }
        let known = self.background.get_mut(pod);
        match (known, marks.is_moving()) {
            (Some(known), true) if known.state.is_unmarked() => {
                *known = Background { since: now, state: Moving::Marked };
            }
            (None, true) => {
                self.background.insert(pod.clone(), Background { since: now, state: Moving::Marked });
            }
            // It was moved, or that has failed: who has taken the mark away had a reason, and it is left alone for a while.
            (Some(known), false) if !known.state.is_unmarked() || marks.is_over => {
                let has_failed = known.state == Moving::Marked && !marks.is_ending();
                self.background.remove(pod);
                if has_failed && !self.cooling.contains_key(pod) {
                    self.cool_down(pod.clone(), now);
                }
            }
            _ => return,
        }
        self.is_unsaved = true;
    }

    pub fn pod_gone(&mut self, pod: &PodId, now: Timestamp) -> MoveChange {
        let was_moving = self.is_in_background(pod);
        self.marks.remove(pod);
        self.background.remove(pod);
        self.unwanted.remove(pod);
        self.failed.remove(pod);
        self.asked.remove(pod);
        self.unseen.remove(pod);
        self.is_unsaved |= self.cooling.remove(pod).is_some();
        if let Some(moved) = self.moved.get_mut(pod) {
            // Its replacement has as long as if it had been asked itself.
            moved.until = moved.until.max(later(now, self.options.cool_down));
            self.is_unsaved = true;
        }
        self.promises.pod_gone(pod, was_moving)
    }

    /// What counts as under way in a cycle that begins, after giving up on what took too long.
    pub fn in_progress(&mut self, now: Timestamp) -> InProgress {
        self.asked_in_cycle.clear();
        let requests = self.requests.values();
        self.given_up =
            requests.filter_map(|request| Some((request.clone(), self.gives_up(request, now)?))).collect();
        self.given_up.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        let pods: Vec<PodId> = self.given_up.iter().map(|(request, _)| PodId::of(request)).collect();
        for pod in pods {
            self.asked.remove(&pod);
            self.cool_down(pod, now);
        }
        self.still_in_progress(now)
    }

    /// The same in a cycle that goes on with others: who was asked in it keeps the place, and no other request is given up.
    pub fn still_in_progress(&mut self, now: Timestamp) -> InProgress {
        self.cooling.retain(|_, until| *until > now);
        let requested: HashSet<PodId> = self.requests.values().map(|request| PodId::of(request)).collect();
        // For as long as a pod is leaving, the time of its replacement has not begun.
        let not_before = later(now, self.options.cool_down);
        for (pod, moved) in &mut self.moved {
            let moves = self.background.get(pod).is_some_and(|it| it.state != Moving::GivenUp);
            let is_terminating = self.marks.get(pod).is_some_and(|marks| marks.is_terminating);
            if requested.contains(pod) || moves || is_terminating {
                moved.until = moved.until.max(not_before);
            }
        }
        self.moved.retain(|_, moved| moved.until > now);
        self.failed
            .retain(|_, (until, _)| until.saturating_add(LONGEST_PAUSE).is_ok_and(|until| until > now));
        self.unseen.retain(|_, asked| elapsed(*asked, now) < WATCH_IS_LATE);
        let mut in_progress = InProgress::default();
        let mut leaves = |pod: &PodId, by: &str, since: Timestamp| {
            in_progress.set_leaving(&pod.key.namespace, &pod.key.name, &pod.uid, by, since);
        };
        for (pod, since) in &self.unseen {
            leaves(pod, REQUESTER, *since);
        }
        let mut requests: Vec<&Arc<Request>> = self.requests.values().collect();
        requests.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let given_up: HashSet<&Key> = self.given_up.iter().map(|(request, _)| &request.key).collect();
        for request in requests {
            let pod = PodId::of(request);
            if self.marks.get(&pod).is_some_and(|marks| marks.is_over) {
                // It ends by itself, and nobody waits for the pod.
                continue;
            }
            // What could not be withdrawn before has its place as long as it is there.
            let keeps_place = !given_up.contains(&request.key) || self.stuck.contains(&request.key);
            let stays = |requester: &&str| keeps_place || *requester != REQUESTER;
            request.requesters().filter(stays).for_each(|requester| leaves(&pod, requester, request.created));
            if !may_withdraw(request) {
                leaves(&pod, IN_BACKGROUND, request.created);
            }
        }
        // What is not marked as one that may be moved in the background is not.
        self.background.retain(|pod, background| {
            let marks = self.marks.get(pod);
            marks.is_some_and(|marks| background.state.is_unmarked() || marks.is_moving())
        });
        let mut broken = Vec::new();
        for (pod, background) in &mut self.background {
            let live_for = match background.state {
                Moving::Asking | Moving::Promised => Some(self.options.assumed_for),
                Moving::Marked => self.options.time_to_live,
                Moving::GivenUp => continue,
            };
            if live_for.is_some_and(|live_for| elapsed(background.since, now) >= live_for) {
                if background.state.is_unmarked() {
                    // What nobody has marked, and nobody believes in any more, is forgotten.
                    broken.push(pod.clone());
                }
                if background.state != Moving::Asking {
                    // Otherwise it may be that nobody was asked, and the next try is the first.
                    self.cooling.entry(pod.clone()).or_insert(later(now, self.options.cool_down));
                }
                background.state = Moving::GivenUp;
                self.is_unsaved = true;
            } else {
                // It is marked a while after it was asked.
                let since = background.since.checked_sub(self.options.assumed_for);
                leaves(pod, IN_BACKGROUND, since.unwrap_or(Timestamp::MIN));
            }
        }
        for pod in broken {
            self.background.remove(&pod);
        }
        let failed = self.failed.iter().map(|(pod, (until, _))| (pod, until));
        for (pod, until) in failed.filter(|(pod, _)| !self.cooling.contains_key(pod)).chain(&self.cooling) {
            in_progress.set_cool_down(&pod.key.namespace, &pod.key.name, &pod.uid, *until);
            if *until == not_before {
                in_progress.set_cools_from_now(&pod.key.namespace, &pod.key.name, &pod.uid);
            }
        }
        for (pod, moved) in &self.moved {
            in_progress.set_moved(&pod.key.namespace, &pod.key.name, &pod.uid, moved.clone());
        }
        for pod in &self.asked_in_cycle {
            in_progress.set_asked_in_cycle(pod.clone());
        }
        in_progress
    }

    /// Why this request of ours is to be withdrawn, whatever plugins want.
    fn gives_up(&self, request: &Request, now: Timestamp) -> Option<Withdrawal> {
        if !self.is_ours(request) || !may_withdraw(request) || self.is_ending(&PodId::of(request)) {
            return None;
        }
        // Requests of pods that are gone are deleted too, and end by themselves.
        if request.deleted().is_some_and(|deleted| elapsed(deleted, now) >= WATCH_IS_LATE) {
            return Some(Withdrawal::Deleted);
        }
        let begun = self.begun.get(&request.key).copied().unwrap_or(request.created);
        let after = elapsed(begun, now);
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
            && request.descheduler().unwrap_or_default() == self.options.instance
    }

    fn is_ending(&self, pod: &PodId) -> bool {
        self.marks.get(pod).is_some_and(|marks| marks.is_ending())
    }

    /// What is done about a plan that was made with what is under way.
    pub fn decide(&mut self, plan: &Plan, now: Timestamp) -> Vec<Effect> {
        let mut withdrawals = self.given_up.clone();
        for request in self.not_needed(plan, &withdrawals, now) {
            // Who wanted it is known until it is withdrawn, as that may fail.
            self.cool_down(PodId::of(&request), now);
            withdrawals.push((request, Withdrawal::NotNeeded));
        }
        let withdrawals: Vec<Effect> = withdrawals
            .into_iter()
            .map(|(request, why)| {
                let gives_place = why != Withdrawal::NotNeeded && !self.stuck.contains(&request.key);
                Effect::Withdraw { request, why, gives_place }
            })
            .collect();
        let asks = self.asks(plan, now);
        self.remember().into_iter().chain(withdrawals).chain(asks).collect()
    }

    /// The same in a cycle that goes on with others, because some could not be asked: what is withdrawn in it is so already, and what is
    /// only good to know is remembered at its end.
    pub fn decide_more(&mut self, plan: &Plan, now: Timestamp) -> Vec<Effect> {
        let was_unsaved = std::mem::take(&mut self.is_unsaved);
        let asks = self.asks(plan, now);
        let memory = self.remember();
        self.is_unsaved |= was_unsaved;
        memory.into_iter().chain(asks).collect()
    }

    fn asks(&mut self, plan: &Plan, now: Timestamp) -> Vec<Effect> {
        let mut asks = Vec::new();
        for proposal in &plan.proposals {
            let by = self.way_of(&proposal.pod);
            if by == (Way::Eviction { in_background: true }) {
                // It is remembered before it is asked, so that it is waited for whatever happens to this process.
                let asked = Background { since: now, state: Moving::Asking };
                self.background.insert(PodId::from(&proposal.pod), asked);
                self.is_unsaved = true;
            }
            if let Some(owner) = proposal.owner.as_ref().filter(|_| proposal.reason.may_recur()) {
                let (until, owner) = (later(now, self.options.cool_down), owner.uid.as_str().into());
                let moved = Moved { until, asked: now, plugin: proposal.plugin, owner };
                self.moved.insert(PodId::from(&proposal.pod), moved);
                self.is_unsaved = true;
            }
            asks.push(Effect::Ask { by, proposal: Box::new(proposal.clone()) });
        }
        asks
    }

    /// What is to be remembered, if there is anything new.
    pub fn unsaved(&self) -> Option<Memory> {
        self.is_unsaved.then(|| self.memory())
    }

    fn remember(&self) -> Option<Effect> {
        self.unsaved().map(Effect::Remember)
    }

    /// Our requests that no plugin has wanted for some cycles.
    fn not_needed(
        &mut self,
        plan: &Plan,
        given_up: &[(Arc<Request>, Withdrawal)],
        now: Timestamp,
    ) -> Vec<Arc<Request>> {
        // Then not all pods were looked at.
        if plan.stops.iter().any(|stopped| !stopped.by.is_limit()) {
            return Vec::new();
        }
        // Who does not run does not say whether it still wants a pod.
        let is_heard = |requested: Option<&Requested>| match requested.and_then(|it| it.by.as_ref()) {
            Some((plugin, profile)) => !plan.problems.iter().any(|problem| problem.is_of(profile, *plugin)),
            None => !plan.problems.iter().any(Problem::silences),
        };
        let wanted: HashSet<&str> = plan.still_wanted.iter().map(String::as_str).collect();
        let given_up: HashSet<&Key> = given_up.iter().map(|(request, _)| &request.key).collect();
        let ours = self.requests.values().filter(|it| self.is_ours(it) && !given_up.contains(&it.key));
        let mut ours: Vec<Arc<Request>> = ours.cloned().collect();
        ours.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut not_needed = Vec::new();
        for request in ours {
            let pod = PodId::of(&request);
            if !is_heard(self.asked.get(&pod)) {
                continue;
            }
            if wanted.contains(&*pod.uid) || self.is_ending(&pod) || !may_withdraw(&request) {
                self.unwanted.remove(&pod);
                continue;
            }
            let (cycles, counted) = self.unwanted.entry(pod).or_insert((0, Timestamp::MIN));
            if *cycles == 0 || elapsed(*counted, now) >= self.options.interval {
                (*cycles, *counted) = (cycles.saturating_add(1), now);
            }
            // One that could not be withdrawn is tried in every cycle.
            if *cycles >= self.options.unwanted_cycles {
                not_needed.push(request);
            }
        }
        not_needed
    }

    /// How the pod would be asked. One that names interceptors is never evicted past them: the manager's own evictions pass every gateway.
    /// For one that has succeeded or failed there is nothing to wait for, and no request is taken.
    pub fn way_of(&self, pod: &PodRef) -> Way {
        let marks = self.marks.get(&pod.into()).copied().unwrap_or_default();
        if marks.is_over {
            return Way::Eviction { in_background: false };
        }
        let in_background = self.options.in_background && marks.request_evict_only;
        if marks.names_interceptors || (self.options.requests && !in_background) {
            Way::Request
        } else {
            Way::Eviction { in_background }
        }
    }

    /// The pod was not asked after all.
    pub fn not_asked(&mut self, pod: &PodRef) {
        let pod = PodId::from(pod);
        self.is_unsaved |= self.background.remove(&pod).is_some() | self.moved.remove(&pod).is_some();
    }

    /// What came of it.
    pub fn asked(&mut self, proposal: &Proposal, asked: &AskOutcome, now: Timestamp) {
        if matches!(asked, AskOutcome::ByOthers | AskOutcome::Gone | AskOutcome::Refused) {
            self.not_asked(&proposal.pod);
        }
        if !matches!(asked, AskOutcome::Gone | AskOutcome::Refused) {
            self.asked_in_cycle.push(proposal.pod.clone());
        }
        let pod = PodId::from(&proposal.pod);
        match asked {
            AskOutcome::InBackground => {
                self.promises.made(proposal);
                let is_marked = self.marks.get(&pod).is_some_and(|marks| marks.in_progress);
                let state = if is_marked { Moving::Marked } else { Moving::Promised };
                self.background.insert(pod, Background { since: now, state });
                self.is_unsaved = true;
            }
            AskOutcome::Refused | AskOutcome::Unknown => {
                if *asked == AskOutcome::Unknown {
                    self.unseen.insert(pod.clone(), now);
                }
                let (until, times) = self.failed.entry(pod).or_insert((now, 0));
                let pause = FIRST_PAUSE.checked_mul(1_i32 << (*times).min(10)).unwrap_or(LONGEST_PAUSE);
                (*until, *times) = (later(now, pause.min(LONGEST_PAUSE)), times.saturating_add(1));
                self.is_unsaved = true;
            }
            AskOutcome::Requested | AskOutcome::ByOthers | AskOutcome::Evicted => {
                self.is_unsaved |=
                    self.background.remove(&pod).is_some() | self.failed.remove(&pod).is_some();
                if *asked == AskOutcome::Requested {
                    let by = Some((proposal.plugin, proposal.profile.clone()));
                    self.asked.insert(pod.clone(), Requested { since: now, by });
                    self.is_unsaved = true;
                }
                self.unseen.insert(pod, now);
            }
            AskOutcome::Gone => drop(self.failed.remove(&pod)),
        }
    }

    /// Somebody moves it in the background, or has promised to.
    fn is_in_background(&self, pod: &PodId) -> bool {
        self.background.get(pod).is_some_and(|it| it.state != Moving::GivenUp)
    }

    /// How many pods are under way by the descheduler.
    pub fn under_way(&self) -> usize {
        let background = self.background.values().filter(|it| it.state != Moving::GivenUp).count();
        self.requests.values().filter(|request| self.is_ours(request)).count() + background
    }

    /// The latest of each kind, if there are more than fit.
    fn memory(&self) -> Memory {
        Memory {
            cooling: latest(self.cooling.iter().map(|(pod, until)| (pod, *until))),
            failed: latest(self.failed.iter().map(|(pod, failed)| (pod, *failed))),
            asked: latest(self.asked.iter().map(|(pod, requested)| (pod, requested.clone()))),
            background: latest(self.background.iter().map(|(pod, it)| (pod, (it.since, it.state)))),
            moved: latest(self.moved.iter().map(|(pod, moved)| (pod, moved.clone()))),
        }
    }
}

fn latest<'a, T: Ord>(all: impl Iterator<Item = (&'a PodId, T)>) -> BTreeMap<PodId, T> {
    let mut all: Vec<_> = all.collect();
    all.sort_by(|(_, one), (_, other)| other.cmp(one));
    all.into_iter().take(REMEMBERED).map(|(pod, time)| (pod.clone(), time)).collect()
}

fn may_withdraw(request: &Request) -> bool {
    request.status.eviction_request_cancellation_policy == CancellationPolicy::Allow
}

fn elapsed(since: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(since)
}

pub(crate) fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "requester_tests.rs"]
mod tests;
