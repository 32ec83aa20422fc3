//! Which nodes are drained and from where on, told to the index object by object.

use std::sync::Arc;

use crate::maintenance::decision::{Effect, NodeEffect, PodEffect};
use crate::maintenance::pods;
use crate::snapshot::{Key, Maintenance, Node, NodeOnWire, Pod, PodOnWire, Request, RequestOnWire};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Index, Item};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn maintenance(version: u32, spec: Value, status: &Value) -> Maintenance {
    let mut object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {
            "name": "m", "uid": "m", "resourceVersion": version.to_string(),
            "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"],
        },
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
        ]}},
        "status": status,
    });
    for (key, value) in spec.as_object().cloned().unwrap_or_default() {
        object["spec"][key] = value;
    }
    Maintenance::from(serde_json::from_value::<usher_api::NodeMaintenance>(object).unwrap())
}

/// A node of the pool, held or not.
pub(super) fn node(name: &str, uid: &str, created: i64, held: bool) -> Node {
    let marks = json!({
        "nodemaintenance.k8s.io/held-by": "m", "nodemaintenance.k8s.io/was-unschedulable": "false",
        "nodemaintenance.k8s.io/phase": "Draining",
    });
    let object = json!({
        "metadata": {
            "name": name, "uid": uid, "resourceVersion": "1", "labels": {"pool": "a"},
            "creationTimestamp": at(created).to_string(), "annotations": if held { marks } else { json!({}) },
        },
        "spec": {"unschedulable": held},
    });
    Node::from(serde_json::from_value::<NodeOnWire>(object).unwrap())
}

pub(super) fn pod(name: &str, node: &str, priority: i32, labels: Value) -> Pod {
    let kind = if name.starts_with("agent") { "DaemonSet" } else { "ReplicaSet" };
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": "agent", "uid": "o", "controller": true},
        ]},
        "spec": {"nodeName": node, "priority": priority}, "status": {"phase": "Running"},
    });
    Pod::from(serde_json::from_value::<PodOnWire>(object).unwrap())
}

/// A request of ours; with `blocked`, for a daemon that nothing ends.
pub(super) fn request(pod: &str, version: u32, blocked: bool) -> Request {
    let condition = json!({
        "type": "EvictionBlocked", "status": if blocked { "True" } else { "False" }, "reason": "DaemonSetPod",
        "message": "", "lastTransitionTime": at(0).to_string(),
    });
    let object = json!({
        "metadata": {
            "name": pod, "namespace": "ns", "uid": format!("r-{pod}"), "resourceVersion": version.to_string(),
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
        },
        "spec": {"podRef": {"name": pod, "uid": pod}}, "status": {"conditions": [condition]},
    });
    Request::from(serde_json::from_value::<RequestOnWire>(object).unwrap())
}

/// Looks at the maintenance, and writes what it decides on, as the controller does.
pub(super) fn write(index: &mut Index, version: u32, spec: Value) -> Value {
    index.resolve(at(1000));
    let (_, decision) = index.decide_maintenance(&"m".into(), at(1000)).unwrap();
    let status = decision.effects.into_iter().find_map(|effect| match effect {
        Effect::WriteStatus(status) => Some(json!(status)),
        _ => None,
    });
    let status = status.unwrap_or_else(|| json!(index.maintenance("m").unwrap().status));
    index.maintenance_seen(maintenance(version, spec, &status));
    index.resolve(at(1000));
    status
}

fn effects_on(index: &Index, pod: &str) -> Vec<PodEffect> {
    index.decide_pod(&Key::new("ns", pod), at(1000)).map(|(_, decision)| decision.effects).unwrap_or_default()
}

fn is_asked(index: &Index, pod: &str) -> bool {
    effects_on(index, pod) == [PodEffect::Request]
}

pub(super) fn plan() -> Value {
    json!([{"podPriority": 1000, "podType": "Default"}])
}

#[test]
fn without_its_limit_a_drain_begins_anew_for_the_nodes_that_waited() {
    let mut index = Index::default();
    let limited = json!({"drainPlan": plan(), "drainLimit": {"maxNodes": 1}});
    index.maintenance_seen(maintenance(1, limited.clone(), &json!({})));
    for name in ["n1", "n2"] {
        index.node_seen(node(name, name, 0, true), at(0));
        index.pod_seen(pod(&format!("{name}-low"), name, 100, json!({})));
        index.pod_seen(pod(&format!("{name}-high"), name, 5000, json!({})));
    }
    index.pod_gone(&Key::new("ns", "n1-low"));
    let status = write(&mut index, 2, limited);
    assert_eq!(status["drainStatus"]["planPosition"], 1, "n1 is at its last pods");
    assert!(is_asked(&index, "n1-high") && !is_asked(&index, "n2-low"));
    index.maintenance_seen(maintenance(3, json!({"drainPlan": plan()}), &status));
    let status = write(&mut index, 4, json!({"drainPlan": plan()}));
    assert_eq!(status["drainStatus"]["planPosition"], 0);
    assert!(is_asked(&index, "n1-high"), "targets do not go back");
    assert!(is_asked(&index, "n2-low") && !is_asked(&index, "n2-high"));
}

#[test]
fn a_position_that_somebody_writes_into_the_status_moves_nothing() {
    let mut index = Index::default();
    let spec = || json!({"drainPlan": plan()});
    index.maintenance_seen(maintenance(1, spec(), &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.pod_seen(pod("low", "n1", 100, json!({})));
    index.pod_seen(pod("high", "n1", 5000, json!({})));
    let mut status = write(&mut index, 2, spec());
    status["drainStatus"]["planPosition"] = 11.into();
    for is_restarted in [false, true] {
        if is_restarted {
            index = Index::default();
            index.node_seen(node("n1", "n1", 0, true), at(0));
            index.pod_seen(pod("low", "n1", 100, json!({})));
            index.pod_seen(pod("high", "n1", 5000, json!({})));
        }
        index.maintenance_seen(maintenance(3, spec(), &status));
        let written = write(&mut index, 4, spec());
        assert_eq!(written["drainStatus"]["planPosition"], 0);
        assert!(is_asked(&index, "low") && !is_asked(&index, "high"));
    }
}

#[test]
fn targets_that_somebody_takes_out_of_the_status_come_back_and_nobody_is_let_off() {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({}), &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.pod_seen(pod("p", "n1", 0, json!({})));
    let mut status = write(&mut index, 2, json!({}));
    index.request_seen(request("p", 1, false));
    let targets = status.as_object_mut().unwrap().remove("nodeStatuses").unwrap();
    index.maintenance_seen(maintenance(3, json!({}), &status));
    assert_eq!(effects_on(&index, "p"), [], "its request is left alone");
    assert_eq!(
        write(&mut index, 4, json!({}))["nodeStatuses"][0]["drainTargets"],
        targets[0]["drainTargets"]
    );
}

#[test]
fn a_node_that_comes_back_before_the_status_could_be_written_starts_at_the_first_entry() {
    let mut index = Index::default();
    let spec = || json!({"drainPlan": plan()});
    index.maintenance_seen(maintenance(1, spec(), &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.node_seen(node("n2", "n2", 0, true), at(0));
    index.pod_seen(pod("high", "n1", 5000, json!({})));
    let status = write(&mut index, 2, spec());
    assert_eq!(status["drainStatus"]["planPosition"], 1);
    let mut away = node("n1", "n1", 0, false);
    away.labels = Arc::default();
    away.resource_version = "2".to_owned();
    index.node_seen(away, at(10));
    index.resolve(at(10));
    index.pod_seen(pod("low", "n1", 100, json!({})));
    let mut back = node("n1", "n1", 0, true);
    back.resource_version = "3".to_owned();
    index.node_seen(back, at(20));
    write(&mut index, 3, spec());
    assert!(is_asked(&index, "low") && !is_asked(&index, "high"));
}

/// The node without the label that selects it.
fn relabelled(name: &str, version: u32) -> Node {
    let labels = Arc::default();
    Node { labels, resource_version: version.to_string(), ..node(name, name, 0, true) }
}

fn drained(status: &Value) -> (&str, &str) {
    let condition = &status["conditions"][0];
    (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
}

#[test]
fn a_node_that_takes_its_labels_off_is_never_drained() {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({}), &json!({})));
    for name in ["n1", "n2"] {
        index.node_seen(node(name, name, 0, true), at(0));
    }
    index.pod_seen(pod("p", "n2", 0, json!({})));
    write(&mut index, 2, json!({}));
    index.node_seen(relabelled("n2", 2), at(10));
    let (_, decision) = {
        index.resolve(at(1000));
        index.decide_maintenance(&"m".into(), at(1000)).unwrap()
    };
    let told = decision
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::RecordEvent(it) if it.reason == "NodeLeft"));
    assert!(told, "{decision:?}");
    let status = write(&mut index, 3, json!({}));
    assert_eq!((drained(&status), &status["leftNodes"]), (("False", "NodesLeft"), &json!([{"name": "n2"}])));
    // Also for the next manager, whether it is told so by the status or finds out by itself.
    for status in [status.clone(), {
        let mut before = status.clone();
        before["leftNodes"] = json!([]);
        before["conditions"][0]["observedGeneration"] = 1.into();
        before["nodeStatuses"] = json!([{"nodeRef": {"name": "n1"}}, {"nodeRef": {"name": "n2"}}]);
        before
    }] {
        index = Index::default();
        let mut seen = maintenance(4, json!({}), &status);
        seen.generation = 1;
        index.maintenance_seen(seen);
        index.node_seen(node("n1", "n1", 0, true), at(0));
        index.node_seen(relabelled("n2", 2), at(0));
        assert_eq!(drained(&write(&mut index, 5, json!({}))), ("False", "NodesLeft"));
    }
    index.node_gone(&"n2".into());
    assert_eq!(drained(&write(&mut index, 6, json!({}))), ("True", "Drained"), "it is not there any more");
}

#[test]
fn whom_the_author_leaves_out_has_not_left_by_itself() {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({}), &json!({})));
    for name in ["n1", "n2"] {
        index.node_seen(node(name, name, 0, true), at(0));
    }
    let status = write(&mut index, 2, json!({}));
    let by_name = json!({"nodeSelector": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]}});
    index.maintenance_seen(maintenance(3, by_name.clone(), &status));
    assert_eq!(drained(&write(&mut index, 4, by_name)), ("True", "Drained"));
}

#[test]
fn a_maintenance_that_keeps_its_nodes_drains_one_that_takes_its_labels_and_marks_off() {
    let mut index = Index::default();
    let kept = |version, status: &Value| Maintenance {
        keeps_nodes: true,
        ..maintenance(version, json!({}), status)
    };
    index.maintenance_seen(kept(1, &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.pod_seen(pod("p", "n1", 0, json!({})));
    let status = write(&mut index, 2, json!({}));
    index.maintenance_seen(kept(3, &status));
    let bare = Node { held_by: None, remembers: false, phase: None, ..relabelled("n1", 2) };
    for is_restarted in [false, true] {
        if is_restarted {
            index = Index::default();
            index.maintenance_seen(kept(3, &status));
            index.pod_seen(pod("p", "n1", 0, json!({})));
        }
        index.node_seen(bare.clone(), at(10));
        index.resolve(at(10));
        assert!(is_asked(&index, "p"), "restarted: {is_restarted}");
        let (_, decision) = index.decide_node("n1", at(10)).unwrap();
        assert!(matches!(decision.effects[0], NodeEffect::Hold { .. }), "{decision:?}");
    }
}

#[test]
fn no_status_makes_a_maintenance_of_named_nodes_keep_another() {
    let by_name = json!({"nodeSelector": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]}});
    let forged = json!({"nodeStatuses": [{"nodeRef": {"name": "n1"}}, {"nodeRef": {"name": "n2"}}]});
    let mut index = Index::default();
    index.maintenance_seen(Maintenance { keeps_nodes: true, ..maintenance(1, by_name, &forged) });
    for name in ["n1", "n2"] {
        index.node_seen(node(name, name, 0, true), at(0));
    }
    index.pod_seen(pod("victim", "n2", 0, json!({})));
    index.resolve(at(1));
    assert!(!is_asked(&index, "victim"));
    let (_, decision) = index.decide_node("n2", at(1)).unwrap();
    assert!(
        decision.effects.iter().any(|effect| matches!(effect, NodeEffect::Release { .. })),
        "{decision:?}"
    );
}

#[test]
fn whoever_stops_a_maintenance_from_keeping_its_nodes_makes_none_of_them_drained() {
    let mut index = Index::default();
    let kept = |version, status: &Value, keeps_nodes| Maintenance {
        keeps_nodes,
        ..maintenance(version, json!({}), status)
    };
    index.maintenance_seen(kept(1, &json!({}), true));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.node_seen(node("n2", "n2", 0, true), at(0));
    let status = write(&mut index, 2, json!({}));
    index.maintenance_seen(kept(3, &status, true));
    index.node_seen(relabelled("n1", 2), at(10));
    index.maintenance_seen(kept(4, &status, false));
    assert_eq!(drained(&write(&mut index, 5, json!({}))), ("False", "NodesLeft"));
}

#[test]
fn another_node_by_the_same_name_starts_at_the_first_entry() {
    let mut index = Index::default();
    let spec = || json!({"drainPlan": plan()});
    index.maintenance_seen(maintenance(1, spec(), &json!({})));
    for name in ["n1", "n2"] {
        index.node_seen(node(name, name, 0, true), at(0));
    }
    index.pod_seen(pod("high", "n1", 5000, json!({})));
    let status = write(&mut index, 2, spec());
    assert_eq!(status["drainStatus"]["planPosition"], 1);
    // Also for a manager that was away when the node was replaced.
    for is_restarted in [false, true] {
        if is_restarted {
            index = Index::default();
            index.maintenance_seen(maintenance(2, spec(), &status));
            index.node_seen(node("n2", "n2", 0, true), at(0));
        }
        index.node_seen(node("n1", "other", 2000, false), at(2000));
        index.pod_seen(pod("high", "n1", 5000, json!({})));
        index.pod_seen(pod("low", "n1", 100, json!({})));
        index.resolve(at(2000));
        assert!(!is_asked(&index, "high"), "what is written is about the node that is gone");
        let (_, decision) = index.decide_node("n1", at(2000)).unwrap();
        assert!(decision.effects.is_empty(), "it is cordoned once that is put right: {decision:?}");
        let written = write(&mut index, 3, spec());
        assert!(written["nodeStatuses"][0]["drainTargets"].is_null());
        let (_, decision) = index.decide_node("n1", at(2000)).unwrap();
        assert!(matches!(decision.effects[0], NodeEffect::Hold { .. }));
        index.node_seen(Node { resource_version: "2".into(), ..node("n1", "other", 2000, true) }, at(2000));
        let written = write(&mut index, 4, spec());
        assert_eq!(written["drainStatus"]["planPosition"], 0);
        assert!(is_asked(&index, "low") && !is_asked(&index, "high"));
    }
}

#[test]
fn pods_that_nothing_ends_do_not_hold_up_the_next_wave() {
    let mut index = Index::default();
    let limited = || json!({"drainLimit": {"maxNodes": 1}});
    index.maintenance_seen(maintenance(1, limited(), &json!({})));
    for name in ["n1", "n2", "n3"] {
        index.node_seen(node(name, name, 0, true), at(0));
        index.pod_seen(pod(&format!("agent-{name}"), name, 0, json!({})));
    }
    index.pod_seen(pod("web-n2", "n2", 0, json!({})));
    index.pod_seen(pod("web-n3", "n3", 0, json!({})));
    write(&mut index, 2, limited());
    assert!(is_asked(&index, "agent-n1") && !is_asked(&index, "web-n2"));
    index.request_seen(request("agent-n1", 1, false));
    write(&mut index, 3, limited());
    assert!(!is_asked(&index, "web-n2"), "somebody may end it");
    index.request_seen(request("agent-n1", 2, true));
    let status = write(&mut index, 4, limited());
    assert!(is_asked(&index, "web-n2") && !is_asked(&index, "web-n3"), "the next wave: {status:#}");
    index.pod_gone(&Key::new("ns", "web-n2"));
    write(&mut index, 5, limited());
    index.request_seen(request("agent-n2", 1, true));
    write(&mut index, 6, limited());
    assert!(is_asked(&index, "web-n3") && !is_asked(&index, "agent-n3"));
    index.pod_gone(&Key::new("ns", "web-n3"));
    write(&mut index, 7, limited());
    index.request_seen(request("agent-n3", 1, true));
    let status = write(&mut index, 8, limited());
    let message = status["drainStatus"]["drainMessage"].as_str().unwrap();
    assert!(message.starts_with("Nothing ends DaemonSet ns/agent (3 pods): "), "{message}");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[test]
fn a_finalizer_that_somebody_takes_away_lets_go_of_nothing() {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({}), &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.pod_seen(pod("p", "n1", 0, json!({})));
    let status = write(&mut index, 2, json!({}));
    index.request_seen(request("p", 1, false));
    let bare = Maintenance { finalizers: Vec::new(), ..maintenance(3, json!({}), &status) };
    index.maintenance_seen(bare);
    index.resolve(at(1000));
    let (_, decision) = index.decide_maintenance(&"m".into(), at(1000)).unwrap();
    assert_eq!(decision.effects, [Effect::AddFinalizer]);
    assert_eq!(effects_on(&index, "p"), [], "its request is left alone");
    let (_, decision) = index.decide_node("n1", at(1000)).unwrap();
    assert!(!decision.effects.iter().any(|effect| matches!(effect, NodeEffect::Release { .. })));
}

#[test]
fn a_request_that_nobody_stands_behind_is_withdrawn_whichever_is_told_first() {
    let key = Key::new("ns", "p");
    for is_pod_first in [true, false] {
        let mut index = Index::default();
        index.node_seen(node("n1", "n1", 0, false), at(0));
        if is_pod_first {
            index.pod_seen(pod("p", "n1", 0, json!({})));
        }
        index.request_seen(request("p", 1, false));
        if !is_pod_first {
            index.pod_seen(pod("p", "n1", 0, json!({})));
        }
        let (soon, _) = index.concerned();
        assert!(soon.contains(&Item::Pod(key.clone())), "the pod first: {is_pod_first}");
        assert_eq!(effects_on(&index, "p"), [PodEffect::Withdraw]);
    }
}

#[test]
fn classes_and_labels_are_forgotten_with_the_pods_and_plans_that_had_them() {
    let mut index = Index::default();
    let by_run = json!({"drainPlan": [
        {"podPriority": 0, "podType": "Default", "podSelector": {"matchLabels": {"run": "1"}}},
    ]});
    index.maintenance_seen(maintenance(1, by_run, &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    index.pod_seen(pod("stays", "n1", 0, json!({"run": "1"})));
    for run in 2..2000 {
        index.pod_seen(pod("job", "n1", 0, json!({"run": run.to_string()})));
        index.resolve(at(run));
        assert!(index.tally.classes().len() < 200, "after {run} pods");
        assert_eq!(index.board.maintenance(0).pending, 2);
    }
    let name: Arc<str> = "m".into();
    index.maintenance_gone(&name);
    index.resolve(at(2000));
    assert_eq!(index.tally.classes().len(), 1, "nobody speaks of that label any more");
}

#[test]
fn a_pod_that_came_back_is_told_of_and_asked_when_its_pause_is_over() {
    let mut index = Index::default();
    index.maintenance_seen(maintenance(1, json!({"drainPlan": plan()}), &json!({})));
    index.node_seen(node("n1", "n1", 0, true), at(0));
    let made = |name: &str, second: i64| Pod { created: at(second), ..pod(name, "n1", 100, json!({})) };
    index.pod_seen(made("p", 0));
    write(&mut index, 2, json!({"drainPlan": plan()}));
    assert!(is_asked(&index, "p"));
    let asked = Request { created: at(999), ..request("p", 1, false) };
    index.pod_asked(&asked, at(999));
    index.pod_gone(&Key::new("ns", "p"));
    index.pod_seen(made("q", 1000));
    let key = Key::new("ns", "q");
    let decision = index.decide_pod(&key, at(1000)).unwrap().1;
    let told: Vec<_> = pods::come_back(&made("q", 1000), index.holders("n1")).into_iter().collect();
    assert!(!told.is_empty());
    assert_eq!((decision.effects, decision.recheck_at), (told, Some(at(1001))));
    let decision = index.decide_pod(&key, at(1001)).unwrap().1;
    assert_eq!((decision.effects, decision.recheck_at), (vec![PodEffect::Request], None));
}

#[test]
fn pods_that_come_back_to_their_node_are_asked_later_each_time() {
    let mut index = Index::default();
    index.node_seen(node("n1", "n1", 0, true), at(0));
    let begun = |second: i64| Maintenance { created: at(second), ..maintenance(1, json!({}), &json!({})) };
    index.maintenance_seen(begun(500));
    index.resolve(at(0));
    let made = |name: &str, second: i64| Pod { created: at(second), ..pod(name, "n1", 0, json!({})) };
    let asks = |index: &mut Index, name: &str, second: i64| {
        let asked = Request { created: at(second), ..request(name, 1, false) };
        index.pod_asked(&asked, at(second));
        index.request_seen(asked);
        index.pod_gone(&Key::new("ns", name));
        index.request_gone(&Key::new("ns", name));
    };
    index.pod_seen(made("p0", 0));
    assert_eq!(index.held_back_until(&made("p0", 0), at(1)), None);
    asks(&mut index, "p0", 1_000);
    let mut now = 1_000;
    for (round, pause) in [2, 4, 8, 16].into_iter().enumerate() {
        let name = format!("p{}", round + 1);
        // Times have whole seconds: one of the same second may have been there before.
        assert_eq!(index.held_back_until(&made(&name, now), at(now)), None);
        let back = made(&name, now + 1);
        index.pod_seen(back.clone());
        assert_eq!(index.held_back_until(&back, at(now + 1)), Some(at(now + pause)));
        now += pause;
        assert_eq!(index.held_back_until(&back, at(now)), None);
        asks(&mut index, &name, now);
    }
    let late = made("late", now + 1);
    assert!(index.held_back_until(&late, at(now + 1)).is_some());
    // The node was given back, and is drained once more: those that came meanwhile have not come back.
    index.maintenance_gone(&"m".into());
    index.maintenance_seen(begun(now + 2));
    index.resolve(at(now));
    assert_eq!(index.held_back_until(&late, at(now + 1)), None);
    // And with the next one that comes back it begins anew.
    index.pod_seen(late);
    asks(&mut index, "late", now + 2);
    assert_eq!(index.held_back_until(&made("next", now + 3), at(now + 3)), Some(at(now + 4)));
    // Not one that was there before, one of another node, or a daemon.
    assert_eq!(index.held_back_until(&made("old", 900), at(now)), None);
    let elsewhere = Pod { node: "n2".into(), ..made("q", now + 1) };
    assert_eq!(index.held_back_until(&elsewhere, at(now)), None);
    assert_eq!(index.held_back_until(&made("agent-1", now + 1), at(now)), None);
}
