//! Usher beside a cluster: its definitions, its webhook and its controller, all in the process of the test.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use usher_apply::Clock;
use usher_cluster::Cluster;
use usher_cluster::admission::in_process;
use usher_controllers::eviction_request::{self, Nobody};
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::{Request, TestCluster, crds};
use usher_webhook::configurations::{self, NAMESPACE, Target};
use usher_webhook::{Admission, Endpoint, ServingCertificate};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
/// Where the embedded cluster believes the webhook to be; it is answered here instead.
const INSIDE: &str = "https://webhook.usher.internal";

/// What runs until this is dropped.
pub type Running = JoinSet<()>;

async fn created(cluster: &ClusterUnderTest, path: &str, object: &Value) {
    let request = Request::with_json(http::Method::POST, path, object);
    cluster.send(None, request).await.unwrap().accepted().unwrap();
}

async fn register(cluster: &ClusterUnderTest, target: &Target) {
    for (kind, configuration) in [
        ("mutating", configurations::mutating(target)),
        ("validating", configurations::validating(target, NAMESPACE)),
    ] {
        created(cluster, &format!("{CONFIGURATIONS}/{kind}webhookconfigurations"), &configuration).await;
    }
}

/// Beside an embedded cluster, on its clock and without a socket, so that its time can be virtual.
pub async fn embedded(cluster: &Cluster, reached: &ClusterUnderTest) -> Running {
    for definition in crds::definitions().unwrap() {
        created(reached, DEFINITIONS, &definition).await;
    }
    let client = kube::Client::new(cluster.service(), "default");
    let (now, timers, webhook) =
        (cluster.server().clone(), cluster.server().clone(), cluster.server().clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let admission = Arc::new(Admission::new(client.clone()).with_clock(Arc::new(move || webhook.now())));
    for endpoint in Endpoint::ALL {
        let admission = admission.clone();
        let answer = move |review: Value| {
            let (admission, review) = (admission.clone(), review.to_string());
            async move { admission.answer(endpoint, review.as_bytes()).await.map_err(|why| why.to_string()) }
        };
        let url = format!("{INSIDE}{}", endpoint.path());
        cluster.server().endpoints.register_url(&url, in_process(answer));
    }
    register(reached, &Target::Url { base: INSIDE.to_owned(), ca_bundle: None }).await;
    let mut running = Running::new();
    running.spawn(eviction_request::run(client, clock, Box::new(Nobody)));
    running
}

/// Beside the real control plane, whose API server asks the webhook over loopback.
pub async fn real(plane: &TestCluster, reached: &ClusterUnderTest) -> Running {
    crds::install(plane).await.unwrap();
    let client = plane.client("admin").unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = Arc::new(ServingCertificate::default());
    certificate.replace(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let admission = Arc::new(Admission::new(client.clone()));
    let mut running = Running::new();
    running.spawn(async move {
        usher_webhook::serve(listener, admission, certificate, std::future::pending()).await.unwrap();
    });
    register(reached, &Target::Url { base, ca_bundle: Some(STANDARD.encode(made.cert.pem())) }).await;
    until_asked(reached).await;
    running.spawn(eviction_request::run(client, Clock::system(), Box::new(Nobody)));
    running
}

/// An API server learns of configurations in its own time.
async fn until_asked(cluster: &ClusterUnderTest) {
    let request = serde_json::json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": "0"}, "spec": {"podRef": {"name": "missing", "uid": "0"}},
    });
    let dry = format!("{REQUESTS}?dryRun=All");
    for _ in 0..500 {
        let answer = Request::with_json(http::Method::POST, &dry, &request);
        let answer = cluster.send(None, answer).await.unwrap();
        if answer.body["message"].as_str().is_some_and(|said| said.contains("there is no pod missing")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the API server never asks the webhook");
}
