//! One way to reach either cluster: plain HTTPS requests, a kube client, and a kubeconfig for kubectl.

mod embedded;
mod http;

pub(crate) use http::send as exchange;
pub use http::{Answer, Request};

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The user who may do anything.
pub const ADMIN: &str = "admin";
/// The group of all other users; it has no rights.
pub const TESTERS: &str = "testers";
/// Sends no token at all.
pub const ANONYMOUS: &str = "anonymous";
/// Sends a token that nobody has.
pub const STRANGER: &str = "stranger";
/// What every request says it comes from, so that `managedFields` name the same manager everywhere.
pub const USER_AGENT: &str = "corpus/v1";

/// A running cluster, whichever it is. It ends when dropped.
pub struct TestCluster {
    name: &'static str,
    url: String,
    ca_pem: String,
    clients: BTreeMap<String, kube::Client>,
    tokens: BTreeMap<String, String>,
    kubeconfig: PathBuf,
    /// Whatever keeps the cluster running.
    _running: Box<dyn Any + Send + Sync>,
}

/// How to reach a cluster that a constructor has started.
pub struct Access {
    /// `real` or `embedded`.
    pub name: &'static str,
    pub url: String,
    pub ca_pem: String,
    /// Bearer tokens by user.
    pub tokens: BTreeMap<String, String>,
    /// A kubeconfig file of [`ADMIN`].
    pub kubeconfig: PathBuf,
}

impl TestCluster {
    /// Connects to a cluster. Dropping the test cluster drops `running`, which ends the cluster.
    ///
    /// # Errors
    /// A client cannot be built from the given access.
    pub async fn reach(access: Access, running: impl Any + Send + Sync) -> Result<Self> {
        let Access { name, url, ca_pem, tokens, kubeconfig } = access;
        let mut clients = BTreeMap::new();
        let known = tokens.iter().map(|(user, token)| (user.as_str(), json!({"token": token})));
        let strangers = [(ANONYMOUS, json!({})), (STRANGER, json!({"token": "of-nobody"}))];
        for (user, credentials) in known.chain(strangers) {
            clients.insert(user.to_owned(), client(&url, &ca_pem, credentials).await?);
        }
        Ok(Self { name, url, ca_pem, clients, tokens, kubeconfig, _running: Box::new(running) })
    }

    /// `real` or `embedded`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A kubeconfig file of [`ADMIN`], for kubectl.
    #[must_use]
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// The bearer token of `user`: `admin`, `viewer`, `editor` or `nobody`.
    ///
    /// # Errors
    /// There is no such user.
    pub fn token(&self, user: &str) -> Result<&str> {
        self.tokens.get(user).map(String::as_str).ok_or_else(|| anyhow!("no user {user}"))
    }

    /// A client that acts as `user` and retries nothing.
    ///
    /// # Errors
    /// There is no such user.
    pub fn client(&self, user: &str) -> Result<kube::Client> {
        self.clients.get(user).cloned().ok_or_else(|| anyhow!("no user {user}"))
    }

    /// The same for whoever has that token.
    ///
    /// # Errors
    /// The token cannot be sent.
    pub async fn client_with(&self, token: &str) -> Result<kube::Client> {
        client(&self.url, &self.ca_pem, json!({"token": token})).await
    }

    /// Sends one request exactly as given and reads the whole answer.
    ///
    /// # Errors
    /// There is no such user, the request is malformed, or the connection failed. Any HTTP status is an answer.
    pub async fn send(&self, user: &str, request: Request) -> Result<Answer> {
        http::send(&self.client(user)?, request).await
    }

    /// Opens a watch and reads events until there are `count`, the server ends the stream, or time is up. The
    /// body of the answer is the list of events; where no watch was opened it is the error.
    ///
    /// # Errors
    /// As for [`TestCluster::send`].
    pub async fn watch(&self, user: &str, request: Request, count: usize) -> Result<Answer> {
        http::watch(&self.client(user)?, request, count).await
    }
}

/// kube's own retries would hide answers such as 429.
async fn client(url: &str, ca_pem: &str, credentials: Value) -> Result<kube::Client> {
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": credentials}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig of a test cluster cannot be used")?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}
