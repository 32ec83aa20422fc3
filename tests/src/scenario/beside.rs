//! Usher beside a cluster: its definitions, its webhook and its controllers, all in the process of the test.

use super::form::Deschedule;
use super::migration;
use super::reach::ClusterUnderTest;
use crate::descheduler::{deschedule, named};
use crate::webhook_server::WebhookServer;
use crate::{Request, crds, manifests};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use embedded_apiserver::in_process;
use embedded_apiserver::{Cluster, User};
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use usher_api::gateway::GatewayMode;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::{descheduler, eviction_request};
use usher_descheduler::{Policy, requester};
use usher_webhook::configurations::{self, NAMESPACE, Target};
use usher_webhook::{Admission, Endpoint, GatewayOptions, ServingCertificate};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
/// Where the embedded cluster believes the webhook to be; it is answered here instead.
const INSIDE: &str = "https://webhook.usher.internal";

/// So long workloads have to take over.
const EVICT_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// What keeps the taint eviction controller from pods whose workloads take over.
const EVICT_POLICIES: &str = "evict-policy/policies.yaml";

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
    /// The same, and workloads take over pods of the evict policy ControllerTakeOver.
    EvictPolicy,
    /// The same, and workloads have longer for that than any test takes.
    PatientEvictPolicy,
}

impl Controllers {
    /// The bundled interceptors that are on.
    fn interceptors(self) -> &'static [BundledInterceptor] {
        match self {
            Self::Requests => &[],
            Self::RequestsAndMaintenances => &WITHOUT_SURGES,
            Self::All | Self::Gateway | Self::EvictPolicy | Self::PatientEvictPolicy => {
                &BundledInterceptor::ALL
            }
        }
    }

    /// What becomes of plain evictions.
    fn gateway(self) -> GatewayMode {
        match self {
            Self::Gateway | Self::EvictPolicy | Self::PatientEvictPolicy => GatewayMode::Request,
            Self::Requests | Self::RequestsAndMaintenances | Self::All => GatewayMode::Off,
        }
    }

    /// How long workloads have to take over, where they do.
    #[must_use]
    pub fn evict_timeout(self) -> Option<SignedDuration> {
        match self {
            Self::EvictPolicy => Some(EVICT_TIMEOUT),
            Self::PatientEvictPolicy => Some(SignedDuration::from_hours(1)),
            Self::Requests | Self::RequestsAndMaintenances | Self::All | Self::Gateway => None,
        }
    }

    fn gateway_options(self) -> GatewayOptions {
        GatewayOptions { evict_timeout: self.evict_timeout(), ..GatewayOptions::in_mode(self.gateway()) }
    }
}

/// What runs beside a cluster, until this is dropped.
pub struct Usher {
    which: Controllers,
    client: kube::Client,
    clock: Clock,
    controllers: Mutex<JoinSet<()>>,
    /// The policy and options by which pods are descheduled.
    descheduling: Mutex<Option<(Policy, descheduler::Options)>>,
    /// It answers on, whatever becomes of the controllers.
    webhook: Mutex<JoinSet<()>>,
    /// What it answers with, where it has a socket.
    serving: Option<Serving>,
    /// Who moves virtual machines, where it has a socket.
    _migration: Option<WebhookServer>,
}

/// A webhook that can be ended and started again at the same address.
#[derive(Clone)]
struct Serving {
    address: SocketAddr,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
}

impl Serving {
    fn start(self, listener: TcpListener) -> JoinSet<()> {
        let mut webhook = JoinSet::new();
        webhook.spawn(async move {
            // Were it to end, the API server would refuse what it asks about, and scenarios would fail of that.
            let (admission, certificate) = (self.admission, self.certificate);
            let _ = usher_webhook::serve(listener, admission, certificate, std::future::pending()).await;
        });
        webhook
    }
}

impl Usher {
    fn start(which: Controllers, client: kube::Client, clock: Clock) -> Self {
        let usher = Self {
            which,
            client,
            clock,
            controllers: Mutex::default(),
            descheduling: Mutex::default(),
            webhook: Mutex::default(),
            serving: None,
            _migration: None,
        };
        usher.restart();
        usher
    }

    /// Ends the controllers in the midst of what they do, and starts new ones that know nothing.
    pub fn restart(&self) {
        let mut controllers = JoinSet::new();
        let (client, clock) = (self.client.clone(), self.clock.clone());
        if self.which == Controllers::Requests {
            controllers.spawn(eviction_request::run(client, clock));
        } else {
            let all = usher_controllers::Controllers {
                evict_timeout: self.which.evict_timeout(),
                ..usher_controllers::Controllers::with(self.which.interceptors())
            };
            controllers.spawn(all.run(client, clock));
        }
        if let Some((policy, options)) = self.descheduling.lock().clone() {
            let (client, clock) = (self.client.clone(), self.clock.clone());
            controllers.spawn(deschedule(client, clock, options, policy));
        }
        *self.controllers.lock() = controllers;
    }

    /// Ends the controllers and the webhook, as a manager that is killed: API servers reach nobody.
    pub fn kill(&self) {
        *self.controllers.lock() = JoinSet::new();
        *self.webhook.lock() = JoinSet::new();
    }

    /// The webhook takes connections and never says a word.
    ///
    /// # Errors
    /// Its address cannot be had.
    pub async fn hang(&self) -> Result<()> {
        *self.webhook.lock() = JoinSet::new();
        let listener = listen_again(self.serving()?.address).await?;
        self.webhook.lock().spawn(async move {
            let mut held = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                held.push(connection);
            }
        });
        Ok(())
    }

    /// The manager is back: a webhook at the same address, and controllers that know nothing.
    ///
    /// # Errors
    /// Its address cannot be had.
    pub async fn revive(&self) -> Result<()> {
        *self.webhook.lock() = JoinSet::new();
        let serving = self.serving()?.clone();
        let listener = listen_again(serving.address).await?;
        *self.webhook.lock() = serving.start(listener);
        self.restart();
        Ok(())
    }

    fn serving(&self) -> Result<&Serving> {
        self.serving.as_ref().context("the webhook has no socket")
    }

    /// Deschedules by this policy from now on, and by no other.
    ///
    /// # Errors
    /// The policy is wrong.
    pub fn deschedule(&self, policy: &str, how: &Deschedule) -> Result<()> {
        let policy = Policy::read(policy).map_err(|why| anyhow!("{why}"))?;
        let signed = |time: Duration| SignedDuration::try_from(time);
        let options = descheduler::Options {
            interval: Some(signed(how.every)?),
            on_change: false,
            dry_run: false,
            knows_requests: true,
            requester: requester::Options {
                time_to_live: Some(signed(how.ttl)?),
                cool_down: signed(how.cool_down)?,
                ..requester::Options::default()
            },
            name: named(NAMESPACE),
        };
        *self.descheduling.lock() = Some((policy, options));
        self.restart();
        Ok(())
    }

    /// Deschedules no more.
    pub fn end_descheduling(&self) {
        if self.descheduling.lock().take().is_some() {
            self.restart();
        }
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
    answer_inside_with(cluster, client, interceptors, GatewayOptions::default())
}

/// The same, with these options of the gateway.
pub fn answer_inside_with(
    cluster: &Cluster,
    client: kube::Client,
    interceptors: &[BundledInterceptor],
    options: GatewayOptions,
) -> [(String, Value); 2] {
    let (webhook, gateway) = (cluster.clone(), options.mode);
    let admission = Admission::new(client).with_interceptors(interceptors.to_vec());
    let admission = admission.with_gateway(options);
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
    let options = which.gateway_options();
    let inside = answer_inside_with(cluster, client.clone(), which.interceptors(), options);
    for (path, configuration) in inside {
        created(reached, &path, &configuration).await?;
    }
    for policy in manifests::objects(EVICT_POLICIES)?.iter().filter(|_| which.evict_timeout().is_some()) {
        let is_binding = policy["kind"] == "ValidatingAdmissionPolicyBinding";
        let kind =
            if is_binding { "validatingadmissionpolicybindings" } else { "validatingadmissionpolicies" };
        created(reached, &format!("{CONFIGURATIONS}/{kind}"), policy).await?;
    }
    if which == Controllers::All {
        migration::embedded(cluster, client.clone(), reached).await?;
    }
    Ok(Usher::start(which, client, clock))
}

/// With a cluster whose API server asks the webhook over loopback. All of Usher acts as the manager's service account, whose client is given.
/// `migration` moves virtual machines as long as Usher runs.
///
/// # Errors
/// The cluster refused something, or never asks the webhook.
pub async fn on_loopback(
    which: Controllers,
    manager: kube::Client,
    migration: Option<WebhookServer>,
    reached: &ClusterUnderTest,
) -> Result<Usher> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let certificate = Arc::new(ServingCertificate::default());
    certificate
        .replace(&made.cert.pem(), &made.signing_key.serialize_pem())
        .context("a certificate for the webhook")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let base = format!("https://{}", listener.local_addr()?);
    let admission = Admission::new(manager.clone()).with_interceptors(which.interceptors().to_vec());
    let admission = Arc::new(admission.with_gateway(which.gateway_options()));
    let serving = Serving { address: listener.local_addr()?, admission, certificate };
    let webhook = serving.clone().start(listener);
    let target = Target::Url { base, ca_bundle: Some(STANDARD.encode(made.cert.pem())) };
    register(reached, &target, which.gateway()).await?;
    until_asked(reached).await?;
    let usher = Usher::start(which, manager, Clock::system());
    Ok(Usher { webhook: Mutex::new(webhook), serving: Some(serving), _migration: migration, ..usher })
}

/// Who listened there before may take a moment to let go.
async fn listen_again(address: SocketAddr) -> Result<TcpListener> {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Ok(listener);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{address} cannot be listened on again");
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
