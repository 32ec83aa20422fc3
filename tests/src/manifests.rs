//! The files of `deploy/` on a test cluster.

use crate::TestCluster;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;

/// The folder of what is installed.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The objects of a file, whose path is relative to `deploy/`.
///
/// # Errors
/// It cannot be read.
pub fn objects(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(folder().join(file)).with_context(|| file.to_owned())?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| file.to_owned())?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The files of the bundled interceptors that end so, in the order of their names, by paths relative to `deploy/`.
///
/// # Errors
/// The folder cannot be read, or has none.
pub fn of_workloads(endings: &[&str]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder().join("workloads"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if endings.iter().any(|ending| file.ends_with(ending)) {
            files.push(format!("workloads/{file}"));
        }
    }
    ensure!(!files.is_empty(), "deploy/workloads has no files {endings:?}");
    files.sort();
    Ok(files)
}

/// Where an object is created, as its kind and namespace say.
///
/// # Errors
/// The kind is none that `deploy/` has.
pub fn collection(object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let plural = match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding" => "mutatingadmissionpolicybindings",
        "MutatingWebhookConfiguration" => "mutatingwebhookconfigurations",
        "ValidatingWebhookConfiguration" => "validatingwebhookconfigurations",
        other => bail!("{other:?} is not known here"),
    };
    let version = text(&object["apiVersion"]);
    let group = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let namespace = match text(&object["metadata"]["namespace"]) {
        none if none.is_empty() => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    Ok(format!("{group}{namespace}/{plural}"))
}

/// Creates an object where its kind and namespace say.
///
/// # Errors
/// The cluster refuses it, or the kind is none that `deploy/` has.
pub async fn create(cluster: &TestCluster, object: &Value) -> Result<()> {
    cluster.created(&collection(object)?, object).await.map(drop)
}

/// Creates the objects of files.
///
/// # Errors
/// One of them is refused.
pub async fn install(cluster: &TestCluster, files: &[&str]) -> Result<()> {
    for file in files {
        for object in objects(file)? {
            create(cluster, &object).await?;
        }
    }
    Ok(())
}
