//! A node maintenance on the real control plane: real API server, real controllers and scheduler, nodes that kwok plays.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use futures::future::join;
use serde_json::{Value, json};
use usher_apply::Clock;
use usher_controllers::{eviction_request, maintenance};
use usher_tests::cluster::ADMIN;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, NODES, node, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;
use usher_tests::{TestCluster, crds};

fn is_held(node: &Value) -> bool {
    node["spec"]["unschedulable"] == true
        && node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"] == "m"
        && node["metadata"]["annotations"]["nodemaintenance.k8s.io/phase"] == "Drained"
        && node["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|c| c["type"] == "NodeMaintenance" && c["status"] == "True")
                && all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_drained_and_given_back_on_the_real_control_plane() {
    if usher_testbed::skip_real("node maintenance: a drain on the real control plane") {
        return;
    }
    let cluster = TestCluster::real_living().await.unwrap();
    crds::install(&cluster).await.unwrap();
    for number in 1..=6 {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        cluster.created(NODES, &node).await.unwrap();
    }
    cluster.created(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 8}))).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 6, "selector": {"matchLabels": {"app": "web"}}},
    });
    cluster.created(BUDGETS, &budget).await.unwrap();
    let all_ready = |answer: &usher_tests::Answer| answer.body["status"]["availableReplicas"] == 8;
    cluster.until(&format!("{DEPLOYMENTS}/web"), all_ready).await.unwrap();

    let client = cluster.client(ADMIN).unwrap();
    let manager = tokio::spawn(async move {
        let maintenances = maintenance::run(client.clone(), Clock::system(), Box::new(maintenance::Nobody));
        let requests = eviction_request::run(client, Clock::system(), Box::new(eviction_request::Nobody));
        join(maintenances, requests).await;
    });
    let was_cordoned = json!({"spec": {"unschedulable": true}});
    cluster.merge_patch(&format!("{NODES}/n3"), &was_cordoned).await.unwrap();
    cluster.created(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3"])).await.unwrap();
    let path = format!("{MAINTENANCES}/m");
    cluster.until(&path, |answer| is_drained(&answer.body)).await.unwrap();
    for number in 1..=3 {
        let node = format!("n{number}");
        cluster.until(&format!("{NODES}/{node}"), |answer| is_held(&answer.body)).await.unwrap();
        let pods = cluster.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await.unwrap();
        assert_eq!(pods.body["items"], json!([]), "{node}");
    }
    assert_eq!(cluster.delete(&path).await.unwrap().status, 200);
    cluster.until_gone(&path).await.unwrap();
    for (number, cordoned) in [(1, false), (2, false), (3, true)] {
        let node = cluster.get(&format!("{NODES}/n{number}")).await.unwrap().body;
        assert_eq!(node["spec"]["unschedulable"] == true, cordoned, "n{number}");
        assert!(node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"].is_null(), "n{number}");
    }
    cluster.until(REQUESTS, |answer| answer.body["items"] == json!([])).await.unwrap();
    manager.abort();
}
