//! Where maintenances and their nodes stand: given plans, nodes and pods, when pods leave or come, then this is said and targeted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::{DrainPlanEntry, PodType};

use super::board::Board;
use super::nodes::{Node, Pods};
use super::plan::{Plan, PodClass};
use super::progress::{Draining, Number};

/// Classes of pods, by number. The plan reaches the low ones first.
const LOW: usize = 0;
const HIGH: usize = 1;

fn class(number: usize) -> PodClass {
    PodClass { kind: PodType::Default, priority: [100, 5000][number], labels: Arc::default() }
}

/// A node with so many low and high pods, none of which has a request.
fn node(name: &str, covered_by: &[Number], [low, high]: [u32; 2]) -> Node {
    let pods = |there| Pods { there, evicting: 0 };
    Node {
        name: name.into(),
        covered_by: covered_by.to_vec(),
        joins: vec![],
        awaits_pods: false,
        targets: Arc::default(),
        pods: BTreeMap::from([(LOW, pods(low)), (HIGH, pods(high))]),
    }
}

/// Maintenances with these names and the same plan, the oldest first.
fn board(names: &[&str], nodes: &[Node]) -> Board {
    let draining = |(number, name): (i64, &&str)| Draining {
        name: (*name).to_owned(),
        created: Timestamp::from_second(number).unwrap(),
        plan: Arc::new(Plan::new(&[DrainPlanEntry::up_to(1000, PodType::Default)])),
        position: 0,
    };
    let draining = (0..).zip(names).map(draining).collect();
    let mut board = Board::new(draining, vec![class(LOW), class(HIGH)], nodes.to_vec());
    board.resolve();
    board
}

/// The message, pods without a request, and those with one.
fn of_node(board: &Board, name: &str) -> (String, u32, u32) {
    let state = board.node(name).unwrap();
    (state.drain.to_string(), state.pending, state.evicting)
}

fn of_maintenance(board: &Board, number: Number) -> (String, u32, u32) {
    let state = board.maintenance(number);
    (state.drain.to_string(), state.pending, state.evicting)
}

fn said(message: &str, pending: u32, evicting: u32) -> (String, u32, u32) {
    (message.to_owned(), pending, evicting)
}

#[test]
fn a_drain_goes_on_when_the_last_pod_that_it_has_reached_leaves() {
    let mut board = board(&["a"], &[node("n1", &[0], [2, 3]), node("n2", &[0], [0, 1])]);
    for (low_pods, n1, n2, is_high_targeted) in [
        (2, said("Evicting", 5, 0), said("Waiting for a.", 1, 0), false),
        (1, said("Evicting", 4, 0), said("Waiting for a.", 1, 0), false),
        (0, said("Evicting", 3, 0), said("Evicting", 1, 0), true),
    ] {
        assert_eq!((of_node(&board, "n1"), of_node(&board, "n2")), (n1, n2), "{low_pods} low pods");
        assert_eq!(board.targets(0, "n2", &class(HIGH)), is_high_targeted, "{low_pods} low pods");
        board.count("n1", LOW, -1, 0);
        board.resolve();
    }
}

#[test]
fn maintenances_of_a_node_wait_for_the_one_that_has_not_come_as_far() {
    // The low pod of n2 keeps `a` from the high pods of n1, which `b` has reached.
    let mut board = board(&["a", "b"], &[node("n1", &[0, 1], [0, 2]), node("n2", &[0], [1, 0])]);
    assert_eq!(of_maintenance(&board, 0), said("Evicting", 3, 0), "nobody keeps it");
    assert_eq!(of_maintenance(&board, 1), said("Waiting for a.", 2, 0));
    assert_eq!(board.maintenance(1).waits_for, ["a"]);
    assert_eq!(of_node(&board, "n1"), said("Waiting for a.", 2, 0));
    // Somebody else has asked one of them.
    board.count("n1", HIGH, 0, 1);
    board.resolve();
    assert_eq!(of_maintenance(&board, 1), said("Evicting (limited by a)", 1, 1));
    board.count("n2", LOW, -1, 0);
    board.resolve();
    assert_eq!(of_maintenance(&board, 1), said("Evicting", 1, 1));
    assert_eq!(
        (of_node(&board, "n1"), of_node(&board, "n2")),
        (said("Evicting", 1, 1), said("Drained", 0, 0))
    );
}

/// So whoever sees no pod left on the nodes of a drain sees it at the end of its plan.
#[test]
fn a_drain_whose_pods_have_all_left_is_at_its_end_and_waits_for_nobody() {
    let mut board = board(&["a", "b"], &[node("n1", &[0, 1], [1, 1]), node("n2", &[0], [0, 1])]);
    for (name, class) in [("n1", LOW), ("n1", HIGH), ("n2", HIGH)] {
        assert!(!board.maintenance(0).is_at_the_end, "before the one of {name} has left");
        board.count(name, class, -1, 0);
        board.resolve();
    }
    for number in [0, 1] {
        let state = board.maintenance(number);
        assert_eq!((state.is_at_the_end, state.waits_for.len()), (true, 0));
        assert_eq!(of_maintenance(&board, number), said("Drained", 0, 0));
    }
    assert_eq!((board.maintenance(0).nodes_drained, board.maintenance(1).nodes_drained), (2, 1));
}

#[test]
fn only_nodes_that_stand_otherwise_than_before_are_named() {
    let mut board = board(&["a"], &[node("n1", &[0], [2, 1]), node("n2", &[0], [1, 0])]);
    let nothing: [Arc<str>; 0] = [];
    assert_eq!(board.resolve().nodes, nothing);
    board.count("n1", LOW, -1, 0);
    let changes = board.resolve();
    assert_eq!((changes.nodes, changes.moved), (vec!["n1".into()], false));
    board.count("n1", LOW, -1, 0);
    board.count("n2", LOW, -1, 0);
    let changes = board.resolve();
    assert_eq!((changes.nodes, changes.moved), (vec!["n1".into(), "n2".into()], true), "high ones are next");
    board.count("gone", LOW, -1, 0);
    assert_eq!(board.resolve().nodes, nothing, "nobody drains that node");
}

#[test]
fn the_first_pods_of_a_node_that_came_meanwhile_leave_in_the_order_of_the_plan() {
    let came = Node { awaits_pods: true, ..node("n2", &[0], [0, 0]) };
    let mut board = board(&["a"], &[node("n1", &[0], [0, 1]), came]);
    assert!(board.targets(0, "n1", &class(HIGH)) && !board.targets(0, "n2", &class(LOW)));
    board.count("n2", HIGH, 1, 0);
    board.count("n2", LOW, 1, 0);
    board.resolve();
    assert!(board.targets(0, "n1", &class(HIGH)), "targets do not go back");
    assert!(board.targets(0, "n2", &class(LOW)) && !board.targets(0, "n2", &class(HIGH)));
}

#[test]
fn another_node_by_the_name_of_one_that_is_gone_has_no_state() {
    let mut board = board(&["a"], &[node("n1", &[0], [1, 0])]);
    assert!(board.node_of(0, "n1").is_some() && board.node_of(1, "n1").is_none());
    board.forget("n1");
    assert!(board.node("n1").is_none() && board.node_of(0, "n1").is_none());
    assert!(board.covered_by("n1").is_empty() && !board.targets(0, "n1", &class(LOW)));
}
