//! A dry run: what a maintenance that does not exist yet would do, and what would stop it.
//!
//! This module calls the manager's own functions and decides nothing by itself:
//! - [`usher_decide::maintenance::waves`] gives the order of the nodes.
//! - [`usher_decide::maintenance::plan`] gives the step at which each pod leaves.
//! - [`usher_decide::eviction_request`] says what would stop an eviction.
//! - The [board](usher_decide::maintenance::board) says which maintenance would wait for which.
//!
//! Where to start reading: [`outlook`]. [`findings`] collects the obstacles and [`finding`] puts them into words. [`fit`] looks
//! for places for the pods that leave, [`overlap`] for other maintenances. [`objects`] are the types that are read.

pub mod budgets;
pub mod finding;
mod findings;
pub mod fit;
pub mod objects;
pub mod overlap;
pub mod placement;
#[cfg(test)]
mod properties;
pub mod resources;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::NodeMaintenanceStage as Stage;
use usher_decide::maintenance::plan::{Plan, PodClass};
use usher_decide::maintenance::waves::{self, Candidate};
use usher_decide::snapshot::{Key, Maintenance};

pub use budgets::Budget;
pub use finding::{Finding, Severity};
pub use fit::{Fit, Misfit};
pub use objects::{Node, NodeOnWire, Pod, PodOnWire};
pub use workloads::Workloads;

use fit::NodeInfo;

/// What there is.
#[derive(Debug, Default)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub budgets: Vec<Budget>,
    pub maintenances: Vec<Maintenance>,
    pub workloads: Workloads,
}

/// What a maintenance would do.
#[derive(Debug)]
pub struct Outlook {
    pub plan: Arc<Plan>,
    /// In the order in which they are taken; without a limit there is one.
    pub waves: Vec<Vec<Stop>>,
    /// Worst first.
    pub findings: Vec<Finding>,
    pub fit: Fit,
    /// Nodes that stay and take pods.
    pub open_nodes: usize,
}

/// A node that would be drained, with its pods by the step of the plan that reaches them.
#[derive(Debug)]
pub struct Stop {
    pub node: Arc<str>,
    /// It is cordoned already.
    pub is_cordoned: bool,
    pub pods: BTreeMap<usize, Vec<Key>>,
}

impl Outlook {
    pub fn nodes(&self) -> usize {
        self.waves.iter().map(Vec::len).sum()
    }

    pub fn pods(&self) -> usize {
        self.waves.iter().flatten().flat_map(|stop| stop.pods.values()).map(Vec::len).sum()
    }

    /// The drain would not end by itself.
    pub fn is_stuck(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity() == Severity::Never)
    }
}

/// The pods that a drain waits for, by the names of their nodes.
type PodsByNode<'a> = HashMap<&'a str, Vec<&'a Pod>>;

pub fn outlook(maintenance: &Maintenance, cluster: &Cluster, now: Timestamp) -> Outlook {
    // One that does not exist yet is the youngest.
    let maintenance = &Maintenance { created: now, status: Default::default(), ..maintenance.clone() };
    let mut pods: PodsByNode<'_> = HashMap::new();
    for pod in cluster.pods.iter().filter(|pod| pod.is_there()) {
        pods.entry(&pod.pod.node).or_default().push(pod);
    }
    let selected: Vec<&Node> = cluster
        .nodes
        .iter()
        .filter(|node| maintenance.selector.matches(&node.node.name, &node.node.labels))
        .collect();
    let names: BTreeSet<Arc<str>> = selected.iter().map(|node| node.node.name.clone()).collect();
    let waves = waves_of(maintenance, &selected, &pods);
    let first = waves.first().cloned().unwrap_or_default();
    let overlaps = overlap::overlaps(maintenance, &first, &names, cluster, &pods);
    let by_name: HashMap<&str, &Node> = selected.iter().map(|node| (&*node.node.name, *node)).collect();
    let stop = |name: &Arc<str>| {
        let of_node = pods.get(&**name).into_iter().flatten();
        let mut by_step: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
        for pod in of_node {
            by_step.entry(maintenance.plan.step_of(&class_of(pod))).or_default().push(pod.pod.key.clone());
        }
        by_step.values_mut().for_each(|keys| keys.sort());
        let is_cordoned = by_name.get(&**name).is_some_and(|node| node.node.unschedulable);
        Stop { node: name.clone(), is_cordoned, pods: by_step }
    };
    let stops: Vec<Vec<Stop>> = waves.iter().map(|wave| wave.iter().map(stop).collect()).collect();

    let mut remaining_nodes = remaining_nodes(cluster, &names, &pods);
    let leaving: Vec<&Pod> =
        waves.iter().flatten().filter_map(|name| pods.get(&**name)).flatten().copied().collect();
    let moving = leaving.iter().copied().filter(|pod| is_replaced(pod));
    let open_nodes = remaining_nodes.iter().filter(|node| !node.is_cordoned).count();
    let fit = fit::fit(moving, &mut remaining_nodes);
    let by_wave = waves.iter().enumerate().flat_map(|(number, wave)| {
        let pods = wave.iter().filter_map(|name| pods.get(&**name)).flatten();
        pods.map(move |pod| (number, *pod))
    });
    let misfits: HashSet<&Key> = fit.misfits.iter().flat_map(|misfit| &misfit.pods).collect();
    let mut findings = findings::findings(by_wave, &cluster.budgets, &cluster.workloads, &misfits, now);
    findings.extend(fit.misfits.iter().cloned().map(Finding::NoPlace));
    findings.extend(overlaps.into_iter().map(Finding::Overlap));
    findings.sort_by_cached_key(rank);
    Outlook { plan: maintenance.plan.clone(), waves: stops, findings, fit, open_nodes }
}

/// What these pods would meet if they were asked to leave at once, worst first.
pub fn of_pods(pods: &[&Pod], budgets: &[Budget], workloads: &Workloads, now: Timestamp) -> Vec<Finding> {
    let pods = pods.iter().copied().map(|pod| (0, pod));
    let mut findings = findings::findings(pods, budgets, workloads, &HashSet::new(), now);
    findings.sort_by_cached_key(rank);
    findings
}

/// Where a finding stands among others.
fn rank(finding: &Finding) -> impl Ord + use<> {
    (finding.severity(), finding.rank(), usize::MAX - finding.pods().len(), finding.sentence())
}

/// The nodes in the order in which the controller takes them.
fn waves_of(maintenance: &Maintenance, nodes: &[&Node], pods: &PodsByNode<'_>) -> Vec<Vec<Arc<str>>> {
    let Some(limit) = &maintenance.limit else {
        let mut all: Vec<Arc<str>> = nodes.iter().map(|node| node.node.name.clone()).collect();
        all.sort_unstable();
        return if all.is_empty() { Vec::new() } else { vec![all] };
    };
    let candidates: Vec<Candidate> = nodes
        .iter()
        .map(|node| Candidate {
            name: node.node.name.clone(),
            domain: node.node.labels.get(&limit.topology_key).cloned().unwrap_or_default(),
            is_taken: false,
            pods: pods.get(&*node.node.name).map_or(0, |pods| u32::try_from(pods.len()).unwrap_or(u32::MAX)),
        })
        .collect();
    waves::all(limit, &candidates)
}

fn class_of(pod: &Pod) -> PodClass {
    PodClass { kind: pod.pod.kind(), priority: pod.pod.priority, labels: pod.pod.labels.clone() }
}

/// The nodes that stay, by name, with what is left on them. All selected nodes are cordoned from the start, and so are
/// those of other maintenances.
fn remaining_nodes<'a>(
    cluster: &'a Cluster,
    selected: &BTreeSet<Arc<str>>,
    pods: &PodsByNode<'_>,
) -> Vec<NodeInfo<'a>> {
    let holding: Vec<&Maintenance> = cluster
        .maintenances
        .iter()
        .filter(|other| matches!(other.stage(), Stage::Cordon | Stage::Drain))
        .collect();
    let mut remaining_nodes: Vec<NodeInfo<'_>> = cluster
        .nodes
        .iter()
        .filter(|node| !selected.contains(&node.node.name))
        .map(|node| {
            let mut free = node.offers.clone();
            let there = pods.get(&*node.node.name).map(Vec::as_slice).unwrap_or_default();
            there.iter().for_each(|pod| free.subtract(&pod.wants));
            let is_held =
                holding.iter().any(|other| other.selector.matches(&node.node.name, &node.node.labels));
            NodeInfo {
                node,
                is_cordoned: node.node.unschedulable || is_held,
                free,
                free_pods: node.pods - i64::try_from(there.len()).unwrap_or(i64::MAX),
            }
        })
        .collect();
    remaining_nodes.sort_by(|a, b| a.node.node.name.cmp(&b.node.node.name));
    remaining_nodes
}

/// Somebody makes a new one, which needs a place of its own. One that terminates has its successor already.
fn is_replaced(pod: &Pod) -> bool {
    let pod = &pod.pod;
    pod.kind() == usher_api::PodType::Default && pod.owner.is_some() && !pod.is_terminating()
}
