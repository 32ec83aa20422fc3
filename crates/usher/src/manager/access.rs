//! How the manager reaches the API server.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::limit::RateLimitLayer;
use usher_cli::kubeconfig::why_unusable;

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// The kubeconfig to use. By default $KUBECONFIG or the one in the home folder, else the service account of the pod.
    #[arg(long, alias = "client-connection-kubeconfig", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Arguments {
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.limited_client(None).await
    }

    /// A client that asks the API server no oftener than that.
    pub async fn limited_client(&self, limit: Option<RateLimitLayer>) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        // The client would repeat what is answered with 429 by itself: evictions that a budget refuses.
        config.default_retry = false;
        tracing::info!(server = %config.cluster_url, "API server");
        let builder = ClientBuilder::try_from(config)
            .context("the API server's address or credentials cannot be used")?;
        Ok(match limit {
            Some(limit) => builder.with_layer(&limit).build(),
            None => builder.build(),
        })
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let unusable = |why: &KubeconfigError| match &self.kubeconfig {
            Some(file) => format!("the kubeconfig {} cannot be used: {}", file.display(), why_unusable(why)),
            None => format!("the kubeconfig cannot be used: {}", why_unusable(why)),
        };
        let read = match &self.kubeconfig {
            Some(file) => match Kubeconfig::read_from(file) {
                Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
                Err(why) => Err(why),
            },
            None => Config::from_kubeconfig(&options).await,
        };
        match read {
            Ok(config) => Ok(config),
            Err(why) if self.kubeconfig.is_some() || self.context.is_some() => bail!(unusable(&why)),
            Err(why) => Config::incluster().map_err(|in_pod| {
                let help = "name a file with --kubeconfig, or run in a pod with a service account";
                anyhow::anyhow!("no cluster: {help} ({}; {in_pod})", unusable(&why))
            }),
        }
    }
}
