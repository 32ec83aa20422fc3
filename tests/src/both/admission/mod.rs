//! Admission on both clusters: the same callers, the same requests, the same answers.

mod certificates;
pub mod cordons;
pub mod gateway;
pub mod maintenances;
pub mod plans;
mod pods;
pub mod requests;
pub mod scene;

use crate::TestCluster;
use scene::{Scene, Webhook};
use serde_json::json;

/// All tables, and what `also` asks in addition while the webhook answers.
pub async fn admission_decides(cluster: TestCluster, also: impl AsyncFnOnce(&Scene)) {
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
    maintenances::maintenances(&scene).await;
    plans::what_was_applied_once_can_be_applied_for_ever(&scene).await;
    cordons::who_cordons_or_uncordons_a_held_node_is_warned(&scene).await;
    also(&scene).await;
    pods::annotations(&scene).await;
    pods::gate_off(&scene, &webhook).await;
    let reported = requests::reported(&scene).await;
    webhook.end().await;
    pods::outage(&scene).await;
    requests::outage(&scene, &reported).await;
    cordons::outage(&scene).await;
}
