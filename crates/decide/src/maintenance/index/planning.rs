//! The board made anew, after maintenances, selected nodes or marks have changed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::maintenance::board::Board;
use crate::maintenance::nodes::Node;
use crate::maintenance::plan::PodClass;
use crate::maintenance::progress::{Draining, Number};
use crate::maintenance::targets::Targets;
use crate::maintenance::waves::{self, Candidate};

use super::{Entry, Index, IndexedNode};

impl Entry {
    /// The node is drained, once it is its turn: it carries the mark, or has targets. What was targeted stays so where somebody
    /// took the mark away, or an old list does not show it: the mark comes back, and nobody is told to stay meanwhile.
    fn has(&self, indexed: &IndexedNode) -> bool {
        indexed.node.is_held_by(&self.maintenance.name) || self.targets_on(indexed).is_some()
    }

    /// What its status says is targeted there.
    pub(super) fn targets_on(&self, indexed: &IndexedNode) -> Option<&Arc<Targets>> {
        let is_of_former_stay = self.means_another(indexed) || self.rejoined.contains(&indexed.node.name);
        self.maintenance.targets.get(&indexed.node.name).filter(|_| !is_of_former_stay)
    }

    /// It drains the node already, where it drains only some at once. Nodes that the status does not list by name are not known
    /// before they are seen.
    fn has_taken(&self, indexed: &IndexedNode) -> bool {
        let is_unlisted = || self.maintenance.targets.has_unlisted() && self.targets_on(indexed).is_some();
        self.taken.contains(&indexed.node.name) || is_unlisted()
    }

    /// The status still speaks of a node that is gone, and this one has come by its name: nobody has touched it yet, and it
    /// is younger than the drain.
    pub(super) fn means_another(&self, indexed: &IndexedNode) -> bool {
        self.maintenance.targets.has(&indexed.node.name)
            && !indexed.node.is_touched()
            && self.maintenance.drain_start().is_some_and(|start| indexed.node.created > start)
    }
}

impl Index {
    pub(super) fn plan_anew(&mut self) {
        let names: Vec<Arc<str>> = self
            .maintenances
            .values()
            .filter(|entry| self.may_drain(entry))
            .map(|entry| entry.maintenance.name.clone())
            .collect();
        let mut draining = Vec::with_capacity(names.len());
        for name in &names {
            self.take_a_wave(name);
            let entry = &self.maintenances[name];
            draining.push(Draining {
                name: name.to_string(),
                created: entry.maintenance.created,
                plan: entry.maintenance.plan.clone(),
                position: self.position(entry),
            });
        }
        let numbers = names.into_iter().enumerate().map(|(number, name)| (name, number)).collect();
        let before = std::mem::replace(&mut self.numbers, numbers);
        let nodes = self.nodes.values().filter_map(|indexed| self.covered(indexed, &before)).collect();
        self.board = Board::new(draining, self.tally.classes().to_vec(), nodes);
    }

    /// Where its drain is: what is known here, whatever somebody else has written into its status.
    fn position(&self, entry: &Entry) -> usize {
        let known = self.numbers.get(&entry.maintenance.name).map(|number| &self.board.draining()[*number]);
        known.map_or_else(|| entry.maintenance.position(), |known| known.position)
    }

    /// Nobody is asked to leave before all nodes are cordoned: else pods would move from one to the next. Nodes that
    /// join later are not waited for.
    fn may_drain(&self, entry: &Entry) -> bool {
        let maintenance = &entry.maintenance;
        let is_held = |node: &Arc<str>| {
            self.nodes.get(node).is_some_and(|indexed| indexed.node.is_held_by(&maintenance.name))
        };
        let are_all_held = || !entry.nodes.is_empty() && entry.nodes.iter().all(is_held);
        maintenance.drains() && (maintenance.drain_has_begun() || are_all_held())
    }

    /// `before` are the numbers on the board that there is still.
    fn covered(&self, indexed: &IndexedNode, before: &HashMap<Arc<str>, Number>) -> Option<Node> {
        let name = &indexed.node.name;
        let (mut covered_by, mut joins): (Vec<Number>, Vec<Number>) = (Vec::new(), Vec::new());
        let mut awaits_pods = true;
        let mut targets = self.board.node(name).map(|state| state.targets.clone()).unwrap_or_default();
        for maintenance in &indexed.selected_by {
            let Some(number) = self.numbers.get(maintenance) else { continue };
            let entry = &self.maintenances[maintenance];
            let is_its_turn = entry.maintenance.limit.is_none() || entry.has_taken(indexed);
            if !is_its_turn || !entry.has(indexed) {
                continue;
            }
            covered_by.push(*number);
            awaits_pods &= entry.maintenance.drain_has_begun();
            let was_there = |before: &Number| self.board.node_of(*before, name).is_some();
            if !before.get(maintenance).is_some_and(was_there) {
                joins.push(*number);
            }
            if let Some(written) = entry.targets_on(indexed) {
                targets = targets.grown_by(written);
            }
        }
        if covered_by.is_empty() {
            return None;
        }
        covered_by.sort_unstable();
        let pods = self.tally.counts_on(name);
        Some(Node { name: name.clone(), covered_by, joins, awaits_pods, targets, pods })
    }

    pub(super) fn candidates(&self, entry: &Entry) -> Vec<Candidate> {
        let Some(limit) = &entry.maintenance.limit else { return Vec::new() };
        let held = entry.nodes.iter().filter_map(|node| self.nodes.get(node));
        let held: Vec<&IndexedNode> = held.filter(|indexed| entry.has(indexed)).collect();
        let stays = |indexed: &&IndexedNode| {
            entry.has_taken(indexed) && self.tally.count_staying_on(&indexed.node.name) > 0
        };
        let do_some_stay = held.iter().any(stays);
        held.into_iter()
            .map(|indexed| Candidate {
                name: indexed.node.name.clone(),
                domain: indexed.node.labels.get(&limit.topology_key).cloned().unwrap_or_default(),
                is_taken: entry.has_taken(indexed),
                pods: if do_some_stay && entry.has_taken(indexed) {
                    self.leaving(entry, &indexed.node.name)
                } else {
                    self.tally.sum_on(&indexed.node.name).there
                },
            })
            .collect()
    }

    /// The pods of a node that the plan has reached and that somebody ends. Those behind pods that nothing ends do not come to
    /// their turn, so nobody waits for them either.
    fn leaving(&self, entry: &Entry, node: &str) -> u32 {
        let position = self.position(entry);
        let is_reached = |class: &PodClass| entry.maintenance.plan.step_of(class) <= position;
        let counts = self.tally.counts_on(node);
        let reached = counts.iter().filter(|(class, _)| is_reached(&self.tally.classes()[**class]));
        let staying = self.tally.staying_on(node).filter(|(_, class)| is_reached(class)).count();
        let reached: u32 = reached.map(|(_, pods)| pods.there).sum();
        reached.saturating_sub(u32::try_from(staying).unwrap_or(u32::MAX))
    }

    /// Takes the next nodes, where only some are drained at once and it is time.
    fn take_a_wave(&mut self, name: &Arc<str>) {
        let Some(entry) = self.maintenances.get_mut(name) else { return };
        // Who leaves and comes again waits for a turn again.
        entry.taken.retain(|node| entry.nodes.contains(node));
        let entry = &self.maintenances[name];
        let Some(limit) = &entry.maintenance.limit else { return };
        let wave = waves::next(limit, &self.candidates(entry));
        if let Some(entry) = self.maintenances.get_mut(name) {
            entry.taken.extend(wave);
        }
    }

    pub(super) fn is_time_for_a_wave(&self) -> bool {
        self.numbers.keys().filter_map(|name| self.maintenances.get(name)).any(|entry| {
            let limit = entry.maintenance.limit.as_ref();
            limit.is_some_and(|limit| !waves::next(limit, &self.candidates(entry)).is_empty())
        })
    }
}
