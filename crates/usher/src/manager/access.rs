//! How the manager reaches the API server.

use std::path::PathBuf;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// The kubeconfig to use. By default $KUBECONFIG or the one in the home folder, else the service account of the pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Arguments {
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        // The client would repeat what is answered with 429 by itself: evictions that a budget refuses.
        config.default_retry = false;
        tracing::info!(server = %config.cluster_url, "API server");
        Client::try_from(config).context("the API server's address or credentials cannot be used")
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file);
                let kubeconfig = read.with_context(|| format!("cannot read {}", file.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .with_context(|| format!("{} cannot be used", file.display()))
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .context("the kubeconfig cannot be used with --context"),
            // What it says holds its causes already.
            None => Config::infer().await.map_err(|why| {
                let help = "name a file with --kubeconfig, or run in a pod with a service account";
                anyhow::anyhow!("no cluster: {help} ({why})")
            }),
        }
    }
}
