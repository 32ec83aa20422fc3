//! Images of containers, made without a registry and without a program that builds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Error;

/// Makes `image.tar` in a folder, with these names, of what is below `root`; `config` is what a Dockerfile sets, such as `Entrypoint`.
///
/// # Errors
/// Something cannot be read or written.
pub fn pack(folder: &Path, root: &Path, config: &Value, names: &[&str]) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(Error::io("cannot create", folder))?;
    // An image is an archive of its layers, which are archives too, its configuration and a list of both.
    let layer = folder.join("layer.tar");
    run(Command::new("tar")
        .arg("--create")
        .arg("--file")
        .arg(&layer)
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg("--directory")
        .arg(root)
        .arg("."))?;
    let sum = run(Command::new("sha256sum").arg("layer.tar").current_dir(folder))?;
    let digest = sum.split_whitespace().next().unwrap_or_default();
    let config = json!({
        "architecture": architecture(), "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let list = json!([{"Config": "config.json", "RepoTags": names, "Layers": ["layer.tar"]}]);
    for (file, text) in [("config.json", config), ("manifest.json", list)] {
        let path = folder.join(file);
        fs::write(&path, text.to_string()).map_err(Error::io("cannot write", path))?;
    }
    let files = ["manifest.json", "config.json", "layer.tar"];
    run(Command::new("tar").args(["--create", "--file=image.tar"]).args(files).current_dir(folder))?;
    fs::remove_file(&layer).map_err(Error::io("cannot remove", &layer))?;
    Ok(folder.join("image.tar"))
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// What a program says, if it ends well.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(Error::io("cannot run", Path::new(&program)))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::NoRealNodes(format!("{}: {why}", program.display())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
