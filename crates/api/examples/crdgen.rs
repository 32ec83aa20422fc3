//! Prints the custom resource definitions, or writes them into the folder given: `crdgen deploy/crds`.

use std::error::Error;
use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The text of a definition's file.
pub fn render(crd: &CustomResourceDefinition) -> Result<String, Box<dyn Error>> {
    let yaml = serde_saphyr::to_string(&serde_json::to_value(crd)?)?;
    Ok(format!(
        "# Generated from crates/api by `cargo run -p usher-api --example crdgen deploy/crds`.\n{yaml}"
    ))
}

#[allow(dead_code, reason = "a test includes this file for `render`")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    for (file, crd) in usher_api::crd::crds() {
        let text = render(&crd)?;
        match &folder {
            Some(folder) => std::fs::write(folder.join(file), text)?,
            None => println!("---\n{text}"),
        }
    }
    Ok(())
}
