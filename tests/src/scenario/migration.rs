//! Somebody who moves virtual machines in the background, as KubeVirt does: evictions of their pods are refused with a promise, and each
//! such pod is marked and told how often it was asked.

use super::reach::ClusterUnderTest;
use crate::Request;
use crate::webhook_server::{Decide, WebhookServer};
use anyhow::Result;
use embedded_apiserver::{Cluster, in_process};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// Where the embedded cluster believes it to be.
const INSIDE: &str = "https://migration.example.internal/evict";
/// How the pods of virtual machines are called.
const PREFIX: &str = "vmi-";

fn decide(client: kube::Client) -> Decide {
    let times: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    Arc::new(move |_, request| {
        let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        if !name.starts_with(PREFIX) || request["dryRun"] == true {
            return async { json!({"allowed": true}) }.boxed();
        }
        let key = format!("{namespace}/{name}");
        let asked = {
            let mut times = times.lock();
            let asked = times.entry(key.clone()).or_default();
            *asked += 1;
            *asked
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        // Not before the answer: the server is in the midst of a request for the pod.
        tokio::spawn(async move {
            let marks = json!({"metadata": {"annotations": {
                "descheduler.alpha.kubernetes.io/eviction-in-progress": "",
                "migration.example.com/asked": asked.to_string(),
            }}});
            // Where that fails, the scenario misses the marks.
            let _ = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&marks)).await;
        });
        let message = format!("Eviction triggered evacuation of VM {key}");
        let status = json!({"code": 429, "reason": "TooManyRequests", "message": message});
        async move { json!({"allowed": false, "status": status}) }.boxed()
    })
}

async fn register(cluster: &ClusterUnderTest, target: Value) -> Result<()> {
    let hook = json!({
        "name": "migration.example.com", "clientConfig": target, "sideEffects": "NoneOnDryRun", "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
    });
    let object = json!({"metadata": {"name": "migration"}, "webhooks": [hook]});
    let request = Request::with_json(http::Method::POST, CONFIGURATIONS, &object);
    cluster.send(None, request).await?.accepted()
}

/// Without a socket, so that time can be virtual.
///
/// # Errors
/// The cluster refused it.
pub async fn embedded(cluster: &Cluster, client: kube::Client, reached: &ClusterUnderTest) -> Result<()> {
    let decide = decide(client);
    let answer = move |mut review: Value| {
        let (decide, request) = (decide.clone(), review["request"].take());
        async move {
            let uid = request["uid"].clone();
            let mut response = decide(String::new(), request).await;
            response["uid"] = uid;
            let review =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Ok::<_, String>(review)
        }
    };
    cluster.endpoints().register_url(INSIDE, in_process(answer));
    register(reached, json!({"url": INSIDE})).await
}

/// On loopback, until it is dropped.
///
/// # Errors
/// The cluster refused it, or there is no free port.
pub async fn real(client: kube::Client, reached: &ClusterUnderTest) -> Result<WebhookServer> {
    let server = WebhookServer::start(decide(client)).await?;
    register(reached, json!({"url": server.url("evict"), "caBundle": server.ca_bundle()})).await?;
    Ok(server)
}
