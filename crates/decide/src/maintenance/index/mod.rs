//! What is known of maintenances, their nodes, pods and requests, kept up with every change.
//!
//! A plain struct: changes go in, what they concern comes out of [`Index::concerned`]. Decisions read it through
//! [`Index::decide_maintenance`], [`Index::decide_node`] and [`Index::decide_pod`].

mod came_back;
mod decisions;
#[cfg(test)]
mod decisions_tests;
mod estimate;
mod groups;
mod planning;
#[cfg(test)]
mod planning_tests;
mod tally;
#[cfg(test)]
mod tally_tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::maintenance::board::Board;
use crate::maintenance::eta::Experience;
use crate::maintenance::hold::CordonConflict;
use crate::maintenance::pods;
use crate::maintenance::progress::Number;
use crate::maintenance::stages::Refusal;
use crate::maintenance::written::{self, Written};
use crate::snapshot::{Key, Maintenance, Node, Pod, Request};
use jiff::{SignedDuration, Timestamp};
use usher_api::{NodeMaintenanceStage as Stage, PodType};

use came_back::CameBack;
use estimate::Left;
use tally::{Change, Tally};

pub use decisions::PodWithRequest;

/// Counts are looked at again no more often than this; what changes targets at once.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    Maintenance(Arc<str>),
    Node(Arc<str>),
    Pod(Key),
}

#[derive(Debug, Default)]
pub struct Index {
    pub(super) maintenances: BTreeMap<Arc<str>, Entry>,
    pub(super) nodes: BTreeMap<Arc<str>, IndexedNode>,
    pub(super) tally: Tally,
    pub(super) board: Board,
    pub(super) numbers: HashMap<Arc<str>, Number>,
    pub(super) experience: Experience,
    /// The board is to be made anew.
    pub(super) is_stale: bool,
    /// Pods have changed since the board was resolved.
    is_dirty: bool,
    pub(super) now: BTreeSet<Item>,
    later: BTreeMap<Item, Timestamp>,
    /// By the UID of what controls them.
    came_back: CameBack,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub maintenance: Arc<Maintenance>,
    /// The nodes that it selects.
    pub nodes: BTreeSet<Arc<str>>,
    /// The nodes that it drains already, where it drains only some at once.
    pub taken: BTreeSet<Arc<str>>,
    /// Nodes that have left and come again while its status could not be written: what it says of them is of their former stay.
    pub rejoined: BTreeSet<Arc<str>>,
    /// Nodes that have lost the labels by which it selected them.
    pub departed: BTreeSet<Arc<str>>,
    /// Whether nodes of its status are to be looked for among those that have left while nobody watched.
    pub looks_for_departed: bool,
    /// The labels that its plan and its targets speak of.
    label_keys: BTreeSet<String>,
    pub pushed_by: BTreeSet<Arc<str>>,
    pub last_written: Option<Timestamp>,
    /// Its status was not taken, and how many times in a row.
    pub refused: Option<(Refusal, u32)>,
    /// The pods on its nodes; `None` if they have to be counted.
    pub left: Option<Left>,
}

#[derive(Debug)]
pub(super) struct IndexedNode {
    pub node: Arc<Node>,
    pub selected_by: BTreeSet<Arc<str>>,
    pub conflict: CordonConflict,
}

impl Index {
    pub fn maintenance(&self, name: &str) -> Option<&Arc<Maintenance>> {
        self.maintenances.get(name).map(|entry| &entry.maintenance)
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name).map(|indexed| &indexed.node)
    }

    pub fn maintenance_names(&self) -> Vec<Arc<str>> {
        self.maintenances.keys().cloned().collect()
    }

    pub fn node_names(&self) -> Vec<Arc<str>> {
        self.nodes.keys().cloned().collect()
    }

    pub fn pod_keys(&self) -> Vec<Key> {
        self.tally.pod_keys().cloned().collect()
    }

    pub fn request_keys(&self) -> Vec<Key> {
        self.tally.request_keys().cloned().collect()
    }

    /// What is to be looked at now, and what at a time at the latest.
    pub fn concerned(&mut self) -> (BTreeSet<Item>, BTreeMap<Item, Timestamp>) {
        (std::mem::take(&mut self.now), std::mem::take(&mut self.later))
    }

    pub fn maintenance_seen(&mut self, new: impl Into<Arc<Maintenance>>) {
        let new = new.into();
        let name = new.name.clone();
        let old = self.maintenances.get(&name).map(|entry| entry.maintenance.clone());
        if let Some(old) = &old {
            if old.uid != new.uid {
                self.maintenance_gone(&name);
                return self.maintenance_seen(new);
            }
            if is_older(&new.resource_version, &old.resource_version) {
                return;
            }
        }
        let is_other = old.as_ref().is_none_or(|old| is_planned_otherwise(old, &new));
        self.is_stale |= is_other;
        let selects_otherwise =
            old.as_ref().is_none_or(|old| old.selector != new.selector || old.keeps_nodes != new.keeps_nodes);
        let entry = self.maintenances.entry(name.clone()).or_insert_with(|| Entry {
            maintenance: new.clone(),
            nodes: BTreeSet::new(),
            taken: BTreeSet::new(),
            rejoined: BTreeSet::new(),
            departed: new.status.left_nodes.iter().map(|node| node.name.as_str().into()).collect(),
            looks_for_departed: new.is_observed(),
            label_keys: BTreeSet::new(),
            pushed_by: BTreeSet::new(),
            last_written: None,
            refused: None,
            left: None,
        });
        entry.maintenance = new.clone();
        // Whom its author leaves out has not left by itself.
        if old.as_ref().is_some_and(|old| old.selector != new.selector) {
            entry.departed.clear();
        }
        entry.label_keys = label_keys(&new);
        self.update_label_keys();
        if selects_otherwise {
            let is_by_author = old.as_ref().is_none_or(|old| old.selector != new.selector);
            self.select(&name, is_by_author);
        }
        let before = old.map(|old| old.targets.clone()).unwrap_or_default();
        let retargeted = self.retargeted(&name, &before);
        let nodes: Vec<Arc<str>> =
            if is_other { self.maintenances[&name].nodes.iter().cloned().collect() } else { retargeted };
        for node in nodes {
            self.enqueue_pods_on(&node);
            self.now.insert(Item::Node(node));
        }
        self.now.insert(Item::Maintenance(name));
    }

    /// Pods are told apart by the labels that some maintenance speaks of, and by no others.
    fn update_label_keys(&mut self) {
        let keys = self.maintenances.values().flat_map(|entry| entry.label_keys.iter().cloned()).collect();
        if self.tally.set_label_keys(keys) {
            self.classes_changed();
        }
    }

    fn classes_changed(&mut self) {
        self.is_stale = true;
        self.maintenances.values_mut().for_each(|entry| entry.left = None);
    }

    /// Which nodes it selects now. Whom its author does not leave out has left by itself.
    fn select(&mut self, name: &Arc<str>, is_by_author: bool) {
        let Some(entry) = self.maintenances.get_mut(name) else { return };
        let maintenance = entry.maintenance.clone();
        let mut changed = Vec::new();
        for (node, indexed) in &mut self.nodes {
            let was_selected = indexed.selected_by.contains(name);
            let is_selected = maintenance.selects(&indexed.node, was_selected);
            if is_selected != was_selected {
                changed.push(node.clone());
                if is_selected {
                    indexed.selected_by.insert(name.clone());
                    entry.nodes.insert(node.clone());
                } else {
                    indexed.selected_by.remove(name);
                    entry.nodes.remove(node);
                    if !is_by_author && maintenance.holds() {
                        entry.departed.insert(node.clone());
                    }
                }
            }
        }
        if !changed.is_empty() {
            self.is_stale = true;
            entry.left = None;
        }
        for node in changed {
            self.now.insert(Item::Node(node.clone()));
            self.enqueue_pods_on(&node);
        }
    }

    /// The nodes where its status says that something else is targeted than before.
    fn retargeted(&mut self, name: &Arc<str>, before: &Written) -> Vec<Arc<str>> {
        let Some(entry) = self.maintenances.get_mut(name) else { return Vec::new() };
        let written = entry.maintenance.targets.clone();
        let mut nodes: BTreeSet<&Arc<str>> = written.names().chain(before.names()).collect();
        if written.has_unlisted() || before.has_unlisted() {
            nodes.extend(self.nodes.keys());
        }
        let mut changed = Vec::new();
        let mut is_followed = false;
        for node in nodes {
            let targets = written.get(node);
            if targets.is_some() {
                is_followed |= entry.taken.insert(node.clone());
            }
            if targets == before.get(node) {
                continue;
            }
            changed.push(node.clone());
            entry.rejoined.remove(node);
            // Somebody else has written it: what is targeted stays targeted.
            if let (Some(targets), Some(on_board)) = (targets, self.board.node(node)) {
                self.is_stale |= on_board.targets != *targets;
            }
        }
        // Somebody else has started a wave: one of our own that is not written yet is none.
        if is_followed && entry.maintenance.limit.is_some() {
            entry.taken.retain(|node| written.has(node));
            self.is_stale = true;
        }
        changed
    }

    pub fn maintenance_gone(&mut self, name: &Arc<str>) {
        let Some(entry) = self.maintenances.remove(name) else { return };
        self.is_stale = true;
        self.update_label_keys();
        for node in entry.nodes {
            if let Some(indexed) = self.nodes.get_mut(&node) {
                indexed.selected_by.remove(name);
            }
            self.enqueue_pods_on(&node);
            self.now.insert(Item::Node(node));
        }
        // Nodes that it did not select any more may still carry its mark.
        let marked = self.nodes.values().filter(|indexed| indexed.node.is_held_by(name));
        self.now.extend(marked.map(|indexed| Item::Node(indexed.node.name.clone())));
    }

    pub fn node_seen(&mut self, node: Node, now: Timestamp) {
        let name = node.name.clone();
        let old = self.nodes.get(&name).map(|indexed| indexed.node.clone());
        if let Some(old) = &old {
            if old.uid != node.uid {
                self.node_gone(&name);
                return self.node_seen(node, now);
            }
            if is_older(&node.resource_version, &old.resource_version) {
                return;
            }
        }
        let is_like = old.as_ref().is_some_and(|old| old.is_like(&node));
        let node = Arc::new(node);
        let indexed = self.nodes.entry(name.clone()).or_insert_with(|| IndexedNode {
            node: node.clone(),
            selected_by: BTreeSet::new(),
            conflict: CordonConflict::default(),
        });
        indexed.node = node.clone();
        if is_like {
            return;
        }
        if node.is_touched() && !node.unschedulable && old.as_ref().is_some_and(|old| old.unschedulable) {
            indexed.conflict.uncordoned(now);
        }
        if old.as_ref().is_none_or(|old| old.labels != node.labels) {
            let selecting: BTreeSet<Arc<str>> = self
                .maintenances
                .values()
                .filter(|entry| {
                    let was_selected = indexed.selected_by.contains(&entry.maintenance.name);
                    entry.maintenance.selects(&node, was_selected)
                })
                .map(|entry| entry.maintenance.name.clone())
                .collect();
            let before = std::mem::replace(&mut indexed.selected_by, selecting.clone());
            for maintenance in before.symmetric_difference(&selecting) {
                if let Some(entry) = self.maintenances.get_mut(maintenance) {
                    entry.left = None;
                    if selecting.contains(maintenance) {
                        entry.nodes.insert(name.clone());
                        entry.departed.remove(&name);
                        if old.is_some() && entry.maintenance.targets.has(&name) {
                            entry.rejoined.insert(name.clone());
                        }
                    } else {
                        entry.nodes.remove(&name);
                        if entry.maintenance.holds() {
                            entry.departed.insert(name.clone());
                        }
                    }
                }
                self.now.insert(Item::Maintenance(maintenance.clone()));
                self.is_stale = true;
            }
            self.enqueue_pods_on(&name);
        }
        if old.as_ref().map(|old| &old.held_by) != Some(&node.held_by) {
            self.is_stale = true;
        }
        self.enqueue_maintenances_of(&name);
        self.now.insert(Item::Node(name));
    }

    pub fn node_gone(&mut self, name: &Arc<str>) {
        self.enqueue_maintenances_of(name);
        let Some(indexed) = self.nodes.remove(name) else { return };
        self.board.forget(name);
        for entry in self.maintenances.values_mut() {
            entry.departed.remove(name);
        }
        for maintenance in indexed.selected_by {
            if let Some(entry) = self.maintenances.get_mut(&maintenance) {
                entry.nodes.remove(name);
                entry.taken.remove(name);
                entry.rejoined.remove(name);
                entry.left = None;
                self.is_stale = true;
            }
        }
    }

    fn enqueue_maintenances_of(&mut self, node: &str) {
        let Some(indexed) = self.nodes.get(node) else { return };
        self.now.extend(indexed.selected_by.iter().cloned().map(Item::Maintenance));
        self.enqueue_completing();
    }

    /// Those that wait for the last marks and requests to go.
    fn enqueue_completing(&mut self) {
        let completing = self.maintenances.values().map(|entry| &entry.maintenance);
        let completing = completing.filter(|it| it.stage() == Stage::Complete && it.has_begun());
        self.now.extend(completing.map(|it| Item::Maintenance(it.name.clone())));
    }

    fn enqueue_pods_on(&mut self, node: &str) {
        self.now.extend(self.tally.pods_on(node).cloned().map(Item::Pod));
    }

    pub fn pod_seen(&mut self, pod: impl Into<Arc<Pod>>) {
        let pod = pod.into();
        let (key, node) = (pod.key.clone(), pod.node.clone());
        let before = self.tally.pod(&key).map(|(pod, _)| pod.clone());
        let is_same = before.is_some_and(|old| {
            old.uid == pod.uid && old.node == pod.node && old.phase == pod.phase && old.labels == pod.labels
        });
        // A request that was told before its pod is known by now: it may be one to withdraw.
        let is_ours = self.tally.request_of(&pod).is_some_and(|request| pods::is_requested(request));
        let changes = self.tally.pod_seen(pod);
        self.count(changes);
        let drains = |indexed: &IndexedNode| indexed.selected_by.iter().any(|name| self.drains(name));
        if !is_same && (is_ours || self.nodes.get(&node).is_some_and(drains)) {
            self.now.insert(Item::Pod(key));
        }
    }

    fn drains(&self, name: &str) -> bool {
        self.maintenances.get(name).is_some_and(|entry| entry.maintenance.drains())
    }

    pub fn pod_gone(&mut self, key: &Key) {
        let change = self.tally.pod_gone(key);
        if change.is_some() {
            self.enqueue_completing();
        }
        self.count(change.into_iter().collect());
    }

    pub fn request_seen(&mut self, request: impl Into<Arc<Request>>) {
        let request = request.into();
        let known = self.tally.request(&request.key);
        if known.is_some_and(|known| {
            known.uid == request.uid && is_older(&request.resource_version, &known.resource_version)
        }) {
            return;
        }
        let is_ours = pods::is_requested(&request) || known.is_some_and(|known| pods::is_requested(known));
        let stayed = self.tally.is_staying(&request.pod_key());
        let (pod, change) = self.tally.request_seen(request);
        self.stays_otherwise(&pod, stayed);
        self.request_changed(pod, change, is_ours);
    }

    /// A maintenance asks the pod to leave.
    pub fn pod_asked(&mut self, request: &Request, now: Timestamp) {
        let is_known = self.tally.request(&request.key).is_some_and(|known| known.uid == request.uid);
        if is_known || !pods::is_requested(request) {
            return;
        }
        let Some((pod, _)) = self.tally.pod(&request.pod_key()) else { return };
        if let Some(owner) = pod.owner.as_ref().filter(|_| pod.uid == request.pod_uid) {
            let is_new = self.came_since_drain_began(pod);
            self.came_back.has_left(owner.uid.clone(), pod, request.created, is_new, now);
        }
    }

    /// Until when a pod is not asked that came to a node which others like it were asked to leave. DaemonSets see to theirs.
    fn held_back_until(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let owner = pod.owner.as_ref().filter(|_| pod.kind() == PodType::Default)?;
        self.came_back.held_until(&owner.uid, pod, now).filter(|_| self.came_since_drain_began(pod))
    }

    /// Whether a maintenance that drains its node was there before the pod.
    fn came_since_drain_began(&self, pod: &Pod) -> bool {
        let selected_by = self.nodes.get(&pod.node).into_iter().flat_map(|indexed| &indexed.selected_by);
        let maintenances = selected_by.filter_map(|name| self.maintenances.get(name));
        let mut draining = maintenances.map(|entry| &entry.maintenance).filter(|it| it.drains());
        draining.any(|it| pod.created > it.created)
    }

    pub fn request_gone(&mut self, key: &Key) {
        let Some((pod, change)) = self.tally.request_gone(key) else { return };
        self.request_changed(pod, change, true);
    }

    /// Nothing ends the pod any more, or somebody does again: it may be time for a next wave, and is told.
    fn stays_otherwise(&mut self, pod: &Key, stayed: bool) {
        if self.tally.is_staying(pod) == stayed {
            return;
        }
        self.is_dirty = true;
        let node = self.tally.pod(pod).and_then(|(pod, _)| self.nodes.get(&pod.node));
        let names = node.into_iter().flat_map(|indexed| &indexed.selected_by).cloned();
        self.now.extend(names.map(Item::Maintenance));
    }

    fn request_changed(&mut self, pod: Key, change: Option<Change>, is_ours: bool) {
        self.count(change.into_iter().collect());
        if is_ours {
            self.enqueue_completing();
        }
        let is_of_interest = |(found, _): (&Arc<Pod>, _)| {
            is_ours || self.nodes.get(&found.node).is_some_and(|indexed| !indexed.selected_by.is_empty())
        };
        if self.tally.pod(&pod).is_some_and(is_of_interest) {
            self.now.insert(Item::Pod(pod));
        }
    }

    fn count(&mut self, changes: Vec<Change>) {
        for change in changes {
            // Classes that came since the board was made.
            for class in self.board.classes().len()..self.tally.classes().len() {
                self.board.enter(self.tally.classes()[class].clone());
            }
            self.board.count(&change.node, change.class, change.there, change.evicting);
            self.count_left(&change);
            self.is_dirty = true;
        }
    }

    /// Moves all maintenances as far as they go. Cheap if nothing has changed.
    pub fn resolve(&mut self, now: Timestamp) {
        self.observe_departures(now);
        if self.tally.forget_unused() {
            self.classes_changed();
        }
        // Once more if it is time for a next wave of nodes.
        for _ in 0..2 {
            if !self.is_stale && !self.is_dirty {
                return;
            }
            let is_new = std::mem::take(&mut self.is_stale);
            if is_new {
                self.plan_anew();
            }
            self.is_dirty = false;
            let changes = self.board.resolve();
            for push in changes.pushed {
                let name = |number: Number| Arc::<str>::from(self.board.draining()[number].name.as_str());
                let (pushed, older) = (name(push.maintenance), name(push.after));
                if let Some(entry) = self.maintenances.get_mut(&pushed) {
                    entry.pushed_by.insert(older);
                }
            }
            let mut concerned: BTreeSet<Number> = BTreeSet::new();
            for node in &changes.nodes {
                concerned.extend(self.board.covered_by(node));
                if self.nodes.get(node).is_some_and(|indexed| indexed.node.phase != Some(self.phase(indexed)))
                {
                    self.now.insert(Item::Node(node.clone()));
                }
            }
            for number in concerned {
                let name: Arc<str> = self.board.draining()[number].name.as_str().into();
                let last = self.maintenances.get(&name).and_then(|entry| entry.last_written);
                let item = Item::Maintenance(name);
                match last.map(|last| last + PAUSE) {
                    Some(next) if now < next && !changes.moved => {
                        self.later.insert(item, next);
                    }
                    _ => {
                        self.now.insert(item);
                    }
                }
            }
            if is_new {
                self.now.extend(self.numbers.keys().cloned().map(Item::Maintenance));
            }
            self.is_stale |= self.is_time_for_a_wave();
        }
    }
}

/// The labels that its plan and its targets speak of.
fn label_keys(maintenance: &Maintenance) -> BTreeSet<String> {
    let plan = maintenance.plan.steps().iter().map(|step| &step.entry);
    let targets = written::entries(&maintenance.status);
    let mut keys = BTreeSet::new();
    for selector in plan.chain(targets).filter_map(|entry| entry.pod_selector.as_ref()) {
        keys.extend(selector.match_labels.iter().flatten().map(|(key, _)| key.clone()));
        keys.extend(selector.match_expressions.iter().flatten().map(|need| need.key.clone()));
    }
    keys
}

/// Whether the drains of all maintenances have to be planned anew.
fn is_planned_otherwise(old: &Maintenance, new: &Maintenance) -> bool {
    old.stage() != new.stage()
        || old.has_begun() != new.has_begun()
        || old.drain_has_begun() != new.drain_has_begun()
        || old.selector != new.selector
        || old.limit != new.limit
}

/// Versions of one object count up.
fn is_older(new: &str, known: &str) -> bool {
    new.parse::<u64>().ok().zip(known.parse::<u64>().ok()).is_some_and(|(new, known)| new < known)
}
