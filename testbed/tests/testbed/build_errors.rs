//! When the control plane cannot be built, one line says why and what to do. Go is played by a script here.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use crate::common::{Scratch, testbed};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A `go` that says it is `version`, counts its builds in `builds`, and runs `build` with the output path in `$out`.
fn fake_go(scratch: &Scratch, version: &str, build: &str) {
    let folder = scratch.path().display();
    let script = format!(
        r#"#!/bin/sh
if [ "$1" = env ]; then echo {version}; echo linux; echo amd64; echo {folder}/gocache; exit 0; fi
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo build >> {folder}/builds
{build}
"#
    );
    let path = scratch.path().join("go");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn build_in(scratch: &Scratch, path: &Path) -> Command {
    testbed_in("build", scratch, path)
}

fn testbed_in(action: &str, scratch: &Scratch, path: &Path) -> Command {
    let mut command = testbed();
    command
        .arg(action)
        .env("PATH", path)
        .env("USHER_TESTBED_CACHE", scratch.path().join("cache"))
        .env_remove("KUBEBUILDER_ASSETS");
    command
}

/// The one line that a failed command says, besides that it builds.
fn failure(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.contains("once; the first time")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    lines[0].to_owned()
}

#[test]
fn without_go_one_line_says_to_install_it() {
    let scratch = Scratch::new("no-go");
    let line = failure(&build_in(&scratch, scratch.path()).output().unwrap());
    assert!(line.starts_with("testbed: Go is not installed"), "{line}");
    assert!(line.contains("install Go 1.26.0 or newer"), "{line}");
    assert!(line.contains("KUBEBUILDER_ASSETS"), "{line}");
}

#[test]
fn without_go_a_start_fails_with_the_same_line() {
    let scratch = Scratch::new("no-go-up");
    let line = failure(&testbed_in("up", &scratch, scratch.path()).output().unwrap());
    assert!(line.starts_with("testbed: Go is not installed"), "{line}");
}

#[test]
fn an_old_go_is_named_with_the_version_that_is_needed() {
    let scratch = Scratch::new("old-go");
    fake_go(&scratch, "go1.20.3", "exit 1");
    let line = failure(&build_in(&scratch, scratch.path()).output().unwrap());
    assert!(line.contains("Go 1.20.3 is too old"), "{line}");
    assert!(!scratch.path().join("builds").exists(), "nothing is built with it");
}

#[test]
fn a_failed_build_names_its_log() {
    let scratch = Scratch::new("failed-build");
    fake_go(&scratch, "go1.99.0", "echo first; echo 'main.go:1: undefined: x' >&2; exit 1");
    let output = build_in(&scratch, scratch.path()).output().unwrap();
    let line = failure(&output);
    assert!(line.contains("building etcd failed: main.go:1: undefined: x"), "{line}");
    let log = line.rsplit_once("the full log is in ").unwrap().1.trim();
    assert_eq!(fs::read_to_string(log).unwrap(), "first\nmain.go:1: undefined: x\n");
}

#[test]
fn a_disk_that_fills_up_during_the_build_is_told() {
    let scratch = Scratch::new("full-disk");
    fake_go(&scratch, "go1.99.0", "echo 'write x: no space left on device' >&2; exit 1");
    let line = failure(&build_in(&scratch, scratch.path()).output().unwrap());
    assert!(line.contains("the disk is full: free some space"), "{line}");
}

#[test]
fn assets_that_lack_the_api_server_are_refused() {
    let scratch = Scratch::new("bad-assets");
    fs::write(scratch.path().join("etcd"), "").unwrap();
    let mut command = build_in(&scratch, scratch.path());
    let line = failure(&command.env("KUBEBUILDER_ASSETS", scratch.path()).output().unwrap());
    assert!(line.contains("missing: kube-apiserver, kubectl"), "{line}");
}

#[test]
fn assets_are_used_and_only_what_they_lack_is_built() {
    let scratch = Scratch::new("assets");
    let assets = scratch.path().join("assets");
    fs::create_dir_all(&assets).unwrap();
    for name in ["etcd", "kube-apiserver", "kubectl"] {
        fs::write(assets.join(name), "").unwrap();
    }
    fake_go(&scratch, "go1.99.0", r#": > "$out""#);
    let output = build_in(&scratch, scratch.path()).env("KUBEBUILDER_ASSETS", &assets).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("has no kube-controller-manager, kube-scheduler, kwok: building"), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains(assets.join("kube-apiserver").to_str().unwrap()), "{stdout}");
    assert_eq!(fs::read_to_string(scratch.path().join("builds")).unwrap().lines().count(), 3);
}

#[test]
fn callers_side_by_side_build_once() {
    let scratch = Scratch::new("side-by-side");
    // The shell has no sleep of its own; a long count is slow enough for the builds to overlap.
    let slow = r#"i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; : > "$out""#;
    fake_go(&scratch, "go1.99.0", slow);
    let callers: Vec<_> = (0..3)
        .map(|_| build_in(&scratch, scratch.path()).stdout(std::process::Stdio::piped()).spawn().unwrap())
        .collect();
    for caller in callers {
        let output = caller.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 6);
    }
    assert_eq!(fs::read_to_string(scratch.path().join("builds")).unwrap().lines().count(), 6);
}
