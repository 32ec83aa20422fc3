//! Usher beside a cluster: its definitions, its webhook and its controllers, all in the process of the test.

use super::reach::ClusterUnderTest;
use crate::kubectl::Kubectl;
use crate::{Request, TestCluster, crds};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use embedded_apiserver::in_process;
use embedded_apiserver::{Cluster, User};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use usher_api::gateway::GatewayMode;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::{eviction_request, run_all};
use usher_webhook::configurations::{self, NAMESPACE, Target};
use usher_webhook::{Admission, Endpoint, GatewayOptions, ServingCertificate};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
/// Where the embedded cluster believes the webhook to be; it is answered here instead.
const INSIDE: &str = "https://webhook.usher.internal";

/// Where evictions are looked at, and not what comes before them.
pub const WITHOUT_SURGES: [BundledInterceptor; 2] =
    [BundledInterceptor::DaemonSet, BundledInterceptor::StatefulSet];

/// The controllers that run. Node maintenance withdraws requests in its name that no maintenance stands behind, so where a
/// scenario plays that requester itself, it must not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controllers {
    Requests,
    RequestsAndMaintenances,
    /// With surges before evictions.
    All,
    /// The same, and plain evictions become requests.
    Gateway,
}

impl Controllers {
    /// The bundled interceptors that are on.
    fn interceptors(self) -> &'static [BundledInterceptor] {
        match self {
            Self::Requests => &[],
            Self::RequestsAndMaintenances => &WITHOUT_SURGES,
            Self::All | Self::Gateway => &BundledInterceptor::ALL,
        }
    }

    /// What becomes of plain evictions.
    fn gateway(self) -> GatewayMode {
        if self == Self::Gateway { GatewayMode::Request } else { GatewayMode::Off }
    }
}

/// What runs beside a cluster, until this is dropped.
pub struct Usher {
    which: Controllers,
    client: kube::Client,
    clock: Clock,
    controllers: Mutex<JoinSet<()>>,
    /// It answers on, whatever becomes of the controllers.
    _webhook: JoinSet<()>,
}

impl Usher {
    fn start(which: Controllers, client: kube::Client, clock: Clock, webhook: JoinSet<()>) -> Self {
        let usher = Self { which, client, clock, controllers: Mutex::default(), _webhook: webhook };
        usher.restart();
        usher
    }

    /// Ends the controllers in the midst of what they do, and starts new ones that know nothing.
    pub fn restart(&self) {
        let mut controllers = JoinSet::new();
        let (client, clock) = (self.client.clone(), self.clock.clone());
        match self.which {
            Controllers::Requests => {
                controllers.spawn(eviction_request::run(client, clock, Box::new(eviction_request::Nobody)))
            }
            Controllers::RequestsAndMaintenances | Controllers::All | Controllers::Gateway => {
                controllers.spawn(run_all(client, clock, self.which.interceptors()))
            }
        };
        *self.controllers.lock() = controllers;
    }
}

async fn created(cluster: &ClusterUnderTest, path: &str, object: &Value) -> Result<()> {
    let request = Request::with_json(http::Method::POST, path, object);
    cluster.send(None, request).await?.accepted()
}

async fn register(cluster: &ClusterUnderTest, target: &Target, gateway: GatewayMode) -> Result<()> {
    for (path, configuration) in registrations(target, gateway) {
        created(cluster, &path, &configuration).await?;
    }
    Ok(())
}

/// Both configurations, and where they are created.
fn registrations(target: &Target, gateway: GatewayMode) -> [(String, Value); 2] {
    let path = |kind: &str| format!("{CONFIGURATIONS}/{kind}webhookconfigurations");
    [
        (path("mutating"), configurations::mutating(target)),
        (path("validating"), configurations::validating(target, NAMESPACE, gateway)),
    ]
}

/// The account of the manager, with all rights.
#[must_use]
pub fn manager() -> User {
    User {
        name: configurations::manager_user(NAMESPACE),
        groups: vec!["system:masters".to_owned()],
        ..User::default()
    }
}

/// Answers for admission without a socket; what has to be created where, so that the cluster asks.
pub fn answer_inside(
    cluster: &Cluster,
    client: kube::Client,
    interceptors: &[BundledInterceptor],
) -> [(String, Value); 2] {
    answer_inside_with(cluster, client, interceptors, GatewayMode::Off)
}

/// The same, with the gateway in this mode.
pub fn answer_inside_with(
    cluster: &Cluster,
    client: kube::Client,
    interceptors: &[BundledInterceptor],
    gateway: GatewayMode,
) -> [(String, Value); 2] {
    let webhook = cluster.clone();
    let admission = Admission::new(client).with_interceptors(interceptors.to_vec());
    let admission = admission.with_gateway(GatewayOptions::in_mode(gateway));
    let admission = Arc::new(admission.with_clock(Clock::from_fn(move || webhook.now())));
    for endpoint in Endpoint::ALL {
        let admission = admission.clone();
        let answer = move |review: Value| {
            let (admission, review) = (admission.clone(), review.to_string());
            async move { admission.answer(endpoint, review.as_bytes()).await.map_err(|why| why.to_string()) }
        };
        let url = format!("{INSIDE}{}", endpoint.path());
        cluster.endpoints().register_url(&url, in_process(answer));
    }
    registrations(&Target::Url { base: INSIDE.to_owned(), ca_bundle: None }, gateway)
}

/// Beside an embedded cluster, on its clock and without a socket, so that its time can be virtual.
///
/// # Errors
/// The cluster refused something.
pub async fn embedded(which: Controllers, cluster: &Cluster, reached: &ClusterUnderTest) -> Result<Usher> {
    for definition in crds::definitions()? {
        created(reached, DEFINITIONS, &definition).await?;
    }
    created(reached, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await?;
    let client = kube::Client::new(cluster.service_as(manager()), "default");
    let (now, timers) = (cluster.clone(), cluster.clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let inside = answer_inside_with(cluster, client.clone(), which.interceptors(), which.gateway());
    for (path, configuration) in inside {
        created(reached, &path, &configuration).await?;
    }
    Ok(Usher::start(which, client, clock, JoinSet::new()))
}

/// Beside the real control plane, whose API server asks the webhook over loopback. All of it acts as the manager's service
/// account, with the rights that `deploy/` gives it and no other.
///
/// # Errors
/// The cluster refused something, or never asks the webhook.
pub async fn real(which: Controllers, plane: &TestCluster, reached: &ClusterUnderTest) -> Result<Usher> {
    crds::install(plane).await?;
    let client = as_the_manager(plane).await?;
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let certificate = Arc::new(ServingCertificate::default());
    certificate
        .replace(&made.cert.pem(), &made.signing_key.serialize_pem())
        .context("a certificate for the webhook")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let base = format!("https://{}", listener.local_addr()?);
    let admission = Admission::new(client.clone()).with_interceptors(which.interceptors().to_vec());
    let admission = Arc::new(admission.with_gateway(GatewayOptions::in_mode(which.gateway())));
    let mut webhook = JoinSet::new();
    webhook.spawn(async move {
        // Were it to end, the API server would refuse what it asks about, and scenarios would fail of that.
        let _ = usher_webhook::serve(listener, admission, certificate, std::future::pending()).await;
    });
    let target = Target::Url { base, ca_bundle: Some(STANDARD.encode(made.cert.pem())) };
    register(reached, &target, which.gateway()).await?;
    until_asked(reached).await?;
    Ok(Usher::start(which, client, Clock::system(), webhook))
}

/// A client of the service account that `deploy/` makes for the manager.
async fn as_the_manager(plane: &TestCluster) -> Result<kube::Client> {
    let kubectl = Kubectl::new(plane).await?;
    let deploy = crds::folder().with_file_name("");
    for file in [
        "base/namespace",
        "base/service-account",
        "base/cluster-role",
        "base/role",
        "workloads/daemonset-role",
        "workloads/statefulset-role",
        "workloads/deployment-role",
        "workloads/deployment-limits",
        "workloads/hand-over-role",
        "workloads/hand-over-limits",
    ] {
        let text = std::fs::read_to_string(deploy.join(format!("{file}.yaml")))?;
        kubectl.ok_with("apply --server-side -f -", &text).await?;
    }
    let token = kubectl.ok(&format!("create token usher-manager -n {NAMESPACE}")).await?;
    plane.client_with(token.trim()).await
}

/// An API server learns of configurations in its own time.
async fn until_asked(cluster: &ClusterUnderTest) -> Result<()> {
    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": "0"}, "spec": {"podRef": {"name": "missing", "uid": "0"}},
    });
    let dry = format!("{REQUESTS}?dryRun=All");
    for _ in 0..500 {
        let answer = Request::with_json(http::Method::POST, &dry, &request);
        let answer = cluster.send(None, answer).await?;
        if answer.body["message"].as_str().is_some_and(|said| said.contains("there is no pod missing")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the API server never asks the webhook");
}
