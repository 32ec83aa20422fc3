//! Admission on both clusters: the same callers, the same requests, the same answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod certificates;
mod cordons;
mod gateway;
mod maintenances;
mod plans;
mod pods;
mod requests;
mod scene;

use scene::{Scene, Webhook};
use serde_json::json;
use usher_tests::TestCluster;

async fn admission_decides(cluster: TestCluster) {
    let scene = Scene::new(cluster).await;
    let old = scene.pod("old", json!([["good.io", "7"], ["bad.io", "seven"]])).await;
    let webhook = Webhook::start(&scene.cluster).await;
    scene.register(&webhook).await;
    certificates::rotation(&scene, &webhook).await;
    scene.until_asked().await;

    requests::invalid_annotations(&scene, &old).await;
    requests::creation(&scene).await;
    requests::changes(&scene, &webhook).await;
    requests::deletion(&scene).await;
    if scene.cluster.name() == "real" {
        requests::cleaning_up(&scene).await;
    }
    maintenances::maintenances(&scene).await;
    plans::what_was_applied_once_can_be_applied_for_ever(&scene).await;
    cordons::who_cordons_or_uncordons_a_held_node_is_warned(&scene).await;
    if !usher_testbed::skip_real(
        "admission: kubectl on maintenances and nodes (kubectl comes from the testbed)",
    ) {
        plans::kubectl_applies_the_same_file_again_and_again(&scene).await;
        cordons::kubectl_shows_the_warnings(&scene).await;
    }
    pods::annotations(&scene).await;
    pods::gate_off(&scene, &webhook).await;
    let reported = requests::reported(&scene).await;
    webhook.end().await;
    pods::outage(&scene).await;
    requests::outage(&scene, &reported).await;
    cordons::outage(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_on_the_embedded_cluster() {
    admission_decides(TestCluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_on_the_real_control_plane() {
    if usher_testbed::skip_real("admission: the same tables on the real API server") {
        return;
    }
    admission_decides(TestCluster::real().await.unwrap()).await;
}
