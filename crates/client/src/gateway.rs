//! Requests in the name of somebody who knows nothing of them, and evicts: what is asked is remembered on the request, and each write is
//! tried once.

use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use usher_api::EvictionRequest;
use usher_api::gateway::{Ask, WayToAsk};
use usher_api::names::RequesterName;

use crate::requests::{ReadRequest, Writer, new_request};

/// A request in the name of whoever evicts, as it is written.
pub struct GatewayRequest<'a> {
    pub client: &'a Client,
    pub writer: Writer,
    pub namespace: &'a str,
    /// The name of the pod, and its UID.
    pub pod: &'a str,
    pub uid: &'a str,
    pub requester: &'a RequesterName,
    pub ask: &'a Ask,
}

impl GatewayRequest<'_> {
    /// Writes it in this way. Whose request was not read makes one.
    ///
    /// # Errors
    /// The request is not the one that was read any more, there is one already, or the server does not take it.
    pub async fn write(&self, way: WayToAsk, read: Option<ReadRequest<'_>>) -> Result<(), Error> {
        match (way, read) {
            (WayToAsk::Create, _) | (_, None) => self.create().await,
            (WayToAsk::Join, Some(read)) => {
                let (finalizer, ask) = (self.requester.finalizer(), self.annotation());
                self.writer.join(&self.requests(), read, &finalizer, Some(ask)).await.map(drop)
            }
            (WayToAsk::Remember, Some(read)) => {
                let (requests, ask) = (self.requests(), self.annotation());
                self.writer.remember(&requests, read.name, read.version.uid, ask).await.map(drop)
            }
        }
    }

    async fn create(&self) -> Result<(), Error> {
        let requests: Api<EvictionRequest> = Api::namespaced(self.client.clone(), self.namespace);
        let mut request = new_request(self.namespace, self.pod, self.uid, &self.requester.finalizer(), None);
        request.metadata.annotations = Some([self.annotation()].into());
        self.writer.create(&requests, &request).await.map(drop)
    }

    fn annotation(&self) -> (String, String) {
        self.ask.annotation(self.requester.as_str())
    }

    /// What is answered may hold what cannot be read, and nobody looks at it.
    fn requests(&self) -> Api<PartialObjectMeta<EvictionRequest>> {
        Api::namespaced(self.client.clone(), self.namespace)
    }
}
