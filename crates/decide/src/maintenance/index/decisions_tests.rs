//! What is decided on one maintenance, node or pod, by all that is known: effects, what is waited for, and when to look again.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::decision::Decision;
use crate::maintenance::decision::{Effect, NodeDecision, NodeEffect, PodEffect};
use crate::maintenance::pods;
use crate::maintenance::waiting::{MaintenanceWait, NodeWait, PodWait};
use crate::snapshot::{Key, Node, Pod, Request};

use super::Index;
use super::planning_tests::{at, maintenance, node, plan, pod, request, write};

/// The index of a maintenance that drains these nodes.
fn draining(nodes: &[&str]) -> Index {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({"drainPlan": plan()}), &json!({})));
    for name in nodes {
        index.node_seen(node(name, name, 0, true), at(0));
    }
    index
}

/// The same node, as it is later.
fn later(version: u32, node: Node) -> Node {
    Node { resource_version: version.to_string(), ..node }
}

fn waits_until(wait: &NodeDecision) -> Option<Timestamp> {
    match &wait.waiting_on {
        Some(NodeWait::CordonConflict { until }) => *until,
        _ => None,
    }
}

#[test]
fn a_node_is_held_while_a_maintenance_selects_it_and_let_go_afterwards() {
    let elsewhere = |held| Node { labels: Arc::default(), ..node("n1", "n1", 0, held) };
    let kind = |effect: &NodeEffect| match effect {
        NodeEffect::Hold { .. } => "hold",
        NodeEffect::Release { .. } => "release",
        NodeEffect::Show { .. } => "show",
        NodeEffect::RecordEvent(_) | NodeEffect::RecordConflict(_) => "tell",
    };
    for (seen, effects) in [
        (node("n1", "n1", 0, false), &["hold", "tell", "show"][..]),
        (node("n1", "n1", 0, true), &["hold", "show"]),
        (elsewhere(true), &["release", "tell"]),
        (elsewhere(false), &[]),
    ] {
        let mut index = draining(&[]);
        index.node_seen(seen.clone(), at(0));
        index.resolve(at(0));
        let decision = index.decide_node("n1", at(0)).unwrap().1;
        assert_eq!(decision.effects.iter().map(kind).collect::<Vec<_>>(), effects, "{seen:?}");
        assert_eq!((decision.waiting_on, decision.recheck_at), (None, None), "{seen:?}");
    }
    assert!(draining(&[]).decide_node("n1", at(0)).is_none(), "nobody has seen it");
}

#[test]
fn a_node_that_somebody_keeps_uncordoning_is_cordoned_later_and_later_and_told_of_once_each_time() {
    let mut index = draining(&["n1"]);
    let mut version = 1;
    let mut uncordon = |index: &mut Index, second: i64| {
        for unschedulable in [true, false] {
            version += 1;
            let seen = Node { unschedulable, ..later(version, node("n1", "n1", 0, true)) };
            index.node_seen(seen, at(second));
        }
        index.resolve(at(second));
    };
    let tells = |decision: &NodeDecision| {
        decision.effects.iter().any(|effect| matches!(effect, NodeEffect::RecordConflict(_)))
    };
    for (second, until) in [(10, None), (20, None), (30, Some(32)), (40, Some(44)), (50, Some(58))] {
        uncordon(&mut index, second);
        let decision = index.decide_node("n1", at(second)).unwrap().1;
        let is_held = decision.effects.iter().any(|effect| matches!(effect, NodeEffect::Hold { .. }));
        assert_eq!((waits_until(&decision), decision.recheck_at), (until.map(at), until.map(at)), "{second}");
        assert_eq!((is_held, tells(&decision)), (until.is_none(), until.is_some()), "{second}");
        index.conflict_told("n1");
        assert!(!tells(&index.decide_node("n1", at(second)).unwrap().1), "{second}: it was told");
    }
    let decision = index.decide_node("n1", at(58)).unwrap().1;
    assert_eq!(decision.waiting_on, None, "its time has come");
    assert!(matches!(decision.effects[0], NodeEffect::Hold { .. }));
}

#[test]
fn a_node_by_the_name_of_one_that_is_gone_waits_until_the_status_does_not_speak_of_that() {
    let mut index = draining(&["n1", "n2"]);
    index.pod_seen(pod("p", "n1", 100, json!({})));
    write(&mut index, 2, json!({"drainPlan": plan()}));
    index.node_seen(node("n1", "other", 2000, false), at(2000));
    index.resolve(at(2000));
    let former = NodeWait::FormerNode { maintenance: "m".into() };
    let decision = index.decide_node("n1", at(2000)).unwrap().1;
    assert_eq!(decision, Decision { waiting_on: Some(former), ..Decision::default() });
    write(&mut index, 3, json!({"drainPlan": plan()}));
    let decision = index.decide_node("n1", at(2000)).unwrap().1;
    assert!(matches!(decision.effects[0], NodeEffect::Hold { .. }), "{decision:?}");
    assert_eq!(decision.waiting_on, None);
}

#[test]
fn a_pod_is_asked_to_leave_when_its_turn_is_written_and_later_if_it_came_back() {
    let made =
        |name: &str, priority, second| Pod { created: at(second), ..pod(name, "n1", priority, json!({})) };
    let key = |name: &str| Key::new("ns", name);
    let mut index = draining(&["n1"]);
    index.pod_seen(made("low", 100, 0));
    index.pod_seen(made("high", 5000, 0));
    index.resolve(at(0));
    assert!(index.decide_pod(&key("low"), at(0)).is_none(), "no status shows it as targeted yet");
    write(&mut index, 2, json!({"drainPlan": plan()}));
    assert!(index.decide_pod(&key("high"), at(1000)).is_none(), "those with less priority leave first");
    let decision = index.decide_pod(&key("low"), at(1000)).unwrap().1;
    assert_eq!(decision, Decision::default().act(PodEffect::Request));
    // It is asked, leaves, and its workload brings another one.
    let asked = Request { created: at(1000), ..request("low", 1, false) };
    index.pod_asked(&asked, at(1000));
    index.pod_gone(&key("low"));
    index.pod_seen(made("again", 100, 1001));
    let until = at(1002);
    for (second, wanted) in [
        (
            1001,
            Decision {
                effects: pods::come_back(&made("again", 100, 1001), index.holders("n1"))
                    .into_iter()
                    .collect(),
                waiting_on: Some(PodWait::CameBack { until: Some(until) }),
                recheck_at: Some(until),
            },
        ),
        (1002, Decision::default().act(PodEffect::Request)),
    ] {
        assert_eq!(index.decide_pod(&key("again"), at(second)).unwrap().1, wanted, "{second}");
    }
}

#[test]
fn a_status_that_is_refused_is_tried_later_and_later_and_at_once_when_one_was_taken() {
    let mut index = draining(&["n1"]);
    index.resolve(at(0));
    let name: Arc<str> = "m".into();
    for (times, pause) in [5, 10, 20, 40, 80, 160, 300, 300].into_iter().enumerate() {
        index.status_refused(&name, "StatusTooLarge", "too large".to_owned(), at(100));
        let decision = index.decide_maintenance(&name, at(100)).unwrap().1;
        assert_eq!(decision.recheck_at, Some(at(100 + pause)), "refused {} times", times + 1);
        assert!(!decision.effects.iter().any(|effect| matches!(effect, Effect::WriteStatus(_))));
        let decision = index.decide_maintenance(&name, at(100 + pause)).unwrap().1;
        assert!(matches!(decision.effects[0], Effect::WriteStatus(_)), "refused {} times", times + 1);
    }
    index.status_taken(&name);
    index.status_refused(&name, "StatusTooLarge", "too large".to_owned(), at(100));
    assert_eq!(index.decide_maintenance(&name, at(100)).unwrap().1.recheck_at, Some(at(105)));
}

#[test]
fn pods_that_nothing_ends_are_named_as_people_know_them() {
    let mut index = draining(&["n1", "n2"]);
    for name in ["agent-1", "agent-2"] {
        let node = name.replace("agent-", "n");
        index.pod_seen(pod(name, &node, 0, json!({})));
    }
    index.request_seen(request("agent-1", 1, true));
    index.request_seen(request("agent-2", 1, false));
    index.resolve(at(0));
    let waits = |index: &mut Index| {
        index.resolve(at(0));
        index.decide_maintenance(&"m".into(), at(0)).unwrap().1.waiting_on.unwrap()
    };
    assert_eq!(waits(&mut index), MaintenanceWait::Pods { limited_by: vec![] }, "one of them may be ended");
    index.request_seen(request("agent-2", 2, true));
    let named = waits(&mut index);
    assert!(matches!(named, MaintenanceWait::NothingEnds { .. }));
    assert!(named.to_string().starts_with("Nothing ends DaemonSet ns/agent (2 pods): "), "{named}");
}
