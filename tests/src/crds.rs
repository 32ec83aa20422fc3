//! The definitions of `deploy/crds` on a test cluster.

use crate::TestCluster;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The folder of the definitions.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}

/// The definitions as they are checked in.
///
/// # Errors
/// A file cannot be read.
pub fn definitions() -> Result<Vec<Value>> {
    let mut files = std::fs::read_dir(folder())?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let read = |file: std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path())?;
        serde_saphyr::from_str(&text).with_context(|| file.path().display().to_string())
    };
    files.into_iter().map(read).collect()
}

/// Installs the definitions, waits until they are served, and gives back what the cluster says of them.
///
/// # Errors
/// A definition was refused, or is not served in time.
pub async fn install(cluster: &TestCluster) -> Result<Vec<Value>> {
    let mut installed = Vec::new();
    for definition in definitions()? {
        cluster.created(DEFINITIONS, &definition).await?;
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{DEFINITIONS}/{name}");
        let found = cluster.until(&path, |answer| is_established(&answer.body)).await?;
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&spec["versions"][0]["name"]);
        let objects = format!("/apis/{}/{version}/{}", text(&spec["group"]), text(&spec["names"]["plural"]));
        cluster.until(&objects, |answer| answer.status == 200).await?;
        installed.push(found.body);
    }
    Ok(installed)
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
}
