//! DaemonSets: their pods are tied to the life of the node, so they leave only under a NodeMaintenance that has reached them, and come
//! back when it completes.
//!
//! The DaemonSet controller makes a new pod at once, whatever the node is marked with. So admission gives a scheduling gate to pods
//! that are made for a node that is held (the policies of `deploy/`, or the webhook), also while no manager runs. Which nodes are
//! held, and up to which priority, is in a ConfigMap that is written from here, before the first pod goes. When a node is not held any
//! more, the pods behind the gate are deleted, and their DaemonSet makes others without one: for that no right to change pods is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use usher_api::names::{DAEMON_SET_CLASS, HELD_NODES_CONFIG_MAP, MAINTENANCE_SCHEDULING_GATE};
use usher_api::workloads::{BundledInterceptor, Strategy, UnknownStrategy};
use usher_api::{NodeMaintenance, PodType};

use super::{Decision, Effect, EffectOutcome, Event, Item, Pending, Wait, Watch, WorkloadInterceptor};
use super::{Namespaces, complete, has_turn, next_beat, owner_of, progress, unknown_strategy_event};
use crate::maintenance::plan::PodClass;
use crate::snapshot::{DaemonSet, Key, Maintenance, Owner, Pod, Request};
use crate::waiting_on::Unevictable;

/// Between two writes of the nodes that are held, and before pods go or are let through: the API server needs a moment to know.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// A DaemonSet whose pod came back is asked again after this, then after twice as long each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(2);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// In the ConfigMap, before the UID of a DaemonSet whose pods stay. No node has such a name.
pub const STAYS_PREFIX: &str = "stays_";
/// The role that lets the manager write it.
const DAEMON_SET_ROLE: &str = "usher-interceptor-daemonset";

/// Everything that a decision on one request depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub request: &'a Arc<Request>,
    pub pod: Option<&'a Arc<Pod>>,
    /// The DaemonSet that the pod names, if it exists.
    pub set: Option<&'a DaemonSet>,
    pub strategy: Strategy,
    /// A maintenance of the pod's node that has reached the pod.
    pub maintenance: Option<&'a Maintenance>,
    /// From when on admission keeps the next pod off the node, as far as it can; `None`: it was not told yet.
    pub held_from: Option<Timestamp>,
    /// Pods of the same DaemonSet that were taken off the node before.
    pub removals: Option<&'a Removals>,
}

/// Pods of one DaemonSet that were taken off one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removals {
    /// The last one.
    pub uid: Arc<str>,
    pub at: Timestamp,
    pub count: u32,
}

impl Removals {
    /// When another one, that came back all the same, is taken off.
    fn next_at(&self) -> Timestamp {
        let pause = FIRST_PAUSE * 2_i32.pow(self.count.saturating_sub(1).min(10));
        self.at + pause.min(LONGEST_PAUSE)
    }
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let request = case.request;
    let is_its_pod = |pod: &&Arc<Pod>| pod.uid == request.pod_uid && !pod.phase.is_terminal();
    let is_left = is_left(request);
    if !is_left && !has_turn(request, DAEMON_SET_CLASS) {
        return Decision::default();
    }
    // Whether a pod is gone is found out by the eviction request controller.
    let Some(pod) = case.pod.filter(is_its_pod) else { return Decision::default() };
    let set = case.set.filter(|set| !set.is_deleting);
    if is_left && (set.is_none() || case.strategy == Strategy::Off) {
        return Decision::default();
    }
    let Some(set) = set else {
        return Decision::default().act(complete(request, "no DaemonSet controls the pod".to_owned()));
    };
    let name = &set.key.name;
    if case.strategy == Strategy::Off {
        let message = format!("DaemonSet {name} opted out of eviction requests: its pods stay");
        return Decision::default().act(complete(request, message));
    }
    if let Some(grace_ends) = pod.deletion() {
        // Until its grace ends, that it is on its way is progress.
        let beat = next_beat(request);
        let mut decision = waits(Wait::Terminating, (beat < grace_ends).then_some(beat));
        if now >= beat && now < grace_ends && !is_left {
            decision.effects.push(progress(request, Some(grace_ends), request.status.message.clone()));
        }
        return decision;
    }
    let Some(maintenance) = case.maintenance else { return waits(Wait::NotReached, None) };
    let Some(held_from) = case.held_from else { return waits(Wait::HeldNodes, None) };
    let again = case.removals.filter(|removals| removals.uid != pod.uid);
    if let Some(until) = again.map(Removals::next_at).filter(|until| now < *until) {
        return waits(Wait::CameBack { until }, Some(until));
    }
    if now < held_from {
        return waits(Wait::HeldNodes, Some(held_from));
    }
    let reason = if maintenance.reason.is_empty() { &*maintenance.name } else { &maintenance.reason };
    let message = format!("{name} is terminating the pod due to node maintenance ({reason}).");
    let finish = now + SignedDuration::from_secs(pod.grace_seconds.into());
    let mut decision = Decision::default();
    let is_told =
        request.status.message == message && request.status.expected_interceptor_finish_time.is_some();
    if !is_told && !is_left {
        decision.effects.push(progress(request, Some(finish), message));
    }
    decision.effects.push(Effect::DeletePod { pod: pod.clone(), version: None });
    if let Some(again) = again {
        decision.effects.push(Effect::RecordEvent {
            namespace: set.key.namespace.clone(),
            workload: owner_of(BundledInterceptor::DaemonSet, &set.key, &set.uid),
            is_warning: true,
            reason: "DaemonSetPodCameBack",
            message: format!(
                "pod {} came back to node {}, which is under maintenance, and is taken off again (for the {}. time): see whether the \
                 policies of deploy/ are installed, and docs/workloads.md if they were removed and installed again",
                pod.key.name, pod.node, again.count
            ),
        });
    }
    decision
}

/// The turn was completed because the DaemonSet had opted out, which it does not any more, or somebody has the interceptors skipped:
/// nobody else ends the pod.
fn is_left(request: &Request) -> bool {
    let is_over = request.status.active_interceptor_class.as_deref() == Some(DAEMON_SET_CLASS)
        && request.status.active_interceptor_completed;
    (is_over || request.skips_interceptors().is_some())
        && request.requesters().next().is_some()
        && request.is_blocked_as(&[Unevictable::DaemonSetPod])
}

fn waits(wait: Wait, recheck_at: Option<Timestamp>) -> Decision {
    Decision { waiting_on: Some(wait), recheck_at, effects: Vec::new() }
}

/// What the interceptor of DaemonSets knows.
#[derive(Debug)]
pub struct DaemonSets {
    /// `false`: it holds no node and answers no request; it only lets pods through that wait behind the gate.
    is_on: bool,
    pods: HashMap<Key, Arc<Pod>>,
    on_node: HashMap<Arc<str>, BTreeSet<Key>>,
    /// Pods behind the gate.
    gated: BTreeSet<Key>,
    /// How many pods a DaemonSet has, by its UID.
    pods_of: HashMap<Arc<str>, usize>,
    /// Those in whose turn it is.
    requests: HashMap<Key, Arc<Request>>,
    sets: HashMap<Key, Arc<DaemonSet>>,
    /// Those that say anything.
    namespaces: Namespaces,
    maintenances: HashMap<Arc<str>, Arc<Maintenance>>,
    /// By node and the UID of the DaemonSet.
    removals: HashMap<(Arc<str>, Arc<str>), Removals>,
    /// Pods behind the gate that were deleted so that others come, by the same.
    released: HashMap<(Arc<str>, Arc<str>), Removals>,
    held: Held,
    pending: BTreeSet<Item>,
    /// Workloads whose annotation means nothing, and that was told.
    told: HashMap<Key, String>,
    /// The UIDs of those whose template has the gate, and that was told.
    warned_gates: HashSet<Arc<str>>,
    /// Maintenances of which was told that admission could not be.
    warned_refusals: BTreeSet<Arc<str>>,
}

/// Which pods are kept off which nodes, as admission was told.
#[derive(Debug, Default)]
struct Held {
    /// What is in the ConfigMap; `None`: not written by this process yet.
    written: Option<Arc<BTreeMap<String, String>>>,
    /// What was in it before, which the API server knows by now.
    before: Option<Arc<BTreeMap<String, String>>>,
    at: Option<Timestamp>,
    /// So often the server did not take it, one time after the other: pods go all the same, and may come back.
    refusals: u32,
}

impl Held {
    fn next_at(&self) -> Option<Timestamp> {
        let pause = PAUSE * 2_i32.pow(self.refusals.min(10));
        self.at.map(|at| at + pause.min(LONGEST_PAUSE))
    }
}

impl Default for DaemonSets {
    fn default() -> Self {
        Self {
            is_on: true,
            pods: HashMap::new(),
            on_node: HashMap::new(),
            gated: BTreeSet::new(),
            pods_of: HashMap::new(),
            requests: HashMap::new(),
            sets: HashMap::new(),
            namespaces: Namespaces::default(),
            maintenances: HashMap::new(),
            removals: HashMap::new(),
            released: HashMap::new(),
            held: Held::default(),
            // What the manager before has left may not hold any more.
            pending: BTreeSet::from([Item::HeldNodes]),
            told: HashMap::new(),
            warned_gates: HashSet::new(),
            warned_refusals: BTreeSet::new(),
        }
    }
}

impl WorkloadInterceptor for DaemonSets {
    fn watches(&self) -> &'static [Watch] {
        if self.is_on {
            &[Watch::Pods, Watch::Requests, Watch::Namespaces, Watch::DaemonSets, Watch::Maintenances]
        } else {
            &[Watch::Pods, Watch::DaemonSets]
        }
    }

    fn observe(&mut self, event: Event, _: Timestamp) {
        match event {
            Event::Pod(event) => {
                for (key, before) in event.store(&mut self.pods, |pod| pod.key.clone()) {
                    self.pod_changed(&key, before.as_deref());
                }
            }
            Event::Request(event) => {
                for (key, _) in event.store(&mut self.requests, |request| request.key.clone()) {
                    let is_ours =
                        |request: &Arc<Request>| has_turn(request, DAEMON_SET_CLASS) || is_left(request);
                    if self.requests.get(&key).is_some_and(is_ours) {
                        self.pending.insert(Item::Request(key));
                    } else {
                        self.requests.remove(&key);
                    }
                }
            }
            Event::DaemonSet(event) => {
                for (key, before) in event.store(&mut self.sets, |set| set.key.clone()) {
                    let after = self.sets.get(&key);
                    if before.as_ref() != after {
                        let uids = [before.as_ref(), after].into_iter().flatten().map(|set| set.uid.clone());
                        self.enqueue_pods_of(&uids.collect::<Vec<_>>());
                        self.pending.insert(Item::Workload(key));
                        self.pending.insert(Item::HeldNodes);
                    }
                }
            }
            Event::Namespace(event) => {
                for name in self.namespaces.changed(event) {
                    self.pending.insert(Item::HeldNodes);
                    self.enqueue_namespace(&name);
                }
            }
            Event::Maintenance(event) => {
                for (name, before) in event.store(&mut self.maintenances, |it| it.name.clone()) {
                    self.maintenance_changed(&name, before.as_deref());
                }
            }
            Event::StatefulSet(_)
            | Event::Deployment(_)
            | Event::ReplicaSet(_)
            | Event::Autoscaler(_)
            | Event::NotAllowed(_) => {}
        }
    }

    fn pending(&mut self) -> Pending {
        std::mem::take(&mut self.pending).into()
    }

    fn decide(&mut self, item: &Item, now: Timestamp) -> Decision {
        match item {
            Item::HeldNodes => self.decide_held_nodes(now),
            Item::Request(key) => {
                let decision = self.decide_request(key, now);
                if decision.waiting_on == Some(Wait::HeldNodes) {
                    self.pending.insert(Item::HeldNodes);
                }
                decision
            }
            Item::Workload(key) => self.decide_workload(key),
            Item::GatedPod(key) => self.decide_gated(key, now),
            Item::ReplicaSet(_) => Decision::default(),
        }
    }

    fn carried_out(&mut self, effect: &Effect, outcome: &EffectOutcome, now: Timestamp) {
        match (effect, outcome) {
            (Effect::HoldNodes(data), outcome) => {
                self.held.at = Some(now);
                match outcome {
                    EffectOutcome::Done => {
                        self.held.before = self.held.written.replace(data.clone());
                        self.held.refusals = 0;
                        self.warned_refusals.clear();
                    }
                    EffectOutcome::Refused(_) | EffectOutcome::NameTaken => {
                        self.held.refusals = self.held.refusals.saturating_add(1)
                    }
                }
                self.pending.extend(self.requests.keys().cloned().map(Item::Request));
                self.pending.extend(self.gated.iter().cloned().map(Item::GatedPod));
                self.pending.insert(Item::HeldNodes);
            }
            (Effect::DeletePod { pod, version }, EffectOutcome::Done) => {
                let Some(owner) = &pod.owner else { return };
                let (node, known) = match version {
                    None => (&pod.node, &mut self.removals),
                    Some(_) => (held_for(pod).unwrap_or(&pod.node), &mut self.released),
                };
                let key = (node.clone(), owner.uid.clone());
                let before = known.get(&key);
                let count = before.map_or(0, |removals| removals.count);
                // It came all the same: somebody may have changed what admission goes by.
                if before.is_some_and(|before| before.uid != pod.uid) {
                    self.held.written = None;
                    self.pending.insert(Item::HeldNodes);
                }
                known.insert(key, Removals { uid: pod.uid.clone(), at: now, count: count + 1 });
            }
            _ => {}
        }
    }
}

impl DaemonSets {
    /// For a manager that runs without this interceptor, which may have been on before: no node is held, and pods that wait behind the
    /// gate are let through. It is to be told of pods and DaemonSets alone.
    pub fn switched_off() -> Self {
        Self { is_on: false, ..Self::default() }
    }

    fn pod_changed(&mut self, key: &Key, before: Option<&Pod>) {
        if let Some(before) = before.filter(|before| before.is_daemon()) {
            if let Some(on_node) = self.on_node.get_mut(&before.node) {
                on_node.remove(key);
                if on_node.is_empty() {
                    self.on_node.remove(&before.node);
                }
            }
            self.gated.remove(key);
        }
        let after = self.pods.get(key).cloned();
        self.count_pods_of(before, after.as_deref());
        let Some(pod) = after else { return };
        if !pod.is_daemon() {
            if pod.names_interceptors && self.is_on {
                // Somebody may have annotated it with this class all the same.
                self.enqueue(&pod);
            } else {
                self.pods.remove(key);
            }
            return;
        }
        if !pod.node.is_empty() {
            if self.is_on {
                self.on_node.entry(pod.node.clone()).or_default().insert(key.clone());
            }
            if let Some(owner) = pod.owner.as_ref().filter(|_| !self.released.is_empty()) {
                self.released.remove(&(pod.node.clone(), owner.uid.clone()));
            }
        }
        if held_for(&pod).is_some() {
            self.gated.insert(key.clone());
            self.pending.insert(Item::GatedPod(key.clone()));
        } else if !self.is_on {
            self.pods.remove(key);
            return;
        }
        self.enqueue(&pod);
    }

    fn count_pods_of(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let set_of = |pod: Option<&Pod>| {
            pod.filter(|pod| pod.is_daemon()).and_then(|pod| Some(pod.owner.as_ref()?.uid.clone()))
        };
        let (before, after) = (set_of(before), set_of(after));
        if before == after || !self.is_on {
            return;
        }
        if let Some(set) = after {
            let count = self.pods_of.entry(set).or_insert_with(|| {
                self.pending.insert(Item::HeldNodes);
                0
            });
            *count += 1;
        }
        if let Some(set) = before
            && let Some(count) = self.pods_of.get_mut(&set)
        {
            *count -= 1;
            if *count == 0 {
                self.pods_of.remove(&set);
                self.pending.insert(Item::HeldNodes);
            }
        }
    }

    fn enqueue(&mut self, pod: &Pod) {
        let request = pod.request_key();
        if self.requests.contains_key(&request) {
            self.pending.insert(Item::Request(request));
        }
    }

    /// The pods of DaemonSets by their UIDs: those that are asked to leave, and those behind the gate.
    fn enqueue_pods_of(&mut self, sets: &[Arc<str>]) {
        let is_of = |pod: Option<&Arc<Pod>>| {
            pod.and_then(|pod| pod.owner.as_ref()).is_none_or(|owner| sets.contains(&owner.uid))
        };
        let requests = self.requests.iter().filter(|(_, it)| is_of(self.pods.get(&it.pod_key())));
        let gated = self.gated.iter().filter(|key| is_of(self.pods.get(*key)));
        self.pending.extend(requests.map(|(key, _)| Item::Request(key.clone())));
        self.pending.extend(gated.cloned().map(Item::GatedPod));
    }

    fn enqueue_namespace(&mut self, namespace: &str) {
        let of = |key: &&Key| &*key.namespace == namespace;
        self.pending.extend(self.requests.keys().filter(of).cloned().map(Item::Request));
        self.pending.extend(self.gated.iter().filter(of).cloned().map(Item::GatedPod));
        self.pending.extend(self.sets.keys().filter(of).cloned().map(Item::Workload));
    }

    /// A maintenance is written with every count; only where it reaches other pods than before, somebody is concerned.
    fn maintenance_changed(&mut self, name: &str, before: Option<&Maintenance>) {
        let after = self.maintenances.get(name).cloned();
        let draining = |it: Option<&Maintenance>| it.is_some_and(Maintenance::drains);
        let is_like = draining(before) == draining(after.as_deref());
        let nodes: BTreeSet<Arc<str>> = self.known_nodes(before.into_iter().chain(after.as_deref()));
        let mut is_other = false;
        for node in nodes {
            let targets = |it: Option<&Maintenance>| it.and_then(|it| it.targets.get(&node).cloned());
            if is_like && targets(before) == targets(after.as_deref()) {
                continue;
            }
            is_other = true;
            let on_node = self.on_node.get(&node).into_iter().flatten().cloned().collect::<Vec<_>>();
            for key in on_node {
                if let Some(pod) = self.pods.get(&key).cloned() {
                    self.enqueue(&pod);
                }
            }
        }
        if !is_other {
            return;
        }
        self.pending.insert(Item::HeldNodes);
        let is_covered =
            |node: &str| self.maintenances.values().any(|it| it.drains() && it.targets.has(node));
        let over: Vec<_> = self.removals.keys().filter(|(node, _)| !is_covered(node)).cloned().collect();
        for key in over {
            self.removals.remove(&key);
        }
    }

    /// The nodes that these maintenances may speak of.
    fn known_nodes<'a>(&self, maintenances: impl Iterator<Item = &'a Maintenance>) -> BTreeSet<Arc<str>> {
        let mut nodes = BTreeSet::new();
        for maintenance in maintenances {
            nodes.extend(maintenance.targets.names().cloned());
            if maintenance.targets.has_unlisted() {
                nodes.extend(self.on_node.keys().filter(|node| maintenance.targets.has(node)).cloned());
                let held = self.gated.iter().filter_map(|key| held_for(self.pods.get(key)?).cloned());
                nodes.extend(held.filter(|node| maintenance.targets.has(node)));
            }
        }
        nodes
    }

    fn strategy(&self, set: &DaemonSet) -> Result<Strategy, UnknownStrategy> {
        self.namespaces.strategy(BundledInterceptor::DaemonSet, &set.key, set.strategy.as_deref())
    }

    /// What counts, also where the annotation means nothing.
    fn effective(&self, set: &DaemonSet) -> Strategy {
        self.strategy(set).unwrap_or_else(|unknown| unknown.instead)
    }

    /// The DaemonSet that the pod names.
    fn set_of(&self, pod: &Pod) -> Option<&Arc<DaemonSet>> {
        let owner = pod.owner.as_ref().filter(|_| pod.is_daemon())?;
        let key = Key::new(pod.key.namespace.clone(), owner.name.clone());
        self.sets.get(&key).filter(|set| set.uid == owner.uid)
    }

    fn decide_request(&self, key: &Key, now: Timestamp) -> Decision {
        let Some(request) = self.requests.get(key) else { return Decision::default() };
        let pod = self.pods.get(&request.pod_key());
        let set = pod.and_then(|pod| self.set_of(pod));
        let maintenance = pod.and_then(|pod| {
            let class =
                PodClass { kind: PodType::DaemonSet, priority: pod.priority, labels: pod.labels.clone() };
            let reaches = |it: &&Arc<Maintenance>| {
                it.drains() && it.targets.get(&pod.node).is_some_and(|targets| targets.selects(&class))
            };
            // The same one each time, whichever way the map has them.
            self.maintenances.values().filter(reaches).min_by_key(|it| (it.created, it.name.clone()))
        });
        let removals =
            pod.zip(set).and_then(|(pod, set)| self.removals.get(&(pod.node.clone(), set.uid.clone())));
        let case = Case {
            request,
            pod,
            set: set.map(|set| &**set),
            strategy: set.map(|set| self.effective(set)).unwrap_or_default(),
            maintenance: maintenance.map(|it| &**it),
            held_from: pod.and_then(|pod| self.held_from(pod)),
            removals,
        };
        decide(&case, now)
    }

    /// From when on admission keeps the next pod off the node. It need not be told of a part of a plan with a selector, and cannot be:
    /// the whole of that type comes later.
    fn held_from(&self, pod: &Pod) -> Option<Timestamp> {
        let holds = |data: &Option<Arc<BTreeMap<String, String>>>| {
            data.as_ref().is_some_and(|data| holds(data, &pod.node, pod.priority))
        };
        let wanted = self.reached_on(&pod.node).is_some_and(|priority| pod.priority <= priority);
        if !wanted || self.held.refusals > 0 || (holds(&self.held.written) && holds(&self.held.before)) {
            return Some(Timestamp::MIN);
        }
        self.held.at.filter(|_| holds(&self.held.written)).map(|at| at + PAUSE)
    }

    /// Up to which priority pods of DaemonSets are to leave a node, whatever their labels.
    fn reached_on(&self, node: &str) -> Option<i32> {
        let draining = self.maintenances.values().filter(|it| it.drains());
        draining.filter_map(|it| it.targets.get(node)?.up_to(PodType::DaemonSet)).max()
    }

    /// What admission is to be told.
    fn wanted(&self) -> BTreeMap<String, String> {
        if !self.is_on {
            return BTreeMap::new();
        }
        let nodes = self.known_nodes(self.maintenances.values().filter(|it| it.drains()).map(|it| &**it));
        let reached =
            |node: Arc<str>| self.reached_on(&node).map(|priority| (node.to_string(), priority.to_string()));
        let mut data: BTreeMap<String, String> = nodes.into_iter().filter_map(reached).collect();
        if !data.is_empty() {
            // One without pods says so when the first of them waits behind the gate.
            let has_pods = |set: &&Arc<DaemonSet>| self.pods_of.contains_key(&set.uid);
            let stays =
                self.sets.values().filter(has_pods).filter(|set| self.effective(set) == Strategy::Off);
            data.extend(stays.map(|set| (format!("{STAYS_PREFIX}{}", set.uid), String::new())));
        }
        data
    }

    fn decide_held_nodes(&mut self, now: Timestamp) -> Decision {
        let wanted = self.wanted();
        if self.held.written.as_deref() == Some(&wanted) {
            return Decision::default();
        }
        let mut decision = Decision { effects: self.warn_of_refusal(), ..Decision::default() };
        match self.held.next_at().filter(|at| now < *at) {
            Some(at) => (decision.waiting_on, decision.recheck_at) = (Some(Wait::HeldNodes), Some(at)),
            None => decision.effects.push(Effect::HoldNodes(Arc::new(wanted))),
        }
        decision
    }

    /// Admission cannot be told: each maintenance whose pods may come back hears it, once.
    fn warn_of_refusal(&mut self) -> Vec<Effect> {
        if self.held.refusals == 0 {
            return Vec::new();
        }
        let draining: BTreeMap<&Arc<str>, &Arc<Maintenance>> =
            self.maintenances.iter().filter(|(_, it)| it.drains()).collect();
        self.warned_refusals.retain(|name| draining.contains_key(name));
        let untold = draining.into_values().filter(|it| !self.warned_refusals.contains(&it.name));
        let effects: Vec<Effect> = untold.map(|it| refusal_of(it)).collect();
        let names = self.maintenances.values().filter(|it| it.drains()).map(|it| it.name.clone());
        self.warned_refusals.extend(names);
        effects
    }

    fn decide_workload(&mut self, key: &Key) -> Decision {
        let mut decision = self.warn_of_gate(key);
        decision.effects.extend(self.warn_of_strategy(key).effects);
        decision
    }

    /// A DaemonSet whose own template has the gate is told so, once: nobody would lift it.
    fn warn_of_gate(&mut self, key: &Key) -> Decision {
        let Some(set) = self.sets.get(key) else {
            self.warned_gates.retain(|uid| self.sets.values().any(|set| set.uid == *uid));
            return Decision::default();
        };
        if !set.has_gate {
            self.warned_gates.remove(&set.uid);
            return Decision::default();
        }
        if !self.warned_gates.insert(set.uid.clone()) {
            return Decision::default();
        }
        Decision::default().act(Effect::RecordEvent {
            namespace: set.key.namespace.clone(),
            workload: owner_of(BundledInterceptor::DaemonSet, &set.key, &set.uid),
            is_warning: true,
            reason: "SchedulingGateInTemplate",
            message: format!(
                "its pod template has the scheduling gate {MAINTENANCE_SCHEDULING_GATE}, which is for nodes under maintenance: its pods are \
                 never scheduled, and left alone; remove the gate from the template"
            ),
        })
    }

    /// A DaemonSet whose annotation means nothing is told so, once.
    fn warn_of_strategy(&mut self, key: &Key) -> Decision {
        let Some(set) = self.sets.get(key).cloned() else {
            self.told.remove(key);
            return Decision::default();
        };
        let Err(unknown) = self.strategy(&set) else {
            self.told.remove(key);
            return Decision::default();
        };
        unknown_strategy_event(
            &mut self.told,
            key,
            owner_of(BundledInterceptor::DaemonSet, &set.key, &set.uid),
            &unknown,
        )
    }

    fn decide_gated(&self, key: &Key, now: Timestamp) -> Decision {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.is_terminating()) else {
            return Decision::default();
        };
        let (Some(node), Some(waiting)) = (held_for(pod), &pod.waiting) else { return Decision::default() };
        if self.set_of(pod).is_some_and(|set| set.has_gate) {
            // The next one would have it as well.
            return Decision::default();
        }
        let Some(data) = &self.held.written else { return waits(Wait::HeldNodes, None) };
        let stays =
            self.set_of(pod).is_some_and(|set| data.contains_key(&format!("{STAYS_PREFIX}{}", set.uid)));
        if holds(data, node, pod.priority) && !stays {
            return Decision::default();
        }
        // The API server may not know yet, and would put the next one behind the gate as well.
        if let Some(at) = self.held.at.map(|at| at + PAUSE).filter(|at| now < *at) {
            return waits(Wait::HeldNodes, Some(at));
        }
        let set = pod.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
        let last = self.released.get(&(node.clone(), set)).filter(|last| last.uid != pod.uid);
        if let Some(until) = last.map(Removals::next_at).filter(|until| now < *until) {
            return waits(Wait::CameBack { until }, Some(until));
        }
        let version = Some(waiting.resource_version.clone());
        Decision::default().act(Effect::DeletePod { pod: pod.clone(), version })
    }
}

fn refusal_of(maintenance: &Maintenance) -> Effect {
    Effect::RecordEvent {
        namespace: "".into(),
        workload: Owner {
            api_version: NodeMaintenance::api_version(&()).into(),
            kind: NodeMaintenance::kind(&()).into(),
            name: maintenance.name.clone(),
            uid: maintenance.uid.clone(),
        },
        is_warning: true,
        reason: "HeldNodesRefused",
        message: format!(
            "the API server refuses the ConfigMap {HELD_NODES_CONFIG_MAP}, by which pods of DaemonSets are kept off nodes under maintenance: \
             they are taken off, and may come back; see the manager's log for why, and its role {DAEMON_SET_ROLE}"
        ),
    }
}

fn held_for(pod: &Pod) -> Option<&Arc<str>> {
    pod.waiting.as_ref()?.held_for.as_ref()
}

/// What admission does with such a ConfigMap. The policies say the same in CEL.
pub fn holds(data: &BTreeMap<String, String>, node: &str, priority: i32) -> bool {
    data.get(node).and_then(|up_to| up_to.parse::<i32>().ok()).is_some_and(|up_to| priority <= up_to)
}

#[cfg(test)]
#[path = "daemon_set_tests.rs"]
mod tests;
