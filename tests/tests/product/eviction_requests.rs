//! Eviction requests on the living embedded cluster, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, PODS, names, template, workload};
use usher_tests::requests::{DRAIN, start_controller};
use usher_tests::witness::Witness;

const SETTLED: Duration = Duration::from_secs(60);

async fn living() -> (Living, Witness) {
    let living = Living::start(1, 3).await.unwrap();
    living.install_crds().await.unwrap();
    let witness = Witness::of(&living.cluster);
    (living, witness)
}

async fn is_gone(living: &Living, path: &str) -> bool {
    living.get(path).await.is_err()
}

fn pod(name: &str) -> Value {
    let mut pod = template("web", "1");
    pod["metadata"]["name"] = name.into();
    pod
}

fn two() -> Value {
    json!([
        {"interceptorClass": "b.example.com", "priority": 11000},
        {"interceptorClass": "a.example.com", "priority": 2000},
    ])
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_interceptors_is_evicted_and_the_request_collected() {
    let (living, witness) = living().await;
    let _controller = start_controller(&living.cluster, &witness);
    living.create(PODS, &pod("p")).await.unwrap();
    living.until(&format!("{PODS}/p"), |pod| pod["status"]["phase"] == "Running").await.unwrap();
    let request = living.request("p", &json!([])).await.unwrap();
    sleep(SETTLED).await;
    assert!(is_gone(&living, &format!("{PODS}/p")).await);
    assert!(is_gone(&living, &request).await);
    let (breaches, counted) = {
        let seen = witness.seen();
        let seen = seen.lock();
        (seen.breaches.clone(), (seen.evictions, seen.writes))
    };
    assert_eq!(breaches, [""; 0]);
    assert_eq!(counted, (1, 3), "evict, delete, release: with the creation four writes");
    let events = living.get("/api/v1/namespaces/default/events").await.unwrap();
    let of_us = |event: &&Value| event["source"]["component"] == "usher";
    let events: Vec<&Value> = events["items"].as_array().unwrap().iter().filter(of_us).collect();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["message"], "evicting the pod for drain.example.com: it has no interceptor");
}

#[tokio::test(start_paused = true)]
async fn interceptors_take_turns_and_the_silent_one_is_passed_over_after_its_deadline() {
    let (living, witness) = living().await;
    let _controller = start_controller(&living.cluster, &witness);
    living.create(PODS, &pod("p")).await.unwrap();
    let request = living.request("p", &two()).await.unwrap();
    let active = |class: &'static str| move |r: &Value| r["status"]["activeInterceptorClass"] == class;
    living.until(&request, active("b.example.com")).await.unwrap();
    living
        .patch(&format!("{request}/status"), &json!({"status": {"activeInterceptorCompleted": true}}))
        .await
        .unwrap();
    let passed = living.until(&request, active("a.example.com")).await.unwrap();
    assert!(passed["status"]["activeInterceptorCompleted"] != true);
    // It says nothing for 30 minutes, then the pod is evicted.
    sleep(Duration::from_secs(1790)).await;
    assert!(!is_gone(&living, &format!("{PODS}/p")).await);
    sleep(SETTLED).await;
    assert!(is_gone(&living, &format!("{PODS}/p")).await && is_gone(&living, &request).await);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_goes_and_the_pod_stays() {
    let (living, witness) = living().await;
    let _controller = start_controller(&living.cluster, &witness);
    living.create(PODS, &pod("p")).await.unwrap();
    let request = living.request("p", &two()).await.unwrap();
    sleep(SETTLED).await;
    living.patch(&request, &json!({"metadata": {"finalizers": []}})).await.unwrap();
    sleep(SETTLED).await;
    assert!(is_gone(&living, &request).await);
    assert!(!is_gone(&living, &format!("{PODS}/p")).await);
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_them_go_one_after_another_and_no_request_is_wasted() {
    let (living, witness) = living().await;
    let _controller = start_controller(&living.cluster, &witness);
    let deployment = workload("Deployment", "web", json!({"replicas": 5}));
    living.create(DEPLOYMENTS, &deployment).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await.unwrap();
    living.rolled_out("web").await.unwrap();
    sleep(SETTLED).await;
    let meter = living.meter("web");
    sleep(Duration::from_secs(1)).await;
    let pods = living.pods("web").await.unwrap();
    for name in names(&pods) {
        living.request(name, &json!([])).await.unwrap();
    }
    sleep(10 * SETTLED).await;
    let now = living.pods("web").await.unwrap();
    assert_eq!(now.len(), 5);
    assert!(names(&pods).iter().all(|old| !names(&now).contains(old)), "all have moved");
    assert!(meter.counts().iter().all(|(_, ready)| *ready >= 4), "{:?}", meter.counts());
    let left = living.get(usher_tests::requests::REQUESTS).await.unwrap();
    assert_eq!(left["items"], json!([]));
    let seen = witness.seen();
    assert_eq!(seen.lock().breaches, [""; 0]);
    assert_eq!(seen.lock().evictions, 5, "each was tried once");
}

#[tokio::test(start_paused = true)]
async fn a_zero_budget_is_tried_told_and_left_at_once_when_it_goes() {
    let (living, witness) = living().await;
    let controller = start_controller(&living.cluster, &witness);
    living.create(PODS, &pod("p")).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "none"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await.unwrap();
    living.until(&format!("{BUDGETS}/none"), |b| b["status"]["currentHealthy"] == 1).await.unwrap();
    let request = living.request("p", &json!([])).await.unwrap();
    let counted = |r: &Value| r["status"]["failedAPIEvictionCounter"].as_i64() >= Some(1);
    let blocked = living.until(&request, counted).await.unwrap();
    assert_eq!(blocked["status"]["conditions"][0]["type"], "EvictionBlocked");
    assert_eq!(blocked["status"]["conditions"][0]["reason"], "DisruptionBudget");
    sleep(Duration::from_secs(3600)).await;
    let hour = living.get(&request).await.unwrap();
    let failures = hour["status"]["failedAPIEvictionCounter"].as_i64().unwrap();
    assert!((4..=14).contains(&failures), "{failures} attempts in an hour");
    // Nobody is there when the budget goes, and somebody continues.
    drop(controller);
    living.delete(&format!("{BUDGETS}/none")).await.unwrap();
    sleep(SETTLED).await;
    assert!(!is_gone(&living, &format!("{PODS}/p")).await);
    let _controller = start_controller(&living.cluster, &witness);
    sleep(SETTLED).await;
    assert!(is_gone(&living, &format!("{PODS}/p")).await && is_gone(&living, &request).await);
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_hold_the_request_after_the_pod_is_gone() {
    let (living, witness) = living().await;
    let _controller = start_controller(&living.cluster, &witness);
    living.create(PODS, &pod("p")).await.unwrap();
    let request = living.request("p", &two()).await.unwrap();
    let both = json!({"metadata": {"finalizers": [DRAIN, "notify.example.com/hear"]}});
    living.patch(&request, &both).await.unwrap();
    living
        .patch(
            &format!("{request}/status"),
            &json!({"status": {"evictionRequestCancellationPolicy": "Forbid"}}),
        )
        .await
        .unwrap();
    living.delete(&format!("{PODS}/p")).await.unwrap();
    sleep(SETTLED).await;
    let left = living.get(&request).await.unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["notify.example.com/hear"]));
    assert!(!left["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(left["status"]["evictionRequestCancellationPolicy"], "Allow");
    living.patch(&request, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    sleep(SETTLED).await;
    assert!(is_gone(&living, &request).await);
}
