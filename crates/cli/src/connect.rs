//! A client for the cluster that the person means.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::arguments::Connection;
use crate::{Error, Surroundings};

pub struct Connected {
    pub client: Client,
    pub namespace: String,
}

impl Connection {
    pub async fn open(&self, surroundings: &Surroundings) -> Result<Connected, Error> {
        if let Some(client) = &surroundings.cluster {
            let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_string());
            return Ok(Connected { client: client.clone(), namespace });
        }
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Connected { client: Client::try_from(config)?, namespace })
    }

    async fn config(&self) -> Result<Config, Error> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match file {
            Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
            Err(why) => {
                let may_be_in_a_pod = self.kubeconfig.is_none() && self.context.is_none();
                match Config::incluster() {
                    Ok(config) if may_be_in_a_pod => return Ok(config),
                    _ => Err(why),
                }
            }
        };
        config.map_err(|why| Error::Kubeconfig(self.told(&why)))
    }

    fn told(&self, why: &KubeconfigError) -> String {
        match why {
            KubeconfigError::ReadConfig(cause, path) => format!(
                "the kubeconfig {} cannot be read ({cause}): name one with --kubeconfig or in $KUBECONFIG",
                path.display()
            ),
            KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => {
                "no cluster is chosen: name a kubeconfig with --kubeconfig, or a context with --context"
                    .to_string()
            }
            KubeconfigError::LoadContext(context) => {
                format!("the kubeconfig has no context {context:?}: see kubectl config get-contexts")
            }
            other => format!("the kubeconfig cannot be used: {other}"),
        }
    }
}
