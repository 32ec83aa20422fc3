//! Nodes that a maintenance holds: who cordons or uncordons them is warned, and never refused.

use super::scene::{ADMIN, Scene, expect};
use crate::{Answer, Request};
use http::Method;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/m1";
pub const HELD_BY: &str = "nodemaintenance.k8s.io/held-by";

pub async fn patch(scene: &Scene, body: Value) -> Answer {
    let answer = scene.send(ADMIN, Method::PATCH, NODE, &body).await;
    expect("never refused", &answer, 200, "");
    answer
}

/// As the manager, whose marks those are, and with the rights of an administrator.
pub async fn mark(scene: &Scene, by: Option<&str>, unschedulable: Option<bool>) -> Answer {
    let body = json!({"metadata": {"annotations": {HELD_BY: by}}, "spec": {"unschedulable": unschedulable}});
    let mut request = Request::with_json(Method::PATCH, NODE, &body);
    request.headers = [
        ("content-type", "application/merge-patch+json"),
        ("impersonate-user", "system:serviceaccount:usher-system:usher-manager"),
        ("impersonate-group", "system:masters"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let answer = scene.cluster.send(ADMIN, request).await.unwrap();
    expect("marked", &answer, 200, "");
    answer
}

fn cordon(unschedulable: Option<bool>) -> Value {
    json!({"spec": {"unschedulable": unschedulable}})
}

pub async fn who_cordons_or_uncordons_a_held_node_is_warned(scene: &Scene) {
    let quiet = |answer: &Answer| assert_eq!(answer.warnings(), [""; 0]);
    let said = |answer: &Answer, part: &str| {
        let warnings = answer.warnings();
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part}: {warnings:?}");
    };
    quiet(&patch(scene, cordon(Some(true))).await);
    quiet(&patch(scene, cordon(None)).await);
    quiet(&mark(scene, Some("kernel"), Some(true)).await);
    quiet(&patch(scene, json!({"metadata": {"labels": {"x": "y"}}})).await);
    said(&patch(scene, cordon(None)).await, "under maintenance kernel and will be cordoned again");
    said(&patch(scene, cordon(Some(true))).await, "this cordon ends with the maintenance");
    let release = json!({"metadata": {"annotations": {HELD_BY: null}}, "spec": {"unschedulable": null}});
    quiet(&patch(scene, release).await);
}

/// Nobody answers any more: nodes are cordoned and uncordoned all the same.
pub async fn outage(scene: &Scene) {
    mark(scene, Some("kernel"), Some(true)).await;
    patch(scene, cordon(None)).await;
}
