//! Who asks that a pod leaves, on the request that was looked at: one that was changed meanwhile is not written to.

use kube::api::Api;
use kube::{Client, Error};
use usher_api::lenient::Lenient;
use usher_client::{ReadRequest, Version, Writer};
use usher_decide::snapshot::{Request, RequestOnWire};

pub fn version(request: &Request) -> Version<'_> {
    Version { uid: &request.uid, resource_version: &request.resource_version }
}

pub fn read(request: &Request) -> ReadRequest<'_> {
    ReadRequest { name: &request.key.name, version: version(request), finalizers: &request.finalizers }
}

/// Adds this requester's finalizer.
pub async fn join(client: &Client, writer: Writer, request: &Request, finalizer: &str) -> Result<(), Error> {
    writer.join(&beside(client, request), read(request), finalizer, None).await.map(drop)
}

/// Takes this requester's finalizer off.
pub async fn withdraw(
    client: &Client,
    writer: Writer,
    request: &Request,
    finalizer: &str,
) -> Result<(), Error> {
    writer.withdraw(&beside(client, request), read(request), |one| one == finalizer).await.map(drop)
}

/// Leaves only these finalizers.
pub async fn keep(client: &Client, writer: Writer, request: &Request, names: &[String]) -> Result<(), Error> {
    writer.keep(&beside(client, request), &request.key.name, version(request), names).await.map(drop)
}

/// The requests of its namespace.
fn beside(client: &Client, request: &Request) -> Api<Lenient<RequestOnWire>> {
    Api::namespaced(client.clone(), &request.key.namespace)
}
