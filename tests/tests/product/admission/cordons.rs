//! Nodes that a maintenance holds: who cordons or uncordons them is warned, and never refused.

use super::scene::{ADMIN, Scene, expect};
use http::Method;
use serde_json::{Value, json};
use usher_tests::kubectl::Kubectl;
use usher_tests::{Answer, Request};

const NODE: &str = "/api/v1/nodes/m1";
const HELD_BY: &str = "nodemaintenance.k8s.io/held-by";

async fn patch(scene: &Scene, body: Value) -> Answer {
    let answer = scene.send(ADMIN, Method::PATCH, NODE, &body).await;
    expect("never refused", &answer, 200, "");
    answer
}

/// As the manager, whose marks those are, and with the rights of an administrator.
async fn mark(scene: &Scene, by: Option<&str>, unschedulable: Option<bool>) -> Answer {
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

/// On a node that is cordoned already `kubectl cordon` and the cordon of `kubectl drain` send nothing, so nobody can be warned.
pub async fn kubectl_shows_the_warnings(scene: &Scene) {
    let kubectl = Kubectl::new(&scene.cluster).await.unwrap();
    mark(scene, Some("kernel"), None).await;
    for (line, part) in [
        ("cordon m1", "this cordon ends with the maintenance"),
        ("uncordon m1", "will be cordoned again"),
        ("drain m1 --disable-eviction", "this cordon ends with the maintenance"),
    ] {
        let printed = kubectl.run(line).await.unwrap();
        assert_eq!(printed.code, 0, "{line}: {printed:?}");
        assert!(printed.err.contains("Warning: node m1 is under maintenance kernel"), "{line}: {printed:?}");
        assert!(printed.err.contains(part), "{line}: {printed:?}");
    }
    let printed = kubectl.run("cordon m1").await.unwrap();
    assert_eq!(printed.out, "node/m1 already cordoned\n");
    patch(scene, json!({"metadata": {"annotations": {HELD_BY: null}}, "spec": {"unschedulable": null}}))
        .await;
}

/// Nobody answers any more: nodes are cordoned and uncordoned all the same.
pub async fn outage(scene: &Scene) {
    mark(scene, Some("kernel"), Some(true)).await;
    patch(scene, cordon(None)).await;
}
