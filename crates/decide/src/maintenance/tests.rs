//! The example of the specification, step by step, and the properties of overlapping maintenances on generated cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use usher_api::{DrainPlanEntry, PodType};

use super::board::Board;
use super::nodes::{MaintenanceState, Node, NodeState, Pods};
use super::plan::{Plan, PodClass};
use super::progress::{Draining, FastForward, World};
use super::targets::reached;

fn entry(priority: i32, kind: PodType) -> DrainPlanEntry {
    DrainPlanEntry::up_to(priority, kind)
}

fn labelled(priority: i32, app: &str) -> DrainPlanEntry {
    let labels = [("app".to_string(), app.to_string())].into();
    let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    DrainPlanEntry { pod_selector: Some(selector), ..entry(priority, PodType::Default) }
}

fn class(kind: PodType, priority: i32, app: &str) -> PodClass {
    PodClass { kind, priority, labels: Arc::new([("app".to_string(), app.to_string())].into()) }
}

struct State {
    nodes: Vec<NodeState>,
    maintenances: Vec<MaintenanceState>,
    pushed: Vec<FastForward>,
}

fn copy(draining: &Draining) -> Draining {
    Draining {
        name: draining.name.clone(),
        created: draining.created,
        plan: draining.plan.clone(),
        position: draining.position,
    }
}

fn board_of(world: &World, nodes: &[Node]) -> Board {
    Board::new(world.draining.iter().map(copy).collect(), world.classes.clone(), nodes.to_vec())
}

fn state_of(board: &Board, nodes: &[Node]) -> (Vec<NodeState>, Vec<MaintenanceState>) {
    let maintenances = (0..board.draining().len()).map(|number| board.maintenance(number)).collect();
    (nodes.iter().map(|node| board.node(&node.name).unwrap().clone()).collect(), maintenances)
}

fn resolve(world: &mut World, nodes: &[Node]) -> State {
    let mut board = board_of(world, nodes);
    let pushed = board.resolve().pushed;
    for (draining, moved) in world.draining.iter_mut().zip(board.draining()) {
        draining.position = moved.position;
    }
    let (nodes, maintenances) = state_of(&board, nodes);
    State { nodes, maintenances, pushed }
}

/// The number of a class in a world, entered if it is new.
fn class_of(world: &mut World, index: &mut BTreeMap<PodClass, usize>, class: PodClass) -> usize {
    *index.entry(class.clone()).or_insert_with(|| {
        world.classes.push(class);
        world.classes.len() - 1
    })
}

/// Maintenances and nodes by name, with pods that get their requests as soon as they are targeted.
#[derive(Default)]
struct Cluster {
    world: World,
    index: BTreeMap<PodClass, usize>,
    nodes: Vec<Node>,
}

impl Cluster {
    fn maintenance(&mut self, name: &str, nodes: &[&str], plan: &[DrainPlanEntry]) {
        let number = self.world.draining.len();
        self.world.draining.push(Draining {
            name: name.into(),
            created: Timestamp::from_second(i64::try_from(number).unwrap()).unwrap(),
            plan: Arc::new(Plan::new(plan)),
            position: 0,
        });
        for name in nodes {
            if !self.nodes.iter().any(|node| &*node.name == *name) {
                let name = (*name).into();
                self.nodes.push(Node {
                    name,
                    covered_by: vec![],
                    joins: vec![],
                    awaits_pods: false,
                    targets: Arc::default(),
                    pods: BTreeMap::new(),
                });
            }
            self.node(name).covered_by.push(number);
        }
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|node| &*node.name == name).unwrap()
    }

    fn pods(&mut self, node: &str, class: PodClass, count: u32) {
        let number = class_of(&mut self.world, &mut self.index, class);
        self.node(node).pods.insert(number, Pods { there: count, evicting: 0 });
    }

    /// What is targeted now gets its requests; then where everything stands.
    fn settle(&mut self) -> State {
        let state = resolve(&mut self.world, &self.nodes);
        for (node, state) in self.nodes.iter_mut().zip(&state.nodes) {
            node.targets.clone_from(&state.targets);
            for (class, pods) in &mut node.pods {
                if node.targets.selects(&self.world.classes[*class]) {
                    pods.evicting = pods.there;
                }
            }
        }
        let pushed = state.pushed;
        State { pushed, ..resolve(&mut self.world, &self.nodes) }
    }

    /// Message, pending and evicting pods.
    fn of_node(&self, state: &State, name: &str) -> (String, u32, u32) {
        let at = self.nodes.iter().position(|node| &*node.name == name).unwrap();
        let state = &state.nodes[at];
        (state.drain.to_string(), state.pending, state.evicting)
    }

    fn targets(&self, state: &State, name: &str) -> Vec<DrainPlanEntry> {
        let at = self.nodes.iter().position(|node| &*node.name == name).unwrap();
        state.nodes[at].targets.entries().unwrap().to_vec()
    }
}

fn shows(message: &str, pending: u32, evicting: u32) -> (String, u32, u32) {
    (message.to_string(), pending, evicting)
}

fn of(state: &State, maintenance: usize) -> ((String, u32, u32), Vec<DrainPlanEntry>) {
    let state = &state.maintenances[maintenance];
    ((state.drain.to_string(), state.pending, state.evicting), state.reached.entries().unwrap().to_vec())
}

#[test]
fn pod_selection_and_drain_targets_example() {
    let default = |priority| entry(priority, PodType::Default);
    let pod = |priority| class(PodType::Default, priority, "x");
    let mut cluster = Cluster::default();
    let (a, b, c) = (0, 1, 2);
    cluster.maintenance(
        "maintenance-a",
        &["one", "two"],
        &[default(5000), default(15_000), entry(3000, PodType::DaemonSet)],
    );
    cluster.maintenance(
        "maintenance-b",
        &["one", "three"],
        &[default(10_000), default(15_000), entry(4000, PodType::DaemonSet)],
    );
    for (node, priority, count) in [
        ("one", 5000, 10),
        ("one", 10_000, 30),
        ("one", 12_000, 70),
        ("two", 5000, 7),
        ("two", 15_000, 9),
        ("two", 20_000, 21),
        ("three", 10_000, 25),
        ("three", 12_000, 45),
    ] {
        cluster.pods(node, pod(priority), count);
    }

    // For the intersecting nodes, the entry with the lowest priority is resolved first.
    let state = cluster.settle();
    assert_eq!(of(&state, a), (shows("Evicting", 130, 17), vec![default(5000)]));
    assert_eq!(of(&state, b), (shows("Evicting (limited by maintenance-a)", 145, 35), vec![default(5000)]));
    for (node, pending, evicting, target) in
        [("one", 100, 10, 5000), ("two", 30, 7, 5000), ("three", 45, 25, 10_000)]
    {
        assert_eq!(cluster.of_node(&state, node), shows("Evicting", pending, evicting), "{node}");
        assert_eq!(cluster.targets(&state, node), [default(target)], "{node}");
    }

    // If the node three is drained, then it has to wait for the node one.
    cluster.pods("three", pod(10_000), 0);
    cluster.pods("one", pod(5000), 5);
    let state = cluster.settle();
    assert_eq!(of(&state, b), (shows("Evicting (limited by maintenance-a)", 145, 5), vec![default(5000)]));
    assert_eq!(cluster.of_node(&state, "three"), shows("Waiting for maintenance-a.", 45, 0));
    assert_eq!(cluster.targets(&state, "three"), [default(10_000)]);

    // If the node one is drained, maintenance-a still has to drain node two.
    cluster.pods("one", pod(5000), 0);
    cluster.pods("two", pod(5000), 2);
    let state = cluster.settle();
    assert_eq!(of(&state, a), (shows("Evicting", 130, 2), vec![default(5000)]));
    assert_eq!(of(&state, b), (shows("Waiting for maintenance-a.", 145, 0), vec![default(5000)]));
    assert_eq!(cluster.of_node(&state, "one"), shows("Waiting for maintenance-a.", 100, 0));
    assert_eq!(cluster.of_node(&state, "two"), shows("Evicting", 30, 2));
    assert_eq!(cluster.of_node(&state, "three"), shows("Waiting for maintenance-a.", 45, 0));

    // Once the node two drains, the targets are incremented.
    cluster.pods("two", pod(5000), 0);
    let state = cluster.settle();
    assert_eq!(of(&state, a), (shows("Evicting", 91, 39), vec![default(10_000)]));
    assert_eq!(of(&state, b), (shows("Evicting", 115, 30), vec![default(10_000)]));
    assert_eq!(cluster.of_node(&state, "one"), shows("Evicting (limited by maintenance-b)", 70, 30));
    assert_eq!(cluster.of_node(&state, "two"), shows("Evicting", 21, 9));
    assert_eq!(cluster.of_node(&state, "three"), shows("Waiting for maintenance-b.", 45, 0));
    for (node, target) in [("one", 10_000), ("two", 15_000), ("three", 10_000)] {
        assert_eq!(cluster.targets(&state, node), [default(target)], "{node}");
    }

    // The progress is not backtracked when maintenance-c comes.
    cluster.maintenance("maintenance-c", &["one", "four"], &[default(2000), default(15_000)]);
    cluster.pods("four", pod(2000), 5);
    cluster.pods("four", pod(12_000), 20);
    let state = cluster.settle();
    assert_eq!(of(&state, c), (shows("Evicting", 90, 35), vec![default(2000)]));
    let message = "Evicting (limited by maintenance-b, maintenance-c)";
    assert_eq!(cluster.of_node(&state, "one"), shows(message, 70, 30));
    assert_eq!(cluster.of_node(&state, "four"), shows("Evicting", 20, 5));
    assert_eq!(cluster.targets(&state, "one"), [default(10_000)]);
    assert_eq!(cluster.targets(&state, "four"), [default(2000)]);
}

#[test]
fn pod_types_and_label_selectors_progression() {
    let plan = Plan::new(&[
        entry(1000, PodType::Default),
        labelled(2000, "postgres"),
        entry(1000, PodType::DaemonSet),
    ]);
    let at =
        |priority: i32, kind| plan.steps().iter().position(|s| s.entry == entry(priority, kind)).unwrap();
    let (general, postgres) = (|p| entry(p, PodType::Default), |p| labelled(p, "postgres"));
    let max = i32::MAX;
    assert_eq!(reached(&plan, 0), [general(1000), postgres(1000)]);
    assert_eq!(reached(&plan, 1), [general(1000), postgres(2000)]);
    let all_default = at(max, PodType::Default);
    assert_eq!(reached(&plan, all_default), [general(max), postgres(max)]);
    let daemons = entry(1000, PodType::DaemonSet);
    assert_eq!(reached(&plan, all_default + 1), [general(max), postgres(max), daemons]);
    let daemons = entry(max, PodType::DaemonSet);
    assert_eq!(reached(&plan, at(max, PodType::DaemonSet)), [general(max), postgres(max), daemons.clone()]);
    assert_eq!(
        reached(&plan, at(max, PodType::Static)),
        [general(max), postgres(max), daemons, entry(max, PodType::Static)]
    );
}

#[test]
fn plans_that_contradict_each_other_follow_the_older_one() {
    let mut cluster = Cluster::default();
    cluster.maintenance("older", &["one"], &[labelled(0, "x")]);
    cluster.maintenance("newer", &["one"], &[labelled(0, "y")]);
    cluster.pods("one", class(PodType::Default, 0, "x"), 3);
    cluster.pods("one", class(PodType::Default, 0, "y"), 4);
    let state = cluster.settle();
    assert_eq!(state.pushed.len(), 1);
    assert_eq!((state.pushed[0].maintenance, state.pushed[0].after), (1, 0));
    let (_, pending, evicting) = cluster.of_node(&state, "one");
    assert_eq!((pending, evicting), (4, 3), "the pods of the older one's first entry go");
}

#[test]
fn a_maintenance_without_nodes_stays_at_its_first_entry() {
    let mut cluster = Cluster::default();
    cluster.maintenance("m", &[], &[]);
    assert_eq!(cluster.settle().maintenances[0].position, 0);
}

#[test]
fn a_node_that_joins_starts_at_the_first_entry_unless_it_brings_targets() {
    let default = |priority| entry(priority, PodType::Default);
    let pod = |priority| class(PodType::Default, priority, "x");
    let mut cluster = Cluster::default();
    cluster.maintenance("m", &["one"], &[default(1000)]);
    let state = cluster.settle();
    let all = state.nodes[0].targets.clone();
    assert!(state.maintenances[0].is_at_the_end, "nobody is there");
    // One joins with pods of two entries, and one that is drained as far already.
    for (name, targets) in [("two", Arc::default()), ("three", all.clone())] {
        let name = name.into();
        cluster.nodes.push(Node {
            name,
            covered_by: vec![0],
            joins: vec![0],
            awaits_pods: false,
            targets,
            pods: BTreeMap::new(),
        });
    }
    for node in ["two", "three"] {
        cluster.pods(node, pod(100), 2);
        cluster.pods(node, pod(5000), 3);
    }
    let state = cluster.settle();
    assert_eq!(state.maintenances[0].position, 0);
    assert_eq!(cluster.of_node(&state, "two"), shows("Evicting", 3, 2));
    assert_eq!(cluster.of_node(&state, "three"), shows("Evicting", 0, 5));
    assert_eq!(Some(&cluster.targets(&state, "one")[..]), all.entries());
    assert_eq!(cluster.targets(&state, "two"), [default(1000)]);
    cluster.nodes.iter_mut().for_each(|node| node.joins.clear());
    for node in ["two", "three"] {
        cluster.pods(node, pod(100), 0);
    }
    let state = cluster.settle();
    assert_eq!(cluster.of_node(&state, "two"), shows("Evicting", 0, 3));
}

/// Its pods are seen only after it has joined: they leave in order all the same.
#[test]
fn a_node_that_joins_without_pods_starts_at_the_first_entry_when_they_come() {
    let default = |priority| entry(priority, PodType::Default);
    let pod = |priority| class(PodType::Default, priority, "x");
    let mut cluster = Cluster::default();
    cluster.maintenance("m", &["one"], &[default(1000)]);
    assert!(cluster.settle().maintenances[0].is_at_the_end);
    cluster.nodes.push(Node {
        name: "two".into(),
        covered_by: vec![0],
        joins: vec![0],
        awaits_pods: true,
        targets: Arc::default(),
        pods: BTreeMap::new(),
    });
    let draining = vec![Draining {
        name: "m".to_string(),
        created: Timestamp::UNIX_EPOCH,
        plan: Arc::new(Plan::new(&[default(1000)])),
        position: 12,
    }];
    let mut board = Board::new(draining, vec![pod(100), pod(5000)], cluster.nodes);
    board.resolve();
    assert!(board.node("two").is_some_and(|state| state.targets.is_empty() && state.is_empty()));
    board.count("two", 0, 1, 0);
    board.count("two", 1, 1, 0);
    board.resolve();
    let targets = &board.node("two").unwrap().targets;
    assert!(targets.selects(&pod(100)) && !targets.selects(&pod(5000)), "{targets:?}");
    assert_eq!(board.maintenance(0).position, 0);
    board.count("two", 0, -1, 0);
    board.resolve();
    assert!(board.node("two").unwrap().targets.selects(&pod(5000)));
}

/// Priority, type and selector of an entry, as numbers.
type Entries = Vec<(i32, u8, u8)>;

/// A generated case: plans, nodes and pods.
#[derive(Debug, Clone)]
struct Generated {
    /// For each maintenance the nodes it covers and its entries.
    maintenances: Vec<(Vec<usize>, Entries)>,
    /// (node, priority, type, app, count).
    pods: Vec<(usize, i32, u8, u8, u32)>,
    /// Which targeted pods leave first.
    order: Vec<usize>,
}

const NODES: [&str; 4] = ["one", "two", "three", "four"];

fn generated() -> impl Strategy<Value = Generated> {
    let entry = (prop::sample::select(vec![0, 1000, 2000, 5000]), 0..3_u8, 0..4_u8);
    let maintenance = (prop::sample::subsequence(vec![0, 1, 2, 3], 1..4), prop::collection::vec(entry, 0..4));
    let pod = (
        0..4_usize,
        prop::sample::select(vec![-1, 500, 1500, 4000, 2_000_000_000]),
        0..3_u8,
        0..3_u8,
        1..3_u32,
    );
    (
        prop::collection::vec(maintenance, 1..5),
        prop::collection::vec(pod, 0..14),
        prop::collection::vec(0..100_usize, 60),
    )
        .prop_map(|(maintenances, pods, order)| Generated { maintenances, pods, order })
}

fn kind(number: u8) -> PodType {
    [PodType::Default, PodType::DaemonSet, PodType::Static][usize::from(number % 3)]
}

fn app(number: u8) -> &'static str {
    ["x", "y", "z"][usize::from(number % 3)]
}

fn built(generated: &Generated) -> Cluster {
    let mut cluster = Cluster::default();
    for (number, (nodes, entries)) in generated.maintenances.iter().enumerate() {
        let nodes: Vec<&str> = nodes.iter().map(|node| NODES[*node]).collect();
        let mut plan: Vec<DrainPlanEntry> = entries
            .iter()
            .map(|(priority, of, by)| {
                let selector = (*by < 3).then(|| labelled(0, app(*by)).pod_selector).flatten();
                DrainPlanEntry { pod_selector: selector, ..entry(*priority, kind(*of)) }
            })
            .collect();
        plan.dedup();
        cluster.maintenance(&format!("m{number}"), &nodes, &plan);
    }
    for (node, priority, of, by, count) in &generated.pods {
        if cluster.nodes.iter().any(|known| &*known.name == NODES[*node]) {
            cluster.pods(NODES[*node], class(kind(*of), *priority, app(*by)), *count);
        }
    }
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A board that hears of pods one by one says the same as one that is made anew.
    #[test]
    fn a_board_that_is_kept_up_is_the_one_made_anew(case in generated(), changes in prop::collection::vec((0..100_usize, 0..100_usize, -2..3_i64, -2..3_i64), 0..30)) {
        let mut cluster = built(&case);
        if cluster.world.classes.is_empty() || cluster.nodes.is_empty() {
            return Ok(());
        }
        let mut board = board_of(&cluster.world, &cluster.nodes);
        board.resolve();
        for (node, class, there, evicting) in changes {
            let (at, class) = (node % cluster.nodes.len(), class % cluster.world.classes.len());
            let pods = cluster.nodes[at].pods.entry(class).or_default();
            let before = *pods;
            pods.there = u32::try_from(i64::from(pods.there) + there).unwrap_or(0);
            pods.evicting = u32::try_from(i64::from(pods.evicting) + evicting).unwrap_or(0).min(pods.there);
            let by = |new: u32, old: u32| i64::from(new) - i64::from(old);
            let pods = *pods;
            board.count(&cluster.nodes[at].name, class, by(pods.there, before.there), by(pods.evicting, before.evicting));
            board.resolve();
            // As after a restart: with the targets and positions that were reached.
            for node in &mut cluster.nodes {
                node.targets = board.node(&node.name).unwrap().targets.clone();
            }
            for (draining, moved) in cluster.world.draining.iter_mut().zip(board.draining()) {
                draining.position = moved.position;
            }
            let mut anew = board_of(&cluster.world, &cluster.nodes);
            anew.resolve();
            prop_assert_eq!(state_of(&board, &cluster.nodes), state_of(&anew, &cluster.nodes));
        }
    }

    /// Willing pods leave in any order, one at a time: all maintenances finish, targets only grow, and nothing is
    /// targeted while a pod of an earlier entry is left on a node of a maintenance that was not pushed.
    #[test]
    fn every_set_of_maintenances_finishes_in_order(case in generated()) {
        let mut cluster = built(&case);
        let mut pushed = vec![false; cluster.world.draining.len()];
        let total: usize = case.pods.iter().map(|pod| pod.4 as usize).sum();
        let mut turn = case.order.iter().cycle();
        for _ in 0..=total {
            let before: Vec<Node> = cluster.nodes.clone();
            let positions: Vec<usize> = cluster.world.draining.iter().map(|d| d.position).collect();
            let state = cluster.settle();
            for push in &state.pushed {
                pushed[push.maintenance] = true;
            }
            for (draining, before) in cluster.world.draining.iter().zip(positions) {
                prop_assert!(draining.position >= before, "positions go forward");
            }
            for (node, before) in cluster.nodes.iter().zip(&before) {
                for pod in &cluster.world.classes {
                    prop_assert!(!before.targets.selects(pod) || node.targets.selects(pod), "targets go back for {pod:?}");
                }
            }
            // What is newly targeted: nothing that comes earlier is left for any maintenance in order.
            for (node, before) in cluster.nodes.iter().zip(&before) {
                for (class, pods) in &node.pods {
                    let newly = pods.evicting > 0 && before.pods.get(class).is_none_or(|pods| pods.evicting == 0);
                    if !newly {
                        continue;
                    }
                    for number in node.covered_by.iter().filter(|number| !pushed[**number]) {
                        let plan = &cluster.world.draining[*number].plan;
                        let step = plan.step_of(&cluster.world.classes[*class]);
                        let earlier = cluster.nodes.iter().filter(|other| other.covered_by.contains(number)).any(|other| {
                            other.pods.iter().any(|(class, pods)| {
                                pods.there > 0 && plan.step_of(&cluster.world.classes[*class]) < step
                            })
                        });
                        prop_assert!(!earlier, "m{number} has earlier pods left");
                    }
                }
            }
            // One of the targeted pods leaves.
            let leaving: Vec<(usize, usize)> = cluster.nodes.iter().enumerate()
                .flat_map(|(at, node)| node.pods.iter().filter(|(_, pods)| pods.evicting > 0).map(move |(class, _)| (at, *class)))
                .collect();
            if leaving.is_empty() {
                let left: u32 = cluster.nodes.iter().flat_map(|node| node.pods.values()).map(|pods| pods.there).sum();
                prop_assert_eq!(left, 0, "nothing is leaving, and {} pods are left: {:?}", left, state.maintenances);
                return Ok(());
            }
            let (at, class) = leaving[turn.next().copied().unwrap_or(0) % leaving.len()];
            let pods = cluster.nodes[at].pods.get_mut(&class).unwrap();
            pods.there -= 1;
            pods.evicting -= 1;
        }
        prop_assert!(cluster.nodes.iter().flat_map(|node| node.pods.values()).all(|pods| pods.there == 0));
    }
}
