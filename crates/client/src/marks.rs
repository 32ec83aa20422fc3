//! The mark of the Pod Evict Policy, by which a pod shows that it is wanted gone.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use serde_json::{Map, Value, json};
use usher_api::evict_policy::EvictWanted;
use usher_api::names::{EVICT_WANTED_ANNOTATION, POD_EVICT_WANTED_ANNOTATION};

/// The pod that is marked: the very one by its UID.
#[derive(Debug, Clone, Copy)]
pub struct PodToMark<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// Only as it was read.
    pub resource_version: Option<&'a str>,
}

/// Marks the pod, or takes the mark off.
///
/// # Errors
/// It is another pod by now or has changed, or the server did not take it.
pub async fn mark_pod(
    client: &Client,
    field_manager: &str,
    pod: PodToMark<'_>,
    wanted: Option<&EvictWanted>,
) -> Result<(), Error> {
    let annotations: Map<String, Value> = match wanted {
        Some(wanted) => {
            wanted.annotations().map(|(key, text)| (key.to_owned(), text.into())).into_iter().collect()
        }
        None => [POD_EVICT_WANTED_ANNOTATION, EVICT_WANTED_ANNOTATION]
            .map(|key| (key.to_owned(), Value::Null))
            .into_iter()
            .collect(),
    };
    let mut metadata = json!({"uid": pod.uid, "annotations": annotations});
    if let Some(version) = pod.resource_version {
        metadata["resourceVersion"] = version.into();
    }
    // What is answered may hold what cannot be read, and nobody looks at it.
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), pod.namespace);
    let patch = Patch::Merge(json!({"metadata": metadata}));
    pods.patch(pod.name, &PatchParams::apply(field_manager), &patch).await.map(drop)
}
