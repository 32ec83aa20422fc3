//! What tests need of the machine beside Rust and Go.

use std::path::Path;
use std::process::{Command, Stdio};

/// Installs the Debian packages of programs that are missing, where that can be done.
///
/// # Errors
/// What is still missing, in words that say what to do.
pub fn install_missing(programs: &[(&str, &str)]) -> Result<(), String> {
    let missing = || -> Vec<&str> {
        let missing = programs.iter().filter(|(program, _)| !Path::new(program).is_file());
        let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
        packages.dedup();
        packages
    };
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    if is_root() {
        // Whatever fails shows by what is missing then.
        let _ = apt_get(&["update", "-qq"]);
        let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
        install.extend(&packages);
        let _ = apt_get(&install);
    }
    match &missing()[..] {
        [] => Ok(()),
        packages => Err(format!("install the Debian packages {}", packages.join(", "))),
    }
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

fn apt_get(arguments: &[&str]) -> std::io::Result<std::process::ExitStatus> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
}
