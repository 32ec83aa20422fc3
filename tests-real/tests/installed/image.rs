//! The image that is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

/// A second tag of it, to which is upgraded.
pub const NEXT: &str = "next";

/// As nodes call it.
pub fn name_of(tag: &str) -> String {
    format!("docker.io/library/usher:{tag}")
}

/// The binary that clusters get, which `.ci/run` names. By hand it would be an old one as soon as something changes.
const BINARY: &str = "USHER_IMAGE_BINARY";

/// The archive of `USHER_IMAGE`, or one with the binary of this build, as deploy/Dockerfile lays it out.
pub fn archive(folder: &Path) -> PathBuf {
    if let Some(archive) = std::env::var_os("USHER_IMAGE") {
        println!("the image is {}", archive.display());
        return archive.into();
    }
    let of_tests = || usher_tests_real::binaries::usher().unwrap();
    let binary = &std::env::var_os(BINARY).map_or_else(of_tests, PathBuf::from);
    println!("the image has the binary {}", binary.display());
    assert!(
        binary.exists(),
        "{BINARY} names {}, which is not there: 'make check' makes it",
        binary.display()
    );
    let root = folder.join("root");
    let authorities = "/etc/ssl/certs/ca-certificates.crt";
    install(&["--strip", "--mode=755"], binary, &root.join("usr/bin/usher"));
    install(&["--mode=644"], Path::new(authorities), &root.join(authorities.trim_start_matches('/')));
    // The one of `make image` is linked statically and needs none of them.
    for library in libraries(binary) {
        install(&["--mode=755"], &library, &root.join(library.strip_prefix("/").unwrap()));
    }
    let config = json!({
        "Entrypoint": ["usher"], "Cmd": ["manager"], "User": "65532:65532", "Env": ["PATH=/usr/bin"],
    });
    let name = name_of(env!("CARGO_PKG_VERSION"));
    usher_testbed::image::pack(&folder.join("image"), &root, &config, &[&name]).unwrap()
}

fn install(how: &[&str], from: &Path, to: &Path) {
    let status = Command::new("install").arg("-D").args(how).arg(from).arg(to).status().unwrap();
    assert!(status.success(), "{}", from.display());
}

/// What the loader looks for: lines such as `libc.so.6 => /lib/libc.so.6 (0x1)` and `/lib64/ld.so (0x1)`.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}
