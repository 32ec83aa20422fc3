//! Decisions on one maintenance, node or pod, from all that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decision::Decision;
use crate::maintenance::decision::{MaintenanceDecision, NodeDecision, PodDecision, PodEffect};
use crate::maintenance::hold;
use crate::maintenance::pods;
use crate::maintenance::progress::Number;
use crate::maintenance::stages::{self, Refusal, View};
use crate::maintenance::waiting::{NodeWait, PodWait};
use crate::snapshot::{Key, Maintenance, Node, NodePhase, Pod, Request};
use jiff::{SignedDuration, Timestamp};
use usher_api::NodeMaintenanceStage as Stage;

use super::{Entry, Index, IndexedNode, Item};

/// A status that was not taken is tried again after this, then after twice as long each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// A pod that was decided on, and its request.
#[derive(Debug)]
pub struct PodWithRequest {
    pub pod: Arc<Pod>,
    pub request: Option<Arc<Request>>,
}

impl Index {
    pub(super) fn phase(&self, indexed: &IndexedNode) -> NodePhase {
        match self.board.node(&indexed.node.name) {
            None => NodePhase::Cordoned,
            Some(state) if state.is_empty() => NodePhase::Drained,
            Some(_) => NodePhase::Draining,
        }
    }

    pub fn decide_maintenance(
        &mut self,
        name: &Arc<str>,
        now: Timestamp,
    ) -> Option<(Arc<Maintenance>, MaintenanceDecision)> {
        self.know_left(name);
        self.know_departed(name);
        let entry = self.maintenances.get(name)?;
        let maintenance = &entry.maintenance;
        let number = self.numbers.get(name).copied();
        let (mut marks_left, mut requests_left) = (0, 0);
        if maintenance.stage() == Stage::Complete && maintenance.has_begun() {
            marks_left = self.nodes.values().filter(|indexed| indexed.node.is_held_by(name)).count();
            requests_left = self.requests_left(entry);
        }
        let views: Vec<View<'_>> =
            entry.nodes.iter().filter_map(|node| self.view(maintenance, number, node)).collect();
        let drain = number.map(|number| self.board.maintenance(number));
        // They are named once nobody else is leaving.
        let only_staying_are_asked = views.iter().all(|view| view.staying == view.evicting);
        let staying = if only_staying_are_asked { self.staying(entry) } else { BTreeSet::new() };
        let case = stages::Case {
            maintenance,
            nodes: &views,
            departed: &entry.departed,
            drain,
            staying: &staying,
            pushed_by: &entry.pushed_by,
            marks_left,
            requests_left,
            last_written: entry.last_written,
            refused: entry.refused.as_ref().map(|(refusal, _)| refusal),
            expected_finish: number.and_then(|number| self.expected_finish(entry, number, now)),
        };
        let decision = stages::decide(&case, now);
        Some((maintenance.clone(), decision))
    }

    /// Nodes may have left while nobody watched: its status has them.
    fn know_departed(&mut self, name: &Arc<str>) {
        let Some(entry) = self.maintenances.get_mut(name) else { return };
        entry.departed.retain(|node| self.nodes.contains_key(node) && !entry.nodes.contains(node));
        if !std::mem::take(&mut entry.looks_for_departed) || !entry.maintenance.holds() {
            return;
        }
        for listed in &entry.maintenance.status.node_statuses {
            let found = self.nodes.get_key_value(listed.node_ref.name.as_str());
            if let Some((node, _)) = found.filter(|(node, _)| !entry.nodes.contains(*node)) {
                entry.departed.insert(node.clone());
            }
        }
    }

    fn view<'a>(
        &'a self,
        maintenance: &Maintenance,
        number: Option<Number>,
        node: &'a Arc<str>,
    ) -> Option<View<'a>> {
        let indexed = self.nodes.get(node)?;
        let sum = self.tally.sum_on(node);
        let others = self.board.covered_by(node).iter().filter(|other| Some(**other) != number);
        let older = others
            .map(|other| &self.board.draining()[*other])
            .filter(|other| (other.created, other.name.as_str()) < (maintenance.created, &*maintenance.name));
        Some(View {
            name: node,
            is_held: indexed.node.is_held_by(&maintenance.name),
            unschedulable: indexed.node.unschedulable,
            state: number.and_then(|number| self.board.node_of(number, node)),
            pods: sum.there,
            evicting: sum.evicting,
            staying: self.tally.count_staying_on(node),
            kept: self.tally.count_kept_on(node),
            older: older.map(|older| older.name.as_str().into()).collect(),
        })
    }

    /// The pods on its nodes that are asked to leave and that nothing ends, by the names that people know.
    fn staying(&self, entry: &Entry) -> BTreeSet<String> {
        let mut daemons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for (pod, _) in entry.nodes.iter().flat_map(|node| self.tally.staying_on(node)) {
            match &pod.owner {
                Some(owner) if pod.is_daemon() && !pod.is_mirror => {
                    *daemons.entry((&pod.key.namespace, &owner.name)).or_default() += 1;
                }
                _ => {
                    names.insert(format!("static pod {}", pod.key));
                }
            }
        }
        names.extend(daemons.into_iter().map(|((namespace, name), pods)| {
            format!("DaemonSet {namespace}/{name} ({pods} {})", if pods == 1 { "pod" } else { "pods" })
        }));
        names
    }

    /// Requests on its nodes that are to be withdrawn and still there.
    fn requests_left(&self, entry: &Entry) -> usize {
        let targets = &entry.maintenance.targets;
        let mut nodes: BTreeSet<&Arc<str>> = targets.names().chain(&entry.nodes).collect();
        if targets.has_unlisted() {
            nodes.extend(self.nodes.keys().filter(|node| targets.has(node)));
        }
        let keys = nodes.into_iter().flat_map(|node| self.tally.pods_on(node));
        keys.filter(|key| self.effect_on(key).is_some_and(|(_, effect)| effect == PodEffect::Withdraw))
            .count()
    }

    /// It was written: when, and that people know who pushed it.
    pub fn maintenance_written(&mut self, name: &str, now: Timestamp) {
        if let Some(entry) = self.maintenances.get_mut(name) {
            entry.last_written = Some(now);
            entry.pushed_by.clear();
        }
    }

    /// The server took its status, so far.
    pub fn status_taken(&mut self, name: &str) {
        if let Some(entry) = self.maintenances.get_mut(name) {
            entry.refused = None;
        }
    }

    /// The server did not take its status: it is told why, and tried again later and later.
    pub fn status_refused(&mut self, name: &Arc<str>, reason: &'static str, message: String, now: Timestamp) {
        let Some(entry) = self.maintenances.get_mut(name) else { return };
        let times = entry.refused.as_ref().map_or(0, |(_, times)| *times);
        let pause = (FIRST_PAUSE * (1 << times.min(10))).min(LONGEST_PAUSE);
        entry.refused = Some((Refusal { reason, message, until: now + pause }, times + 1));
        self.now.insert(Item::Maintenance(name.clone()));
    }

    pub fn decide_node(&self, name: &str, now: Timestamp) -> Option<(Arc<Node>, NodeDecision)> {
        let indexed = self.nodes.get(name)?;
        let speaks_of_another = |name: &Arc<str>| {
            let entry = self.maintenances.get(name);
            entry.is_some_and(|entry| entry.maintenance.drains() && entry.means_another(indexed))
        };
        if let Some(maintenance) = indexed.selected_by.iter().find(|name| speaks_of_another(name)) {
            // Once the node is touched, it could not be told any more.
            let waiting_on = Some(NodeWait::FormerNode { maintenance: maintenance.clone() });
            return Some((indexed.node.clone(), Decision { waiting_on, ..Decision::default() }));
        }
        let case = hold::Case {
            node: &indexed.node,
            holders: &self.holders(name),
            phase: self.phase(indexed),
            conflict: Some(&indexed.conflict),
        };
        Some((indexed.node.clone(), hold::decide(&case, now)))
    }

    /// The maintenances that hold a node, with their UIDs.
    pub fn holders(&self, node: &str) -> BTreeMap<Arc<str>, Arc<str>> {
        let selected_by = self.nodes.get(node).into_iter().flat_map(|indexed| &indexed.selected_by);
        let selecting = selected_by.filter_map(|name| self.maintenances.get(name));
        let holding = selecting.map(|entry| &entry.maintenance).filter(|maintenance| maintenance.holds());
        holding.map(|maintenance| (maintenance.name.clone(), maintenance.uid.clone())).collect()
    }

    /// Somebody was told of the conflict over a node.
    pub fn conflict_told(&mut self, name: &str) {
        if let Some(indexed) = self.nodes.get_mut(name) {
            indexed.conflict.answered();
        }
    }

    pub fn decide_pod(&self, key: &Key, now: Timestamp) -> Option<(PodWithRequest, PodDecision)> {
        let (subject, effect) = self.effect_on(key)?;
        let is_asked = effect == PodEffect::Request;
        let decision = match self.held_back_until(&subject.pod, now).filter(|_| is_asked) {
            Some(until) => Decision {
                effects: pods::come_back(&subject.pod, self.holders(&subject.pod.node)).into_iter().collect(),
                waiting_on: Some(PodWait::CameBack { until: Some(until) }),
                recheck_at: Some(until),
            },
            None => Decision::default().act(effect),
        };
        Some((subject, decision))
    }

    /// What is to be done about the request of a pod, sooner or later.
    fn effect_on(&self, key: &Key) -> Option<(PodWithRequest, PodEffect)> {
        let (pod, class) = self.tally.pod(key)?;
        let request = self.tally.request_of(pod);
        let is_ours = request.is_some_and(|request| pods::is_requested(request));
        let is_targeted = self.nodes.get(&pod.node).is_some_and(|indexed| {
            let selecting = indexed.selected_by.iter().filter_map(|name| self.maintenances.get(name));
            let mut draining = selecting.filter(|entry| entry.maintenance.drains());
            draining.any(|entry| {
                let is_written = || entry.targets_on(indexed).is_some_and(|targets| targets.selects(class));
                // Where somebody took it out of the status, it comes back, and nobody is let off meanwhile.
                let is_known = || {
                    let number = self.numbers.get(&entry.maintenance.name);
                    number.is_some_and(|number| self.board.targets(*number, &pod.node, class))
                };
                is_written() || (is_ours && is_known())
            })
        });
        let effect = pods::decide(pod, request.map(|request| &**request), is_targeted)?;
        Some((PodWithRequest { pod: pod.clone(), request: request.cloned() }, effect))
    }
}
