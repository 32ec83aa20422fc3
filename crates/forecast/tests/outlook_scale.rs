//! The time of a dry run grows in proportion to the cluster. The crate itself reads no clock, so this test measures the time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![allow(clippy::disallowed_methods, reason = "the test measures how long a forecast takes")]

use std::time::{Duration, Instant};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::Maintenance;
use usher_forecast::outlook::{Budget, Cluster, Node, NodeOnWire, Pod, PodOnWire, outlook};

fn read<W: DeserializeOwned, T: From<W>>(object: Value) -> T {
    T::from(serde_json::from_value::<W>(object).unwrap())
}

fn name(number: usize) -> String {
    format!("n{number:05}")
}

fn node(number: usize) -> Node {
    read::<NodeOnWire, _>(json!({
        "metadata": {"name": name(number), "labels": {"kubernetes.io/hostname": name(number)}},
        "status": {"allocatable": {"cpu": "16", "memory": "8Gi", "pods": "110"}},
    }))
}

fn pod(number: usize, node: usize, app: usize) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true});
    let cpu = format!("{}m", 100 + 10 * (number % 7));
    read::<PodOnWire, _>(json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": "shop", "uid": format!("uid-p{number}"),
            "labels": {"app": format!("app-{app}")}, "ownerReferences": [owner],
        },
        "spec": {"nodeName": name(node), "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn budget(app: usize) -> Budget {
    read::<PodDisruptionBudget, _>(json!({
        "metadata": {"name": format!("b{app}"), "namespace": "shop", "generation": 2},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": format!("app-{app}")}}},
        "status": {
            "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
        },
    }))
}

/// Applications of 30 pods with a budget each, spread over all nodes; half of the nodes are drained one by one.
fn time_of(nodes: usize, pods: usize) -> Duration {
    let apps = pods / 30;
    let cluster = Cluster {
        nodes: (0..nodes).map(node).collect(),
        pods: (0..pods).map(|number| pod(number, number % nodes, number % apps)).collect(),
        budgets: (0..apps).map(budget).collect(),
        maintenances: Vec::new(),
        workloads: Default::default(),
    };
    let drained: Vec<String> = (0..nodes / 2).map(name).collect();
    let maintenance: Maintenance = read::<NodeMaintenance, _>(json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "new"},
        "spec": {
            "stage": "Drain", "drainLimit": {"maxNodes": 1},
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": drained}]},
            ]},
        },
    }));
    let now = "2026-01-01T12:00:00Z".parse().unwrap();
    let start = Instant::now();
    let outlook = outlook(&maintenance, &cluster, now);
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
