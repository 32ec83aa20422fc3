//! Asking in somebody else's name, who knows nothing of eviction requests: what is asked is remembered on the request, and each write is
//! tried once.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde_json::{Value, json};
use usher_api::EvictionRequest;
use usher_api::gateway::Ask;
use usher_api::names::requester_finalizer;

use crate::requests::{Version, new_request};

/// One ask, as it is written.
pub struct Asking<'a> {
    pub client: &'a Client,
    pub field_manager: &'static str,
    pub namespace: &'a str,
    /// The name of the pod, and its UID.
    pub pod: &'a str,
    pub uid: &'a str,
    pub requester: &'a str,
    pub ask: Ask,
}

impl Asking<'_> {
    /// Names of the gateway are such that a finalizer can have them.
    fn finalizer(&self) -> String {
        requester_finalizer(self.requester).unwrap_or_default()
    }

    /// Makes the request.
    ///
    /// # Errors
    /// There is one already, or the server does not take it.
    pub async fn create(&self) -> Result<(), Error> {
        let requests: Api<EvictionRequest> = Api::namespaced(self.client.clone(), self.namespace);
        let mut request = new_request(self.namespace, self.pod, self.uid, &self.finalizer(), None);
        request.metadata.annotations = Some([self.ask.annotation(self.requester)].into());
        let parameters = PostParams { dry_run: false, field_manager: Some(self.field_manager.to_owned()) };
        requests.create(&parameters, &request).await.map(drop)
    }

    /// Joins those who ask already.
    ///
    /// # Errors
    /// The request is not the one that was read any more, or the server does not take it.
    pub async fn join(&self, read: Version<'_>, finalizers: &[String]) -> Result<(), Error> {
        let finalizers: Vec<String> = finalizers.iter().cloned().chain([self.finalizer()]).collect();
        self.patch(json!({
            "uid": read.uid, "resourceVersion": read.resource_version, "finalizers": finalizers,
            "annotations": self.annotations(),
        }))
        .await
    }

    /// Remembers that it is still asked.
    ///
    /// # Errors
    /// The request of this UID is gone, or the server does not take it.
    pub async fn remember(&self, uid: &str) -> Result<(), Error> {
        self.patch(json!({"uid": uid, "annotations": self.annotations()})).await
    }

    fn annotations(&self) -> Value {
        let (key, value) = self.ask.annotation(self.requester);
        json!({key: value})
    }

    async fn patch(&self, metadata: Value) -> Result<(), Error> {
        // What is answered may hold what cannot be read, and nobody looks at it.
        let requests: Api<PartialObjectMeta<EvictionRequest>> =
            Api::namespaced(self.client.clone(), self.namespace);
        let parameters =
            PatchParams { field_manager: Some(self.field_manager.to_owned()), ..PatchParams::default() };
        requests.patch(self.uid, &parameters, &Patch::Merge(json!({"metadata": metadata}))).await.map(drop)
    }
}
