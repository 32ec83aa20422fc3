//! What is known of Deployments, their ReplicaSets, pods and autoscalers, and of the requests for their pods. What is done for them
//! is decided in [`super::surge`].
//!
//! It answers for the classes of Deployments, of ReplicaSets and of autoscalers: who has the turn makes no difference to how pods are
//! replaced. ReplicaSets without a Deployment, and ReplicationControllers, only prefer the pods that are asked to leave when they are
//! scaled down, unless they say how many go at a time ([`super::replica_set`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::names::{
    DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, INTERCEPTOR_PRIORITY_ANNOTATION, REPLICA_SET_CLASS,
};
use usher_api::workloads::{BundledInterceptor, Strategy, autoscaler_priority};

use super::availability::asked_at;
use super::records::Records;
use super::replica_set;
use super::surge::{self, Case};
use super::{
    Decision, Effect, EffectOutcome, Event, Item, Namespaces, Pending, Watch, WorkloadInterceptor, complete,
    has_turn, is_wanted,
};
use super::{Wait, owner_of, say, unknown_strategy_event, unread_report, warn_once};
use crate::later;
use crate::snapshot::{Autoscaler, Deployment, Key, Owner, Pod, RaisedLimits, ReplicaSet, Request, Surge};

/// The classes that it answers for.
pub const CLASSES: [&str; 3] = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS];

/// In the turns of this class other pods are made available first.
pub fn answers_for(class: &str) -> bool {
    CLASSES.contains(&class)
}

/// Deployments of so many pods are not looked at for each of their events.
const MANY: usize = 1_000;
/// A look takes about a hundredth of this for each pod.
const PAUSE_FOR_A_POD: SignedDuration = SignedDuration::from_micros(100);

const HAND_OVER_OFF: &str = "its annotation or namespace asks for HandOver, which this manager does not do: it has no right to make pods, and \
    surges by replicas instead. Start it with --hand-over=allowed and give it the role in deploy/workloads/hand-over-role.yaml, or remove \
    the annotation";

const REFUSED: &str = "see whether its account has the role in deploy/workloads/deployment-role.yaml (and in hand-over-role.yaml, if it is to \
    make pods), and whether a quota or a policy refuses it";

/// A pod to be handed over that is lost again and again is made at least so often.
const LONGEST_PAUSE_SECONDS: i64 = 300;

/// A ReplicaSet or Deployment of which its watch has not told is waited for so long; after that there is none.
const UNSEEN: SignedDuration = SignedDuration::from_mins(1);
/// After so long that is told.
const TOLD_UNSEEN: SignedDuration = SignedDuration::from_secs(5);

/// What controls a pod, if it is of interest here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Controller {
    ReplicaSet(Key),
    Replication,
    /// This ReplicaSet is to adopt it.
    HandOver(Key),
}

/// Where pods are handed over instead of surging by replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// Nowhere: the manager must not make pods.
    #[default]
    Off,
    /// Where a workload or namespace asks for it, and where somebody keeps setting the replicas back.
    Allowed,
    /// Everywhere where nothing else is asked for.
    Always,
}

#[derive(Debug, Default)]
pub struct Deployments {
    hand_over: HandOver,
    /// Pods that are to be handed over to a ReplicaSet, which is named on them.
    handed: HashMap<Key, BTreeSet<Key>>,
    /// How many names of such pods were taken by others, by the UID of the request.
    taken: HashMap<Arc<str>, u32>,
    /// What the server does not let us do for a Deployment, and its words.
    refused: HashMap<Key, (Discriminant<Effect>, String)>,

    /// Those of ReplicaSets and ReplicationControllers.
    pods: HashMap<Key, Arc<Pod>>,
    /// The pods of a ReplicaSet that they name, in their own namespace.
    of_set: HashMap<Key, BTreeSet<Key>>,
    sets: HashMap<Key, ReplicaSet>,
    /// The ReplicaSets of a Deployment that they name.
    of_deployment: HashMap<Key, BTreeSet<Key>>,
    deployments: HashMap<Key, Deployment>,
    autoscalers: HashMap<Key, Autoscaler>,
    /// The autoscalers of a Deployment.
    over: HashMap<Key, BTreeSet<Key>>,
    /// Autoscalers whose limits are raised for a Deployment that they do not scale any more.
    left: HashMap<Key, BTreeSet<Key>>,
    /// Requests that have one of these interceptors, or are for a pod of a ReplicationController.
    requests: HashMap<Key, Arc<Request>>,
    /// Requests that were completed here, as they are since, for as long as the watch has not told so: another pod must not go instead.
    completed: HashMap<Key, Arc<Request>>,
    namespaces: Namespaces,
    pending: BTreeSet<Item>,
    /// Pods that have a mark, by their UID.
    marked: HashMap<Arc<str>, Key>,
    /// With the replicas of Deployments.
    surges: Records<Surge, u32>,
    /// With the limits of autoscalers.
    limits: Records<RaisedLimits, (u32, u32)>,
    /// When events last came.
    now: Timestamp,
    /// When Deployments of very many pods were last looked at, and how many they had.
    looked_at: HashMap<Key, (Timestamp, usize)>,
    /// Deployments for which something is under way. A change of a pod of another one needs no look at all its pods.
    active: HashSet<Key>,
    /// Since when the ReplicaSet or Deployment of the pod of a request is waited for, whose watch has not told of it.
    unseen: HashMap<Key, Timestamp>,
    /// How often a pod to be handed over was made for a request, by its UID, and when last.
    made: HashMap<Arc<str>, (u32, Timestamp)>,
    most_ready: HashMap<Key, MostReady>,
    told: HashMap<Key, String>,
    warned_refusals: HashMap<Key, String>,
    warned_priorities: HashMap<Key, String>,
    /// Those whose new pods do not come, and the UID of the request for which that was told.
    warned_stuck: HashMap<Key, Arc<str>>,
    /// Kinds that the manager must not read.
    unread: BTreeSet<Watch>,
}

/// How many new pods of a Deployment were ready at most since the first of those was asked to leave that wait now. New ones that are
/// lost again and again are no progress.
#[derive(Debug, Clone, Copy)]
struct MostReady {
    since: Timestamp,
    count: usize,
    /// When that many were ready for the first time.
    moved: Timestamp,
}

impl MostReady {
    /// When the first of those that wait has left, others are the first, and fewer pods are new to them: what has come before they
    /// were asked is no progress for them, and what comes from now on is.
    fn after(before: Option<Self>, since: Timestamp, ready: &[Timestamp]) -> Self {
        let (count, moved) = match before {
            None => (0, Timestamp::MIN),
            Some(before) if before.since == since => (before.count, before.moved),
            Some(before) => (ready.len(), before.moved),
        };
        let is_more = ready.len() > count;
        let moved = if is_more { ready.iter().max().copied().unwrap_or(moved) } else { moved };
        Self { since, count: ready.len().max(count), moved }
    }
}

fn unseen_report(request: &Arc<Request>, set: &Key) -> Option<Effect> {
    let has_turn = CLASSES.iter().any(|class| has_turn(request, class));
    let (pod, set) = (&request.pod_name, &set.name);
    let message = format!("{pod} waits until its ReplicaSet {set} and that one's Deployment are known");
    has_turn.then(|| say(request, message)).flatten()
}

/// A priority that an autoscaler cannot have counts as if it were not there: what its owner is told, and on what.
fn unknown_priority(autoscaler: &Autoscaler) -> Option<(Owner, String)> {
    let text = autoscaler.priority.as_deref().filter(|text| autoscaler_priority(text).is_none())?;
    let text: String = text.chars().take(64).collect();
    let message = format!(
        "annotation {INTERCEPTOR_PRIORITY_ANNOTATION} is {text:?}: give a number from 0 to 100000 that is not reserved for the controllers \
         of pods, such as 11000; until then it counts as if it were not there"
    );
    let owner = Owner {
        api_version: "autoscaling/v2".into(),
        kind: "HorizontalPodAutoscaler".into(),
        name: autoscaler.key.name.clone(),
        uid: autoscaler.uid.clone(),
    };
    Some((owner, message))
}

impl WorkloadInterceptor for Deployments {
    fn watches(&self) -> &'static [Watch] {
        &[
            Watch::Pods,
            Watch::Requests,
            Watch::Namespaces,
            Watch::Deployments,
            Watch::ReplicaSets,
            Watch::Autoscalers,
        ]
    }

    fn observe(&mut self, event: Event, now: Timestamp) {
        self.now = now;
        if event.is_listed() && self.unread.remove(&event.watch()) && self.unread.is_empty() {
            let all: Vec<Item> = self.requests.values().map(|request| self.item_of(request)).collect();
            self.pending.extend(all.into_iter().chain(self.deployments.keys().cloned().map(Item::Workload)));
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
                    let request = self.requests.get(&key).cloned();
                    if self
                        .completed
                        .get(&key)
                        .is_some_and(|it| !request.as_ref().is_some_and(|told| is_same_turn(it, told)))
                    {
                        self.completed.remove(&key);
                    }
                    if request.as_ref().is_some_and(|request| !self.is_ours(request)) {
                        self.requests.remove(&key);
                        continue;
                    }
                    if let (None, Some(gone)) = (&request, &before) {
                        self.unseen.remove(&key);
                        self.taken.remove(&gone.uid);
                        self.made.remove(&gone.uid);
                    }
                    if !self.unread.is_empty() {
                        self.pending.insert(Item::Request(key.clone()));
                    }
                    let request = request.or(before);
                    let pod = request.as_ref().and_then(|request| self.pods.get(&request.pod_key()));
                    let set = pod.and_then(|pod| self.set_of(pod));
                    self.pending.extend(set.map(Item::ReplicaSet));
                    self.pending.extend(request.map(|request| self.item_of(&request)));
                }
            }
            Event::ReplicaSet(event) => {
                for (key, before) in event.store(&mut self.sets, |set| set.key.clone()) {
                    self.set_changed(&key, before.as_ref());
                }
            }
            Event::Deployment(event) => {
                let event = event.map(|mut it| {
                    it.surge = self.surges.of(&it.key, &it.uid, it.surge.take(), &it.replicas);
                    it
                });
                for (key, before) in event.store(&mut self.deployments, |it| it.key.clone()) {
                    if !self.deployments.contains_key(&key) {
                        self.surges.forget(&key);
                    }
                    if before.as_ref() != self.deployments.get(&key) {
                        if before.is_none() || !self.deployments.contains_key(&key) {
                            self.orphans_of(&key);
                        }
                        self.pending.insert(Item::Workload(key));
                    }
                }
            }
            Event::Autoscaler(event) => {
                let event = event.map(|mut it| {
                    let limits = (it.min_replicas, it.max_replicas);
                    it.raised = self.limits.of(&it.key, &it.uid, it.raised.take(), &limits);
                    it
                });
                for (key, before) in event.store(&mut self.autoscalers, |it| it.key.clone()) {
                    if !self.autoscalers.contains_key(&key) {
                        self.limits.forget(&key);
                    }
                    self.autoscaler_changed(&key, before.as_ref());
                }
            }
            Event::Namespace(event) => {
                for name in self.namespaces.changed(event) {
                    let of = self.deployments.keys().filter(|key| key.namespace == name).cloned();
                    self.pending.extend(of.map(Item::Workload));
                }
            }
            Event::DaemonSet(_) | Event::StatefulSet(_) | Event::Maintenance(_) => {}
        }
    }

    fn pending(&mut self) -> Pending {
        let (later, now) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<BTreeSet<Item>, _>(|item| self.next_look(item).is_some());
        let at = later.into_iter().filter_map(|item| self.next_look(&item).map(|at| (item, at))).collect();
        Pending { now, at }
    }

    fn decide(&mut self, item: &Item, now: Timestamp) -> Decision {
        let decision = match item {
            Item::Request(key) if !self.unread.is_empty() => self.unread_report(key),
            // What is known of it may be long past.
            _ if !self.unread.is_empty() => Decision::default(),
            Item::Workload(key) => self.decide_workload(key, now),
            Item::Request(key) => self.decide_request(key, now),
            Item::ReplicaSet(key) => self.decide_set(key, now),
            Item::HeldNodes | Item::GatedPod(_) => Decision::default(),
        };
        self.note_records(&decision);
        decision
    }

    fn carried_out(&mut self, effect: &Effect, outcome: &EffectOutcome, now: Timestamp) {
        match (effect, outcome) {
            (Effect::Resize { deployment, replicas, surge: None }, EffectOutcome::Done) => {
                self.surges.has_removed(&deployment.key);
                // Where somebody had removed the record, nothing was written of which a watch could tell.
                if let Some(it) = self.deployments.get_mut(&deployment.key).filter(|it| **it == **deployment)
                    && it.replicas == *replicas
                    && it.surge.take().is_some()
                {
                    self.pending.insert(Item::Workload(deployment.key.clone()));
                }
            }
            (Effect::Limit { autoscaler, min_replicas, max_replicas, raised: None }, EffectOutcome::Done) => {
                self.limits.has_removed(&autoscaler.key);
                if let Some(it) = self.autoscalers.get_mut(&autoscaler.key).filter(|it| **it == **autoscaler)
                    && (it.min_replicas, it.max_replicas) == (*min_replicas, *max_replicas)
                {
                    it.raised = None;
                    self.autoscaler_changed(&autoscaler.key, Some(autoscaler));
                }
            }
            (Effect::MakeHandOver(new), EffectOutcome::Done) => {
                let (times, at) = self.made.entry(new.request.uid.clone()).or_default();
                (*times, *at) = (times.saturating_add(1), now);
            }
            (
                Effect::Report { request, report } | Effect::ReportIfAvailable { request, report, .. },
                EffectOutcome::Done,
            ) if report.completed
                && self.requests.get(&request.key).is_some_and(|told| is_same_turn(request, told)) =>
            {
                let mut completed = Request::clone(request);
                completed.status.active_interceptor_completed = true;
                self.completed.insert(request.key.clone(), Arc::new(completed));
            }
            (Effect::MakeHandOver(new), EffectOutcome::NameTaken) => {
                *self.taken.entry(new.request.uid.clone()).or_default() += 1;
            }
            _ => {}
        }
        let Some(key) = self.workload_of_effect(effect) else { return };
        match outcome {
            EffectOutcome::Refused(why) => {
                self.refused.insert(key, (discriminant(effect), why.clone()));
            }
            EffectOutcome::Done
                if self.refused.get(&key).is_some_and(|(what, _)| *what == discriminant(effect)) =>
            {
                self.refused.remove(&key);
            }
            EffectOutcome::Done | EffectOutcome::NameTaken => {}
        }
    }
}

impl Deployments {
    pub fn new(hand_over: HandOver) -> Self {
        Self { hand_over, ..Self::default() }
    }

    /// The time of the next look at a Deployment of very many pods, if that is not now: the more there are, the longer after the last one.
    fn next_look(&self, item: &Item) -> Option<Timestamp> {
        let Item::Workload(key) = item else { return None };
        let (last, pods) = self.looked_at.get(key)?;
        let pause =
            i64::try_from(*pods).unwrap_or(i64::MAX).saturating_mul(PAUSE_FOR_A_POD.as_micros() as i64);
        let next = later(*last, SignedDuration::from_micros(pause));
        (next > self.now).then_some(next)
    }

    fn note_records(&mut self, decision: &Decision) {
        for effect in &decision.effects {
            match effect {
                Effect::Resize { deployment: it, replicas, surge } => {
                    self.surges.writes(&it.key, &it.uid, surge.as_ref(), *replicas);
                }
                Effect::Limit { autoscaler: it, min_replicas, max_replicas, raised } => {
                    let limits = (*min_replicas, *max_replicas);
                    self.limits.writes(&it.key, &it.uid, raised.as_ref(), limits);
                }
                _ => {}
            }
        }
    }

    /// The Deployment for which this is done.
    fn workload_of_effect(&self, effect: &Effect) -> Option<Key> {
        match effect {
            Effect::Resize { deployment, .. } => Some(deployment.key.clone()),
            Effect::Limit { autoscaler, .. } => {
                let name = autoscaler.deployment.clone()?;
                Some(Key::new(autoscaler.key.namespace.clone(), name))
            }
            Effect::MakeHandOver(new) => self.workload_of(&new.set),
            Effect::HandOver { pod, .. } | Effect::DropHandOver { pod } | Effect::Prefer { pod, .. } => {
                match controller_of(pod)? {
                    Controller::ReplicaSet(set) | Controller::HandOver(set) => self.workload_of(&set),
                    Controller::Replication => None,
                }
            }
            _ => None,
        }
    }

    fn pod_changed(&mut self, key: &Key, before: Option<&Pod>) {
        if let Some(before) = before {
            self.marked.remove(&before.uid);
        }
        if let Some(pod) = self.pods.get(key).filter(|pod| pod.preferred().is_some()) {
            self.marked.insert(pod.uid.clone(), key.clone());
        }
        let sets = [before, self.pods.get(key).map(|pod| &**pod)];
        let sets: Vec<Key> = sets.into_iter().flatten().filter_map(|pod| self.set_of(pod)).collect();
        self.pending.extend(sets.into_iter().map(Item::ReplicaSet));
        match before.and_then(controller_of) {
            Some(Controller::ReplicaSet(set)) => {
                remove(&mut self.of_set, &set, key);
                let workload = self.workload_of(&set).filter(|key| self.active.contains(key));
                self.pending.extend(workload.map(Item::Workload));
            }
            Some(Controller::HandOver(set)) => {
                remove(&mut self.handed, &set, key);
                self.pending.extend(self.workload_of(&set).map(Item::Workload));
            }
            Some(Controller::Replication) | None => {}
        }
        let Some(pod) = self.pods.get(key).cloned() else { return };
        match controller_of(&pod) {
            Some(Controller::ReplicaSet(set)) => {
                self.of_set.entry(set.clone()).or_default().insert(key.clone());
                let concerns = pod.preferred().is_some() || self.requests.contains_key(&pod.request_key());
                match self.workload_of(&set) {
                    Some(key) if concerns || self.active.contains(&key) => {
                        self.pending.insert(Item::Workload(key));
                    }
                    None if concerns => {
                        self.pending.insert(Item::Request(pod.request_key()));
                    }
                    _ => {}
                }
            }
            Some(Controller::Replication) => {
                self.pending.insert(Item::Request(pod.request_key()));
            }
            Some(Controller::HandOver(set)) => {
                self.handed.entry(set.clone()).or_default().insert(key.clone());
                self.pending.extend(self.workload_of(&set).map(Item::Workload));
                if self.requests.contains_key(&pod.request_key()) {
                    self.pending.insert(Item::Request(pod.request_key()));
                }
            }
            None => {
                // Somebody may have annotated it with one of these classes all the same.
                if self.requests.contains_key(&pod.request_key()) {
                    self.pending.insert(Item::Request(pod.request_key()));
                } else if !pod.names_interceptors {
                    self.pods.remove(key);
                }
            }
        }
    }

    fn set_changed(&mut self, key: &Key, before: Option<&ReplicaSet>) {
        let after = self.sets.get(key).cloned();
        if before == after.as_ref() {
            return;
        }
        let deployment = |set: &ReplicaSet| {
            set.deployment.as_ref().map(|(name, _)| Key::new(key.namespace.clone(), name.clone()))
        };
        if let Some(before) = before.and_then(deployment) {
            remove(&mut self.of_deployment, &before, key);
            self.pending.insert(Item::Workload(before));
        }
        if let Some(deployment) = after.as_ref().and_then(deployment) {
            self.of_deployment.entry(deployment.clone()).or_default().insert(key.clone());
            self.pending.insert(Item::Workload(deployment));
        }
        if [before, after.as_ref()].into_iter().flatten().any(|set| set.evicts.is_some()) {
            self.pending.insert(Item::ReplicaSet(key.clone()));
        }
        self.enqueue_requests_of(key);
    }

    /// The ReplicaSet of a pod, if it has no Deployment and says how many go at a time.
    fn set_of(&self, pod: &Pod) -> Option<Key> {
        let Some(Controller::ReplicaSet(key)) = controller_of(pod) else { return None };
        let set = self.sets.get(&key)?;
        (set.evicts.is_some() && self.workload_of(&key).is_none()).then_some(key)
    }

    fn decide_set(&self, key: &Key, now: Timestamp) -> Decision {
        let Some(set) = self.sets.get(key).filter(|_| self.workload_of(key).is_none()) else {
            return Decision::default();
        };
        let Some(evicts) = set.evicts else { return Decision::default() };
        let pods = self.of_set.get(key).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let is_its = |pod: &&Arc<Pod>| pod.owner.as_ref().is_some_and(|owner| owner.uid == set.uid);
        let pods: Vec<&Arc<Pod>> = pods.filter(is_its).collect();
        let requests = pods
            .iter()
            .filter_map(|pod| self.request(&pod.request_key()).map(|request| (pod.uid.clone(), request)));
        let case = replica_set::Case { set: &key.name, evicts, requests: requests.collect(), pods };
        replica_set::decide(&case, now)
    }

    /// As the watch has told it, or as it is since it was completed here.
    fn request(&self, key: &Key) -> Option<&Arc<Request>> {
        self.completed.get(key).or_else(|| self.requests.get(key))
    }

    /// The requests for the pods of a ReplicaSet one by one.
    fn enqueue_requests_of(&mut self, set: &Key) {
        let pods = self.of_set.get(set).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let is_ours = |key: &Key| self.requests.contains_key(key) || self.marked.contains_key(&key.name);
        let requests = pods.map(|pod| pod.request_key()).filter(is_ours);
        self.pending.extend(requests.map(Item::Request));
    }

    /// A Deployment has come or gone.
    fn orphans_of(&mut self, deployment: &Key) {
        let sets: Vec<Key> = self.of_deployment.get(deployment).into_iter().flatten().cloned().collect();
        for set in sets {
            self.enqueue_requests_of(&set);
        }
    }

    fn autoscaler_changed(&mut self, key: &Key, before: Option<&Autoscaler>) {
        let deployment = |it: &Autoscaler| {
            it.deployment.as_ref().map(|name| Key::new(key.namespace.clone(), name.clone()))
        };
        let after = self.autoscalers.get(key);
        let (was, is) = (before.and_then(deployment), after.and_then(deployment));
        if was != is
            && let Some(was) = &was
        {
            remove(&mut self.over, was, key);
        }
        if let Some(is) = &is {
            self.over.entry(is.clone()).or_default().insert(key.clone());
        }
        let left_by = |it: &Autoscaler| it.raised_for_another().map(|of| Key::new(key.namespace.clone(), of));
        let (before, after) = (before.and_then(left_by), after.and_then(left_by));
        if let Some(before) = &before {
            remove(&mut self.left, before, key);
        }
        if let Some(after) = &after {
            self.left.entry(after.clone()).or_default().insert(key.clone());
        }
        self.pending.extend([was, is, before, after].into_iter().flatten().map(Item::Workload));
    }

    /// The Deployment of a ReplicaSet, if there is one.
    fn workload_of(&self, set: &Key) -> Option<Key> {
        let (name, uid) = self.sets.get(set)?.deployment.clone()?;
        let key = Key::new(set.namespace.clone(), name);
        self.deployments.get(&key).is_some_and(|deployment| deployment.uid == uid).then_some(key)
    }

    /// The ReplicaSet that controls the pod is known, and has none.
    fn is_without_deployment(&self, pod: &Pod, set: &Key) -> bool {
        let is_its = |set: &ReplicaSet| {
            pod.hand_over().is_some() || pod.owner.as_ref().is_some_and(|owner| owner.uid == set.uid)
        };
        self.sets.get(set).is_some_and(|set| is_its(set) && set.deployment.is_none())
    }

    /// It has one of these interceptors, or is for a pod of a ReplicationController, which may not be known yet.
    fn is_ours(&self, request: &Request) -> bool {
        request.interceptors.iter().any(|it| CLASSES.contains(&it.interceptor_class.as_str()))
            || match self.pods.get(&request.pod_key()) {
                Some(pod) => controller_of(pod) == Some(Controller::Replication),
                None => request.interceptors.is_empty(),
            }
    }

    fn item_of(&self, request: &Request) -> Item {
        let pod = self.pods.get(&request.pod_key());
        let deployment = pod.and_then(|pod| match controller_of(pod)? {
            Controller::ReplicaSet(set) | Controller::HandOver(set) => self.workload_of(&set),
            Controller::Replication => None,
        });
        deployment.map_or_else(|| Item::Request(request.key.clone()), Item::Workload)
    }

    fn autoscalers_over(&self, deployment: &Key) -> impl Iterator<Item = &Autoscaler> {
        let keys = self.over.get(deployment).into_iter().flatten();
        keys.filter_map(|key| self.autoscalers.get(key)).filter(|it| !it.is_deleting)
    }

    /// What is to be undone of autoscalers that do not scale this Deployment any more.
    fn left_behind(&self, deployment: &Key) -> Vec<Effect> {
        let keys = self.left.get(deployment).into_iter().flatten();
        let left = keys.filter_map(|key| self.autoscalers.get(key)).filter(|it| !it.is_deleting);
        left.flat_map(|it| surge::left_behind(it, self.deployments.get(deployment))).collect()
    }

    /// The autoscaler whose limits count.
    fn autoscaler_over(&self, deployment: &Key) -> Option<&Autoscaler> {
        Autoscaler::over(&deployment.name, self.autoscalers_over(deployment))
    }

    fn decide_workload(&mut self, key: &Key, now: Timestamp) -> Decision {
        let left = self.left_behind(key);
        let is_new_target = self.autoscalers_over(key).any(|it| it.raised_for_another().is_some());
        let is_resized = left.iter().any(|effect| matches!(effect, Effect::Resize { .. }));
        if is_resized || is_new_target {
            // First that; an event tells when it is done.
            return Decision { effects: left, ..Decision::default() };
        }
        let Some(deployment) = self.deployments.get(key) else {
            self.told.remove(key);
            self.warned_priorities.remove(key);
            self.warned_stuck.remove(key);
            self.active.remove(key);
            self.most_ready.remove(key);
            let autoscaler = self.autoscaler_over(key);
            let raised = autoscaler.filter(|autoscaler| autoscaler.raised.is_some());
            let effects = left.into_iter().chain(raised.map(surge::restored)).collect();
            return Decision { effects, ..Decision::default() };
        };
        let autoscaler = self.autoscaler_over(key);
        let sets = self.of_deployment.get(key).into_iter().flatten().filter_map(|set| self.sets.get(set));
        let is_its =
            |set: &&ReplicaSet| set.deployment.as_ref().is_some_and(|(_, uid)| *uid == deployment.uid);
        let (mut pods, mut requests, mut handed) = (BTreeMap::new(), HashMap::new(), Vec::new());
        for set in sets.filter(is_its) {
            let to_adopt = self.handed.get(&set.key).into_iter().flatten();
            handed.extend(to_adopt.filter_map(|key| self.pods.get(key)).cloned());
            let of_set = self.of_set.get(&set.key).into_iter().flatten();
            for pod in of_set.filter_map(|key| self.pods.get(key)) {
                if pod.owner.as_ref().is_none_or(|owner| owner.uid != set.uid) {
                    continue;
                }
                if let Some(request) = self.request(&pod.request_key()) {
                    requests.insert(pod.uid.clone(), request.clone());
                }
                pods.insert(pod.key.clone(), pod.clone());
            }
        }
        let is_asked =
            |pod: &&Arc<Pod>| self.requests.get(&pod.request_key()).is_some_and(|it| is_wanted(it));
        let handed_asked = handed.iter().filter(is_asked).map(|pod| pod.uid.clone()).collect();
        let is_ours = |request: &&Arc<Request>| CLASSES.iter().any(|class| has_turn(request, class));
        let since = asked_at(requests.values().filter(is_ours));
        let new = pods.values().chain(&handed).filter(|pod| pod.created >= since && !pod.is_terminating());
        let ready: Vec<Timestamp> = new.filter_map(|pod| pod.ready_since).collect();
        let most_ready = MostReady::after(self.most_ready.get(key).copied(), since, &ready);
        let strategy = self.namespaces.strategy(
            BundledInterceptor::Deployment,
            &deployment.key,
            deployment.strategy.as_deref(),
        );
        let said = strategy.as_ref().map_or_else(|unknown| unknown.instead, |strategy| *strategy);
        let wanted = surge::strategy_of(deployment, autoscaler, said);
        let case = Case {
            deployment,
            strategy: match (wanted, self.hand_over) {
                (Strategy::Default, HandOver::Always) => Strategy::HandOver,
                (Strategy::HandOver, HandOver::Off) => Strategy::Default,
                (wanted, _) => wanted,
            },
            autoscaler,
            pods: &pods,
            requests: &requests,
            handed: &handed,
            handed_asked: &handed_asked,
            may_hand_over: self.hand_over != HandOver::Off,
            taken: &self.taken,
            moved: most_ready.moved,
            refused: self.refused.get(key).map(|(_, why)| why.as_str()),
        };
        let mut decision = surge::decide(&case, now);
        // What was refused is not wanted any more.
        let is_meant = |(what, _): &(Discriminant<Effect>, String)| {
            decision.effects.iter().any(|effect| discriminant(effect) == *what)
        };
        let is_outlived = self.refused.get(key).is_some_and(|refused| !is_meant(refused));
        let case = if is_outlived { Case { refused: None, ..case } } else { case };
        if is_outlived {
            decision = surge::decide(&case, now);
        }
        let may_be_stuck = matches!(decision.waiting_on, Some(Wait::Unavailable { .. }));
        let stuck = if may_be_stuck { surge::stuck(&case, now) } else { None };
        let stuck = stuck.filter(|(request, _)| self.warned_stuck.get(key) != Some(request));
        // Before what may be refused.
        let told =
            stuck.as_ref().map(|(_, why)| surge::event_on(deployment, true, "SurgeStuck", why.clone()));
        decision.effects.splice(0..0, told);
        pause_what_is_lost_again(&self.made, &mut decision, now);
        let beside = self.autoscalers_over(key).filter(|it| autoscaler.is_some_and(|one| one.key != it.key));
        decision.effects.extend(beside.filter(|it| it.raised.is_some()).map(surge::restored));
        decision.effects.extend(left);
        let unknown_priority = autoscaler.and_then(unknown_priority);
        let is_idle = requests.is_empty()
            && handed.is_empty()
            && deployment.surge.is_none()
            && autoscaler.is_none_or(|autoscaler| autoscaler.raised.is_none())
            && !pods.values().any(|pod| pod.preferred().is_some());
        if is_idle || pods.len() < MANY {
            self.looked_at.remove(key);
        } else {
            self.looked_at.insert(key.clone(), (now, pods.len()));
        }
        if is_idle || is_outlived {
            self.refused.remove(key);
        }
        if is_idle {
            self.warned_refusals.remove(key);
            self.warned_stuck.remove(key);
            self.active.remove(key);
            self.most_ready.remove(key);
        } else {
            self.active.insert(key.clone());
            self.most_ready.insert(key.clone(), most_ready);
            self.warned_stuck.extend(stuck.map(|(request, _)| (key.clone(), request)));
        }
        match unknown_priority {
            None => drop(self.warned_priorities.remove(key)),
            Some((owner, message)) => decision.effects.extend(warn_once(
                &mut self.warned_priorities,
                key,
                owner,
                "UnknownInterceptorPriority",
                message,
            )),
        }
        let owner = owner_of(BundledInterceptor::Deployment, &deployment.key, &deployment.uid);
        if let Some((_, why)) = self.refused.get(key) {
            let message =
                format!("the API server refuses what Usher writes before pods leave: {why}; {REFUSED}");
            let told = warn_once(&mut self.warned_refusals, key, owner.clone(), "SurgeRefused", message);
            // Before what is refused again.
            decision.effects.splice(0..0, told);
        }
        match strategy {
            Ok(Strategy::HandOver) if self.hand_over == HandOver::Off => {
                let told = warn_once(&mut self.told, key, owner, "HandOverOff", HAND_OVER_OFF.to_owned());
                decision.effects.extend(told);
            }
            Ok(_) => drop(self.told.remove(key)),
            Err(unknown) => {
                decision.effects.extend(unknown_strategy_event(&mut self.told, key, owner, &unknown).effects);
            }
        }
        decision
    }

    fn unread_report(&self, key: &Key) -> Decision {
        let is_ours = |request: &&Arc<Request>| CLASSES.iter().any(|class| has_turn(request, class));
        unread_report(self.requests.get(key).filter(is_ours), &self.unread, BundledInterceptor::Deployment)
    }

    /// A request for a pod that no Deployment has. Of a ReplicaSet without one, or a ReplicationController, such a pod is preferred when
    /// it is scaled down.
    fn decide_request(&mut self, key: &Key, now: Timestamp) -> Decision {
        let mut decision = Decision::default();
        let request = self.requests.get(key);
        let pod = request.map(|request| request.pod_key()).or_else(|| self.marked.get(&key.name).cloned());
        let pod = pod.and_then(|key| self.pods.get(&key)).filter(|pod| pod.uid == key.name);
        let Some(pod) = pod else { return decision };
        let controller = controller_of(pod);
        // One that is to be handed over is dropped instead of being evicted, or is about to be one of the others.
        if let Some(Controller::ReplicaSet(set) | Controller::HandOver(set)) = &controller {
            if self.workload_of(set).is_some() {
                self.unseen.remove(key);
                return decision;
            }
            if request.is_some() && !self.is_without_deployment(pod, set) {
                // A rollout may have made it just now: evicted beside that, one more would be missing.
                let since = *self.unseen.entry(key.clone()).or_insert(now);
                let (told, until) = (later(since, TOLD_UNSEEN), later(since, UNSEEN));
                if now < until {
                    if now >= told {
                        decision.effects.extend(request.and_then(|request| unseen_report(request, set)));
                    }
                    let recheck_at = Some(if now < told { told } else { until });
                    return Decision { recheck_at, waiting_on: Some(Wait::Others), ..decision };
                }
            }
        }
        let is_ours = request.is_some_and(|request| {
            let active = request.status.active_interceptor_class.as_deref();
            is_wanted(request)
                && match active {
                    Some(active) => CLASSES.contains(&active),
                    None => controller == Some(Controller::Replication) && request.interceptors.is_empty(),
                }
        });
        let is_on =
            self.namespaces.strategy(BundledInterceptor::Deployment, &pod.key, None) != Ok(Strategy::Off);
        let is_set = !matches!(controller, None | Some(Controller::HandOver(_)));
        let prefers = is_set && is_ours && is_on && !pod.is_terminating();
        match (pod.preferred(), prefers) {
            (None, true) => {
                decision.effects.push(surge::prefer(pod, i32::MIN));
            }
            (Some(_), false) if !pod.is_terminating() => {
                decision.effects.push(surge::prefer_no_more(pod));
            }
            _ => {}
        }
        if let Some(request) = request
            && CLASSES.iter().any(|class| has_turn(request, class))
            // One that says how many go at a time decides for all of them.
            && !(has_turn(request, REPLICA_SET_CLASS) && self.set_of(pod).is_some())
        {
            decision.effects.push(complete(
                request,
                "no Deployment controls the pod: it is left to the eviction API".to_owned(),
            ));
        }
        decision
    }
}

fn controller_of(pod: &Pod) -> Option<Controller> {
    if let Some(hand_over) = pod.hand_over() {
        return Some(Controller::HandOver(Key::new(pod.key.namespace.clone(), hand_over.set.clone())));
    }
    let Owner { api_version, kind, name, .. } = &**pod.owner.as_ref()?;
    if BundledInterceptor::of_owner(api_version, kind) == Some(BundledInterceptor::Deployment) {
        return Some(Controller::ReplicaSet(Key::new(pod.key.namespace.clone(), name.clone())));
    }
    (&**api_version == "v1" && &**kind == "ReplicationController").then_some(Controller::Replication)
}

/// A pod to be handed over that was made and is lost is made again, later and later: whoever takes or deletes it may go on doing so.
fn pause_what_is_lost_again(
    made: &HashMap<Arc<str>, (u32, Timestamp)>,
    decision: &mut Decision,
    now: Timestamp,
) {
    let mut again = decision.recheck_at;
    decision.effects.retain(|effect| {
        let Effect::MakeHandOver(new) = effect else { return true };
        let Some((times, last)) = made.get(&new.request.uid) else { return true };
        let pause = 4_i64.saturating_pow(times.saturating_sub(1)).min(LONGEST_PAUSE_SECONDS);
        let next = later(*last, SignedDuration::from_secs(pause));
        if next > now {
            again = again.into_iter().chain([next]).min();
        }
        next <= now
    });
    decision.recheck_at = again;
}

fn remove(of: &mut HashMap<Key, BTreeSet<Key>>, from: &Key, key: &Key) {
    if let Some(keys) = of.get_mut(from) {
        keys.remove(key);
        if keys.is_empty() {
            of.remove(from);
        }
    }
}

/// It is the same request, and the turn that the first one had is not over in the second one.
fn is_same_turn(known: &Request, told: &Request) -> bool {
    let class = known.status.active_interceptor_class.as_deref();
    known.uid == told.uid && class.is_some_and(|class| has_turn(told, class))
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
