//! `usher manager`: the controllers in a cluster, one replica of them at work.

pub mod access;
pub mod descheduling;
pub mod gates;
mod health;
pub mod http;
pub mod logs;
mod scrapers;
mod traces;
mod webhook;

use std::fmt::{self, Display};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use jiff::SignedDuration;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use usher_api::names::DESCHEDULER_LEASE;
use usher_api::workloads::BundledInterceptor;
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::descheduler::policy_file;
use usher_controllers::feeds::Feeds;
use usher_controllers::interceptors::HandOver;
use usher_controllers::leader::Election;
use usher_controllers::metrics::Metrics;
use usher_controllers::{Context, Controller, Controllers, descheduler, eviction_request};
use usher_webhook::Clients;

use crate::interruption::interruption;
use gates::{Gate, Gates};
use health::Health;
use scrapers::Scrapers;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    access: access::Arguments,
    /// The namespace of the lease.
    #[arg(long, default_value = "usher-system", env = "POD_NAMESPACE")]
    namespace: String,
    /// Let only the replica act that holds the lease. Without it, nothing keeps two from acting at once.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// The name of the lease.
    #[arg(long, default_value = "usher-manager")]
    lease_name: String,
    /// Switches, as NAME=true or NAME=false, separated by commas. EvictionRequestAPI (true): carry out eviction
    /// requests; without it they are kept and nothing is done about them. DeclarativeNodeMaintenance (true): the same for
    /// node maintenances. Descheduler (true): deschedule by --policy-config-file, if there is one. EvictionsInBackground (true): its pods
    /// with the annotation descheduler.alpha.kubernetes.io/request-evict-only are evicted, and a refusal may mean that they are moved
    /// in the background. DeschedulerEvictionRequests (true): all others are asked by eviction requests; without it they are evicted.
    /// PodEvictPolicy (false): workloads take over pods of the evict policy ControllerTakeOver; it needs the component
    /// deploy/evict-policy.
    #[arg(long, value_name = "GATES", default_value = "", value_parser = gates::parse)]
    feature_gates: Gates,
    /// How long all interceptors of a pod may take together, counted from its eviction request, such as 12h. Then the pod is
    /// evicted, within its disruption budgets, also while an interceptor reports progress. 0: as long as they report progress.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    interceptors_time_limit: SignedDuration,
    /// Who asked by a plain eviction, through the gateway, and does not try again for this long has withdrawn, and the pod stays
    /// unless an interceptor forbids that. Drainers try again within a minute. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    gateway_withdraw_after: SignedDuration,
    /// With the feature gate PodEvictPolicy: so long a workload has to end a pod of the evict policy ControllerTakeOver that Kubernetes wants
    /// to evict. Then the policy falls back to Default.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    evict_policy_timeout: SignedDuration,
    /// The interceptors that answer for the pods of workloads, separated by commas, all of them by default; that of Deployments also
    /// answers for ReplicaSets and HorizontalPodAutoscalers. An empty list
    /// switches all of them off; their pods are then left to other interceptors and the eviction API.
    #[arg(long, value_name = "NAMES", default_value_t, value_parser = interceptors)]
    interceptors: Interceptors,
    /// Where the interceptor of Deployments makes new pods beside their replicas, and hands these over to the ReplicaSet: nowhere,
    /// where it is allowed (by annotation, and where somebody keeps setting replicas back), or always. It needs the role in
    /// deploy/workloads/hand-over-role.yaml.
    #[arg(long, value_name = "WHERE", default_value = "off")]
    hand_over: HandOverSwitch,
    /// The descheduler's policy: a DeschedulerPolicy of descheduler/v1alpha2. Without it nothing is descheduled. It is read again when it
    /// changes; one that is wrong is refused, and the one before holds.
    #[arg(long, value_name = "FILE")]
    policy_config_file: Option<PathBuf>,
    /// The name of the descheduler's own lease, in the same namespace.
    #[arg(long, value_name = "NAME", default_value = DESCHEDULER_LEASE)]
    descheduler_lease_name: String,
    #[command(flatten)]
    descheduling: descheduling::Arguments,
    /// Where /metrics is served.
    #[arg(long, default_value = "0.0.0.0:8080")]
    metrics_address: SocketAddr,
    /// Serve metrics over HTTPS, with the webhook's certificate, and only to who may get the path /metrics in the cluster.
    /// Without it they are served to everybody, over plain HTTP: for an address such as 127.0.0.1.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    metrics_authorization: bool,
    /// Where /healthz and /readyz are served, over plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_address: SocketAddr,
    #[command(flatten)]
    webhook: Box<webhook::Arguments>,
    #[command(flatten)]
    logs: logs::Arguments,
    #[command(flatten)]
    traces: traces::Arguments,
}

impl Arguments {
    fn request_options(&self) -> eviction_request::Options {
        let limit = Some(self.interceptors_time_limit).filter(|limit| !limit.is_zero());
        let withdraw_after = Some(self.gateway_withdraw_after).filter(|after| !after.is_zero());
        eviction_request::Options { interceptors_limit: limit, withdraw_after }
    }

    /// So long workloads have to take over, if the Pod Evict Policy is on.
    fn evict_timeout(&self) -> Option<SignedDuration> {
        let gates = [Gate::PodEvictPolicy, Gate::EvictionRequestApi];
        gates.into_iter().all(|gate| self.feature_gates.is_on(gate)).then_some(self.evict_policy_timeout)
    }

    /// Those that requests are given. Requests that are made while nobody acts on them have their
    /// interceptors, too, for the time when somebody does again.
    fn interceptors_of_requests(&self) -> Vec<BundledInterceptor> {
        let are_maintenances_on = self.feature_gates.is_on(Gate::DeclarativeNodeMaintenance);
        let is_on = |it: &BundledInterceptor| are_maintenances_on || !it.is_of_maintenances();
        self.interceptors.0.iter().copied().filter(is_on).collect()
    }

    /// Those whose gates are on.
    fn controllers(&self) -> Controllers {
        let gates = &self.feature_gates;
        Controllers {
            namespace: self.namespace.clone(),
            requests: gates.is_on(Gate::EvictionRequestApi).then(|| self.request_options()),
            maintenances: gates.is_on(Gate::DeclarativeNodeMaintenance),
            interceptors: self.interceptors_of_requests(),
            hand_over: self.hand_over.into(),
            evict_timeout: self.evict_timeout(),
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum HandOverSwitch {
    Off,
    Allowed,
    Always,
}

impl From<HandOverSwitch> for HandOver {
    fn from(switch: HandOverSwitch) -> Self {
        match switch {
            HandOverSwitch::Off => Self::Off,
            HandOverSwitch::Allowed => Self::Allowed,
            HandOverSwitch::Always => Self::Always,
        }
    }
}

/// The bundled interceptors that are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interceptors(pub Vec<BundledInterceptor>);

impl Default for Interceptors {
    fn default() -> Self {
        Self(BundledInterceptor::ALL.to_vec())
    }
}

impl Display for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|it| it.name()).collect();
        f.write_str(&names.join(","))
    }
}

fn interceptors(text: &str) -> Result<Interceptors, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut chosen = Vec::new();
    for name in names {
        let found = BundledInterceptor::ALL.into_iter().find(|it| it.name() == name);
        let known = || BundledInterceptor::ALL.map(BundledInterceptor::name).join(", ");
        chosen
            .push(found.ok_or_else(|| format!("there is no interceptor {name:?}: use some of {}", known()))?);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(Interceptors(chosen))
}

pub fn duration(text: &str) -> Result<SignedDuration, String> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    match text.parse::<SignedDuration>() {
        Ok(duration) if !duration.is_negative() => Ok(duration),
        Ok(_) => Err("it cannot be negative".to_string()),
        Err(_) => Err("it is a duration such as 90s, 30m or 12h".to_string()),
    }
}

/// When asked to end, this process is gone after so long, whatever hangs.
pub const END_WITHIN: Duration = Duration::from_secs(25);

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let traces = arguments.traces.start()?;
    logs::start(&arguments.logs, traces.as_ref())?;
    let ended = serve(arguments).await;
    if let Some(traces) = traces {
        traces.end().await;
    }
    ended
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let clients = arguments.webhook.clients()?;
    let client = arguments.access.client().await?;
    // What strangers cause has connections of its own: the lease is renewed and pods are evicted beside it.
    let for_strangers = arguments.access.client().await?;
    let clock = Clock::system();
    let (metrics, health) = (Metrics::new(clock.clone()), Health::default());
    let (stop, stopping) = watch::channel(false);
    let admission = listen("--webhook-address", arguments.webhook.address).await?;

    let is_secure = arguments.metrics_authorization;
    if !is_secure && !arguments.metrics_address.ip().is_loopback() {
        tracing::warn!("metrics are served to everybody who reaches their port: see --metrics-authorization");
    }
    let scrapers = is_secure.then(|| Scrapers::new(for_strangers.clone()));
    let tls = is_secure.then(|| health.certificate.server_config(None)).transpose()?;
    // One request per connection: there is nothing to gain from another protocol.
    let tls = tls.map(|mut config| {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let scrapes = http::serve(listen("--metrics-address", arguments.metrics_address).await?, tls, {
        let metrics = metrics.clone();
        move |path, headers| {
            let (metrics, scrapers) = (metrics.clone(), scrapers.clone());
            async move {
                match scrapers {
                    Some(scrapers) => match scrapers.refuse("/metrics", &headers).await {
                        None => http::metrics(&metrics, &path),
                        refused => refused,
                    },
                    None => http::metrics(&metrics, &path),
                }
            }
        }
    });
    let probes = http::serve(listen("--health-address", arguments.health_address).await?, None, {
        let health = health.clone();
        move |path, _| std::future::ready(http::health(&health, &path))
    });
    let parts = Parts {
        client,
        for_strangers,
        clients,
        clock,
        metrics,
        health,
        stopping,
        arguments: Arc::new(arguments),
    };
    let mut work = std::pin::pin!(parts.run(admission));
    tokio::select! {
        // Neither ends by itself.
        () = scrapes => {}
        () = probes => {}
        ended = &mut work => ended?,
        asked = interruption() => {
            asked?;
            tracing::info!("asked to end: nothing new is begun, calls under way finish");
            stop.send_replace(true);
            match tokio::time::timeout(END_WITHIN, work).await {
                Ok(ended) => ended?,
                Err(_) => tracing::warn!("not everything came to its end in time; the next replica goes on"),
            }
        }
    }
    Ok(())
}

pub async fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let hint = || format!("cannot listen on {address}: choose another address with {flag}");
    TcpListener::bind(address).await.with_context(hint)
}

/// What every part of the manager needs.
struct Parts {
    client: Client,
    /// For admission and metrics.
    for_strangers: Client,
    /// Whom the webhook talks to.
    clients: Option<Clients>,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    stopping: watch::Receiver<bool>,
    arguments: Arc<Arguments>,
}

impl Parts {
    /// Everything that runs, until it is to stop. All replicas answer for admission, and one of them leads.
    async fn run(&self, admission: TcpListener) -> anyhow::Result<()> {
        let ((), (), admitted) = tokio::join!(self.lead(), self.deschedule(), webhook::run(self, admission));
        admitted
    }

    /// The controllers whose gates are on, in the replica that is elected.
    async fn lead(&self) {
        let gates = &self.arguments.feature_gates;
        let (requests, maintenances) =
            (gates.is_on(Gate::EvictionRequestApi), gates.is_on(Gate::DeclarativeNodeMaintenance));
        if !requests {
            tracing::warn!(
                "feature gate EvictionRequestAPI is off: eviction requests are kept, and not acted on"
            );
        }
        if !maintenances {
            tracing::warn!(
                "feature gate DeclarativeNodeMaintenance is off: maintenances are kept, and not acted on"
            );
        }
        if gates.is_on(Gate::PodEvictPolicy) && !requests {
            tracing::warn!("feature gate PodEvictPolicy does nothing without EvictionRequestAPI");
        }
        if !requests && !maintenances {
            self.health.stands_by();
            return self.stopped().await;
        }
        if !self.arguments.leader_elect {
            return self.act().await;
        }
        let Arguments { namespace, lease_name, .. } = &*self.arguments;
        let election =
            Election::new(self.client.clone(), namespace, lease_name, &identity(), self.clock.clone());
        self.health.stands_by();
        election.run(self.stopping.clone(), || self.act()).await;
    }

    /// The descheduler, in the replica that holds its own lease. Its watches are its own: the others may be led elsewhere.
    async fn deschedule(&self) {
        let gates = &self.arguments.feature_gates;
        let policy = self.arguments.policy_config_file.clone().filter(|_| gates.is_on(Gate::Descheduler));
        let Some(policy) = policy else { return };
        let Arguments { namespace, descheduler_lease_name: lease, descheduling, .. } = &*self.arguments;
        let name = DeschedulerName { namespace: namespace.clone(), name: lease.clone() };
        let options = descheduling.options(gates, name, descheduling::Run::InManager);
        if options.interval.is_none() {
            tracing::warn!("--descheduling-interval is 0: there is one cycle after each election");
        }
        let work = || async {
            self.metrics.leads(lease, true);
            let mut feeds = Feeds::default();
            let policies = policy_file::follow(policy.clone());
            let running = descheduler::run_until(
                &mut feeds,
                self.context(),
                options.clone(),
                policies,
                descheduler::Hooks::default(),
            );
            let _watches = feeds.start(&self.client);
            running.await;
            // One that has done its only cycle keeps the lease: nobody else is to do it again.
            self.stopped().await;
            self.metrics.leads(lease, false);
        };
        if !self.arguments.leader_elect {
            return work().await;
        }
        let election = Election::new(self.client.clone(), namespace, lease, &identity(), self.clock.clone());
        election.run(self.stopping.clone(), work).await;
    }

    /// The controllers whose gates are on, until they are to stop.
    async fn act(&self) {
        let controllers = self.arguments.controllers();
        let _leading = Leading::begin(self, controllers.list());
        let health = self.health.clone();
        let on_synced = Arc::new(move |controller| health.synced(controller));
        let running = controllers.run_until(&self.context(), on_synced);
        self.health.pulse().beside(running).await;
    }

    /// What the controllers and the descheduler get from this process.
    fn context(&self) -> Context {
        Context {
            metrics: self.metrics.clone(),
            stop: self.stopped().boxed().shared(),
            ..Context::new(self.client.clone(), self.clock.clone())
        }
    }

    fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stopping = self.stopping.clone();
        async move {
            // Whoever could have asked is gone: that is an end as well.
            let _ = stopping.wait_for(|stop| *stop).await;
        }
    }
}

/// For as long as this replica acts, however that ends.
struct Leading<'a>(&'a Parts);

impl<'a> Leading<'a> {
    fn begin(parts: &'a Parts, controllers: Vec<Controller>) -> Self {
        parts.metrics.leads(&parts.arguments.lease_name, true);
        parts.health.acts(controllers);
        Self(parts)
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.metrics.leads(&self.0.arguments.lease_name, false);
        self.0.health.stands_by();
    }
}

/// Another one in every process, and in every start of it: two with the same name would both believe to lead.
pub fn identity() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let host = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    format!("{}_{:016x}", host.as_deref().unwrap_or("usher"), RandomState::new().hash_one(0_u8))
}
