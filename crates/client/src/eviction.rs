//! The eviction of a pod, or its deletion: of the very one by its UID.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Client, Error};
use usher_api::Refusal;
use usher_api::names::EVICTING_INTERCEPTOR_ANNOTATION;

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

/// What an eviction says besides which pod it means.
#[derive(Debug, Clone, Copy, Default)]
pub struct EvictionOptions<'a> {
    /// Only as it was read.
    pub resource_version: Option<&'a str>,
    /// Another grace period than the pod's own.
    pub grace_period_seconds: Option<i64>,
    /// The interceptor that evicts the pod in its own turn.
    pub interceptor: Option<&'a str>,
}

/// # Errors
/// There was no answer: whether the pod was evicted, only the pod can tell.
pub async fn evict(
    client: Client,
    namespace: &str,
    name: &str,
    uid: &str,
    options: EvictionOptions<'_>,
) -> Result<Evicted, Error> {
    let interceptor = options.interceptor.map(str::to_owned);
    // By hand: kube's own `evict` (5.0) writes `delete_options`, a field that the server does not know, so the precondition would
    // be lost.
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: interceptor
                .map(|class| [(EVICTING_INTERCEPTOR_ANNOTATION.to_owned(), class)].into()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: options.resource_version.map(str::to_owned),
            }),
            grace_period_seconds: options.grace_period_seconds,
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

/// Deletes a pod, whatever budgets say; only as it was read, if a version is given.
///
/// # Errors
/// The server did not take it, or there was no answer. The code 404 says that the pod is not there any more.
pub async fn delete_pod(
    client: Client,
    namespace: &str,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
) -> Result<(), Error> {
    // What is answered may hold what cannot be read, and nobody looks at it.
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, namespace);
    let preconditions = kube::api::Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: resource_version.map(str::to_owned),
    };
    pods.delete(name, &DeleteParams::default().preconditions(preconditions)).await.map(drop)
}
