//! The eviction of a pod, of the very one by its UID.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{Api, PostParams};
use kube::core::Status;
use kube::{Client, Error};
use usher_api::Refusal;

use crate::refusal::refusal_of;

/// What the server said to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evicted {
    Accepted,
    /// The pod is not there any more.
    Gone,
    /// The name belongs to another pod now, or others write the budget at the same time: only a look at the pod can tell.
    Conflict(Refusal),
    Refused(Refusal),
}

/// # Errors
/// There was no answer: whether the pod was evicted, only the pod can tell.
pub async fn evict(client: Client, namespace: &str, name: &str, uid: &str) -> Result<Evicted, Error> {
    evict_within(client, namespace, name, uid, None).await
}

/// The same, with another grace period than the pod's own.
///
/// # Errors
/// As for [`evict`].
pub async fn evict_within(
    client: Client,
    namespace: &str,
    name: &str,
    uid: &str,
    grace_period_seconds: Option<i64>,
) -> Result<Evicted, Error> {
    // By hand: kube's own `evict` (5.0) writes `delete_options`, a field that the server does not know, so the precondition would
    // be lost.
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() }),
            grace_period_seconds,
            ..DeleteOptions::default()
        }),
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let sent: Result<Status, Error> =
        pods.create_subresource("eviction", name, &PostParams::default(), &eviction).await;
    match sent {
        Ok(_) => Ok(Evicted::Accepted),
        Err(Error::Api(status)) => Ok(match refusal_of(&status) {
            None => Evicted::Gone,
            Some(refusal @ Refusal::Server { code: 409, .. }) => Evicted::Conflict(refusal),
            Some(refusal) => Evicted::Refused(refusal),
        }),
        Err(other) => Err(other),
    }
}
