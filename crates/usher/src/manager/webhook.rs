//! Admission, in every replica: the server, and the certificates it is served with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use tokio::net::TcpListener;
use usher_api::gateway::GatewayMode;
use usher_webhook::configurations::{SECRET, Target};
use usher_webhook::{Admission, Clients, Directory, GatewayKey, GatewayOptions, Keeper, serve_clients};

use super::Parts;
use super::gates::Gate;

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Where API servers reach the webhook, over HTTPS.
    #[arg(
        id = "webhook_address",
        long = "webhook-address",
        value_name = "WEBHOOK_ADDRESS",
        default_value = "0.0.0.0:9443"
    )]
    pub address: SocketAddr,
    /// A folder with tls.crt and tls.key to serve the webhook with, for example from cert-manager. They are read again
    /// when they change. Without it, certificates are made, kept in the Secret usher-webhook-certificates and renewed.
    #[arg(long, value_name = "FOLDER")]
    cert_dir: Option<PathBuf>,
    /// A further name under which API servers call the webhook, if it is not reached as a Service.
    #[arg(long, value_name = "NAME")]
    webhook_name: Vec<String>,
    /// A file of certificate authorities, in PEM. With it, the webhook talks only to API servers that show a client certificate
    /// of one of them. The file is read once, at the start.
    #[arg(long, value_name = "FILE")]
    webhook_client_ca: Option<PathBuf>,
    /// The DNS names, separated by commas, one of which such a client certificate must have as a subject alternative name. Without
    /// it any certificate of these authorities will do.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "webhook_client_ca")]
    webhook_client_names: Vec<String>,
    /// What becomes of plain evictions, as kubectl drain and autoscalers send them, of pods that have interceptors, in namespaces
    /// without the label evictionrequest.coordination.k8s.io/gateway. off: they are carried out. block: they are refused until the
    /// interceptors are done. request: the same, and an eviction request is made in the caller's name. It goes with the
    /// namespaceSelector of the webhook, see deploy/README.md.
    #[arg(long, value_name = "MODE", default_value = "off")]
    gateway_mode: GatewayMode,
    /// Users, separated by commas, whose evictions the gateway lets pass.
    #[arg(long, value_name = "USERS", value_delimiter = ',')]
    gateway_exempt_users: Vec<String>,
    /// Groups, separated by commas, whose evictions the gateway lets pass.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    gateway_exempt_groups: Vec<String>,
}

impl Arguments {
    /// Whom the webhook talks to: everybody, unless authorities are named.
    pub fn clients(&self) -> anyhow::Result<Option<Clients>> {
        let Some(file) = &self.webhook_client_ca else { return Ok(None) };
        let hint = || format!("--webhook-client-ca {} cannot be used", file.display());
        let authorities = std::fs::read(file).with_context(hint)?;
        Ok(Some(Clients::new(&authorities, &self.webhook_client_names).with_context(hint)?))
    }
}

/// Serves until the manager is to stop.
pub async fn run(parts: &Parts, listener: TcpListener) -> anyhow::Result<()> {
    let arguments = &parts.arguments;
    let certificate = parts.health.certificate.clone();
    let clock = parts.clock.clone();
    let gate = Arc::new(AtomicBool::new(arguments.feature_gates.is_on(Gate::EvictionRequestApi)));
    let metrics = parts.metrics.clone();
    let gateway = GatewayOptions {
        mode: arguments.webhook.gateway_mode,
        exempt_users: arguments.webhook.gateway_exempt_users.clone(),
        exempt_groups: arguments.webhook.gateway_exempt_groups.clone(),
        interceptors_limit: arguments.request_options().interceptors_limit,
        evict_timeout: arguments.evict_timeout(),
        observer: Some(Arc::new(move |answer, caller| {
            metrics.plain_eviction(answer.as_str(), caller.as_str())
        })),
    };
    let admission = Admission::new(parts.for_strangers.clone())
        .with_gateway(gateway)
        .with_clock(clock.clone())
        .with_gate(gate)
        .with_interceptors(arguments.interceptors_of_requests())
        .in_namespace(&arguments.namespace);
    let clients = parts.clients.clone();
    // API servers that show a certificate need no key.
    let key = clients.is_none().then(|| Arc::new(GatewayKey::default()));
    let admission = match &key {
        Some(key) => admission.with_gateway_key(key.clone()),
        None => admission,
    };
    if key.is_some() && arguments.webhook.cert_dir.is_some() {
        tracing::warn!(
            "with --cert-dir the gateway needs --webhook-client-ca to know API servers: until then plain evictions pass"
        );
    }
    let served = serve_clients(listener, Arc::new(admission), certificate.clone(), clients, parts.stopped());
    let kept = async {
        match &arguments.webhook.cert_dir {
            Some(folder) => Directory::new(folder, certificate).run(parts.stopped()).await,
            None => {
                let mut names = Target::service_names(&arguments.namespace);
                names.extend(arguments.webhook.webhook_name.iter().cloned());
                let keeper =
                    Keeper::new(parts.client.clone(), &arguments.namespace, SECRET, names, certificate);
                let keeper = match key {
                    Some(key) => keeper.with_gateway_key(key),
                    None => keeper,
                };
                keeper.with_clock(clock).run(parts.stopped()).await;
            }
        }
    };
    let (served, ()) = tokio::join!(served, kept);
    served.context("the webhook cannot be served")
}
