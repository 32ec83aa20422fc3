//! Examples of the workspace as processes.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// Builds an example with the features that a test of the whole workspace has, and gives its path.
///
/// # Errors
/// It does not build.
pub async fn built(name: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--workspace", "--example", name, "--message-format=json"]);
    // What cargo tells a test of its own package would have crates built again that read it, such as ring, and again after that.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().await?;
    ensure!(output.status.success(), "the example {name} does not build");
    let output = String::from_utf8(output.stdout)?;
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_example = messages.filter(|message| message["target"]["name"] == name);
    let path = of_example.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.context("cargo does not say where the example is")
}
