//! Heartbeats of the simulated kubelets.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use cluster_simulator as life;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;
use usher_tests::living::{Living, NODES, TIMES};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn age(living: &Living, time: &Value) -> i64 {
    let at: Timestamp = time.as_str().unwrap().parse().unwrap();
    living.cluster.now().duration_since(at).as_secs()
}

async fn start(nodes: usize, leases: bool) -> (Living, UnboundedReceiver<String>) {
    let (sender, trace) = unbounded_channel();
    let options = life::Options {
        times: TIMES,
        trace: Some(sender),
        node_heartbeats: true,
        node_leases: leases,
        ..life::Options::default()
    };
    let living = Living::start_with(1, nodes, options).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    (living, trace)
}

fn written(trace: &mut UnboundedReceiver<String>) -> usize {
    std::iter::from_fn(|| trace.try_recv().ok()).count()
}

#[tokio::test(start_paused = true)]
async fn kubelets_beat_by_themselves_and_no_reader_causes_a_write() {
    let (living, mut trace) = start(3, true).await;
    sleep(Duration::from_secs(3600)).await;
    // Each node every five minutes, and its lease every ten seconds.
    let beats = written(&mut trace);
    assert!((3 * (12 + 360)..3 * (13 + 361) + 20).contains(&beats), "{beats}");
    let leases = living.get(LEASES).await.unwrap()["items"].as_array().unwrap().clone();
    assert_eq!(leases.len(), 3);
    for lease in &leases {
        assert!(age(&living, &lease["spec"]["renewTime"]) < 11, "{lease}");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["spec"]["holderIdentity"], lease["metadata"]["name"]);
        assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
    }
    let node = living.get(&format!("{NODES}/n1")).await.unwrap();
    let conditions = node["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| age(&living, &condition["lastHeartbeatTime"]) < 301), "{node}");
    assert!(
        conditions.iter().all(|condition| age(&living, &condition["lastTransitionTime"]) > 3590),
        "{node}"
    );
    living.life.kubelet_down("n1");
    living.life.kubelet_down("n2");
    living.life.kubelet_down("n3");
    sleep(Duration::from_secs(60)).await;
    written(&mut trace);
    let before = living.cluster.store().revision();
    living.get(LEASES).await.unwrap();
    living.get(NODES).await.unwrap();
    assert_eq!(
        (living.cluster.store().revision(), written(&mut trace)),
        (before, 0),
        "reading writes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn without_leases_an_idle_hour_writes_little() {
    let (_living, mut trace) = start(3, false).await;
    written(&mut trace);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(written(&mut trace), 3 * 12);
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_with_its_node_and_comes_back_without_it() {
    let (living, _trace) = start(2, true).await;
    living.delete(&format!("{LEASES}/n1")).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    let lease = living.get(&format!("{LEASES}/n1")).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "n1", "its kubelet made it again");
    living.send(http::Method::DELETE, &format!("{NODES}/n1"), &json!({})).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    let left = living.get(LEASES).await.unwrap();
    let names: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| lease["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["n2"]);
}
