//! The board made anew, after maintenances, selected nodes or marks have changed.

use std::collections::HashMap;
use std::sync::Arc;

use usher_decide::maintenance::board::Board;
use usher_decide::maintenance::nodes::Node;
use usher_decide::maintenance::progress::{Draining, Number};
use usher_decide::maintenance::waves::{self, Candidate};

use super::index::{Entry, Index, Place};

impl Entry {
    /// The node is drained, once it is its turn: it carries the mark, or has targets. What was targeted stays so where somebody
    /// took the mark away, or an old list does not show it: the mark comes back, and nobody is told to stay meanwhile.
    fn has(&self, place: &Place) -> bool {
        place.node.is_held_by(&self.maintenance.name) || self.maintenance.targets.has(&place.node.name)
    }

    /// It drains the node already, where it drains only some at once.
    fn has_taken(&self, node: &str) -> bool {
        self.taken.contains(node) || self.maintenance.targets.has(node)
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
        let positions: HashMap<Arc<str>, usize> = self
            .board
            .draining()
            .iter()
            .map(|draining| (draining.name.as_str().into(), draining.position))
            .collect();
        let mut draining = Vec::with_capacity(names.len());
        for name in &names {
            let starts_a_wave = self.take_a_wave(name);
            let maintenance = &self.maintenances[name].maintenance;
            let entry = &self.maintenances[name];
            let is_known = entry.taken.iter().all(|node| maintenance.targets.has(node));
            let reached = match positions.get(name) {
                // A wave of our own that is not written yet.
                Some(position) if maintenance.limit.is_some() && !is_known => *position,
                // Another manager may have come further.
                Some(position) if maintenance.limit.is_none() || !entry.follows => {
                    maintenance.position().max(*position)
                }
                _ => maintenance.position(),
            };
            draining.push(Draining {
                name: name.to_string(),
                created: maintenance.created,
                plan: maintenance.plan.clone(),
                position: if starts_a_wave { 0 } else { reached },
            });
        }
        self.maintenances.values_mut().for_each(|entry| entry.follows = false);
        self.numbers = names.into_iter().enumerate().map(|(number, name)| (name, number)).collect();
        let nodes = self.nodes.values().filter_map(|place| self.covered(place)).collect();
        self.board = Board::new(draining, self.tally.classes().to_vec(), nodes);
    }

    /// Nobody is asked to leave before all nodes are cordoned: else pods would move from one to the next. Nodes that
    /// join later are not waited for.
    fn may_drain(&self, entry: &Entry) -> bool {
        let maintenance = &entry.maintenance;
        let is_held = |node: &Arc<str>| {
            self.nodes.get(node).is_some_and(|place| place.node.is_held_by(&maintenance.name))
        };
        maintenance.drains() && (maintenance.drain_has_begun() || entry.nodes.iter().all(is_held))
    }

    fn covered(&self, place: &Place) -> Option<Node> {
        let name = &place.node.name;
        let mut covered_by: Vec<Number> = Vec::new();
        let mut targets = self.board.node(name).map(|state| state.targets.clone()).unwrap_or_default();
        for maintenance in &place.selected_by {
            let Some(number) = self.numbers.get(maintenance) else { continue };
            let entry = &self.maintenances[maintenance];
            let is_its_turn = entry.maintenance.limit.is_none() || entry.has_taken(name);
            if !is_its_turn || !entry.has(place) {
                continue;
            }
            covered_by.push(*number);
            if let Some(written) = entry.maintenance.targets.get(name) {
                targets = targets.grown_by(written);
            }
        }
        if covered_by.is_empty() {
            return None;
        }
        covered_by.sort_unstable();
        Some(Node { name: name.clone(), covered_by, targets, pods: self.tally.counts_on(name) })
    }

    pub(super) fn candidates(&self, entry: &Entry) -> Vec<Candidate> {
        let Some(limit) = &entry.maintenance.limit else { return Vec::new() };
        let held = entry.nodes.iter().filter_map(|node| self.nodes.get(node));
        held.filter(|place| entry.has(place))
            .map(|place| Candidate {
                name: place.node.name.clone(),
                domain: place.node.labels.get(&limit.topology_key).cloned().unwrap_or_default(),
                is_taken: entry.has_taken(&place.node.name),
                pods: self.tally.sum_on(&place.node.name).there,
            })
            .collect()
    }

    /// Takes the next nodes, where only some are drained at once and it is time.
    fn take_a_wave(&mut self, name: &Arc<str>) -> bool {
        let entry = &self.maintenances[name];
        let Some(limit) = &entry.maintenance.limit else { return false };
        let wave = waves::next(limit, &self.candidates(entry));
        let is_one = !wave.is_empty();
        if let Some(entry) = self.maintenances.get_mut(name) {
            entry.taken.extend(wave);
        }
        is_one
    }

    pub(super) fn is_time_for_a_wave(&self) -> bool {
        self.numbers.keys().filter_map(|name| self.maintenances.get(name)).any(|entry| {
            let limit = entry.maintenance.limit.as_ref();
            limit.is_some_and(|limit| !waves::next(limit, &self.candidates(entry)).is_empty())
        })
    }
}
