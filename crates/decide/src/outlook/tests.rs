//! Every finding by itself, and what holds for all outlooks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;

use super::*;
use crate::snapshot::Key;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "blue"}},
        "spec": {}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    })
}

/// A ready pod of a replica set that asks for one CPU.
fn pod(name: &str, node: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true});
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"}, "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn of_kind(name: &str, node: &str, kind: &str) -> Value {
    let owner = json!([{"apiVersion": "v1", "kind": kind, "name": "own", "uid": "o", "controller": true}]);
    with(pod(name, node), "/metadata/ownerReferences", owner)
}

fn intercepted(pod: Value) -> Value {
    let key = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    with(pod, "/metadata/annotations", json!({key: "11000"}))
}

/// A budget of `app=web` with so many healthy of three pods.
fn budget(name: &str, wanted: i32, healthy: i32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "generation": 2},
        "spec": {"minAvailable": wanted, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "observedGeneration": 2, "disruptionsAllowed": (healthy - wanted).max(0), "currentHealthy": healthy,
            "desiredHealthy": wanted, "expectedPods": 3,
        },
    })
}

fn maintenance(name: &str, nodes: &[&str]) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]},
        ]}},
    })
}

fn read_maintenance(value: Value) -> Maintenance {
    Maintenance::from(serde_json::from_value::<NodeMaintenance>(value).unwrap())
}

fn cluster(nodes: Vec<Value>, pods: Vec<Value>, budgets: Vec<Value>) -> Cluster {
    let node = |node| Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap());
    let pod = |pod| Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap());
    let budget = |budget| Budget::from(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap());
    Cluster {
        nodes: nodes.into_iter().map(node).collect(),
        pods: pods.into_iter().map(pod).collect(),
        budgets: budgets.into_iter().map(budget).collect(),
        maintenances: Vec::new(),
    }
}

fn look(cluster: &Cluster, nodes: &[&str]) -> Outlook {
    outlook(&read_maintenance(maintenance("new", nodes)), cluster, now())
}

fn sentences(outlook: &Outlook) -> Vec<String> {
    outlook.findings.iter().map(Finding::sentence).collect()
}

/// What is found for these pods, drained from n1 while there is room on n2.
fn found(pods: Vec<Value>, budgets: Vec<Value>) -> Vec<String> {
    sentences(&look(&cluster(vec![node("n1", "8"), node("n2", "8")], pods, budgets), &["n1"]))
}

#[test]
fn each_obstacle_is_found_by_itself() {
    let behind = with(budget("b", 1, 3), "/metadata/generation", json!(3));
    let failed = with(
        budget("b", 0, 0),
        "/status/conditions",
        json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]),
    );
    let unready = |name| with(pod(name, "n1"), "/status/conditions", json!([]));
    let mirror = with(
        of_kind("m", "n1", "Node"),
        "/metadata/annotations",
        json!({"kubernetes.io/config.mirror": "x"}),
    );
    let p = || pod("p", "n1");
    let closed = "1 pod cannot leave: budget shop/b (minAvailable 3) wants 3 healthy and has no more than 3";
    let two =
        "1 pod has more than one disruption budget (shop/a and shop/b), and the server evicts no such pod";
    let rows: Vec<(Vec<Value>, Vec<Value>, Vec<&str>)> = vec![
        (vec![p()], vec![], vec![]),
        (vec![p()], vec![budget("b", 2, 3)], vec![]),
        (vec![p()], vec![budget("b", 3, 3)], vec![closed]),
        // One of its pods is not ready: it still wants all of them.
        (vec![p()], vec![budget("b", 3, 2)], vec![closed]),
        (vec![p()], vec![budget("a", 1, 3), budget("b", 1, 3)], vec![two]),
        (
            vec![with(p(), "/status/phase", json!("Pending"))],
            vec![budget("a", 3, 3), budget("b", 1, 3)],
            vec![],
        ),
        (vec![with(p(), "/status/phase", json!("Succeeded"))], vec![budget("b", 3, 3)], vec![]),
        (
            vec![with(p(), "/metadata/deletionTimestamp", json!("2026-01-01T12:00:30Z"))],
            vec![budget("b", 3, 3)],
            vec![],
        ),
        (
            vec![p()],
            vec![failed],
            vec!["1 pod cannot leave: the pods of budget shop/b cannot be counted (no scale)"],
        ),
        (
            vec![p()],
            vec![behind],
            vec!["1 pod cannot leave until budget shop/b is counted: the server evicts nobody before"],
        ),
        (
            vec![of_kind("d", "n1", "DaemonSet")],
            vec![],
            vec![
                "1 pod of DaemonSet shop/own: asked to leave last, but the eviction API would only bring them back, so \
                  the drain waits for them",
            ],
        ),
        (
            vec![mirror],
            vec![],
            vec!["1 pod of the node itself: only the node can end a static pod, so the drain waits for it"],
        ),
        (
            vec![with(p(), "/metadata/ownerReferences", json!([]))],
            vec![],
            vec!["1 pod has no controller: once gone, nobody makes a new one"],
        ),
        (
            vec![with(
                p(),
                "/spec/volumes",
                json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {}}]),
            )],
            vec![],
            vec!["1 pod has an emptyDir volume, whose data are lost"],
        ),
        (
            vec![p(), pod("q", "n1"), pod("r", "n1")],
            vec![budget("b", 2, 3)],
            vec![
                "3 pods of budget shop/b, which lets 1 go now and no more than 1 at once: at least 3 rounds",
            ],
        ),
        (vec![p(), pod("q", "n1")], vec![budget("b", 1, 3)], vec![]),
        // Two of its pods are not ready: as many as it allows at best can go at once, but nobody now.
        (
            vec![p(), unready("q"), unready("r")],
            vec![budget("b", 1, 1)],
            vec![
                "1 pod of budget shop/b, which lets nobody go now and no more than 2 at once: at least 1 round",
            ],
        ),
        (
            vec![intercepted(p()), pod("q", "n1")],
            vec![],
            vec!["1 pod has the interceptor db.example.com, which the drain waits for"],
        ),
        (
            vec![intercepted(of_kind("d", "n1", "DaemonSet"))],
            vec![],
            vec![
                "1 pod has the interceptor db.example.com, which the drain waits for; 1 of them can leave in no other way",
            ],
        ),
        (
            vec![with(p(), "/spec/nodeSelector", json!({"pool": "red"}))],
            vec![],
            vec!["1 pod would find no place: 0/1 nodes: 1 not selected by the pod"],
        ),
    ];
    for (number, (pods, budgets, wanted)) in rows.into_iter().enumerate() {
        assert_eq!(found(pods, budgets), wanted, "row {number}");
    }
}

#[test]
fn the_worst_comes_first_and_pods_of_other_nodes_do_not_matter() {
    let pods = vec![
        intercepted(with(pod("i", "n1"), "/metadata/labels", json!({}))),
        with(with(pod("o", "n1"), "/metadata/labels", json!({})), "/metadata/ownerReferences", json!([])),
        pod("p", "n1"),
        with(with(pod("s", "n1"), "/metadata/labels", json!({})), "/spec/nodeSelector", json!({"a": "b"})),
        of_kind("d", "n2", "DaemonSet"),
    ];
    let cluster = cluster(vec![node("n1", "8"), node("n2", "8")], pods, vec![budget("b", 3, 3)]);
    let outlook = look(&cluster, &["n1"]);
    let severities: Vec<Severity> = outlook.findings.iter().map(Finding::severity).collect();
    assert_eq!(severities, [Severity::Never, Severity::Loss, Severity::NoPlace, Severity::Delay]);
    assert!(outlook.is_stuck());
    assert!(outlook.findings.iter().all(|finding| !finding.advice().is_empty()));
    assert_eq!((outlook.nodes(), outlook.pods()), (1, 4));
}

#[test]
fn pods_are_listed_by_the_step_that_reaches_them() {
    let high = with(pod("high", "n1"), "/spec/priority", json!(2_000_000_000));
    let cluster = cluster(
        vec![node("n1", "8")],
        vec![pod("b", "n1"), pod("a", "n1"), high, of_kind("d", "n1", "DaemonSet")],
        vec![],
    );
    let outlook = look(&cluster, &["n1"]);
    let steps: BTreeMap<usize, Vec<String>> = outlook.waves[0][0]
        .pods
        .iter()
        .map(|(step, keys)| (*step, keys.iter().map(|key| key.name.to_string()).collect()))
        .collect();
    let wanted = [(0, vec!["a", "b"]), (1, vec!["high"]), (4, vec!["d"])];
    let wanted = wanted.map(|(step, names)| (step, names.into_iter().map(str::to_string).collect()));
    assert_eq!(steps, BTreeMap::from(wanted));
}

#[test]
fn what_does_not_fit_is_told_with_what_each_node_lacks() {
    let tainted = with(node("n4", "8"), "/spec/taints", json!([{"key": "gpu", "effect": "NoSchedule"}]));
    let cordoned = with(node("n5", "8"), "/spec/unschedulable", json!(true));
    let full = with(node("n6", "8"), "/status/allocatable/pods", json!("0"));
    let nodes = vec![node("n1", "8"), node("n2", "2"), node("n3", "2"), tainted, cordoned, full];
    let big = |name| with(pod(name, "n1"), "/spec/containers/0/resources/requests/cpu", json!("2"));
    let pods = vec![pod("on-n2", "n2"), big("big-1"), big("big-2"), pod("small", "n1")];
    let outlook = look(&cluster(nodes, pods, vec![]), &["n1"]);
    assert_eq!(
        sentences(&outlook),
        ["1 pod would find no place: 0/5 nodes: 2 too little cpu, 1 no more pods, 1 cordoned, 1 taint gpu"]
    );
    let place = |pod: &str, node: &str| (Key::new("shop", pod), node.into());
    assert_eq!(outlook.fit.places, [place("big-1", "n3"), place("small", "n2")]);
    assert_eq!(outlook.open_nodes, 4);
    let nowhere = look(&cluster(vec![node("n1", "8")], vec![pod("p", "n1")], vec![]), &["n1"]);
    assert_eq!(sentences(&nowhere), ["1 pod would have nowhere to go: no node stays"]);
}

#[test]
fn other_maintenances_of_the_same_nodes_are_named_with_who_waits() {
    let begun = |name: &str, nodes: &[&str], stage: &str, plan: Value| {
        let mut object = maintenance(name, nodes);
        object["spec"]["stage"] = stage.into();
        object["spec"]["drainPlan"] = plan;
        object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["finalizers"] = json!(["nodemaintenance.k8s.io/maintenance-completion"]);
        read_maintenance(object)
    };
    let told = |other: Maintenance, plan: Value| {
        let important = with(pod("q", "n1"), "/spec/priority", json!(5000));
        let mut cluster = cluster(
            vec![node("n1", "8"), node("n2", "8"), node("n3", "8")],
            vec![pod("p", "n1"), important, pod("r", "n2")],
            vec![],
        );
        cluster.maintenances.push(other);
        let mut new = maintenance("new", &["n1"]);
        new["spec"]["drainPlan"] = plan;
        sentences(&outlook(&read_maintenance(new), &cluster, now()))
    };
    let low = || json!([{"podPriority": 1000, "podType": "Default"}]);
    let web = || json!([{"podPriority": 100, "podType": "Default", "podSelector": {"matchLabels": {"app": "web"}}}]);
    let none = || json!([]);
    let rows = [
        (begun("old", &["n2"], "Drain", none()), none(), vec![]),
        (begun("old", &["n1"], "Complete", none()), none(), vec![]),
        (
            begun("old", &["n1"], "Idle", none()),
            none(),
            vec!["maintenance old is planned for 1 node of these, and touches nothing yet"],
        ),
        (
            begun("old", &["n1", "n2"], "Cordon", none()),
            none(),
            vec!["maintenance old holds 1 node of these too: they stay cordoned until both are complete"],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", web()),
            web(),
            vec!["maintenance old drains 1 node of these too: their plans go together"],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", low()),
            none(),
            vec![
                "maintenance old drains 1 node of these too: this one waits until it has reached the same pods",
            ],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", none()),
            low(),
            vec![
                "maintenance old drains 1 node of these too: it would wait until this one has reached the same pods",
            ],
        ),
    ];
    for (number, (other, plan, wanted)) in rows.into_iter().enumerate() {
        assert_eq!(told(other, plan), wanted, "row {number}");
    }
}

#[test]
fn plans_that_contradict_each_other_are_told() {
    let first = |app: &str| json!([{"podPriority": 100, "podType": "Default", "podSelector": {"matchLabels": {"app": app}}}]);
    let mut old = maintenance("old", &["n1"]);
    old["spec"]["drainPlan"] = first("db");
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    let db = with(pod("db", "n1"), "/metadata/labels/app", json!("db"));
    let mut cluster = cluster(vec![node("n1", "8"), node("n2", "8")], vec![pod("web", "n1"), db], vec![]);
    cluster.maintenances.push(read_maintenance(old));
    let mut new = maintenance("new", &["n1"]);
    new["spec"]["drainPlan"] = first("web");
    assert_eq!(
        sentences(&outlook(&read_maintenance(new), &cluster, now())),
        [
            "maintenance old drains 1 node of these too: its plan contradicts this one and, being older, wins: some pods \
          leave earlier than planned"
        ]
    );
}

/// Deployments of pods that are alike, spread over all nodes, with a budget each.
fn large(nodes: usize, pods: usize) -> Cluster {
    let name = |number: usize| format!("n{number:05}");
    let pods = (0..pods).map(|number| {
        let app = format!("app-{}", number % (pods / 30).max(1));
        let cpu = 100 + 10 * (number % 7);
        let on = name(number % nodes);
        let pod = with(pod(&format!("p{number}"), &on), "/metadata/labels/app", json!(app));
        with(pod, "/spec/containers/0/resources/requests/cpu", json!(format!("{cpu}m")))
    });
    let budgets = (0..(pods.len() / 30).max(1)).map(|number| {
        let app = json!(format!("app-{number}"));
        with(budget(&format!("b{number}"), 2, 3), "/spec/selector/matchLabels/app", app)
    });
    let budgets = budgets.collect();
    let nodes = (0..nodes).map(|number| node(&name(number), "16")).collect();
    let mut cluster = cluster(nodes, pods.collect(), budgets);
    cluster.nodes.iter_mut().for_each(|node| node.pods = 110);
    cluster
}

fn time_of(nodes: usize, pods: usize) -> Duration {
    let cluster = large(nodes, pods);
    let names: Vec<String> = (0..nodes / 2).map(|number| format!("n{number:05}")).collect();
    let mut new = maintenance("new", &names.iter().map(String::as_str).collect::<Vec<_>>());
    new["spec"]["drainLimit"] = json!({"maxNodes": 1});
    let new = read_maintenance(new);
    let start = Instant::now();
    let outlook = outlook(&new, &cluster, now());
    let took = start.elapsed();
    assert_eq!((outlook.waves.len(), outlook.pods()), (nodes / 2, pods / 2));
    took
}

#[test]
fn ten_times_the_cluster_takes_about_ten_times_as_long() {
    let small = (0..3).map(|_| time_of(50, 1500)).min().unwrap();
    let large = time_of(500, 15_000);
    assert!(
        large < small * 50 + Duration::from_millis(200),
        "{small:?} for a tenth, {large:?} for the whole"
    );
}

/// Nodes by CPUs, pods and cordon; pods by node, CPU in tenths and pool.
type Drawn = (Vec<(i64, i64, bool)>, Vec<(usize, i64, u8)>, usize, i32);

fn drawn() -> impl Strategy<Value = Drawn> {
    let node = (1..8_i64, 0..6_i64, prop::bool::weighted(0.2));
    let pod = (0..8_usize, 0..30_i64, 0..3_u8);
    (prop::collection::vec(node, 1..8), prop::collection::vec(pod, 0..30), 0..8_usize, 0..4_i32)
}

proptest! {
    /// No node gets more than it has, each pod that somebody makes anew has one place or none, nobody goes to a node
    /// that is drained, cordoned or not for him, and who finds no place has indeed none in the end.
    #[test]
    fn whoever_is_said_to_fit_does_fit((nodes, pods, drained, limit) in drawn()) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
        let objects = nodes.iter().zip(&names).enumerate().map(|(number, ((cpu, room, cordoned), name))| {
            let node = with(node(name, &cpu.to_string()), "/status/allocatable/pods", json!(room.to_string()));
            let node = with(node, "/metadata/labels/pool", json!(["blue", "red"][number % 2]));
            with(node, "/spec/unschedulable", json!(cordoned))
        });
        let pods = pods.iter().enumerate().map(|(number, (on, cpu, pool))| {
            let pod = pod(&format!("p{number}"), &names[on % names.len()]);
            let pod = with(pod, "/spec/containers/0/resources/requests/cpu", json!(format!("{}m", cpu * 100)));
            match pool {
                0 => with(pod, "/spec/nodeSelector", json!({"pool": "blue"})),
                1 => with(pod, "/spec/nodeSelector", json!({"pool": "red"})),
                _ => pod,
            }
        });
        let cluster = cluster(objects.collect(), pods.collect(), vec![]);
        let drained: Vec<&str> = names.iter().take(drained).map(String::as_str).collect();
        let mut new = maintenance("new", &drained);
        if limit > 0 {
            new["spec"]["drainLimit"] = json!({"maxNodes": limit});
        }
        let outlook = outlook(&read_maintenance(new), &cluster, now());

        let by_key: HashMap<&Key, &Pod> = cluster.pods.iter().map(|pod| (&pod.pod.key, pod)).collect();
        let mut used: HashMap<&str, (i64, i64)> = HashMap::new();
        for pod in &cluster.pods {
            let (cpu, count) = used.entry(&pod.pod.node).or_default();
            (*cpu, *count) = (*cpu + pod.wants.cpu, *count + 1);
        }
        let node_of = |name: &str| cluster.nodes.iter().find(|node| *node.node.name == *name).unwrap();
        let suits = |pod: &Pod, node: &Node| {
            !drained.contains(&&*node.node.name) && pod.rules.against(node, node.node.unschedulable).is_none()
        };
        let mut seen = BTreeSet::new();
        for (key, to) in &outlook.fit.places {
            let (pod, node) = (by_key[key], node_of(to));
            prop_assert!(suits(pod, node) && seen.insert(key));
            let (cpu, count) = used.entry(&node.node.name).or_default();
            (*cpu, *count) = (*cpu + pod.wants.cpu, *count + 1);
            prop_assert!(*cpu <= node.offers.cpu || pod.wants.cpu == 0, "{to} is over its CPU");
            prop_assert!(*count <= node.pods, "{to} has too many pods");
        }
        for key in outlook.fit.misfits.iter().flat_map(|misfit| &misfit.pods) {
            prop_assert!(seen.insert(key));
            for node in cluster.nodes.iter().filter(|node| suits(by_key[key], node)) {
                let (cpu, count) = used.get(&*node.node.name).copied().unwrap_or_default();
                let wants = by_key[key].wants.cpu;
                let lacks_cpu = wants > 0 && cpu + wants > node.offers.cpu;
                prop_assert!(lacks_cpu || count + 1 > node.pods, "{key} fits on {}", node.node.name);
            }
        }
        let leaving = cluster.pods.iter().filter(|pod| drained.contains(&&*pod.pod.node)).count();
        prop_assert_eq!(seen.len(), leaving);
        prop_assert_eq!(outlook.pods(), leaving);
    }

    /// The order is the controller's: asked for the next wave when the last is empty, it gives the same.
    #[test]
    fn the_order_is_that_of_the_controller((nodes, pods, drained, limit) in drawn()) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
        let objects = names.iter().map(|name| node(name, "4")).collect();
        let pods = pods.iter().enumerate().map(|(number, (on, ..))| pod(&format!("p{number}"), &names[on % names.len()]));
        let cluster = cluster(objects, pods.collect(), vec![]);
        let mut new = maintenance("new", &names.iter().take(drained).map(String::as_str).collect::<Vec<_>>());
        new["spec"]["drainLimit"] = json!({"maxNodes": limit + 1});
        let new = read_maintenance(new);
        let outlook = outlook(&new, &cluster, now());
        let mut candidates: Vec<Candidate> = names
            .iter()
            .take(drained)
            .map(|name| Candidate {
                name: name.as_str().into(),
                domain: String::new(),
                is_taken: false,
                pods: u32::try_from(cluster.pods.iter().filter(|pod| *pod.pod.node == **name).count()).unwrap(),
            })
            .collect();
        for wave in &outlook.waves {
            let next = waves::next(new.limit.as_ref().unwrap(), &candidates);
            prop_assert_eq!(&next, &wave.iter().map(|stop| stop.node.clone()).collect::<Vec<_>>());
            for node in candidates.iter_mut().filter(|node| next.contains(&node.name)) {
                (node.is_taken, node.pods) = (true, 0);
            }
        }
        prop_assert!(candidates.iter().all(|node| node.is_taken));
    }
}
