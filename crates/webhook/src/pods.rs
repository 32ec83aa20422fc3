//! The pod that a request is about.
//!
//! It is read from the API server and not from a cache: its interceptors are copied once and for all, and one that registered
//! just now must not be missed.

use k8s_openapi::api::core::v1::Pod;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::value::RawValue;
use usher_decide::admission::FoundPod;

use crate::objects::Object;

/// The pod that has this name now. Both names have been checked: they become a path.
pub(crate) async fn find(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<FoundPod>> {
    let path = Request::new(Pod::url_path(&(), Some(namespace)));
    let request = path.get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    match client.request_text(request).await {
        Ok(text) => {
            let pod: &RawValue = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            Ok(Some(Object::new(Some(pod)).pod()))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => Err(why),
    }
}
