//! How a scenario reaches a cluster: requests over HTTP, nothing else, so that whoever has started a cluster, with
//! whatever beside it, can run scenarios on it.

use super::beside::Usher;
use crate::cluster::{ADMIN, Answer, Request, TestCluster, exchange};
use anyhow::{Context, Result, anyhow, bail};
use cluster_simulator::Life;
use embedded_apiserver::Cluster;
use http::Method;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Mutex;

/// A running cluster. Scenarios on it side by side do not see each other: each has its own namespace and nodes. What
/// they leave behind goes with the cluster.
pub struct ClusterUnderTest {
    client: kube::Client,
    catalogue: Mutex<Vec<Resource>>,
    /// The group that is meant where kinds of several groups are called the same.
    preferred: Option<&'static str>,
    /// Of the embedded cluster, where kubelets are told when to stop.
    pub(super) life: Option<Life>,
    /// The cluster's time, where it is not that of this machine.
    clock: Option<Box<dyn Fn() -> Timestamp + Send + Sync>>,
    /// What runs beside it.
    pub(super) usher: Option<Usher>,
}

/// A kind as discovery tells it.
#[derive(Debug, Clone)]
pub struct Resource {
    pub api_version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// All that it may be called by: `pod`, `pods`, `po`.
    words: Vec<String>,
}

impl Resource {
    /// The path of all objects of the kind, or of one.
    #[must_use]
    pub fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let mut path = format!("/{root}/{}", self.api_version);
        if self.namespaced {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", self.plural);
        name.map_or_else(|| path.clone(), |name| format!("{path}/{name}"))
    }

    fn is_called(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }
}

impl ClusterUnderTest {
    /// The client has to be the administrator's; other users are impersonated.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self { client, catalogue: Mutex::default(), preferred: None, life: None, clock: None, usher: None }
    }

    /// # Errors
    /// It has no administrator.
    pub fn of(cluster: &TestCluster) -> Result<Self> {
        Ok(Self::new(cluster.client(ADMIN)?))
    }

    /// Without any socket, so that time can be virtual. Its life ends with this.
    #[must_use]
    pub fn embedded(cluster: &Cluster, life: Life) -> Self {
        let server = cluster.clone();
        let clock: Box<dyn Fn() -> Timestamp + Send + Sync> = Box::new(move || server.now());
        let reached = Self::new(kube::Client::new(cluster.service(), "default"));
        Self { life: Some(life), clock: Some(clock), ..reached }
    }

    /// The present time of the cluster.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(Timestamp::now, |clock| clock())
    }

    /// Of kinds that are called the same, those of this group are meant.
    #[must_use]
    pub fn preferring(self, group: &'static str) -> Self {
        Self { preferred: Some(group), ..self }
    }

    /// With Usher beside it, which ends with this.
    #[must_use]
    pub fn with(self, usher: Usher) -> Self {
        Self { usher: Some(usher), ..self }
    }

    /// Ends what a scenario descheduled with, if Usher runs with the cluster.
    pub fn end_descheduling(&self) {
        self.usher.iter().for_each(Usher::end_descheduling);
    }

    /// Sends a request as the user, or as the administrator.
    ///
    /// # Errors
    /// The connection failed; any HTTP status is an answer.
    pub async fn send(&self, user: Option<&str>, mut request: Request) -> Result<Answer> {
        if let Some(user) = user {
            request.headers.push(("Impersonate-User".to_owned(), user.to_owned()));
        }
        exchange(&self.client, request).await
    }

    /// # Errors
    /// The answer is none of success.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.send(None, Request::new(Method::GET, path)).await?;
        if answer.status != 200 {
            bail!("{path}: {} {}", answer.status, answer.body);
        }
        Ok(answer.body)
    }

    /// Opens a watch; its body goes on until the server ends it.
    ///
    /// # Errors
    /// No watch was opened.
    pub async fn open(&self, path: &str) -> Result<Body> {
        let response = self.client.send(http::Request::get(path).body(Body::empty())?).await?;
        if response.status() != 200 {
            bail!("{path}: {}", response.status());
        }
        Ok(response.into_body())
    }

    /// The kind that is called so: `pod`, `deployments`, `pdb`, `evictionrequests.lifecycle.k8s.io`.
    ///
    /// # Errors
    /// The cluster knows no such kind.
    pub async fn resource(&self, word: &str) -> Result<Resource> {
        let word = word.to_lowercase();
        self.find(|resource| resource.is_called(&word))
            .await?
            .ok_or_else(|| anyhow!("no kind is called {word}"))
    }

    /// The kind of a manifest.
    ///
    /// # Errors
    /// The cluster knows no such kind.
    pub async fn resource_of(&self, manifest: &Value) -> Result<Resource> {
        let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let found = self.find(|known| known.api_version == version && known.kind == kind).await?;
        found.ok_or_else(|| anyhow!("the cluster does not serve {kind} of {version:?}"))
    }

    /// Asks the cluster again where nothing is known, for kinds come with definitions.
    async fn find(&self, wanted: impl Fn(&Resource) -> bool) -> Result<Option<Resource>> {
        let mut known = self.catalogue.lock().await;
        if let Some(found) = known.iter().find(|resource| wanted(resource)) {
            return Ok(Some(found.clone()));
        }
        *known = self.discover().await.context("discovery")?;
        Ok(known.iter().find(|resource| wanted(resource)).cloned())
    }

    async fn discover(&self) -> Result<Vec<Resource>> {
        let groups = self.get("/apis").await?;
        let versions = groups["groups"].as_array().into_iter().flatten().flat_map(|group| {
            let versions = group["versions"].as_array().into_iter().flatten();
            versions.filter_map(|version| version["groupVersion"].as_str())
        });
        let mut resources = of_version("v1", &self.get("/api/v1").await?);
        for version in versions {
            resources.extend(of_version(version, &self.get(&format!("/apis/{version}")).await?));
        }
        let is_preferred = |resource: &Resource| {
            let group = resource.api_version.split_once('/').map(|(group, _)| group);
            group.is_some() && group == self.preferred
        };
        resources.sort_by_key(|resource| !is_preferred(resource));
        Ok(resources)
    }
}

fn of_version(version: &str, list: &Value) -> Vec<Resource> {
    let group = version.split_once('/').map(|(group, _)| group);
    let entries = list["resources"].as_array().into_iter().flatten();
    let whole = entries.filter(|entry| !entry["name"].as_str().unwrap_or("/").contains('/'));
    whole
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let (kind, plural) = (text("kind"), text("name"));
            let mut words = vec![plural.clone(), kind.to_lowercase()];
            words.extend(
                entry["shortNames"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|s| s.as_str())
                    .map(str::to_owned),
            );
            words.extend(group.map(|group| format!("{plural}.{group}")));
            let namespaced = entry["namespaced"] == true;
            Resource { api_version: version.to_owned(), kind, plural, namespaced, words }
        })
        .collect()
}
