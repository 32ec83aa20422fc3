//! The pod that a request is about.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use usher_decide::admission::FoundPod;

/// A cache of pods, such as the one of the controller.
pub trait PodCache: Send + Sync {
    /// The pod that had this name when the cache last looked.
    fn pod(&self, namespace: &str, name: &str) -> Option<FoundPod>;
}

/// Finds pods in the cache if there is one, else by asking the API server.
pub(crate) struct Pods {
    pub client: Client,
    pub cache: Option<Arc<dyn PodCache>>,
}

impl Pods {
    /// The pod that is meant. The cache is believed only if what it says leads to yes: a cache lags behind, and nobody is
    /// refused because of that.
    pub async fn find(&self, namespace: &str, name: &str, uid: &str) -> kube::Result<Option<FoundPod>> {
        let cached = self.cache.as_ref().and_then(|cache| cache.pod(namespace, name));
        match cached.filter(|pod| pod.uid == uid && !pod.is_terminal()) {
            Some(pod) => Ok(Some(pod)),
            None => self.read(namespace, name).await,
        }
    }

    /// The pod as it is now.
    pub async fn read(&self, namespace: &str, name: &str) -> kube::Result<Option<FoundPod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.get_opt(name).await?.map(FoundPod::from))
    }
}
