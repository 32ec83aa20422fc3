//! Stages: what a maintenance does in each, and what its status says.

use super::decision::{Effect, MaintenanceDecision};
use super::drain_state::DrainState;
use super::nodes::{MaintenanceState, NodeState};
use super::stages::{Case, View, decide};
use super::targets::{Targets, reached};
use super::waiting::MaintenanceWait;
use super::words::FirstNames;
use super::written::Written;
use crate::decision::Decision;
use crate::snapshot::Maintenance;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use usher_api::names::MAINTENANCE_COMPLETION_FINALIZER;
use usher_api::{DrainedReason, NodeMaintenance, NodeMaintenanceStage, NodeMaintenanceStatus};

fn maintenance(stage: &str, begun: bool, deleted: bool, status: &Value) -> Maintenance {
    let finalizers = if begun { vec![MAINTENANCE_COMPLETION_FINALIZER] } else { vec![] };
    let mut object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": "m", "uid": "u", "resourceVersion": "1", "generation": 1, "finalizers": finalizers},
        "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": [{}]}},
        "status": status,
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    Maintenance::from(serde_json::from_value::<NodeMaintenance>(object).unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

struct Scene {
    maintenance: Maintenance,
    node: Arc<str>,
    held: bool,
    /// Pods that are left, and those that are on their way out.
    pods: (u32, u32),
    /// Those of the latter that nothing ends.
    staying: u32,
    position: Option<usize>,
    older: Vec<Arc<str>>,
    left: (usize, usize),
    last_written: Option<Timestamp>,
    expected: Option<i64>,
}

impl Scene {
    fn new(maintenance: Maintenance) -> Self {
        Self {
            maintenance,
            node: "n1".into(),
            held: true,
            pods: (0, 0),
            staying: 0,
            position: None,
            older: vec![],
            left: (0, 0),
            last_written: None,
            expected: None,
        }
    }

    /// The decision was carried out.
    fn written(&mut self, decision: &MaintenanceDecision) {
        self.maintenance.status = written(decision).unwrap().clone();
        self.maintenance.targets = Arc::new(Written::read(&self.maintenance.status));
    }

    fn decide(&self, now: i64) -> MaintenanceDecision {
        let (pods, evicting) = self.pods;
        let state = self.position.map(|position| NodeState {
            targets: Targets::of_entries(reached(&self.maintenance.plan, position)),
            drain: if pods == 0 { DrainState::Drained } else { DrainState::Evicting { limited_by: vec![] } },
            pending: pods - evicting,
            evicting,
        });
        let view = View {
            name: &self.node,
            is_held: self.held,
            unschedulable: self.held,
            state: state.as_ref(),
            pods,
            evicting,
            staying: self.staying,
            kept: 0,
            older: self.older.clone(),
        };
        let drain = state.as_ref().zip(self.position).map(|(state, position)| MaintenanceState {
            position,
            is_at_the_end: position >= self.maintenance.plan.last(),
            reached: state.targets.clone(),
            drain: state.drain.clone(),
            pending: state.pending,
            evicting,
            nodes_drained: u32::from(pods == 0),
            waits_for: vec![],
        });
        let staying = (self.staying > 0).then(|| "DaemonSet ns/agent (2 pods)".to_string());
        let case = Case {
            departed: &BTreeSet::new(),
            maintenance: &self.maintenance,
            nodes: &[view],
            drain,
            staying: &staying.into_iter().collect(),
            pushed_by: &BTreeSet::new(),
            marks_left: self.left.0,
            requests_left: self.left.1,
            last_written: self.last_written,
            refused: None,
            expected_finish: self.expected.map(at),
        };
        decide(&case, at(now))
    }
}

fn written(decision: &MaintenanceDecision) -> Option<&NodeMaintenanceStatus> {
    decision.effects.iter().find_map(|effect| match effect {
        Effect::WriteStatus(status) => Some(&**status),
        _ => None,
    })
}

fn notice_reasons(decision: &MaintenanceDecision) -> Vec<&'static str> {
    let reason = |effect: &Effect| match effect {
        Effect::RecordEvent(notice) => Some(notice.reason),
        _ => None,
    };
    decision.effects.iter().filter_map(reason).collect()
}

fn drained(status: &NodeMaintenanceStatus) -> (&str, &str) {
    status.conditions.first().map(|c| (c.status.as_str(), c.reason.as_str())).unwrap()
}

#[test]
fn the_finalizer_comes_before_anything_else() {
    for stage in ["Cordon", "Drain"] {
        let decision = Scene::new(maintenance(stage, false, false, &json!({}))).decide(0);
        assert_eq!(decision.effects, [Effect::AddFinalizer], "{stage}");
    }
    for stage in ["Idle", "Complete"] {
        let decision = Scene::new(maintenance(stage, false, false, &json!({}))).decide(0);
        assert!(matches!(decision.effects[0], Effect::WriteStatus(_)), "{stage}");
        assert!(!decision.effects.contains(&Effect::AddFinalizer), "{stage}");
        assert!(!decision.effects.contains(&Effect::RemoveFinalizer), "{stage}");
    }
}

#[test]
fn a_deletion_goes_through_complete_unless_nothing_began() {
    for stage in ["Cordon", "Drain"] {
        let decision = Scene::new(maintenance(stage, true, true, &json!({}))).decide(0);
        assert_eq!(decision.effects, [Effect::SetStageComplete], "{stage}");
    }
    let idle = Scene::new(maintenance("Idle", false, true, &json!({}))).decide(0);
    assert_eq!(idle, Decision::default());
}

#[test]
fn the_finalizer_goes_when_no_mark_and_no_request_is_left() {
    for (left, removed) in [((1, 0), false), ((0, 1), false), ((0, 0), true)] {
        let scene = Scene { left, ..Scene::new(maintenance("Complete", true, true, &json!({}))) };
        let decision = scene.decide(0);
        assert_eq!(decision.effects.contains(&Effect::RemoveFinalizer), removed, "{left:?}");
        let started = written(&decision).unwrap().stage_statuses.last().unwrap().name;
        assert_eq!(started, NodeMaintenanceStage::Complete);
    }
}

#[test]
fn a_drain_waits_for_the_cordons_then_follows_the_plan_to_its_end() {
    let drain = || Scene::new(maintenance("Drain", true, false, &json!({})));
    let decision = Scene { held: false, pods: (4, 0), ..drain() }.decide(0);
    let status = written(&decision).unwrap();
    assert_eq!(drained(status), ("False", "Cordoning"));
    assert_eq!((status.drain_status.as_ref(), status.stage_statuses.len()), (None, 1), "cordoning only");

    let decision = Scene { pods: (4, 1), position: Some(0), ..drain() }.decide(0);
    let status = written(&decision).unwrap();
    let sum = status.drain_status.as_ref().unwrap();
    assert_eq!((sum.pods_pending_eviction, sum.pods_evicting, sum.plan_position), (3, 1, 0));
    assert_eq!(
        (drained(status), notice_reasons(&decision)),
        (("False", "Draining"), vec!["Cordon", "Drain"])
    );
    assert_eq!(status.node_statuses[0].drain_targets, sum.reached_drain_targets);

    let empty = Scene { position: Some(0), ..drain() }.decide(0);
    assert_eq!(drained(written(&empty).unwrap()), ("False", "Draining"), "entries of the plan are left");
    let end = Scene { position: Some(11), ..drain() }.decide(0);
    assert_eq!(drained(written(&end).unwrap()), ("True", "Drained"));
    assert!(notice_reasons(&end).contains(&"Drained"));
    let uncordoned = Scene { position: Some(11), held: false, ..drain() }.decide(0);
    assert_eq!(drained(written(&uncordoned).unwrap()), ("False", "Cordoning"));
}

/// Whatever it waits for is decided once: the condition says it in its words, the drain's message too but for cordons, and metrics
/// count it by its cause.
#[test]
fn the_condition_says_what_is_waited_for() {
    let drain = || Scene::new(maintenance("Drain", true, false, &json!({})));
    let uncordoned = || MaintenanceWait::Cordon { nodes: FirstNames::of(["n1"]).unwrap() };
    let nothing_ends =
        || MaintenanceWait::NothingEnds { pods: FirstNames::of(["DaemonSet ns/agent (2 pods)"]).unwrap() };
    for (scene, waits, drain_message) in [
        (Scene { held: false, ..drain() }, Some(uncordoned()), None),
        (drain(), Some(MaintenanceWait::AboutToBegin), None),
        (
            Scene { held: false, position: Some(0), pods: (4, 1), ..drain() },
            Some(uncordoned()),
            Some("Evicting".to_owned()),
        ),
        (
            Scene { held: false, position: Some(11), ..drain() },
            Some(uncordoned()),
            Some("Drained".to_owned()),
        ),
        (
            Scene { position: Some(0), pods: (4, 1), ..drain() },
            Some(MaintenanceWait::Pods { limited_by: vec![] }),
            Some("Evicting".to_owned()),
        ),
        (
            Scene { position: Some(4), pods: (2, 2), staying: 2, ..drain() },
            Some(nothing_ends()),
            Some(nothing_ends().to_string()),
        ),
        (
            Scene { position: Some(0), ..drain() },
            Some(MaintenanceWait::PlanEntries),
            Some("no pod is left, and the plan is not at its end yet".to_owned()),
        ),
        (Scene { position: Some(11), ..drain() }, None, Some("Drained".to_owned())),
    ] {
        let decision = scene.decide(0);
        assert_eq!(decision.waiting_on, waits);
        let status = written(&decision).unwrap();
        assert_eq!(status.drain_status.as_ref().map(|drain| drain.drain_message.clone()), drain_message);
        let condition = &status.conditions[0];
        let Some(waits) = waits else {
            assert_eq!((&*condition.status, &*condition.reason), ("True", "Drained"));
            continue;
        };
        let said = (&*condition.status, &*condition.reason, condition.message.clone());
        assert_eq!(said, ("False", waits.reason().name(), waits.to_string()));
        assert!(MaintenanceWait::CAUSES.contains(&waits.cause()));
    }
    let cordons = Scene { held: false, ..Scene::new(maintenance("Cordon", true, false, &json!({}))) };
    assert_eq!(cordons.decide(0).waiting_on, None, "it does not drain");
}

#[test]
fn reasons_of_the_condition_can_be_read_again() {
    for reason in DrainedReason::ALL {
        assert_eq!(DrainedReason::of(reason.name()), Some(reason));
        assert_eq!(reason.condition_status() == "True", reason == DrainedReason::Drained);
    }
    assert_eq!(DrainedReason::of("Somebody else's"), None);
}

#[test]
fn pods_that_nothing_ends_are_named() {
    let mut scene = Scene {
        pods: (3, 2),
        staying: 1,
        position: Some(4),
        ..Scene::new(maintenance("Drain", true, false, &json!({})))
    };
    let message = |scene: &Scene| {
        let status = written(&scene.decide(0)).unwrap().clone();
        [
            status.node_statuses[0].drain_message.clone(),
            status.drain_status.unwrap().drain_message,
            status.conditions[0].message.clone(),
        ]
    };
    assert_eq!(message(&scene), ["Evicting"; 3], "one of them is leaving");
    scene.staying = 2;
    let named = "Nothing ends DaemonSet ns/agent (2 pods): keep them off these nodes, or end them by an interceptor or by hand";
    assert_eq!(message(&scene), ["Waiting for pods that nothing ends", named, named]);
}

#[test]
fn a_maintenance_without_nodes_is_not_drained() {
    let scene = Scene::new(maintenance("Drain", true, false, &json!({})));
    let none = BTreeSet::new();
    let case = Case {
        departed: &BTreeSet::new(),
        maintenance: &scene.maintenance,
        nodes: &[],
        drain: None,
        staying: &none,
        pushed_by: &BTreeSet::new(),
        marks_left: 0,
        requests_left: 0,
        last_written: None,
        refused: None,
        expected_finish: None,
    };
    let decision = decide(&case, at(0));
    assert_eq!(drained(written(&decision).unwrap()), ("False", "NoNodes"));
    assert!(!notice_reasons(&decision).contains(&"Drained"));
}

#[test]
fn what_came_of_a_drain_is_told_when_the_maintenance_is_completed() {
    for (position, pods, end) in [(11, 0, ("True", "Drained")), (0, 3, ("False", "Cancelled"))] {
        let mut scene = Scene {
            pods: (pods, 0),
            position: Some(position),
            ..Scene::new(maintenance("Drain", true, false, &json!({})))
        };
        scene.maintenance.status = written(&scene.decide(0)).unwrap().clone();
        scene.maintenance.wanted = NodeMaintenanceStage::Complete;
        scene.maintenance.generation = 2;
        scene.left = (1, 0);
        let status = written(&scene.decide(5)).unwrap().clone();
        assert_eq!(drained(&status), end);
        assert_eq!(status.conditions[0].observed_generation, Some(2));
        scene.maintenance.status = status;
        scene.left = (0, 0);
        let status = written(&scene.decide(6)).unwrap().clone();
        assert_eq!(drained(&status), end);
        assert_eq!(status.drain_status.as_ref().unwrap().pods_pending_eviction, 0);
        scene.maintenance.status = status;
        scene.maintenance.generation = 3;
        let status = written(&scene.decide(7)).unwrap().clone();
        assert_eq!((drained(&status), status.conditions[0].observed_generation), (end, Some(3)));
    }
}

#[test]
fn counts_are_written_once_a_second_and_targets_at_once() {
    let mut scene = Scene {
        pods: (4, 1),
        position: Some(0),
        ..Scene::new(maintenance("Drain", true, false, &json!({})))
    };
    let first = scene.decide(0);
    scene.written(&first);
    let again = scene.decide(5);
    assert!(again.effects.is_empty() && again.recheck_at.is_none(), "nothing is written twice");
    assert_eq!(again.waiting_on, Some(MaintenanceWait::Pods { limited_by: vec![] }));
    scene.last_written = Some(at(5));
    scene.pods = (3, 1);
    let decision = scene.decide(5);
    assert_eq!((decision.effects.len(), decision.recheck_at), (0, Some(at(6))));
    assert!(written(&scene.decide(6)).is_some());
    scene.position = Some(1);
    assert!(written(&scene.decide(5)).is_some());
}

#[test]
fn an_expectation_goes_with_other_news_and_alone_only_every_thirty_seconds() {
    let expected = |decision: &MaintenanceDecision| {
        let drain = written(decision)?.drain_status.clone()?;
        drain.expected_finish_time.map(|time| time.0.as_second())
    };
    let mut scene = Scene {
        pods: (4, 1),
        position: Some(0),
        expected: Some(995),
        ..Scene::new(maintenance("Drain", true, false, &json!({})))
    };
    let first = scene.decide(100);
    assert_eq!(expected(&first), Some(1000));
    scene.written(&first);
    scene.last_written = Some(at(100));
    let quiet = scene.decide(101);
    assert_eq!(
        (quiet.effects.len(), quiet.recheck_at),
        (0, Some(at(1000))),
        "looked at again when it is due"
    );
    scene.expected = Some(2000);
    let alone = scene.decide(102);
    assert_eq!((alone.effects.len(), alone.recheck_at), (0, Some(at(130))));
    assert_eq!(expected(&scene.decide(130)), Some(2000));
    scene.pods = (3, 1);
    assert_eq!(expected(&scene.decide(102)), Some(2000), "with the counts");
    scene.pods = (0, 0);
    assert_eq!(expected(&scene.decide(102)), None, "nothing is left to be expected");
    scene.pods = (3, 1);
    scene.maintenance.wanted = NodeMaintenanceStage::Complete;
    scene.left = (1, 1);
    let over = scene.decide(102);
    assert!(written(&over).is_some());
    assert_eq!(expected(&over), None);
    assert_eq!(over.recheck_at, None);
}

#[test]
fn a_node_that_joins_with_targets_further_on_is_told() {
    let mut scene = Scene {
        pods: (4, 1),
        position: Some(0),
        ..Scene::new(maintenance("Drain", true, false, &json!({})))
    };
    scene.older = vec!["old".into()];
    assert!(!notice_reasons(&scene.decide(0)).contains(&"FastForward"), "its targets are the same");
    let (node, older) = (scene.node.clone(), scene.older.clone());
    let state = NodeState {
        targets: Targets::of_entries(reached(&scene.maintenance.plan, 3)),
        pending: 4,
        ..NodeState::default()
    };
    let view = View {
        name: &node,
        is_held: true,
        unschedulable: true,
        state: Some(&state),
        pods: 4,
        evicting: 0,
        staying: 0,
        kept: 0,
        older,
    };
    let case = Case {
        departed: &BTreeSet::new(),
        maintenance: &scene.maintenance,
        nodes: &[view],
        drain: Some(MaintenanceState {
            position: 0,
            is_at_the_end: false,
            reached: state.targets.clone(),
            drain: DrainState::default(),
            pending: 4,
            evicting: 0,
            nodes_drained: 0,
            waits_for: vec![],
        }),
        staying: &BTreeSet::new(),
        pushed_by: &BTreeSet::new(),
        marks_left: 1,
        requests_left: 0,
        last_written: None,
        refused: None,
        expected_finish: None,
    };
    let decision = decide(&case, at(0));
    let notice = decision.effects.iter().find_map(|effect| match effect {
        Effect::RecordEvent(notice) if notice.reason == "FastForward" => Some(notice.message.as_str()),
        _ => None,
    });
    assert_eq!(notice, Some("fast-forwarding m due to older maintenance(s) old"));
}
