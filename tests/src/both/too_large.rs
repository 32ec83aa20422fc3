//! An object that is larger than etcd takes is refused alike on both clusters, and what was there stays.

use crate::{TestCluster, crds};
use serde_json::{Value, json};

const NODE_MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

/// A status of about so many KiB.
fn status(kib: usize) -> Value {
    let node = json!({
        "nodeRef": {"name": "n"}, "podsPendingEviction": 0, "podsEvicting": 0,
        "drainMessage": "x".repeat((16 << 10) - 100),
    });
    json!({"status": {"nodes": 1, "nodeStatuses": vec![node; kib / 16]}})
}

/// A patch that etcd would refuse is refused, with the same message, and the object stays as it was.
pub async fn what_etcd_does_not_take_is_refused(cluster: TestCluster) {
    crds::install(&cluster).await.unwrap();
    let maintenance = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
        "spec": {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}},
    });
    cluster.created(NODE_MAINTENANCES, &maintenance).await.unwrap();
    let path = format!("{NODE_MAINTENANCES}/m/status");
    let mut found = Vec::new();
    for kib in [1024, 1520, 1584, 2016, 2064, 3008, 3088] {
        let answer = cluster.merge_patch(&path, &status(kib)).await.unwrap();
        let body = answer.body;
        // The sizes in the message are those of the request to etcd, which has a frame.
        let message = body["message"].as_str().unwrap_or_default().split(" (").next().unwrap().to_string();
        found.push((kib, answer.status, body["reason"].clone(), message));
    }
    let etcd = "etcdserver: request is too large".to_string();
    let client =
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max".to_string();
    let wanted = [
        (1024, 200, Value::Null, String::new()),
        (1520, 200, Value::Null, String::new()),
        (1584, 500, Value::Null, etcd.clone()),
        (2016, 500, Value::Null, etcd),
        (2064, 500, Value::Null, client.clone()),
        (3008, 500, Value::Null, client),
        (3088, 413, json!("RequestEntityTooLarge"), "Request entity too large: limit is 3145728".to_string()),
    ];
    assert_eq!(found, wanted, "{}", cluster.name());
    let kept = cluster.get(&path).await.unwrap().body;
    assert_eq!(kept["status"]["nodeStatuses"].as_array().unwrap().len(), 1520 / 16, "{}", cluster.name());
}
