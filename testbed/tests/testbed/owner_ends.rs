//! However the process that owns a control plane ends, nothing of it stays.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use crate::common::{Scratch, children_of, eventually, is_running, processes_in, testbed};
use std::process::{Child, Command, Stdio};
use usher_testbed::{Binary, Instance, instances};

/// A bare `testbed up` in the foreground.
fn up_command(name: &str) -> Command {
    let mut command = testbed();
    command.args(["up", "--no-controllers", "--nodes", "0", "--name", name]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A `testbed up` that is ready.
fn up(name: &str) -> (Child, Instance) {
    let mut owner = up_command(name).spawn().unwrap();
    let instance = eventually("the control plane is ready", || {
        assert!(owner.try_wait().unwrap().is_none(), "testbed up ended");
        instances().unwrap().into_iter().find(|instance| instance.name == name && instance.ready)
    });
    assert_eq!(instance.owner, owner.id());
    (owner, instance)
}

fn signal(signal: &str, process: u32) {
    let kill = format!("kill -{signal} {process}");
    assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
}

fn name(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

fn assert_all_gone(instance: &Instance, processes: &[u32]) {
    eventually("all processes and the folder are gone", || {
        (!instance.folder.exists() && processes.iter().all(|id| !is_running(*id))).then_some(())
    });
    assert!(instances().unwrap().iter().all(|other| other.name != instance.name));
}

#[test]
fn killed_without_warning() {
    let (mut owner, instance) = up(&name("killed"));
    let processes = children_of(owner.id());
    assert_eq!(processes.len(), 3, "etcd, kube-apiserver and the watchdog");
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_all_gone(&instance, &processes);
}

#[test]
fn interrupted_at_the_terminal() {
    let (mut owner, instance) = up(&name("interrupted"));
    let processes = children_of(owner.id());
    assert!(
        Command::new("/bin/sh")
            .args(["-c", &format!("kill -INT {}", owner.id())])
            .status()
            .unwrap()
            .success()
    );
    assert!(owner.wait().unwrap().success(), "Ctrl-C is the way to end it, not a failure");
    assert!(!instance.folder.exists(), "gone before the command returns");
    assert_all_gone(&instance, &processes);
}

#[test]
fn what_is_left_after_owner_and_watchdog_died_is_cleared_by_the_next_start() {
    // A cache of its own, because any other start would clear this one's remains too early.
    let scratch = Scratch::new("orphaned");
    let cache = scratch.path().join("cache");
    let kubectl = usher_testbed::toolbox(&Binary::API_SERVER_ONLY)
        .unwrap()
        .path(Binary::Kubectl)
        .unwrap()
        .to_path_buf();
    let up = || {
        let mut command = up_command("orphaned");
        command.env("USHER_TESTBED_CACHE", &cache).env("KUBEBUILDER_ASSETS", kubectl.parent().unwrap());
        let owner = command.spawn().unwrap();
        let instance = eventually("the control plane is ready", || {
            let folder = cache.join(format!("run/orphaned.{}.1", owner.id()));
            let instance: Instance =
                serde_json::from_slice(&std::fs::read(folder.join("instance.json")).ok()?).ok()?;
            instance.ready.then_some(instance)
        });
        (owner, instance)
    };
    let (mut owner, instance) = up();
    let processes = children_of(owner.id());
    let arguments = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let watchdog = processes.iter().find(|id| arguments(id).contains("testbed-watchdog")).unwrap();
    signal("KILL", *watchdog);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(
        instance.folder.exists() && processes_in(&instance.folder).len() == 2,
        "there is something to clear"
    );

    let (mut next, successor) = up();
    assert!(!instance.folder.exists());
    assert!(processes.iter().all(|id| !is_running(*id)));
    signal("TERM", next.id());
    next.wait().unwrap();
    assert!(!successor.folder.exists());
    assert!(processes_in(&cache).is_empty());
}

#[test]
fn detached_it_stays_until_taken_down_and_its_name_is_taken() {
    let name = name("detached");
    let arguments = ["up", "--detach", "--no-controllers", "--nodes", "0", "--name", &name];
    let output = testbed().args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let instance = usher_testbed::find_instance(&name).unwrap();
    let kubeconfig = instance.kubeconfig().display().to_string();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), kubeconfig);

    let second = testbed().args(arguments).output().unwrap();
    let line = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && line.contains("is already up"), "{line}");

    let ready =
        testbed().args(["kubectl", "--name", &name, "--", "get", "--raw", "/readyz"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ready.stdout), "ok");

    let processes = children_of(instance.owner);
    assert!(testbed().args(["down", "--name", &name]).status().unwrap().success());
    assert_all_gone(&instance, &processes);
    let again = testbed().args(["down", "--name", &name]).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("no control plane named"));
}

#[test]
fn a_detached_start_that_is_interrupted_leaves_nothing() {
    let name = name("hasty");
    let mut start = testbed().args(["up", "--detach", "--name", &name]).spawn().unwrap();
    let instance =
        eventually("it is starting", || instances().unwrap().into_iter().find(|other| other.name == name));
    signal("INT", start.id());
    assert!(!start.wait().unwrap().success(), "it is not up");
    eventually("nothing is left", || {
        (!instance.folder.exists() && processes_in(&instance.folder).is_empty()).then_some(())
    });
}
