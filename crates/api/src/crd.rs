//! The custom resource definitions as they are installed, and the files that hold them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{EvictionRequest, NodeMaintenance};

/// Every definition with the name of its file under `deploy/crds`.
pub fn crds() -> [(&'static str, CustomResourceDefinition); 2] {
    [("evictionrequests.yaml", EvictionRequest::crd()), ("nodemaintenances.yaml", NodeMaintenance::crd())]
}
