//! The nodes that a DaemonSet must not return to, as policies read them from a ConfigMap: how a real API server follows that ConfigMap.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use usher_tests::both::policies::{ADMIN, PAUSE, Scene, Servers};
use usher_tests::{TestCluster, manifests};
use usher_tests_real::RealCluster as _;

/// The API server looks for the parameter of a policy before it asks the policy's conditions, and for one that is not there it reads again
/// for every object, five times a second at most: every pod of a cluster would wait for that.
pub async fn pods_of_no_daemon_set_cost_no_read_of_the_held_nodes(servers: &Servers) {
    let scene = Scene::new(servers, &["workloads/daemonset-policies.yaml"]).await;
    let reads = async || {
        let metrics = scene.send(ADMIN, Method::GET, "/metrics", &Value::Null).await.body;
        let is_read = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && line.contains("resource=\"configmaps\"")
                && line.contains("verb=\"GET\"")
        };
        let lines: Vec<String> =
            metrics.as_str().unwrap().lines().filter(is_read).map(str::to_owned).collect();
        lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let make = async |labels: Value| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        scene.cluster.created(&format!("{}?dryRun=All", scene.pods), &pod).await.unwrap();
    };
    // The policy counts some seconds after it was created: what it costs is seen by the pods that it is asked for.
    let mut tries = 0;
    let mut before = reads().await;
    loop {
        make(json!({"controller-revision-hash": "6b59d9cb88"})).await;
        let after = reads().await;
        if after > before {
            break;
        }
        tries += 1;
        assert!(tries < 500, "nobody reads the ConfigMap");
        before = after;
        tokio::time::sleep(PAUSE).await;
    }
    let before = reads().await;
    for _ in 0..5 {
        make(json!({"pod-template-hash": "6b59d9cb88"})).await;
    }
    assert_eq!(reads().await, before);
}

/// When the last policy goes that has a ConfigMap as its parameter, the API server ends its watch of ConfigMaps and never begins another: what
/// it knew then, it knows until it is restarted. So `deploy/uninstall` removes the ConfigMap first, and what is not known is read.
pub async fn nodes_are_held_also_after_an_uninstallation_and_another_installation() {
    let file = "workloads/daemonset-policies.yaml";
    let servers = Servers::new(TestCluster::real);
    let scene = Scene::new(&servers, &[file]).await;
    let maps = "/api/v1/namespaces/usher-system/configmaps";
    let hold = async |node: &str| {
        let held = json!({"metadata": {"name": "usher-held-nodes"}, "data": {node: "1000"}});
        scene.cluster.created(maps, &held).await.unwrap();
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "u", "controller": true});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "ownerReferences": [owner], "labels": {"controller-revision-hash": "6b59d9cb88"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            }}},
        });
        for _ in 0..50 {
            let made = scene.cluster.created(&format!("{}?dryRun=All", scene.pods), &pod).await.unwrap();
            if made["spec"]["schedulingGates"].is_array() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        false
    };
    assert!(hold("n1").await);
    let moment = Duration::from_secs(2);
    let objects = manifests::objects(file).unwrap();
    scene.cluster.delete(&format!("{maps}/usher-held-nodes")).await.unwrap();
    tokio::time::sleep(moment).await;
    for object in &objects {
        let path = manifests::collection(object).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        scene.cluster.delete(&format!("{path}/{name}")).await.unwrap();
    }
    tokio::time::sleep(moment).await;
    manifests::install(&scene.cluster, &[file]).await.unwrap();
    assert!(hold("n2").await, "it knows what was held before the uninstallation only");
}
