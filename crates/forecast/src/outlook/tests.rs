//! Every finding by itself.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::samples::{
    budget, cluster, intercepted, maintenance, mirror, node, now, of_kind, outlook_of, pod, read_maintenance,
    with,
};
use super::{Cluster, Finding, Outlook, Severity, Workloads, outlook};
use usher_api::workloads::BundledInterceptor;
use usher_decide::snapshot::{
    DaemonSetOnWire, Deployment, DeploymentOnWire, Key, Maintenance, StatefulSetOnWire,
};

fn sentences(outlook: &Outlook) -> Vec<String> {
    outlook.findings.iter().map(Finding::sentence).collect()
}

/// What is found for these pods, drained from n1 while there is room on n2.
fn found(pods: Vec<Value>, budgets: Vec<Value>) -> Vec<String> {
    sentences(&outlook_of(&cluster(vec![node("n1", "8"), node("n2", "8")], pods, budgets), &["n1"]))
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
    let mirror = mirror("m", "n1");
    let p = || pod("p", "n1");
    let closed = "1 pod cannot be evicted: budget shop/b has minAvailable 3 and 3 pods";
    let two = "1 pod has more than one disruption budget (shop/a and shop/b), and the eviction API refuses such pods";
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
            vec!["1 pod cannot be evicted: the pods of budget shop/b cannot be counted (no scale)"],
        ),
        (
            vec![p()],
            vec![behind],
            vec!["1 pod cannot be evicted until budget shop/b is counted by the disruption controller"],
        ),
        (
            vec![of_kind("d", "n1", "DaemonSet")],
            vec![],
            vec!["1 pod of DaemonSet shop/own leaves last, and comes back when the maintenance completes"],
        ),
        (vec![mirror], vec![], vec!["1 pod is static: only the kubelet can stop a static pod"]),
        (
            vec![with(p(), "/metadata/ownerReferences", json!([]))],
            vec![],
            vec!["1 pod has no controller and will not be recreated"],
        ),
        (
            vec![with(
                p(),
                "/spec/volumes",
                json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {}}]),
            )],
            vec![],
            vec!["1 pod has emptyDir data, which is deleted with the pod"],
        ),
        // Its data are lost once somebody has changed the budget.
        (
            vec![with(p(), "/spec/volumes", json!([{"name": "v", "emptyDir": {}}]))],
            vec![budget("b", 3, 3)],
            vec![closed, "1 pod has emptyDir data, which is deleted with the pod"],
        ),
        (
            vec![p(), pod("q", "n1"), pod("r", "n1")],
            vec![budget("b", 2, 3)],
            vec!["3 pods of budget shop/b, which allows 1 now and 1 at a time: at least 3 rounds"],
        ),
        (vec![p(), pod("q", "n1")], vec![budget("b", 1, 3)], vec![]),
        // Two of its pods are not ready: as many as it allows at best can go at once, but nobody now.
        (
            vec![p(), unready("q"), unready("r")],
            vec![budget("b", 1, 1)],
            vec!["1 pod of budget shop/b, which allows 0 now and 2 at a time: at least 1 round"],
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
                "1 pod has the interceptor db.example.com, which the drain waits for",
                "1 pod of DaemonSet shop/own leaves last, and comes back when the maintenance completes",
            ],
        ),
        (
            vec![with(p(), "/spec/nodeSelector", json!({"pool": "red"}))],
            vec![],
            vec!["1 pod will not fit: 0/1 nodes are available: 1 not selected by the pod"],
        ),
    ];
    for (number, (pods, budgets, wanted)) in rows.into_iter().enumerate() {
        assert_eq!(found(pods, budgets), wanted, "row {number}");
    }
}

#[test]
fn what_workloads_say_of_their_pods_is_told() {
    let read = |kind: &str, spec: Value, strategy: Option<&str>| {
        json!({
            "kind": kind, "spec": spec,
            "metadata": {"name": "own", "namespace": "shop", "uid": "o", "annotations": {
                "evictionrequest.coordination.k8s.io/eviction-request-strategy": strategy.unwrap_or("none"),
            }},
        })
    };
    let daemon_set = |strategy| {
        serde_json::from_value::<DaemonSetOnWire>(read("DaemonSet", json!({}), strategy)).unwrap().into()
    };
    let stateful_set = |max: u32, strategy| {
        let spec = json!({"replicas": 5, "updateStrategy": {"rollingUpdate": {"maxUnavailable": max}}});
        serde_json::from_value::<StatefulSetOnWire>(read("StatefulSet", spec, strategy)).unwrap().into()
    };
    let stateful = |name: &str| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "own", "uid": "o", "controller": true}]);
        with(pod(name, "n1"), "/metadata/ownerReferences", owner)
    };
    let daemon = || vec![of_kind("d", "n1", "DaemonSet")];
    let rows: [(Vec<Value>, Workloads, &[&str]); 5] = [
        (
            daemon(),
            Workloads::new(Some(vec![daemon_set(Some("Off"))]), vec![], vec![]),
            &["1 pod of DaemonSet shop/own stays, as it opted out; the drain does not wait for it"],
        ),
        (
            daemon(),
            Workloads::new(Some(vec![daemon_set(None)]), vec![], vec![]),
            &["1 pod of DaemonSet shop/own leaves last, and comes back when the maintenance completes"],
        ),
        // There is no such DaemonSet: it is evicted as any other.
        (daemon(), Workloads::new(Some(vec![]), vec![], vec![]), &[]),
        (
            vec![stateful("own-0"), stateful("own-1"), stateful("own-2")],
            Workloads::new(None, vec![stateful_set(2, Some("MaxUnavailable"))], vec![]),
            &["3 pods of StatefulSet shop/own, which lets 2 go at a time: at least 2 rounds"],
        ),
        (vec![stateful("own-0")], Workloads::new(None, vec![stateful_set(2, None)], vec![]), &[]),
    ];
    let deployment = |surge: u32, strategy: Option<&str>| -> Deployment {
        let spec = json!({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": surge}}});
        let mut object = read("Deployment", spec, strategy);
        if strategy.is_none() {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        serde_json::from_value::<DeploymentOnWire>(object).unwrap().into()
    };
    let of_deployment = |name: &str| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "own-5f7c", "uid": "o", "controller": true}]);
        let labels = json!({"app": "web", "pod-template-hash": "5f7c"});
        with(with(pod(name, "n1"), "/metadata/ownerReferences", owner), "/metadata/labels", labels)
    };
    let surges = "2 pods of Deployment shop/own, which surges by 1: no downtime, at least 2 rounds";
    let hands_over =
        "2 pods of Deployment shop/own, which hands over 1 pod at a time: no downtime, at least 2 rounds";
    for (surge, strategy, wanted) in [
        (1, None, surges),
        (1, Some("Surge"), surges),
        (1, Some("HandOver"), hands_over),
        (0, Some("HandOver"), "2 pods cannot be evicted: budget shop/b has minAvailable 3 and 3 pods"),
        (0, None, "2 pods cannot be evicted: budget shop/b has minAvailable 3 and 3 pods"),
    ] {
        let workloads =
            Workloads::new(None, vec![], vec![]).with_deployments(vec![deployment(surge, strategy)]);
        let pods = vec![of_deployment("a"), of_deployment("b")];
        let nodes = vec![node("n1", "8"), node("n2", "8")];
        let outlook =
            outlook_of(&Cluster { workloads, ..cluster(nodes, pods, vec![budget("b", 3, 3)]) }, &["n1"]);
        let found: Vec<String> = outlook.findings.iter().map(Finding::sentence).collect();
        assert_eq!(found, [wanted]);
        assert_eq!(outlook.is_stuck(), surge == 0);
        let advice = outlook.findings[0].advice();
        let has_one = advice.starts_with("set maxSurge of Deployment shop/own to 1");
        assert_eq!(has_one, surge == 0, "{advice}");
    }
    // No surge is promised where there is no room for it, and then its budget has the word.
    let workloads = Workloads::new(None, vec![], vec![]).with_deployments(vec![deployment(1, None)]);
    let nodes = vec![node("n1", "8")];
    let no_room = cluster(nodes, vec![of_deployment("a")], vec![budget("b", 3, 3)]);
    let outlook = outlook_of(&Cluster { workloads, ..no_room }, &["n1"]);
    let found: Vec<String> = outlook.findings.iter().map(Finding::sentence).collect();
    let closed = "1 pod cannot be evicted: budget shop/b has minAvailable 3 and 3 pods";
    assert_eq!(found, [closed, "1 pod will not fit: no node remains"]);
    let advice = outlook.findings[0].advice();
    assert!(advice.starts_with("make room for Deployment shop/own, so that new pods come first"), "{advice}");
    // Opted in: the eviction API is asked, and so are budgets.
    let fewer = "3 pods of Deployment shop/own, which lets 1 go at a time: at least 3 rounds";
    let closed = "3 pods cannot be evicted: budget shop/b has minAvailable 3 and 3 pods";
    for (surge, budgets, wanted) in [
        (0, vec![], &[fewer][..]),
        (0, vec![budget("b", 3, 3)], &[closed]),
        // A quarter of three is nobody, and it surges.
        (1, vec![], &[]),
    ] {
        let deployment = deployment(surge, Some("MaxUnavailable"));
        let workloads = Workloads::new(None, vec![], vec![]).with_deployments(vec![deployment]);
        let pods = ["a", "b", "c"].map(of_deployment).to_vec();
        let nodes = vec![node("n1", "8"), node("n2", "8")];
        let outlook = outlook_of(&Cluster { workloads, ..cluster(nodes, pods, budgets) }, &["n1"]);
        let found: Vec<String> = outlook.findings.iter().map(Finding::sentence).collect();
        assert_eq!(found, wanted, "maxSurge {surge}");
    }
    for (number, (pods, workloads, wanted)) in rows.into_iter().enumerate() {
        let cluster = Cluster { workloads, ..cluster(vec![node("n1", "8"), node("n2", "8")], pods, vec![]) };
        let outlook = outlook_of(&cluster, &["n1"]);
        let found: Vec<String> = outlook.findings.iter().map(Finding::sentence).collect();
        assert_eq!(found, wanted, "row {number}");
        assert!(!outlook.is_stuck(), "row {number}");
    }
}

#[test]
fn a_bundled_interceptor_that_is_switched_off_or_is_not_the_pods_controller_answers_for_nobody() {
    let daemon = || of_kind("d", "n1", "DaemonSet");
    let stateful = || of_kind("own-0", "n1", "StatefulSet");
    let controlled = |pod: Value| {
        let annotation = json!({"interceptor.evictionrequest.coordination.k8s.io/priority_op.example.com": "10000/controller"});
        with(pod, "/metadata/annotations", annotation)
    };
    let set = json!({
        "metadata": {"name": "own", "namespace": "shop", "uid": "o", "annotations": {
            "evictionrequest.coordination.k8s.io/eviction-request-strategy": "MaxUnavailable",
        }},
        "spec": {"replicas": 3},
    });
    let sets = || vec![serde_json::from_value::<StatefulSetOnWire>(set.clone()).unwrap().into()];
    let all = || BundledInterceptor::ALL.to_vec();
    let other = "1 pod has the interceptor op.example.com, which the drain waits for";
    let rows: [(Value, Vec<BundledInterceptor>, Vec<String>, bool); 6] = [
        (
            daemon(),
            all(),
            vec![
                "1 pod of DaemonSet shop/own stays: the manager runs without the interceptor of DaemonSets"
                    .into(),
            ],
            true,
        ),
        (
            daemon(),
            vec![BundledInterceptor::StatefulSet],
            vec![
                "1 pod of DaemonSet shop/own leaves last, and comes back when the maintenance completes"
                    .into(),
            ],
            false,
        ),
        (
            controlled(daemon()),
            vec![],
            vec![format!("{other}; 1 of them cannot be evicted otherwise")],
            false,
        ),
        (
            stateful(),
            vec![],
            vec!["1 pod of StatefulSet shop/own, which lets 1 go at a time: at least 1 round".into()],
            false,
        ),
        (stateful(), all(), vec![], false),
        (controlled(stateful()), vec![], vec![other.into()], false),
    ];
    for (number, (pod, off, wanted, is_stuck)) in rows.into_iter().enumerate() {
        let workloads = Workloads::new(None, sets(), vec![]).without(off);
        let nodes = vec![node("n1", "8"), node("n2", "8")];
        let outlook = outlook_of(&Cluster { workloads, ..cluster(nodes, vec![pod], vec![]) }, &["n1"]);
        assert_eq!((sentences(&outlook), outlook.is_stuck()), (wanted, is_stuck), "row {number}");
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
    let outlook = outlook_of(&cluster, &["n1"]);
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
    let outlook = outlook_of(&cluster, &["n1"]);
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
    let outlook = outlook_of(&cluster(nodes, pods, vec![]), &["n1"]);
    assert_eq!(
        sentences(&outlook),
        [
            "1 pod will not fit: 0/5 nodes are available: 2 too little cpu, 1 no more pods, 1 cordoned, 1 taint gpu"
        ]
    );
    let place = |pod: &str, node: &str| (Key::new("shop", pod), node.into());
    assert_eq!(outlook.fit.places, [place("big-1", "n3"), place("small", "n2")]);
    assert_eq!(outlook.open_nodes, 4);
    let nowhere = outlook_of(&cluster(vec![node("n1", "8")], vec![pod("p", "n1")], vec![]), &["n1"]);
    assert_eq!(sentences(&nowhere), ["1 pod will not fit: no node remains"]);
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
    let overlaps = |other: Maintenance, plan: Value| {
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
            vec!["maintenance old is planned for 1 of these nodes, and changes nothing yet"],
        ),
        (
            begun("old", &["n1", "n2"], "Cordon", none()),
            none(),
            vec!["maintenance old also holds 1 of these nodes; they stay cordoned until both are complete"],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", web()),
            web(),
            vec!["maintenance old also drains 1 of these nodes: their plans agree"],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", low()),
            none(),
            vec![
                "maintenance old also drains 1 of these nodes: this one waits until it has reached the same pods",
            ],
        ),
        (
            begun("old", &["n1", "n2"], "Drain", none()),
            low(),
            vec![
                "maintenance old also drains 1 of these nodes: it would wait until this one has reached the same pods",
            ],
        ),
    ];
    for (number, (other, plan, wanted)) in rows.into_iter().enumerate() {
        assert_eq!(overlaps(other, plan), wanted, "row {number}");
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
            "maintenance old also drains 1 of these nodes: its plan contradicts this one and, being older, wins: some pods \
          are evicted earlier than planned"
        ]
    );
}
