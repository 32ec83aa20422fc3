//! KEP-4212, "kubelet: Static Pods", rule by rule.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::{PodOnWire, RequestOnWire};

use super::*;

const NODE: &str = "six";
const NOW: &str = "2024-04-22T22:10:05Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod(name: &str, priority: i32, labels: Value) -> Pod {
    let namespace = if labels.get("component").is_some() { "kube-system" } else { "critical-workloads" };
    let pod = json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "h"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "n", "controller": true}],
        },
        "spec": {"nodeName": NODE, "priority": priority, "terminationGracePeriodSeconds": 60},
        "status": {"phase": "Running"},
    });
    serde_json::from_value::<PodOnWire>(pod).unwrap().into()
}

fn request_for(pod: &Pod, status: Value) -> Request {
    let request = json!({
        "metadata": {
            "name": &*pod.uid, "namespace": &*pod.key.namespace, "uid": "r", "resourceVersion": "5",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
        },
        "spec": {
            "podRef": {"name": &*pod.key.name, "uid": &*pod.uid}, "progressDeadlineSeconds": 1800,
            "interceptors": [{"interceptorClass": "kubelet.k8s.io", "priority": 10000, "role": "controller"}],
        },
        "status": status,
    });
    serde_json::from_value::<RequestOnWire>(request).unwrap().into()
}

fn turn() -> Value {
    json!({"activeInterceptorClass": "kubelet.k8s.io", "activeInterceptorCompleted": false})
}

fn left() -> Value {
    json!({"conditions": [{
        "type": "EvictionBlocked", "status": "True", "reason": "MirrorPod", "message": "",
        "lastTransitionTime": "2024-04-22T22:00:00Z",
    }]})
}

/// The maintenance of the example: static pods up to this priority are reached.
fn maintenance(name: &str, up_to: Option<i32>, stage: &str, annotations: Value) -> Maintenance {
    let mut targets = vec![
        json!({"podPriority": 2147483647, "podType": "Default"}),
        json!({"podPriority": 2147483647, "podType": "DaemonSet"}),
    ];
    targets.extend(up_to.map(|priority| json!({"podPriority": priority, "podType": "Static"})));
    let object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {
            "name": name, "annotations": annotations, "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"],
        },
        "spec": {"stage": stage, "reason": "OS upgrade", "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]},
        ]}},
        "status": {"nodeStatuses": [{"nodeRef": {"name": NODE}, "drainTargets": targets}]},
    });
    serde_json::from_value::<NodeMaintenance>(object).unwrap().into()
}

#[derive(Default)]
struct Scene {
    pods: HashMap<Key, Arc<Pod>>,
    requests: HashMap<Key, Arc<Request>>,
    maintenances: Vec<Maintenance>,
    folder: Contents,
    has_url: bool,
    control_plane: ControlPlane,
    is_shutting_down: bool,
    alone_up_to: Option<i32>,
}

impl Scene {
    /// A static pod of the example's name, with its manifest and a request in this state.
    fn of(pod: Pod, status: Value, maintenances: Vec<Maintenance>) -> Self {
        let mut scene = Self { maintenances, ..Self::default() };
        let name = pod.key.name.strip_suffix("-six").unwrap().to_owned();
        let named = PodName { namespace: pod.key.namespace.to_string(), name };
        scene.folder.manifests.insert("critical.yaml".into(), Some(named));
        let request = request_for(&pod, status);
        scene.requests.insert(request.key.clone(), Arc::new(request));
        scene.pods.insert(pod.key.clone(), Arc::new(pod));
        scene
    }

    fn critical(priority: i32, maintenance: Maintenance) -> Self {
        let pod = pod("critical-static-workload-six", priority, json!({"app": "critical-static-workload"}));
        Self::of(pod, turn(), vec![maintenance])
    }

    fn decide(&self) -> Decision {
        self.decide_by(Some(&self.maintenances))
    }

    fn decide_by(&self, maintenances: Option<&[Maintenance]>) -> Decision {
        let world = World {
            node: NODE,
            pods: &self.pods,
            requests: &self.requests,
            maintenances,
            folder: &self.folder,
            path: "/etc/kubernetes/manifests",
            has_url: self.has_url,
            control_plane: self.control_plane,
            is_shutting_down: self.is_shutting_down,
            alone_up_to: self.alone_up_to,
        };
        decide(&world, now())
    }

    /// What a request is told, and what moves.
    fn outcome(&self) -> (Option<Report>, usize) {
        let effects = self.decide().effects;
        let mut reports = effects.iter().filter_map(|effect| match effect {
            Effect::Report { report, .. } => Some((**report).clone()),
            _ => None,
        });
        let moves = effects.iter().filter(|effect| matches!(effect, Effect::Move { .. })).count();
        (reports.next_back(), moves)
    }

    fn take(mut self, place: ManifestState) -> Self {
        let pod = self.pods.values().next().unwrap();
        let named = self.folder.manifests.get("critical.yaml").cloned().flatten();
        let record = Record {
            maintenance: "m".into(),
            pod: named.clone().unwrap(),
            pod_uid: pod.uid.to_string(),
            priority: pod.priority,
            labels: (*pod.labels).clone(),
            taken_at: now() - SignedDuration::from_secs(10),
            alone: false,
        };
        if place == ManifestState::Free {
            self.folder.manifests.clear();
        }
        self.folder.taken.push(Taken {
            file: "critical.yaml".into(),
            pod: named,
            record: Some(record),
            place,
        });
        self
    }
}

fn drains(up_to: i32) -> Maintenance {
    maintenance("m", Some(up_to), "Drain", json!({}))
}

#[test]
fn the_status_is_updated_as_in_the_example_and_the_manifest_leaves() {
    let decision = Scene::critical(7000, drains(7000)).decide();
    let [
        Effect::Report { report, request },
        Effect::Move { pod, steps, of_control_plane: None },
        Effect::RecordEvent { reason, .. },
    ] = &decision.effects[..]
    else {
        panic!("{decision:?}")
    };
    assert_eq!(
        report.patch(&request.status, now()),
        json!({
            "progressTimestamp": "2024-04-22T22:10:05Z",
            "expectedInterceptorFinishTime": "2024-04-22T22:11:05Z",
            "message": "critical-static-workload-six is terminating the pod due to node maintenance (OS upgrade).",
        })
    );
    assert_eq!(pod.as_ref(), Some(&request.pod_key()), "what was not reported is not done");
    let moved = Step::Move("critical.yaml".into(), ".usher-taken-critical.yaml".into());
    assert_eq!(steps.iter().position(|step| *step == moved), Some(3), "the record comes first");
    assert_eq!(*reason, "StaticPodTaken");
}

#[test]
fn it_does_not_react_to_static_pods_that_no_maintenance_reaches_and_completes_nothing() {
    let rows = [
        ("of a higher priority", drains(6999)),
        ("before its targets have static pods", maintenance("m", None, "Drain", json!({}))),
        ("only cordoned", maintenance("m", Some(7000), "Cordon", json!({}))),
        ("completed", maintenance("m", Some(7000), "Complete", json!({}))),
    ];
    for (what, maintenance) in rows {
        let scene = Scene::critical(7000, maintenance);
        assert_eq!(scene.outcome(), (None, 0), "{what}");
        assert!(scene.decide().recheck_at.is_some(), "{what}");
    }
    let mut none = Scene::critical(7000, drains(7000));
    none.maintenances.clear();
    assert_eq!(none.outcome(), (None, 0), "an eviction request by itself is no reason");
}

#[test]
fn it_responds_only_when_it_observes_its_own_class_or_nobody_else_is_left() {
    let pod = || pod("critical-static-workload-six", 0, json!({}));
    let of = |status: Value| Scene::of(pod(), status, vec![drains(7000)]).outcome();
    assert_eq!(of(json!({"activeInterceptorClass": "other.example.com"})), (None, 0));
    assert_eq!(of(json!({})), (None, 0));
    let over = json!({"activeInterceptorClass": "kubelet.k8s.io", "activeInterceptorCompleted": true});
    assert_eq!(of(over), (None, 0));
    assert_eq!(of(left()), (None, 1), "it was asked for before the agent came");
}

#[test]
fn a_pod_of_another_uid_or_no_mirror_pod_is_never_touched() {
    let mut scene = Scene::critical(0, drains(7000));
    let pod = scene.pods.values().next().unwrap();
    let (key, other) = (pod.key.clone(), Pod { uid: "another".into(), ..(**pod).clone() });
    let forged = Pod { is_mirror: false, ..(**pod).clone() };
    scene.pods.insert(key.clone(), Arc::new(other));
    assert_eq!(scene.outcome(), (None, 0));
    scene.pods.insert(key, Arc::new(forged));
    assert_eq!(scene.outcome(), (None, 0));
}

#[test]
fn a_pod_on_its_way_shows_progress_until_its_grace_ends() {
    let scene = Scene::critical(0, drains(7000)).take(ManifestState::Free);
    let (report, moves) = scene.outcome();
    assert!(report.is_some_and(|it| it.progress && !it.completed) && moves == 0);
    let mut late = scene;
    late.folder.taken[0].record.as_mut().unwrap().taken_at = now() - SignedDuration::from_secs(61);
    assert_eq!(late.outcome(), (None, 0), "its progress deadline passes, as it should");
}

#[test]
fn it_is_not_started_again_until_no_maintenance_targets_it() {
    let taken = |maintenances: Vec<Maintenance>| {
        let mut scene = Scene::critical(100, drains(7000)).take(ManifestState::Free);
        (scene.maintenances, scene.requests, scene.pods) = (maintenances, HashMap::new(), HashMap::new());
        scene.outcome().1
    };
    assert_eq!(taken(vec![drains(7000)]), 0);
    assert_eq!(
        taken(vec![maintenance("other", Some(100), "Drain", json!({}))]),
        0,
        "another holds the node too"
    );
    for (what, maintenances) in [
        ("completed", vec![maintenance("m", Some(7000), "Complete", json!({}))]),
        ("deleted", vec![]),
        ("it has let go of the node", vec![Maintenance { targets: Arc::default(), ..drains(7000) }]),
        ("another has not reached it", vec![maintenance("other", Some(99), "Drain", json!({}))]),
    ] {
        assert_eq!(taken(maintenances), 1, "{what}");
    }
    let scene = Scene::critical(100, drains(7000)).take(ManifestState::Free);
    assert_eq!(scene.decide_by(None), Decision::default(), "nothing moves by what nobody knows");
}

#[test]
fn a_manifest_that_was_replaced_is_the_administrators() {
    let scene = Scene::critical(0, drains(7000)).take(ManifestState::Replaced);
    let (report, moves) = scene.outcome();
    assert_eq!(moves, 0, "it is not taken a second time");
    let report = report.unwrap();
    assert!(
        report.completed && report.message.unwrap().contains("somebody has put the manifest critical.yaml")
    );
    let copied = Scene::critical(0, drains(7000)).take(ManifestState::Copied);
    assert_eq!(copied.outcome().1, 0, "a copy of it is theirs too");
    let linked = Scene::critical(0, drains(7000)).take(ManifestState::Linked);
    assert_eq!(linked.outcome(), (None, 1), "what the agent itself was about to put back comes back first");
    let mut over = scene;
    (over.maintenances, over.requests) = (vec![], HashMap::new());
    let effects = over.decide().effects;
    let [Effect::Move { steps, .. }, Effect::RecordEvent { is_warning: true, reason, .. }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(
        steps[0],
        Step::Move(".usher-taken-critical.yaml".into(), ".usher-kept-1-critical.yaml".into())
    );
    assert_eq!(*reason, "StaticPodManifestReplaced");
}

#[test]
fn what_cannot_be_moved_is_declined_with_what_to_do() {
    let declined = |scene: &Scene| {
        let (report, moves) = scene.outcome();
        let report = report.unwrap();
        assert!(report.completed && !report.progress && moves == 0);
        report.message.unwrap()
    };
    let mut scene = Scene::critical(0, drains(7000));
    let manifest = scene.folder.manifests.remove("critical.yaml").unwrap();
    assert!(declined(&scene).contains("has no manifest in /etc/kubernetes/manifests: remove it where"));
    scene.has_url = true;
    assert!(declined(&scene).contains("staticPodURL, which cannot be moved"));
    scene.folder.manifests =
        BTreeMap::from([("a.yaml".into(), manifest.clone()), ("b.yaml".into(), manifest)]);
    assert!(declined(&scene).contains("several manifests in /etc/kubernetes/manifests (a.yaml, b.yaml)"));
}

#[test]
fn the_control_plane_stays_unless_the_maintenance_says_so_and_others_go_on() {
    let allowed = json!({"nodemaintenance.k8s.io/move-control-plane": "true"});
    let of = |component: &str, annotations: &Value, control_plane| {
        let pod = pod(
            &format!("{component}-six"),
            2_000_001_000,
            json!({"component": component, "tier": "control-plane"}),
        );
        let maintenance = maintenance("m", Some(i32::MAX), "Drain", annotations.clone());
        let scene = Scene { control_plane, ..Scene::of(pod, turn(), vec![maintenance]) };
        let (report, moves) = scene.outcome();
        assert_eq!(scene.decide().control_plane_files().len(), moves);
        (moves, report.and_then(|it| it.message).unwrap_or_default())
    };
    let some = |nodes, others_running| ControlPlane { nodes, others_running };
    let (moves, why) = of("kube-apiserver", &json!({}), some(3, 2));
    assert!(
        moves == 0
            && why.contains("annotate the maintenance with nodemaintenance.k8s.io/move-control-plane=true")
    );
    let (moves, why) = of("kube-apiserver", &allowed, some(1, 0));
    assert!(moves == 0 && why.ends_with("no other control plane node runs one"), "{why}");
    let (moves, why) = of("etcd", &allowed, some(3, 1));
    assert!(moves == 0 && why.contains("1 of 3 members would be left, and 2 are needed"), "{why}");
    for (component, control_plane) in
        [("kube-apiserver", some(2, 1)), ("etcd", some(3, 2)), ("kube-scheduler", some(3, 1))]
    {
        assert_eq!(of(component, &allowed, control_plane).0, 1, "{component}");
    }
    assert_eq!(of("etcd", &allowed, some(2, 1)).0, 0, "two members need both");
    let unlabelled = Pod { labels: Arc::default(), ..pod("etcd-six", 0, json!({"component": "etcd"})) };
    assert!(is_control_plane(&unlabelled, NODE), "by its name too");
    assert!(
        !is_control_plane(&pod("etcd-six", 0, json!({})), NODE),
        "in another namespace it is somebody's own"
    );
}

#[test]
fn without_an_api_server_static_pods_end_by_priority_and_the_control_plane_is_left() {
    let moves = |scene: &Scene, up_to| {
        let (folder, pods) = (scene.folder.clone(), scene.pods.clone());
        let scene = Scene { alone_up_to: up_to, folder, pods, ..Scene::default() };
        let is_move = |effect: &&Effect| matches!(effect, Effect::Move { .. });
        scene.decide_by(None).effects.iter().filter(is_move).count()
    };
    let scene = Scene::critical(100, drains(7000));
    assert_eq!((moves(&scene, None), moves(&scene, Some(99)), moves(&scene, Some(100))), (0, 0, 1));
    assert_eq!(moves(&scene.take(ManifestState::Free), Some(100)), 0, "once");
    let etcd = pod("etcd-six", 0, json!({"component": "etcd"}));
    assert_eq!(moves(&Scene::of(etcd, turn(), vec![]), Some(i32::MAX)), 0);
}

#[test]
fn alone_a_manifest_with_the_name_of_one_that_was_taken_stays() {
    // The administrator has put the manifest of another pod where the first one was.
    let mut scene = Scene::critical(100, drains(7000)).take(ManifestState::Replaced);
    let other = Some(PodName { namespace: "critical-workloads".into(), name: "before".into() });
    scene.folder.taken[0].pod = other;
    scene.alone_up_to = Some(i32::MAX);
    assert_eq!(scene.decide_by(None), Decision::default());
}

#[test]
fn what_was_taken_alone_comes_back_when_the_shutdown_is_over_whether_the_api_server_answers_or_not() {
    let taken = |alone| {
        let mut scene = Scene::critical(100, drains(7000)).take(ManifestState::Free);
        scene.requests.clear();
        scene.folder.taken[0].record.as_mut().unwrap().alone = alone;
        scene
    };
    let returns = |decision: Decision| {
        decision
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::RecordEvent { reason: "StaticPodReturned", .. }))
    };
    assert!(returns(taken(true).decide_by(None)));
    assert!(!returns(taken(false).decide_by(None)), "of what was taken for a maintenance nobody knows");
    assert!(!returns(taken(true).decide()), "a maintenance wants it gone");
    let shutting_down = |scene: Scene| Scene { is_shutting_down: true, maintenances: Vec::new(), ..scene };
    assert!(!returns(shutting_down(taken(true)).decide_by(None)));
    assert!(!returns(shutting_down(taken(true)).decide()), "it would start on a node that goes down");
    assert!(returns(shutting_down(taken(false)).decide()));
}

#[test]
fn a_record_without_its_manifest_is_forgotten_and_told_if_somebody_removed_it() {
    let mut scene = Scene::default();
    scene.folder.stale_records.insert("gone.yaml".into(), None);
    let effects = scene.decide().effects;
    assert!(matches!(
        &effects[..],
        [Effect::Move { .. }, Effect::RecordEvent { reason: "StaticPodManifestGone", .. }]
    ));
    scene.folder.manifests.insert("gone.yaml".into(), None);
    assert_eq!(scene.decide().effects.len(), 1, "one that is back is none to tell of");
}

proptest! {
    /// Whatever the cluster says, a manifest moves only for a maintenance that has reached its pod, and a pod that is reached and may
    /// move does.
    #[test]
    fn a_manifest_moves_if_and_only_if_a_maintenance_reaches_its_pod(
        priority in -10..10_i32,
        up_to in proptest::option::of(-10..10_i32),
        stage in prop_oneof![Just("Idle"), Just("Cordon"), Just("Drain"), Just("Complete")],
        is_taken in any::<bool>(),
    ) {
        let scene = Scene::critical(priority, maintenance("m", up_to, stage, json!({})));
        let scene = if is_taken { scene.take(ManifestState::Free) } else { scene };
        let is_reached = stage == "Drain" && up_to.is_some_and(|up_to| priority <= up_to);
        prop_assert_eq!(scene.outcome().1, usize::from(is_reached != is_taken));
    }
}
