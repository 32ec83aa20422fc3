//! Heartbeats of the simulated kubelets: fresh whenever somebody looks, and not written when nobody does.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use usher_tests::living::{Living, NODES};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn age(living: &Living, time: &Value) -> i64 {
    let at: Timestamp = time.as_str().unwrap().parse().unwrap();
    living.cluster.now().duration_since(at).as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_reader_finds_fresh_heartbeats_and_nobody_writes_them_before() {
    let mut living = Living::start(1, 3).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    living.trace();
    sleep(Duration::from_secs(3603)).await;
    assert_eq!(living.trace(), Vec::<String>::new());
    let leases = living.get(LEASES).await.unwrap()["items"].as_array().unwrap().clone();
    assert_eq!(leases.len(), 3);
    for lease in &leases {
        assert!(age(&living, &lease["spec"]["renewTime"]) < 10, "{lease}");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["spec"]["holderIdentity"], lease["metadata"]["name"]);
        assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
    }
    assert_eq!(living.trace().len(), 3);
    living.get(LEASES).await.unwrap();
    assert_eq!(living.trace().len(), 0, "they are still fresh");
    let node = living.get(&format!("{NODES}/n1")).await.unwrap();
    let conditions = node["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| age(&living, &condition["lastHeartbeatTime"]) < 300), "{node}");
    assert!(
        conditions.iter().all(|condition| age(&living, &condition["lastTransitionTime"]) > 3600),
        "{node}"
    );
    assert_eq!(living.trace().len(), 1, "only this node was looked at");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_every_beat_for_as_long_as_it_watches() {
    let mut living = Living::start(1, 2).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let request = http::Request::get(format!("{LEASES}?watch=true")).body(Empty::<Bytes>::new()).unwrap();
    let Ok(response) = living.cluster.service().oneshot(request).await;
    let mut body = response.into_body();
    let mut beats: Vec<String> = Vec::new();
    let watching = async {
        while let Some(frame) = body.frame().await {
            let lines = frame.unwrap().into_data().unwrap();
            for event in serde_json::Deserializer::from_slice(&lines).into_iter::<Value>() {
                let lease = event.unwrap()["object"].clone();
                if lease["metadata"]["name"] == "n1" {
                    beats.push(lease["spec"]["renewTime"].as_str().unwrap().to_string());
                }
            }
        }
    };
    assert!(timeout(Duration::from_secs(60), watching).await.is_err(), "it ended");
    let seconds: Vec<i64> = beats.iter().map(|at| at.parse::<Timestamp>().unwrap().as_second()).collect();
    assert_eq!(seconds.len(), 7, "{beats:?}");
    assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] == 10), "{beats:?}");
    drop(body);
    sleep(Duration::from_secs(1)).await;
    living.trace();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(living.trace(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_with_its_node_and_comes_back_without_it() {
    let living = Living::start(1, 2).await.unwrap();
    sleep(Duration::from_secs(5)).await;
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
