//! Admission webhooks of the embedded API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use usher_tests::TestCluster;
use usher_tests::both::webhooks::{Scene, decide, hook, seen, webhooks_decide};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_api_server_asks_webhooks() {
    webhooks_decide(TestCluster::embedded().await.unwrap()).await;
}

/// On the embedded cluster a service needs no socket: a function stands behind it.
#[tokio::test]
async fn a_webhook_can_be_a_function_of_the_same_process() {
    let (cluster, handle) = TestCluster::embedded_with(false).await.unwrap();
    let service =
        json!({"clientConfig": {"service": {"namespace": "usher", "name": "webhook", "path": "/label"}}});
    let scene = Scene::new(cluster).await;
    scene.namespaces(&["inside"]).await;
    scene.register("Mutating", "inside", &[hook(&scene.server, "inside", "unused", service)]).await;

    let lost = scene.create("inside", "a", json!({})).await;
    let (status, message, _) = seen(&lost);
    assert_eq!(status, 500);
    assert!(message.ends_with(r#"service "webhook" not found"#), "{message}");

    let endpoint = embedded_apiserver::in_process(|mut review: Value| async move {
        let uid = review["request"]["uid"].take();
        let mut response = decide("label".to_owned(), Value::Null).await;
        response["uid"] = uid;
        Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    handle.endpoints().register_service("usher", "webhook", endpoint);
    let created = scene.create("inside", "a", json!({})).await;
    assert_eq!((created.status, &created.body["metadata"]["labels"]), (201, &json!({"hooked": "yes"})));

    handle.endpoints().unregister_service("usher", "webhook");
    assert_eq!(scene.create("inside", "b", json!({})).await.status, 500);
}
