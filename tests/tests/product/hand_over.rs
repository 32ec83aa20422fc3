//! What scenarios cannot bring about: names that are taken, and rights that are missing. On the embedded cluster, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use serde_json::{Value, json};
use tokio::task::JoinSet;
use usher_api::names::EVICTION_REQUEST_STRATEGY_ANNOTATION;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_decide::interceptors::surge::hand_over_name;
use usher_tests::living::{DEPLOYMENTS, Living, PODS, bare_pod, workload};
use usher_tests::scenario::beside::{answer_inside, manager};

/// A Deployment of one that hands over, on two nodes, and its pod; nobody acts yet.
async fn scene() -> (Living, kube::Client, Value) {
    let living = Living::start(1, 2).await.unwrap();
    living.install_crds().await.unwrap();
    let client = kube::Client::new(living.cluster.service_as(manager()), "default");
    for (path, configuration) in answer_inside(&living.cluster, client.clone(), &BundledInterceptor::ALL) {
        living.create(&path, &configuration).await.unwrap();
    }
    let mut web = workload("Deployment", "web", json!({"replicas": 1}));
    web["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: "HandOver"});
    living.create(DEPLOYMENTS, &web).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let pod = living.pods("web").await.unwrap().remove(0);
    (living, client, pod)
}

fn start(living: &Living, client: &kube::Client) -> JoinSet<()> {
    let (now, timers, client) = (living.cluster.clone(), living.cluster.clone(), client.clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let mut manager = JoinSet::new();
    manager.spawn(async move { run_all(client, clock, &BundledInterceptor::ALL).await });
    manager
}

#[tokio::test(start_paused = true)]
async fn where_somebody_else_has_the_name_of_the_new_pod_it_gets_another_one() {
    let (living, client, pod) = scene().await;
    let request = living.request(pod["metadata"]["name"].as_str().unwrap(), &json!([])).await.unwrap();
    let uid = living.get(&request).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let set = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap();
    let (taken, next) = (hand_over_name(set, &uid, 0), hand_over_name(set, &uid, 1));
    living.create(PODS, &bare_pod(&taken, "n2")).await.unwrap();
    let _manager = start(&living, &client);
    let is_handed_over = |list: &Value| {
        let names: Vec<&str> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["metadata"]["name"].as_str())
            .collect();
        names == [next.as_str()]
    };
    living
        .until(&format!("{PODS}?labelSelector=app%3Dweb%2Cpod-template-hash"), is_handed_over)
        .await
        .unwrap();
    living.get(&format!("{PODS}/{taken}")).await.unwrap();
}
