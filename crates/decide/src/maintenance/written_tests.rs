//! Targets that are never multiplied out select what the multiplied ones would, only grow, and are read as they were written;
//! a status stays within its size, whatever the nodes and plans, and is not written in whole for each count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use usher_api::names::{MAINTENANCE_COMPLETION_FINALIZER, STATUS_COMPLETE_CONDITION};
use usher_api::{DrainPlanEntry, NodeMaintenance, NodeMaintenanceStatus, NodeReference, NodeStatus, PodType};

use super::board::Board;
use super::decision::Effect;
use super::drain_state::DrainState;
use super::nodes::{Node, Pods};
use super::plan::{Plan, PodClass};
use super::progress::Draining;
use super::stages::{Case, Refusal, View, decide};
use super::targets::{EntryList, Targets};
use super::written::{self, OBJECT_BYTES, Row, Written, json_bytes};
use crate::snapshot::Maintenance;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One entry for each application, of a priority and type.
fn entries(key: &str, apps: usize, priority: i32) -> Vec<DrainPlanEntry> {
    let entry = |app| {
        json!({
            "podPriority": priority, "podType": "Default",
            "podSelector": {"matchLabels": {key: format!("application-{app:02}")}},
        })
    };
    (0..apps).map(|app| serde_json::from_value(entry(app)).unwrap()).collect()
}

/// A maintenance that drains, with a plan that is its own.
fn maintenance(number: usize, selectors: usize, status: &NodeMaintenanceStatus) -> NodeMaintenance {
    let key = format!("example.com/label-{number}");
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {
            "name": format!("maintenance-{number}"), "uid": format!("u{number}"), "resourceVersion": "1", "generation": 1,
            "finalizers": [MAINTENANCE_COMPLETION_FINALIZER],
        },
        "spec": {
            "stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [{}]}, "drainPlan": entries(&key, selectors, 1000),
        },
        "status": status,
    }))
    .unwrap()
}

/// Overlapping maintenances that drain all of these nodes.
struct Scene {
    maintenances: Vec<NodeMaintenance>,
    names: Vec<Arc<str>>,
    board: Board,
}

/// Nobody is anywhere else than at the start.
const POD: usize = 0;

impl Scene {
    fn new(maintenances: usize, selectors: usize, nodes: usize, letters: usize, pods: u32) -> Self {
        let status = NodeMaintenanceStatus::default();
        let maintenances: Vec<NodeMaintenance> =
            (0..maintenances).map(|number| maintenance(number, selectors, &status)).collect();
        let draining = maintenances.iter().map(|it| Draining {
            name: it.metadata.name.clone().unwrap(),
            created: at(0),
            plan: Arc::new(Plan::new(&it.spec.drain_plan)),
            position: 0,
        });
        let names: Vec<Arc<str>> = (0..nodes).map(|node| format!("{node:0>letters$}").into()).collect();
        // The last selectors of all plans select them, so that all selectors and nothing more are reached.
        let last = selectors.saturating_sub(1);
        let label = |number| (format!("example.com/label-{number}"), format!("application-{last:02}"));
        let labels = Arc::new((0..maintenances.len()).map(label).collect());
        let class = PodClass { kind: PodType::Default, priority: 1000, labels };
        let covered_by: Vec<usize> = (0..maintenances.len()).collect();
        let on_nodes = names.iter().map(|name| Node {
            name: name.clone(),
            covered_by: covered_by.clone(),
            joins: Vec::new(),
            awaits_pods: false,
            targets: Arc::default(),
            pods: BTreeMap::from([(POD, Pods { there: pods, evicting: 0 })]),
        });
        let mut board = Board::new(draining.collect(), vec![class], on_nodes.collect());
        board.resolve();
        Self { maintenances, names, board }
    }

    /// What is decided about the first maintenance.
    fn decide(
        &self,
        now: Timestamp,
        last_written: Option<Timestamp>,
        refused: Option<&Refusal>,
    ) -> super::decision::MaintenanceDecision {
        let maintenance = Maintenance::from(self.maintenances[0].clone());
        fn view<'a>(scene: &'a Scene, name: &'a Arc<str>) -> View<'a> {
            let state = scene.board.node(name).unwrap();
            let (pods, evicting) = (state.pending + state.evicting, state.evicting);
            View {
                name,
                is_held: true,
                unschedulable: true,
                state: Some(state),
                pods,
                evicting,
                staying: 0,
                kept: 0,
                older: vec![],
            }
        }
        let views: Vec<View<'_>> = self.names.iter().map(|name| view(self, name)).collect();
        let case = Case {
            departed: &BTreeSet::new(),
            maintenance: &maintenance,
            nodes: &views,
            drain: Some(self.board.maintenance(0)),
            staying: &BTreeSet::new(),
            pushed_by: &BTreeSet::new(),
            marks_left: 1,
            requests_left: 0,
            last_written,
            refused,
            expected_finish: None,
        };
        decide(&case, now)
    }

    /// The status is written if that is decided. Returns the bytes of the object then.
    fn write(&mut self, now: Timestamp, last_written: Option<Timestamp>) -> Option<usize> {
        let effects = self.decide(now, last_written, None).effects;
        let status = effects.into_iter().find_map(|effect| match effect {
            Effect::WriteStatus(status) => Some(*status),
            _ => None,
        })?;
        self.maintenances[0].status = Some(status);
        Some(json_bytes(&self.maintenances[0]))
    }

    fn status(&self) -> &NodeMaintenanceStatus {
        self.maintenances[0].status.as_ref().unwrap()
    }

    /// The status says of each node what is targeted there.
    fn check_targets(&self) {
        let written = Written::read(self.status());
        for name in &self.names {
            assert_eq!(written.get(name), Some(&self.board.node(name).unwrap().targets), "{name}");
        }
        assert!(!written.has("another"));
    }
}

#[test]
fn targets_of_overlapping_plans_with_selectors_do_not_multiply() {
    let mut scene = Scene::new(2, 30, 10, 8, 3);
    let bytes = scene.write(at(0), None).unwrap();
    assert!(bytes < 64 << 10, "{bytes} bytes");
    assert!(scene.board.node(&scene.names[0]).unwrap().targets.entries().is_none());
    scene.check_targets();
}

#[test]
fn the_status_of_five_thousand_nodes_with_long_names_fits_into_a_mebibyte() {
    let mut scene = Scene::new(3, 20, 5000, 63, 30);
    let bytes = scene.write(at(0), None).unwrap();
    assert!(bytes < OBJECT_BYTES, "{bytes} bytes");
    assert_eq!(scene.status().node_statuses.len(), 5000, "all of them are listed");
    assert!(scene.status().conditions.iter().all(|it| it.type_ != STATUS_COMPLETE_CONDITION));
    scene.check_targets();
}

#[test]
fn nodes_whose_names_do_not_fit_are_counted_remembered_and_told_of() {
    let mut scene = Scene::new(3, 20, 5000, 253, 30);
    let bytes = scene.write(at(0), None).unwrap();
    assert!((OBJECT_BYTES / 2..OBJECT_BYTES).contains(&bytes), "{bytes} bytes");
    let status = scene.status();
    let listed = status.node_statuses.len();
    assert!((2000..5000).contains(&listed), "{listed} are listed");
    assert_eq!((status.nodes, status.drain_status.as_ref().unwrap().pods_pending_eviction), (5000, 150_000));
    let told = status.conditions.iter().find(|it| it.type_ == STATUS_COMPLETE_CONDITION).unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "NodesLeftOut"));
    assert!(told.message.starts_with(&format!("{} of 5000 nodes", 5000 - listed)), "{}", told.message);
    scene.check_targets();
    // Those that are drained are left out first.
    let last = scene.names[4999].clone();
    let first: Vec<Arc<str>> = scene.names[..100].to_vec();
    first.iter().for_each(|name| scene.board.count(name, POD, -30, 0));
    scene.board.resolve();
    scene.write(at(60), None).unwrap();
    let names: BTreeSet<&str> =
        scene.status().node_statuses.iter().map(|node| node.node_ref.name.as_str()).collect();
    assert!(!names.contains(&*first[0]) && !names.contains(&*last), "no room for it either way");
    scene.check_targets();
}

#[test]
fn a_large_status_is_not_written_in_whole_for_each_count() {
    // 5,000 nodes with 30 pods each, of which 2,500 leave in a second.
    let mut scene = Scene::new(1, 0, 5000, 12, 30);
    let (mut written, mut as_before, mut bytes) = (0_usize, 0_usize, 0_usize);
    let mut last: Option<Timestamp> = None;
    let mut seen_drained = 0;
    for second in 0..=60_i64 {
        let now = at(second);
        if let Some(size) = scene.write(now, last) {
            (written, bytes, last) = (written + size, size, Some(now));
            seen_drained = scene.status().drain_status.as_ref().unwrap().nodes_drained;
        }
        as_before += bytes;
        let last_written = last.unwrap_or(now);
        assert!(now.duration_since(last_written) <= SignedDuration::from_secs(40), "counts go stale");
        for pod in (second * 2500)..((second + 1) * 2500).min(150_000) {
            let node = scene.names[usize::try_from(pod / 30).unwrap()].clone();
            scene.board.count(&node, POD, -1, 0);
        }
        scene.board.resolve();
    }
    assert!(seen_drained > 4000, "{seen_drained} nodes are shown as drained");
    assert!(written * 6 < as_before, "{written} bytes of {as_before}");
    println!("a write each second: {as_before} bytes; as it is: {written} bytes");
}

#[test]
fn a_refused_status_is_told_once_and_not_tried_before_its_time() {
    let mut scene = Scene::new(1, 0, 3, 4, 2);
    scene.write(at(0), None).unwrap();
    scene.board.count(&scene.names[0].clone(), POD, -1, 0);
    scene.board.resolve();
    let refusal = Refusal { reason: "StatusTooLarge", message: "too large".to_string(), until: at(20) };
    let decision = scene.decide(at(10), None, Some(&refusal));
    let [Effect::RecordEvent(notice), Effect::WriteConditions(conditions)] = &decision.effects[..] else {
        panic!("{:?}", decision.effects)
    };
    assert!(notice.is_warning && notice.message.contains("too large"));
    let told = conditions.iter().find(|it| it.type_ == STATUS_COMPLETE_CONDITION).unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "StatusTooLarge"));
    assert_eq!((conditions.len(), decision.recheck_at), (2, Some(at(20))), "other conditions stay");
    scene.maintenances[0].status.as_mut().unwrap().conditions.clone_from(conditions);
    let quiet = scene.decide(at(15), None, Some(&refusal));
    assert_eq!((quiet.effects.len(), quiet.recheck_at), (0, Some(at(20))));
    assert!(scene.write(at(20), None).is_some(), "then it is tried again, and the condition goes");
    assert!(scene.status().conditions.iter().all(|it| it.type_ != STATUS_COMPLETE_CONDITION));
}

fn entry() -> impl Strategy<Value = DrainPlanEntry> {
    let priority = prop::sample::select(vec![0, 1000, 2000]);
    let kind = prop::sample::select(vec![PodType::Default, PodType::DaemonSet]);
    (priority, kind, 0..3_usize, 0..4_usize).prop_map(|(priority, kind, key, value)| {
        let selector = (value < 3).then(|| json!({"matchLabels": {format!("k{key}"): format!("v{value}")}}));
        let entry = json!({"podPriority": priority, "podType": kind, "podSelector": selector});
        serde_json::from_value(entry).unwrap()
    })
}

fn list() -> impl Strategy<Value = Vec<DrainPlanEntry>> {
    prop::collection::vec(entry(), 1..5)
}

fn pods() -> impl Iterator<Item = PodClass> {
    let labels = (0..64_usize).map(|n| {
        let label = |key: usize| (format!("k{key}"), format!("v{}", (n >> (2 * key)) & 3));
        Arc::new(BTreeMap::from([label(0), label(1), label(2)]))
    });
    labels.flat_map(|labels| {
        [PodType::Default, PodType::DaemonSet].into_iter().flat_map(move |kind| {
            let labels = labels.clone();
            [0, 1500].map(move |priority| PodClass { kind, priority, labels: labels.clone() })
        })
    })
}

fn selected(lists: &[Vec<DrainPlanEntry>], pod: &PodClass) -> bool {
    let by = |list: &Vec<DrainPlanEntry>| EntryList::new(list.clone());
    lists.iter().all(|list| Targets::new(vec![vec![by(list)]]).selects(pod))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Each step adds what some lists have in common.
    #[test]
    fn targets_select_what_the_lists_say_and_only_grow(steps in prop::collection::vec(prop::collection::vec(list(), 1..4), 1..5)) {
        let mut targets: Arc<Targets> = Arc::default();
        for (done, lists) in steps.iter().enumerate() {
            let shared: Vec<Arc<EntryList>> = lists.iter().cloned().map(EntryList::new).collect();
            let in_common = Targets::in_common(&shared);
            let grown = targets.grown_by(&in_common);
            let lowest = targets.lowest(&in_common, &[]);
            for pod in pods() {
                prop_assert_eq!(in_common.selects(&pod), selected(lists, &pod), "in common");
                let wanted = steps[..=done].iter().any(|lists| selected(lists, &pod));
                prop_assert_eq!(grown.selects(&pod), wanted, "{:?}", pod);
                let both = targets.selects(&pod) && in_common.selects(&pod);
                prop_assert_eq!(lowest.selects(&pod), both, "the lowest for {:?}", pod);
            }
            prop_assert!(Arc::ptr_eq(&grown.grown_by(&in_common), &grown), "nothing new");
            targets = grown;
        }
    }

    /// In both forms, and with names left out, what is written is what is read.
    #[test]
    fn what_is_written_is_what_is_read(
        sets in prop::collection::vec(prop::collection::vec(prop::collection::vec(list(), 1..4), 0..3), 1..4),
        nodes in prop::sample::select(vec![3_usize, 700]),
        letters in prop::sample::select(vec![5_usize, 250]),
        rest in prop::sample::select(vec![1000_usize, 900_000]),
    ) {
        let set = |lists: &Vec<Vec<Vec<DrainPlanEntry>>>| {
            lists.iter().fold(Arc::<Targets>::default(), |so_far, lists| {
                let lists: Vec<Arc<EntryList>> = lists.iter().cloned().map(EntryList::new).collect();
                so_far.grown_by(&Targets::in_common(&lists))
            })
        };
        let sets: Vec<Arc<Targets>> = sets.iter().map(set).collect();
        let row = |node: usize| Row {
            node: NodeStatus {
                node_ref: NodeReference { name: format!("{node:0>letters$}") },
                drain_message: "Evicting (limited by another)".to_string(),
                ..NodeStatus::default()
            },
            drain: DrainState::Evicting { limited_by: vec!["another".to_string()] },
            targets: sets[node % sets.len()].clone(),
        };
        let mut status = NodeMaintenanceStatus {
            drain_status: Some(usher_api::DrainStatus::default()),
            ..NodeMaintenanceStatus::default()
        };
        let left_out = written::write(&mut status, (0..nodes).map(row).collect(), Some(&sets[0]), rest);
        prop_assert_eq!(status.node_statuses.len() + left_out, nodes);
        prop_assert!(json_bytes(&status) < (OBJECT_BYTES - rest).max(64 << 10));
        // As a server would give it back.
        let status: NodeMaintenanceStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
        let read = Written::read(&status);
        for node in 0..nodes {
            let wanted = Some(&sets[node % sets.len()]).filter(|targets| !targets.is_empty());
            prop_assert_eq!(read.get(&format!("{node:0>letters$}")), wanted);
        }
        prop_assert_eq!(written::reached(&status), sets[0].clone());
    }
}
