//! Admission, in every replica: the server, and the certificates it is served with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use tokio::net::TcpListener;
use usher_webhook::configurations::{SECRET, Target};
use usher_webhook::{Admission, Clients, Directory, Keeper, serve_clients};

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
    let admission = Admission::new(parts.for_strangers.clone())
        .with_clock(clock.clone())
        .with_gate(gate)
        .with_interceptors(arguments.interceptors())
        .in_namespace(&arguments.namespace);
    let clients = parts.clients.clone();
    let served = serve_clients(listener, Arc::new(admission), certificate.clone(), clients, parts.stopped());
    let kept = async {
        match &arguments.webhook.cert_dir {
            Some(folder) => Directory::new(folder, certificate).run(parts.stopped()).await,
            None => {
                let mut names = Target::service_names(&arguments.namespace);
                names.extend(arguments.webhook.webhook_name.iter().cloned());
                Keeper::new(parts.client.clone(), &arguments.namespace, SECRET, names, certificate)
                    .with_clock(clock)
                    .run(parts.stopped())
                    .await;
            }
        }
    };
    let (served, ()) = tokio::join!(served, kept);
    served.context("the webhook cannot be served")
}
