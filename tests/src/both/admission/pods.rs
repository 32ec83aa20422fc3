//! Pods: who is asked about, who is not, and what an outage does.

use super::scene::{ADMIN, CONFIGURATIONS, EDITOR, SHOP, Scene, Webhook, expect, pod, pods, requests, says};
use http::Method;
use serde_json::json;
use std::sync::atomic::Ordering;
use usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX;
use usher_webhook::configurations::NAMESPACE;

pub async fn annotations(scene: &Scene) {
    let two_wrongs = json!([["a.io", "x"], ["mine.k8s.io", "1"]]);
    let creations = [
        ("no annotations", SHOP, pod("plain", json!([])), 201, ""),
        ("valid ones", SHOP, pod("valid", json!([["a.io", "5/backup"]])), 201, ""),
        (
            "interceptor-annotations",
            SHOP,
            pod("wrong", two_wrongs.clone()),
            422,
            "does not start with an integer",
        ),
        (
            "interceptor-annotations",
            SHOP,
            pod("wrong", two_wrongs.clone()),
            422,
            "domain of the Kubernetes project",
        ),
        ("a namespace the webhook depends on", NAMESPACE, pod("wrong", two_wrongs), 201, ""),
    ];
    for (what, namespace, pod, status, part) in creations {
        let answer = scene.send(EDITOR, Method::POST, &pods(namespace), &pod).await;
        expect(what, &answer, status, part);
    }
    let annotate = |class: &str, value: serde_json::Value| json!({"metadata": {"annotations": {format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}"): value}}});
    let updates = [
        ("an invalid pod gets a label", "old", json!({"metadata": {"labels": {"x": "y"}}}), 200, ""),
        (
            "a valid one becomes invalid",
            "valid",
            annotate("b.io", json!("z")),
            422,
            "(rule interceptor-annotations)",
        ),
        ("an invalid one is repaired", "old", annotate("bad.io", json!("8")), 200, ""),
        ("the last annotation goes", "valid", annotate("a.io", json!(null)), 200, ""),
    ];
    for (what, name, patch, status, part) in updates {
        let answer = scene.send(EDITOR, Method::PATCH, &format!("{}/{name}", pods(SHOP)), &patch).await;
        expect(what, &answer, status, part);
    }
}

pub async fn gate_off(scene: &Scene, webhook: &Webhook) {
    webhook.enabled.store(false, Ordering::SeqCst);
    let answer =
        scene.send(EDITOR, Method::POST, &pods(SHOP), &pod("unchecked", json!([["a.io", "x"]]))).await;
    expect("pods are not checked", &answer, 201, "");
    let uid = answer.body["metadata"]["uid"].as_str().unwrap();
    let request = scene.request_for("unchecked", uid);
    let answer = scene.send("viewer", Method::POST, &requests(), &request).await;
    expect(
        "rights are, as the request acts once the gate is on",
        &answer,
        403,
        "(rule caller-may-delete-pod)",
    );
    let answer = scene.send(EDITOR, Method::POST, &requests(), &request).await;
    expect("requests are kept", &answer, 201, "");
    let warnings = answer.warnings();
    assert!(warnings.iter().any(|w| w.contains("feature gate EvictionRequestAPI is off")), "{warnings:?}");
    webhook.enabled.store(true, Ordering::SeqCst);
}

/// Nobody answers any more. Even somebody who made the policy for pods strict loses no pod without annotations by it.
pub async fn outage(scene: &Scene) {
    let uid = scene.pod("without", json!([])).await;
    scene.pod("with", json!([["a.io", "5"]])).await;
    pods_live_on(scene, &["without", "with"]).await;
    let answer = scene.send(ADMIN, Method::POST, &requests(), &scene.request_for("without", &uid)).await;
    expect("requests wait for the webhook", &answer, 500, "failed calling webhook \"fill.evictionrequest");

    scene.pod("annotated", json!([["a.io", "5"]])).await;
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/usher");
    let mut configuration = scene.cluster.get(&path).await.unwrap().body;
    let hooks = configuration["webhooks"].as_array_mut().unwrap();
    let of_pods = |hook: &&mut serde_json::Value| hook["name"] == "pods.evictionrequest.coordination.k8s.io";
    hooks.iter_mut().find(of_pods).unwrap()["failurePolicy"] = "Fail".into();
    assert_eq!(scene.cluster.put(&path, &configuration).await.unwrap().status, 200);
    let dry = format!("{}?dryRun=All", pods(SHOP));
    let annotated = pod("refused", json!([["a.io", "5"]]));
    let refused = "failed calling webhook \"pods.evictionrequest";
    scene.until(|| scene.send(ADMIN, Method::POST, &dry, &annotated), |answer| says(answer, refused)).await;
    scene.pod("plain-as-ever", json!([])).await;
    pods_live_on(scene, &["plain-as-ever", "annotated"]).await;
}

async fn pods_live_on(scene: &Scene, names: &[&str]) {
    for name in names {
        let path = format!("{}/{name}", pods(SHOP));
        let label = json!({"metadata": {"labels": {"during": "outage"}}});
        expect("update", &scene.send(ADMIN, Method::PATCH, &path, &label).await, 200, "");
        scene.set_phase(name, "Running").await;
        let answer = scene.cluster.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.unwrap();
        expect("delete", &answer, 200, "");
    }
}
