//! Plugins that judge each pod by itself.

use std::fmt::Debug;

use super::{Plugin, PodInfo, Run};
use crate::cluster::Set;
use crate::cycle::{Cycle, ProposalOutcome};
use crate::plan::Reason;
use crate::policy::PluginName;

/// Whether a pod should leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    No,
    Now,
    /// From that second since 1970 on.
    From(i64),
}

impl Want {
    pub fn from(second: i64, now: i64) -> Self {
        if second <= now { Self::Now } else { Self::From(second) }
    }
}

/// How a plugin judges a pod.
pub trait Rule: Debug + Send {
    fn name(&self) -> PluginName;
    fn wants(&self, pod: &PodInfo<'_>) -> Want;
    fn reason(&self, cycle: &Cycle<'_>, slot: u32) -> Reason;
    /// Pods of a node with less go first.
    fn order(&self, _cycle: &Cycle<'_>, _slot: u32) -> i64 {
        0
    }
}

/// Pods that should leave by a rule.
#[derive(Debug, Default)]
pub struct Candidates {
    members: Set<u32>,
}

impl Candidates {
    pub fn observe(&mut self, slot: u32, want: Want, wakes: &mut Vec<i64>) {
        if want == Want::Now {
            self.members.insert(slot);
        } else {
            self.members.remove(&slot);
        }
        if let Want::From(second) = want {
            wakes.push(second);
        }
    }

    pub fn forget(&mut self, slot: u32) {
        self.members.remove(&slot);
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.members.iter().copied()
    }

    /// The candidates node by node, in the order of the nodes; on a node those that are leaving come first.
    pub fn by_node(&self, cycle: &Cycle<'_>, order: impl Fn(u32) -> i64) -> Vec<Vec<u32>> {
        let mut all: Vec<_> = self
            .iter()
            .filter(|slot| !cycle.is_passed_over(*slot))
            .filter_map(|slot| {
                let rank = cycle.nodes.rank(cycle.cluster.pod(slot)?.node)?;
                Some((rank, !cycle.is_leaving(slot), order(slot), slot))
            })
            .collect();
        all.sort_by(|a, b| {
            let names = || cycle.by_name(a.3).cmp(&cycle.by_name(b.3));
            (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then_with(names)
        });
        all.chunk_by(|a, b| a.0 == b.0).map(|chunk| chunk.iter().map(|one| one.3).collect()).collect()
    }
}

/// A rule that goes from node to node: the filters see all pods of a node before the first of them is proposed.
#[derive(Debug)]
pub struct ByNode<R> {
    rule: R,
    candidates: Candidates,
}

impl<R: Rule> ByNode<R> {
    pub fn new(rule: R) -> Self {
        Self { rule, candidates: Candidates::default() }
    }
}

impl<R: Rule> Plugin for ByNode<R> {
    fn name(&self) -> PluginName {
        self.rule.name()
    }

    fn observe(&mut self, pod: &PodInfo<'_>, wakes: &mut Vec<i64>) {
        self.candidates.observe(pod.slot, self.rule.wants(pod), wakes);
    }

    fn forget(&mut self, slot: u32) {
        self.candidates.forget(slot);
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        let nodes = self.candidates.by_node(cycle, |slot| self.rule.order(cycle, slot));
        propose_by_node(cycle, run, nodes, |cycle, slot| self.rule.reason(cycle, slot));
    }
}

/// Proposes pods node by node, until the limit in total is reached. False if it is.
pub fn propose_by_node(
    cycle: &mut Cycle<'_>,
    run: &mut Run<'_>,
    nodes: Vec<Vec<u32>>,
    reason: impl Fn(&Cycle<'_>, u32) -> Reason,
) -> bool {
    for pods in nodes {
        let mut admitted = Vec::with_capacity(pods.len());
        for slot in pods {
            let why = (cycle.watched == Some(slot)).then(|| reason(cycle, slot));
            if cycle.admits(run.evictor, slot, || why) {
                admitted.push(slot);
            }
        }
        for slot in admitted {
            if cycle.goes_on_leaving(slot) {
                continue;
            }
            let reason = reason(cycle, slot);
            match cycle.propose(run.evictor, slot, reason) {
                ProposalOutcome::Leaves | ProposalOutcome::Refused => {}
                ProposalOutcome::NodeLimit => break,
                ProposalOutcome::TotalLimit => return false,
            }
        }
    }
    true
}
