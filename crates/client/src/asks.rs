//! Asking in somebody else's name, who knows nothing of eviction requests: what is asked is remembered on the request, and each write is
//! tried once.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde_json::{Value, json};
use usher_api::EvictionRequest;
use usher_api::gateway::{Ask, WayToAsk};
use usher_api::names::RequesterName;

use crate::requests::{Version, new_request};

/// The request of the pod, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest<'a> {
    pub version: Version<'a>,
    pub finalizers: &'a [String],
}

/// One ask, as it is written.
pub struct Asking<'a> {
    pub client: &'a Client,
    pub field_manager: &'static str,
    pub namespace: &'a str,
    /// The name of the pod, and its UID.
    pub pod: &'a str,
    pub uid: &'a str,
    pub requester: &'a RequesterName,
    pub ask: Ask,
}

impl Asking<'_> {
    /// Writes it in this way. Whose request was not read makes one.
    ///
    /// # Errors
    /// The request is not the one that was read any more, there is one already, or the server does not take it.
    pub async fn write(&self, way: WayToAsk, read: Option<ReadRequest<'_>>) -> Result<(), Error> {
        match (way, read) {
            (WayToAsk::Create, _) | (_, None) => self.create().await,
            (WayToAsk::Join, Some(read)) => self.join(read).await,
            (WayToAsk::Remember, Some(read)) => self.remember(read.version.uid).await,
        }
    }

    async fn create(&self) -> Result<(), Error> {
        let requests: Api<EvictionRequest> = Api::namespaced(self.client.clone(), self.namespace);
        let mut request = new_request(self.namespace, self.pod, self.uid, &self.requester.finalizer(), None);
        request.metadata.annotations = Some([self.ask.annotation(self.requester.as_str())].into());
        let parameters = PostParams { dry_run: false, field_manager: Some(self.field_manager.to_owned()) };
        requests.create(&parameters, &request).await.map(drop)
    }

    async fn join(&self, read: ReadRequest<'_>) -> Result<(), Error> {
        let ReadRequest { version: Version { uid, resource_version }, finalizers } = read;
        let finalizers: Vec<String> =
            finalizers.iter().cloned().chain([self.requester.finalizer()]).collect();
        self.patch(json!({
            "uid": uid, "resourceVersion": resource_version, "finalizers": finalizers,
            "annotations": self.annotations(),
        }))
        .await
    }

    /// Whatever else has changed of the request: nobody reads it for this.
    async fn remember(&self, uid: &str) -> Result<(), Error> {
        self.patch(json!({"uid": uid, "annotations": self.annotations()})).await
    }

    fn annotations(&self) -> Value {
        let (key, value) = self.ask.annotation(self.requester.as_str());
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
