//! The pod that a request is about.
//!
//! It is read from the API server and not from a cache: its interceptors are copied once and for all, and one that registered
//! just now must not be missed.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, GetParams, ListParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::value::RawValue;
use usher_api::Interceptor;
use usher_api::lenient::Lenient;
use usher_api::workloads::autoscaler_interceptor;
use usher_decide::admission::FoundPod;
use usher_decide::snapshot::{Autoscaler, AutoscalerOnWire};

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

/// The interceptor of the autoscaler over a Deployment, if it has one. Autoscalers change seldom, so that what the API server has in its
/// memory will do.
pub(crate) async fn autoscaler_over(
    client: &Client,
    namespace: &str,
    deployment: &str,
) -> kube::Result<Option<Interceptor>> {
    let autoscalers: Api<Lenient<AutoscalerOnWire>> = Api::namespaced(client.clone(), namespace);
    let list = match autoscalers.list(&ListParams::default().match_any()).await {
        // Without its role the interceptor does nothing and says so on the request, which is not to be refused for that.
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        list => list?,
    };
    let all: Vec<Autoscaler> =
        list.items.into_iter().filter_map(|it| it.read().ok()).map(Autoscaler::from).collect();
    let over = Autoscaler::over(deployment, &all);
    Ok(over.map(|autoscaler| autoscaler_interceptor(autoscaler.priority.as_deref())))
}
