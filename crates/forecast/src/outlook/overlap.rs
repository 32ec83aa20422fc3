//! Other maintenances of the same nodes, and who would wait for whom. That is asked of the board on which the
//! controller plays.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use usher_api::NodeMaintenanceStage as Stage;
use usher_decide::maintenance::board::Board;
use usher_decide::maintenance::nodes::{Node, Pods};
use usher_decide::maintenance::plan::PodClass;
use usher_decide::maintenance::progress::{Draining, Number};
use usher_decide::maintenance::targets::Targets;
use usher_decide::snapshot::Maintenance;

use super::objects::Pod;
use super::{Cluster, PodsByNode};

/// Another maintenance of some of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub maintenance: Arc<str>,
    pub stage: Stage,
    pub nodes: Vec<Arc<str>>,
    /// The new one waits for it, from the start.
    pub is_waited_for: bool,
    /// It would wait for the new one.
    pub waits: bool,
    /// The plans contradict each other: the new one, which is younger, does not get its order.
    pub pushes: bool,
}

/// `first` are the nodes that the new maintenance starts with.
pub fn overlaps(
    new: &Maintenance,
    first: &[Arc<str>],
    selected: &BTreeSet<Arc<str>>,
    cluster: &Cluster,
    pods: &PodsByNode<'_>,
) -> Vec<Overlap> {
    let is_selected = |name: &Arc<str>| selected.contains(name);
    let mut overlaps = Vec::new();
    for other in cluster.maintenances.iter().filter(|other| other.name != new.name) {
        let nodes: Vec<Arc<str>> = cluster
            .nodes
            .iter()
            .map(|node| &node.node)
            .filter(|node| is_selected(&node.name) && other.selector.matches(&node.name, &node.labels))
            .map(|node| node.name.clone())
            .collect();
        if !nodes.is_empty() && other.stage() != Stage::Complete {
            overlaps.push(Overlap {
                maintenance: other.name.clone(),
                stage: other.stage(),
                nodes,
                is_waited_for: false,
                waits: false,
                pushes: false,
            });
        }
    }
    if overlaps.iter().any(|overlap| overlap.stage == Stage::Drain) {
        ask_the_board(new, first, cluster, pods, &mut overlaps);
    }
    overlaps
}

fn ask_the_board(
    new: &Maintenance,
    first: &[Arc<str>],
    cluster: &Cluster,
    pods: &PodsByNode<'_>,
    overlaps: &mut [Overlap],
) {
    let others: Vec<&Maintenance> = cluster
        .maintenances
        .iter()
        .filter(|other| other.name != new.name && other.stage() == Stage::Drain)
        .collect();
    let mine: Number = others.len();
    let draining = others.iter().copied().chain([new]).map(|maintenance| Draining {
        name: maintenance.name.to_string(),
        created: maintenance.created,
        plan: maintenance.plan.clone(),
        position: maintenance.position(),
    });
    let draining: Vec<Draining> = draining.collect();
    let first: BTreeSet<&Arc<str>> = first.iter().collect();
    let mut classes = Classes::of(&draining);
    let mut nodes = Vec::new();
    for node in cluster.nodes.iter().map(|node| &node.node) {
        let takes = |number: &Number| {
            let other = others[*number];
            let has_turn = other.limit.is_none() || other.targets.has(&node.name);
            has_turn && other.selector.matches(&node.name, &node.labels)
        };
        let mut covered_by: Vec<Number> = (0..mine).filter(takes).collect();
        let known = covered_by.iter().filter_map(|number| others[*number].targets.get(&node.name));
        let targeted = known.fold(Arc::<Targets>::default(), |so_far, targets| so_far.grown_by(targets));
        if first.contains(&node.name) {
            covered_by.push(mine);
        }
        if !covered_by.is_empty() {
            let has_targets =
                |number: &Number| others.get(*number).is_some_and(|other| other.targets.has(&node.name));
            let joins = covered_by.iter().copied().filter(|number| !has_targets(number)).collect();
            let mut counts: BTreeMap<usize, Pods> = BTreeMap::new();
            for pod in pods.get(&*node.name).into_iter().flatten() {
                counts.entry(classes.number(pod)).or_default().there += 1;
            }
            nodes.push(Node {
                name: node.name.clone(),
                covered_by,
                joins,
                awaits_pods: false,
                targets: targeted,
                pods: counts,
            });
        }
    }
    let mut board = Board::new(draining, classes.all, nodes);
    let changes = board.resolve();
    let my_waits = board.maintenance(mine).waits_for;
    for overlap in overlaps {
        let Some(number) = others.iter().position(|other| other.name == overlap.maintenance) else {
            continue;
        };
        overlap.is_waited_for = my_waits.iter().any(|name| **name == *overlap.maintenance);
        overlap.waits = board.maintenance(number).waits_for.iter().any(|name| **name == *new.name);
        overlap.pushes = changes.pushed.iter().any(|push| push.maintenance == mine && push.after == number);
    }
}

/// Pods that all plans treat alike are one class: of the labels only those count that a selector speaks of.
struct Classes {
    keys: BTreeSet<String>,
    all: Vec<PodClass>,
    numbers: HashMap<PodClass, usize>,
}

impl Classes {
    fn of(draining: &[Draining]) -> Self {
        let entries = draining.iter().flat_map(|draining| draining.plan.steps()).map(|step| &step.entry);
        let mut keys = BTreeSet::new();
        for selector in entries.filter_map(|entry| entry.pod_selector.as_ref()) {
            keys.extend(selector.match_labels.iter().flatten().map(|(key, _)| key.clone()));
            keys.extend(selector.match_expressions.iter().flatten().map(|need| need.key.clone()));
        }
        Self { keys, all: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, pod: &Pod) -> usize {
        let labels = self.keys.iter().filter_map(|key| Some((key.clone(), pod.pod.labels.get(key)?.clone())));
        let class =
            PodClass { kind: pod.pod.kind(), priority: pod.pod.priority, labels: Arc::new(labels.collect()) };
        if let Some(number) = self.numbers.get(&class) {
            return *number;
        }
        self.all.push(class.clone());
        self.numbers.insert(class, self.all.len() - 1);
        self.all.len() - 1
    }
}
