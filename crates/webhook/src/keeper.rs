//! Keeps the certificates: in a Secret that all replicas share, in this server, and as `caBundle` in the configurations.
//!
//! Every replica does this by itself. Writes of the Secret carry its resourceVersion, so of two replicas that want to change it
//! one does and the other takes what it finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::certificates::Certificates;
use crate::gateway_key::GatewayKey;
use crate::rotation::{Lifetimes, Step, next_step};
use crate::tls::{ServingCertificate, Unusable};
use crate::{Clock, configurations};
use usher_client::kind_of;

/// The key in the Secret that holds everything; the others are there for people to look at.
const ALL: &str = "certificates.json";
/// What another replica has changed is seen after this long.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a failure.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Steps and conflicts in one round; more would mean that something else writes the Secret all the time.
const ROUND_MAX: usize = 10;

/// Why a round did not end well. The next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The API server did not do as asked.
    #[error(
        "{what}: {}; the manager needs get, create and update on this Secret, get and patch on its webhook configurations",
        kind_of(why)
    )]
    Api {
        /// What was tried.
        what: String,
        /// Its answer.
        why: Box<kube::Error>,
    },
    /// No certificate can be made.
    #[error("no certificate can be made for these names: {0}")]
    Make(#[from] rcgen::Error),
    /// What is in the Secret cannot be used.
    #[error("the certificates in the Secret cannot be used, delete it to have new ones made: {0}")]
    Unusable(#[from] Unusable),
    /// Other writers.
    #[error("Secret {0} changes all the time: does something else write it?")]
    Restless(String),
}

/// Keeps certificates of its own making.
pub struct Keeper {
    client: Client,
    namespace: String,
    secret: String,
    names: Vec<String>,
    serving: Arc<ServingCertificate>,
    lifetimes: Lifetimes,
    clock: Clock,
    gateway_key: Option<Arc<GatewayKey>>,
}

impl Keeper {
    /// Certificates for the names at which API servers reach this server, kept in a Secret of this namespace.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        secret: impl Into<String>,
        names: Vec<String>,
        serving: Arc<ServingCertificate>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            secret: secret.into(),
            names,
            serving,
            lifetimes: Lifetimes::default(),
            clock: Clock::system(),
            gateway_key: None,
        }
    }

    /// Takes the time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps the key of the gateway too. Without this, who may ask is left to others, such as certificates of clients.
    #[must_use]
    pub fn with_gateway_key(mut self, key: Arc<GatewayKey>) -> Self {
        self.gateway_key = Some(key);
        self
    }

    /// Keeps the certificates until `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        self.run_boxed(shutdown.boxed()).await;
    }

    /// Not generic, so that the keeper is compiled here and not again in each crate that runs it.
    fn run_boxed(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        self.keep(shutdown).boxed()
    }

    async fn keep(self, mut shutdown: BoxFuture<'static, ()>) {
        loop {
            let pause = match self.round().await {
                Ok(until) => {
                    tracing::debug!(%until, "the webhook's certificates are up to date");
                    LOOK_EVERY
                }
                Err(why) => {
                    tracing::warn!(%why, "the webhook's certificates are not up to date");
                    TRY_AGAIN
                }
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does all steps that are due, serves with the result and has it trusted. Gives back when the next step is due.
    ///
    /// # Errors
    /// See [`KeeperError`]; what was served before is served on.
    pub async fn round(&self) -> Result<Timestamp, KeeperError> {
        for _ in 0..ROUND_MAX {
            let (stored, held) = self.read().await?;
            let dates = held.as_ref().map(|held| held.dates(&self.names));
            let now = self.clock.now();
            match (next_step(dates.as_ref(), &self.lifetimes, now), held) {
                (Step::Wait(until), Some(held)) => {
                    if let Some(key) = &self.gateway_key {
                        key.set(&held.gateway_key);
                    }
                    self.serving.replace(&held.serving.certificate, &held.serving.key)?;
                    if !self.trust(&held).await? {
                        return Ok(until);
                    }
                    // Another replica may have moved on between reading and trusting: look once more.
                }
                (step, held) => {
                    let changed = match &held {
                        Some(held) => held.after(step, &self.names, &self.lifetimes, now)?,
                        None => Certificates::create(&self.names, &self.lifetimes, now)?,
                    };
                    self.write(stored, &changed).await?;
                    tracing::info!(?step, "the webhook's certificates changed");
                }
            }
        }
        Err(KeeperError::Restless(self.secret.clone()))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn read(&self) -> Result<(Option<Secret>, Option<Certificates>), KeeperError> {
        let stored = self.secrets().get_opt(&self.secret).await.map_err(|why| self.failed("reading", why))?;
        let data = stored.as_ref().and_then(|secret| secret.data.as_ref()?.get(ALL));
        let held = data.and_then(|data| {
            let read = serde_json::from_slice(&data.0);
            read.inspect_err(|_| tracing::warn!("what is in the Secret cannot be read, and is replaced")).ok()
        });
        Ok((stored, held))
    }

    /// Somebody else having been faster is no error: the next look sees it.
    async fn write(&self, stored: Option<Secret>, held: &Certificates) -> Result<(), KeeperError> {
        let bytes = |text: String| ByteString(text.into_bytes());
        let all = serde_json::to_string(held)
            .map_err(|why| self.failed("writing", kube::Error::SerdeError(why)))?;
        let data = BTreeMap::from([
            (ALL.to_owned(), bytes(all)),
            ("ca.crt".to_owned(), bytes(held.bundle())),
            ("tls.crt".to_owned(), bytes(held.serving.certificate.clone())),
        ]);
        let written = match stored {
            Some(mut secret) => {
                secret.data = Some(data);
                self.secrets().replace(&self.secret, &PostParams::default(), &secret).await
            }
            None => {
                let mut secret = Secret { data: Some(data), ..Secret::default() };
                secret.metadata.name = Some(self.secret.clone());
                self.secrets().create(&PostParams::default(), &secret).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(why) => Err(self.failed("writing", why)),
        }
    }

    fn failed(&self, what: &str, why: kube::Error) -> KeeperError {
        let what = format!("{what} Secret {}/{}", self.namespace, self.secret);
        KeeperError::Api { what, why: Box::new(why) }
    }

    /// The change of the gateway's path that is due.
    fn gateway_path(&self, held: &Certificates, hooks: &[ValidatingWebhook]) -> Vec<Value> {
        match &self.gateway_key {
            Some(_) => path_patch(hooks, &GatewayKey::path(&held.gateway_key)),
            None => path_patch(hooks, configurations::gateway_path()),
        }
    }

    /// Writes the bundle into both configurations, and the path of the gateway, where they have another one. Tells whether they had.
    async fn trust(&self, held: &Certificates) -> Result<bool, KeeperError> {
        let wanted = ByteString(held.bundle().into_bytes());
        let name = configurations::NAME;
        let failed = |why| KeeperError::Api {
            what: format!("having the certificates trusted by webhook configuration {name}"),
            why: Box::new(why),
        };

        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = mutating.get_opt(name).await.map_err(failed)?;
        warn_if_missing("Mutating", found.is_none());
        let hooks = found.and_then(|found| found.webhooks).unwrap_or_default();
        let patch = bundles(hooks.into_iter().map(|hook| (hook.name, hook.client_config.ca_bundle)), &wanted);
        let mut changed = apply(&mutating, patch).await.map_err(failed)?;

        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = validating.get_opt(name).await.map_err(failed)?;
        warn_if_missing("Validating", found.is_none());
        let hooks = found.and_then(|found| found.webhooks).unwrap_or_default();
        let gateway = self.gateway_path(held, &hooks);
        let patch = bundles(hooks.into_iter().map(|hook| (hook.name, hook.client_config.ca_bundle)), &wanted);
        changed |= apply(&validating, patch).await.map_err(failed)?;
        // Without it plain evictions pass; certificates must not wait for that.
        match apply(&validating, gateway).await {
            Ok(written) => changed |= written,
            Err(why) => tracing::warn!(why = kind_of(&why), "API servers are not told where the gateway is"),
        }
        Ok(changed)
    }
}

/// Where in the configuration the gateway's path is, if it is another one.
fn path_patch(hooks: &[ValidatingWebhook], path: &str) -> Vec<Value> {
    let found = hooks.iter().enumerate().find(|(_, hook)| hook.name == configurations::gateway_name());
    let Some((at, hook)) = found else { return Vec::new() };
    let test = json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": hook.name});
    let config = &hook.client_config;
    let start = configurations::gateway_path();
    let (field, is, wanted) = match (&config.service, &config.url) {
        (Some(service), _) => ("service/path", service.path.clone(), path.to_owned()),
        (None, Some(url)) => {
            let base = url.split_once(start).map_or(url.as_str(), |(base, _)| base).trim_end_matches('/');
            ("url", Some(url.clone()), format!("{base}{path}"))
        }
        (None, None) => return Vec::new(),
    };
    if is.as_ref() == Some(&wanted) {
        return Vec::new();
    }
    vec![test, json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/{field}"), "value": wanted})]
}

fn warn_if_missing(kind: &str, missing: bool) {
    if missing {
        tracing::warn!(
            "{kind}WebhookConfiguration {} is missing: install deploy/webhooks.yaml",
            configurations::NAME
        );
    }
}

/// The JSON patch that gives every webhook the bundle; empty if all have it. Each is tested for its name first, as the list may
/// have changed meanwhile.
fn bundles(hooks: impl Iterator<Item = (String, Option<ByteString>)>, wanted: &ByteString) -> Vec<Value> {
    let outdated = hooks.enumerate().filter(|(_, (_, bundle))| bundle.as_ref() != Some(wanted));
    outdated
        .flat_map(|(at, (name, _))| {
            [
                json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": name}),
                json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": wanted}),
            ]
        })
        .collect()
}

async fn apply<K>(api: &Api<K>, operations: Vec<Value>) -> kube::Result<bool>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    if operations.is_empty() {
        return Ok(false);
    }
    let patch = serde_json::from_value(Value::Array(operations)).map_err(kube::Error::SerdeError)?;
    api.patch(configurations::NAME, &PatchParams::default(), &Patch::Json::<()>(patch)).await?;
    Ok(true)
}
