//! Certificates on a cluster: shared by two replicas, rotated under the API server's eyes.

use super::scene::{ADMIN, CONFIGURATIONS, Scene, ShiftedClock, Webhook, keeper, requests, says};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use std::sync::Arc;
use usher_webhook::configurations::{NAMESPACE, SECRET};
use usher_webhook::{Endpoint, ServingCertificate};

const DAY: i64 = 24 * 3600;
/// Requests and their status are asked about at one endpoint by two webhooks, of which one fails open.
const WEBHOOKS: usize = Endpoint::ALL.len() + 1;

/// How many authorities each webhook trusts.
async fn trusted(scene: &Scene) -> Vec<usize> {
    let mut counts = Vec::new();
    for kind in ["mutating", "validating"] {
        let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations/usher");
        let found = scene.cluster.get(&path).await.unwrap().body;
        for hook in found["webhooks"].as_array().unwrap() {
            let bundle = STANDARD.decode(hook["clientConfig"]["caBundle"].as_str().unwrap()).unwrap();
            counts.push(String::from_utf8(bundle).unwrap().matches("BEGIN CERTIFICATE").count());
        }
    }
    counts
}

async fn secret(scene: &Scene) -> serde_json::Value {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
    scene.cluster.get(&path).await.unwrap().body
}

/// The webhook answers, over a connection that trusts its certificate.
async fn answers(scene: &Scene) {
    let dry = format!("{}?dryRun=All", requests());
    let missing = scene.request_for("missing", "0");
    scene
        .until(
            || scene.send(ADMIN, Method::POST, &dry, &missing),
            |answer| says(answer, "there is no pod missing"),
        )
        .await;
}

/// The certificates were made 620 days ago; since then nobody looked, until two days ago.
pub async fn rotation(scene: &Scene, webhook: &Webhook) {
    let clock = ShiftedClock::default();
    let first = webhook.keeper(&scene.cluster, &clock);
    let replica = Arc::new(ServingCertificate::default());
    let second = keeper(&scene.cluster, &clock, &replica);

    clock.shift_to(-620 * DAY);
    let (one, other) = tokio::join!(first.round(), second.round());
    assert_eq!((one.is_ok(), other.is_ok()), (true, true), "{one:?} {other:?}");
    assert_eq!(trusted(scene).await, [1; WEBHOOKS]);
    assert!(webhook.certificate.is_present() && replica.is_present());
    let path = format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/usher");
    let configuration = scene.cluster.get(&path).await.unwrap().body;
    let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
    assert_eq!(*bundle, secret(scene).await["data"]["ca.crt"], "both replicas took what one of them made");

    clock.shift_to(-2 * DAY);
    first.round().await.unwrap();
    assert_eq!(trusted(scene).await, [2; WEBHOOKS], "the next authority is trusted");
    answers(scene).await;
    let renewed = secret(scene).await;

    clock.shift_to(-DAY);
    second.round().await.unwrap();
    assert_eq!(trusted(scene).await, [2; WEBHOOKS], "it signs, and the old one is still trusted");
    assert_ne!(secret(scene).await["data"]["tls.crt"], renewed["data"]["tls.crt"]);
    answers(scene).await;
    first.round().await.unwrap();
    answers(scene).await;

    clock.shift_to(0);
    first.round().await.unwrap();
    assert_eq!(trusted(scene).await, [1; WEBHOOKS], "the old one is forgotten");
    answers(scene).await;
    let version = secret(scene).await["metadata"]["resourceVersion"].clone();
    second.round().await.unwrap();
    assert_eq!(
        secret(scene).await["metadata"]["resourceVersion"],
        version,
        "nothing is due, nothing is written"
    );
}
