//! A control plane from the library is whole, judges by its rights, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use crate::common::{eventually, is_running, processes_in};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use usher_testbed::{Binary, ControlPlane, Options, User};

/// Runs kubectl and returns what it printed, or what it complained about.
fn kubectl(
    plane: &ControlPlane,
    kubeconfig: &Path,
    arguments: &[&str],
    input: &str,
) -> Result<String, String> {
    use std::io::Write;
    let mut child = Command::new(plane.kubectl())
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("KUBECACHEDIR", plane.folder().join("kubectl-cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn admin(plane: &ControlPlane, arguments: &[&str], input: &str) -> String {
    kubectl(plane, plane.kubeconfig(), arguments, input).unwrap()
}

fn get(plane: &ControlPlane, arguments: &[&str]) -> Value {
    serde_json::from_str(&admin(plane, &[&["get", "-o", "json"], arguments].concat(), "")).unwrap()
}

/// Names of the pods of the deployment that run and are not being deleted.
fn running_pods(plane: &ControlPlane) -> Vec<String> {
    let pods = get(plane, &["pods", "-l", "app=web"]);
    let running =
        |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    pods["items"].as_array().unwrap().iter().filter(running).map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_runs_pods_and_leaves_nothing_behind() {
    let plane = ControlPlane::start(Options::with_nodes(3)).await.unwrap();
    nodes_are_ready_in_three_zones(&plane);
    the_eviction_api_of_kubernetes_is_served(&plane);
    an_evicted_pod_is_replaced(&plane);
    kubelets_remove_no_pod_that_nobody_deleted(&plane);
    a_pod_may_ask_to_terminate_slowly(&plane);
    users_have_the_rights_they_were_given(&plane);

    let processes: Vec<u32> = Binary::ALL.iter().filter_map(|component| plane.pid_of(*component)).collect();
    assert_eq!(processes.len(), 5);
    assert!(processes.iter().all(|id| is_running(*id)));
    assert!(plane.rss_kib_of(Binary::KubeApiserver).unwrap() > 10_000);
    let folder = plane.folder().to_path_buf();
    assert_eq!(processes_in(&folder).len(), 6, "five parts and the watchdog");
    plane.stop().await.unwrap();
    assert!(!folder.exists());
    assert!(processes.iter().all(|id| !is_running(*id)));
    assert!(processes_in(&folder).is_empty());
}

fn nodes_are_ready_in_three_zones(plane: &ControlPlane) {
    let nodes = get(plane, &["nodes"]);
    let nodes = nodes["items"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node-0001", "node-0002", "node-0003"]);
    for (number, node) in nodes.iter().enumerate() {
        let zone = &node["metadata"]["labels"]["topology.kubernetes.io/zone"];
        assert_eq!(*zone, format!("zone-{}", number + 1));
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "True");
        assert_eq!(node["status"]["allocatable"]["pods"], "110");
    }
}

fn the_eviction_api_of_kubernetes_is_served(plane: &ControlPlane) {
    let served = admin(plane, &["get", "--raw", "/apis/lifecycle.k8s.io/v1alpha1"], "");
    assert!(served.contains("evictionrequests"), "{served}");
    let version = admin(plane, &["version", "-o", "json"], "");
    let version: Value = serde_json::from_str(&version).unwrap();
    for side in ["clientVersion", "serverVersion"] {
        assert_eq!(version[side]["gitVersion"], "v1.37.1", "{side}");
    }
}

fn an_evicted_pod_is_replaced(plane: &ControlPlane) {
    admin(plane, &["create", "deployment", "web", "--image=web", "--replicas=3"], "");
    let pods = eventually("three running pods", || Some(running_pods(plane)).filter(|pods| pods.len() == 3));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pods[0]}});
    let path = format!("/api/v1/namespaces/default/pods/{}/eviction", pods[0]);
    admin(plane, &["create", "--raw", &path, "-f", "-"], &eviction.to_string());
    let after = eventually("a replacement", || {
        Some(running_pods(plane)).filter(|now| now.len() == 3 && !now.contains(&pods[0]))
    });
    assert!(after.contains(&pods[1]) && after.contains(&pods[2]), "the others stayed");
}

/// kwok removes pods by name, and may be late.
fn kubelets_remove_no_pod_that_nobody_deleted(plane: &ControlPlane) {
    let pod = running_pods(plane).into_iter().next().unwrap();
    let kwok = ["--as=testbed:kwok", "--as-group=system:masters", "delete", "pod", "--dry-run=server", &pod];
    let refusal = kubectl(plane, plane.kubeconfig(), &kwok, "").unwrap_err();
    assert!(refusal.contains("nobody has deleted this pod"), "{refusal}");
    assert!(admin(plane, &["delete", "pod", "--dry-run=server", &pod], "").contains("deleted"));
}

fn a_pod_may_ask_to_terminate_slowly(plane: &ControlPlane) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "slow", "annotations": {"cluster-simulator.dev/terminate-delay": "3s"}},
        "spec": {"containers": [{"name": "main", "image": "slow"}]},
    });
    admin(plane, &["create", "-f", "-"], &pod.to_string());
    eventually("the slow pod runs", || {
        (get(plane, &["pod", "slow"])["status"]["phase"] == "Running").then_some(())
    });
    let deleted = std::time::Instant::now();
    admin(plane, &["delete", "pod", "slow", "--wait=false"], "");
    assert!(!get(plane, &["pod", "slow"])["metadata"]["deletionTimestamp"].is_null());
    eventually("the slow pod is gone", || {
        kubectl(plane, plane.kubeconfig(), &["get", "pod", "slow"], "")
            .err()
            .filter(|line| line.contains("NotFound"))
    });
    assert!(deleted.elapsed().as_secs() >= 2, "gone after {:?}", deleted.elapsed());
}

fn users_have_the_rights_they_were_given(plane: &ControlPlane) {
    let as_user = |user: &str, arguments: &[&str]| {
        kubectl(plane, &plane.kubeconfig_of(user).unwrap(), arguments, "").map(|_| ())
    };
    as_user("viewer", &["get", "pods"]).unwrap();
    let refusal = as_user("viewer", &["delete", "pods", "--all"]).unwrap_err();
    assert!(refusal.contains("Forbidden") && refusal.contains("viewer"), "{refusal}");
    as_user("editor", &["delete", "pod", "missing", "--ignore-not-found"]).unwrap();
    assert!(as_user("nobody", &["get", "pods"]).unwrap_err().contains("Forbidden"));
    assert!(plane.token_of("stranger").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_api_server_takes_pods_and_outlives_the_thread_that_started_it() {
    let users = vec![User::new("picked").with_token("my-own-token")];
    let starter = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(ControlPlane::start(Options { users, ..Options::default() })).unwrap()
    });
    let mut plane = tokio::task::spawn_blocking(|| starter.join().unwrap()).await.unwrap();
    assert_eq!(plane.token_of("picked").unwrap(), "my-own-token");
    assert_eq!(plane.pid_of(Binary::KubeScheduler), None);
    admin(&plane, &["run", "alone", "--image=x"], "");
    assert_eq!(get(&plane, &["pod", "alone"])["status"]["phase"], "Pending");
    plane.check_alive().unwrap();

    // The certificate is verified: another authority's word is not enough.
    let trusting_others = Command::new(plane.kubectl())
        .args(["get", "--raw", "/readyz", "--server", plane.url(), "--token", plane.admin_token()])
        .env("KUBECONFIG", "/dev/null")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&trusting_others.stderr).into_owned();
    assert!(complaint.contains("certificate"), "{complaint}");

    let folder = plane.folder().to_path_buf();
    let api_server = plane.pid_of(Binary::KubeApiserver).unwrap();
    drop(plane);
    assert!(!folder.exists());
    assert!(!is_running(api_server));
}
