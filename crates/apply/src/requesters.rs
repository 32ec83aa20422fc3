//! Who asks that a pod leaves, on the request that was looked at: one that was changed meanwhile is not written to.

use kube::api::{Api, PatchParams};
use kube::{Client, Error};
use usher_api::lenient::Lenient;
use usher_client::requests::{Version, set_finalizers};
use usher_decide::snapshot::{Request, RequestOnWire};

pub fn version(request: &Request) -> Version<'_> {
    Version { uid: &request.uid, resource_version: &request.resource_version }
}

/// Adds this requester's finalizer.
pub async fn join(client: &Client, writer: &str, request: &Request, finalizer: &str) -> Result<(), Error> {
    let names: Vec<String> = request.finalizers.iter().cloned().chain([finalizer.to_owned()]).collect();
    keep(client, writer, request, &names).await
}

/// Takes this requester's finalizer off.
pub async fn withdraw(
    client: &Client,
    writer: &str,
    request: &Request,
    finalizer: &str,
) -> Result<(), Error> {
    let names: Vec<String> = request.finalizers.iter().filter(|name| **name != finalizer).cloned().collect();
    keep(client, writer, request, &names).await
}

/// Leaves only these finalizers.
pub async fn keep(client: &Client, writer: &str, request: &Request, names: &[String]) -> Result<(), Error> {
    let requests: Api<Lenient<RequestOnWire>> = Api::namespaced(client.clone(), &request.key.namespace);
    let parameters = PatchParams::apply(writer);
    set_finalizers(&requests, &request.key.name, version(request), names, &parameters).await.map(drop)
}
