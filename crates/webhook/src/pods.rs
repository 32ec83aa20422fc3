//! The pod that a request is about.
//!
//! It is read from the API server and not from a cache: its interceptors are copied once and for all, and one that registered
//! just now must not be missed.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use usher_decide::admission::FoundPod;

/// The pod that has this name now.
pub(crate) async fn find(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<FoundPod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    Ok(pods.get_opt(name).await?.map(FoundPod::from))
}
