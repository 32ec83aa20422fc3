//! Examples of the workspace as processes.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// An example as the tests of the whole workspace build it, and its path. `cargo build --example` would compile most dependencies once more.
///
/// # Errors
/// It does not build.
pub async fn built(name: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--locked", "--workspace", "--no-run", "--message-format=json"]);
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
    let mut of_example = messages
        .filter(|message| message["target"]["name"] == name && message["target"]["kind"][0] == "example");
    let path = of_example.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.context("cargo does not say where the example is")
}
