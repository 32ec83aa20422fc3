//! Eviction requests on a living cluster: the controller beside it, and hands to play requesters and interceptors.

use anyhow::Result;
use embedded_apiserver::Cluster;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use usher_api::names::MANAGER_NAMESPACE;
use usher_apply::Clock;
use usher_controllers::eviction_request;

use crate::living::{Living, PODS};
use crate::witness::Witness;
use crate::{crds, manifests};

pub const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The finalizer of the requester that the tests play.
pub const DRAIN: &str = "requester.evictionrequest.coordination.k8s.io/name_drain.example.com";

/// A controller that runs until this is dropped, as if its process were killed.
#[derive(Debug)]
pub struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the eviction request controller on the cluster's clock, under the eyes of a witness.
#[must_use]
pub fn start_controller(cluster: &Cluster, witness: &Witness) -> Running {
    let server = cluster.clone();
    let clock = Clock::from_fn(move || server.now());
    Running(tokio::spawn(eviction_request::run(witness.manager("manager-1"), clock)))
}

impl Living {
    /// Installs the definitions of eviction requests and node maintenances.
    ///
    /// # Errors
    /// One was refused.
    pub async fn install_crds(&self) -> Result<()> {
        for definition in crds::definitions()? {
            self.create(DEFINITIONS, &definition).await?;
        }
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": MANAGER_NAMESPACE}})).await?;
        Ok(())
    }

    /// Installs the policies of files of `deploy/`, which take the manager for the account that [`Witness`] and
    /// [`Process`](crate::chaos::Process) give it.
    ///
    /// # Errors
    /// One was refused.
    pub async fn install_policies(&self, files: &[&str]) -> Result<()> {
        for file in files {
            for object in manifests::objects(file)? {
                self.create(&manifests::collection(&object)?, &object).await?;
            }
        }
        Ok(())
    }

    /// Asks for the eviction of a pod, with interceptors as the webhook would find them. The path of the request.
    ///
    /// # Errors
    /// It was refused.
    pub async fn request(&self, pod: &str, interceptors: &Value) -> Result<String> {
        let pod = self.get(&format!("{PODS}/{pod}")).await?;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": [DRAIN]},
            "spec": {"podRef": {"name": pod["metadata"]["name"], "uid": uid}, "interceptors": interceptors},
        });
        self.create(REQUESTS, &request).await?;
        Ok(format!("{REQUESTS}/{uid}"))
    }
}
