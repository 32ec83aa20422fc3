//! Admission, in every replica: the server, and the certificates it is served with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use tokio::net::TcpListener;
use usher_webhook::configurations::{SECRET, Target};
use usher_webhook::{Admission, Directory, Keeper};

use super::Parts;
use super::gates::Gate;

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Where API servers reach the webhook, over HTTPS.
    #[arg(id = "webhook_address", long = "webhook-address", default_value = "0.0.0.0:9443")]
    pub address: SocketAddr,
    /// A folder with tls.crt and tls.key to serve the webhook with, for example from cert-manager. They are read again
    /// when they change. Without it, certificates are made, kept in the Secret usher-webhook-certificates and renewed.
    #[arg(long, value_name = "FOLDER")]
    cert_dir: Option<PathBuf>,
    /// A further name under which API servers call the webhook, if it is not reached as a Service.
    #[arg(long, value_name = "NAME")]
    webhook_name: Vec<String>,
}

/// Serves until the manager is to stop.
pub async fn run(parts: &Parts, listener: TcpListener) -> anyhow::Result<()> {
    let arguments = &parts.arguments;
    let certificate = parts.health.certificate.clone();
    let clock = parts.clock.clone();
    let clock: usher_webhook::Clock = Arc::new(move || clock.now());
    let gate = Arc::new(AtomicBool::new(arguments.feature_gates.is_on(Gate::EvictionRequestApi)));
    let admission = Admission::new(parts.client.clone()).with_clock(clock.clone()).with_gate(gate);
    let served = usher_webhook::serve(listener, Arc::new(admission), certificate.clone(), parts.stopped());
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
