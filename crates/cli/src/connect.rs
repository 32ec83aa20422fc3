//! A client for the cluster that the person means.

use std::ffi::OsStr;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::arguments::Connection;
use crate::kubeconfig::why_unusable;
use crate::{Environment, Error};

pub struct Connected {
    pub client: Client,
    pub namespace: String,
}

impl Connection {
    pub async fn open(&self, environment: &Environment) -> Result<Connected, Error> {
        if let Some(client) = &environment.cluster {
            let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_string());
            return Ok(Connected { client: client.clone(), namespace });
        }
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Connected { client: Client::try_from(config)?, namespace })
    }

    /// The names of the contexts that can be chosen.
    pub fn contexts(&self) -> Result<Vec<String>, Error> {
        let file = self.file().map_err(|why| Error::Kubeconfig(self.describe(&why)))?;
        Ok(file.contexts.into_iter().map(|context| context.name).collect())
    }

    fn file(&self) -> Result<Kubeconfig, KubeconfigError> {
        match (&self.kubeconfig, std::env::var_os("KUBECONFIG")) {
            (Some(path), _) => Kubeconfig::read_from(path),
            (None, Some(list)) if !list.is_empty() => read_list(&list),
            (None, _) => Kubeconfig::read(),
        }
    }

    async fn config(&self) -> Result<Config, Error> {
        let file = self.file();
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
        config.map_err(|why| Error::Kubeconfig(self.describe(&why)))
    }

    fn describe(&self, why: &KubeconfigError) -> String {
        match why {
            KubeconfigError::ReadConfig(cause, path) => format!(
                "the kubeconfig {} cannot be read ({cause}): name one with --kubeconfig or in $KUBECONFIG",
                path.display()
            ),
            KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => {
                "no cluster is chosen: name a kubeconfig with --kubeconfig, or a context of it with --context"
                    .to_string()
            }
            KubeconfigError::LoadContext(context) => {
                format!("the kubeconfig has no context {context:?}: see kubectl config get-contexts")
            }
            other => {
                let file = self.kubeconfig.as_ref().map(|file| format!(" {}", file.display()));
                format!("the kubeconfig{} cannot be used: {}", file.unwrap_or_default(), why_unusable(other))
            }
        }
    }
}

/// The files of a list as one. As with kubectl, those that are not there are left out.
fn read_list(list: &OsStr) -> Result<Kubeconfig, KubeconfigError> {
    let files: Vec<_> = std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty()).collect();
    let mut all: Option<Kubeconfig> = None;
    for file in files.iter().filter(|file| file.exists()) {
        let next = Kubeconfig::read_from(file)?;
        all = Some(match all {
            Some(known) => known.merge(next)?,
            None => next,
        });
    }
    match (all, files.first()) {
        (Some(all), _) => Ok(all),
        (None, Some(first)) => Kubeconfig::read_from(first),
        (None, None) => Err(KubeconfigError::FindPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_list_that_is_not_there_is_left_out() {
        let folder = std::env::temp_dir().join(format!("usher-kubeconfigs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        for name in ["a", "b"] {
            let text = format!(
                "contexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]\ncurrent-context: {name}\n"
            );
            std::fs::write(file(name), text).unwrap();
        }
        let read = |names: &[&str]| {
            let list = std::env::join_paths(names.iter().map(|name| file(name))).unwrap();
            read_list(&list)
        };
        let both = read(&["missing", "a", "b"]).unwrap();
        assert_eq!(both.current_context.as_deref(), Some("a"));
        assert_eq!(both.contexts.len(), 2);
        assert!(matches!(read(&["missing"]), Err(KubeconfigError::ReadConfig(..))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
