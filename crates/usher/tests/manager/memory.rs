//! What a whole manager takes when every request is as large as its definition allows.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use embedded_apiserver::{Cluster, Options, User};
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::sleep;

const COUNT: usize = 300;
const LIMIT_MB: u64 = 400;
const PATIENCE: Duration = Duration::from_secs(240);
const TOKEN: &str = "secret";
const CLASS: &str = "a.example.com";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";

async fn send(client: &kube::Client, method: Method, path: &str, object: &Value) -> Value {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap()
}

/// As much as the definition lets through, in letters of one byte.
fn largest_status() -> Value {
    let condition = |number: usize| {
        json!({
            "type": format!("{number:0>316}"), "status": "True", "reason": "R".repeat(1024),
            "message": "m".repeat(32768), "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    // The manager adds conditions of its own.
    let conditions: Vec<Value> = (0..14).map(condition).collect();
    json!({"status": {"message": "m".repeat(32768), "conditions": conditions}})
}

/// A pod that runs, and the path of a request for it.
async fn ask(client: &kube::Client, number: usize, status: &Value) -> String {
    let name = format!("p{number}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i:1"}]},
    });
    let uid = send(client, Method::POST, PODS, &pod).await["metadata"]["uid"].clone();
    let running = json!({"status": {"phase": "Running"}});
    send(client, Method::PATCH, &format!("{PODS}/{name}/status"), &running).await;
    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": uid, "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {
            "podRef": {"name": name, "uid": uid}, "interceptors": [{"interceptorClass": CLASS, "priority": 1}],
        },
    });
    send(client, Method::POST, REQUESTS, &request).await;
    let path = format!("{REQUESTS}/{}", uid.as_str().unwrap());
    send(client, Method::PATCH, &format!("{path}/status"), status).await;
    path
}

/// Of half a megabyte nothing else is read.
async fn has_turn(client: &kube::Client, path: &str) -> bool {
    let text = client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    text.contains(&format!("\"activeInterceptorClass\":\"{CLASS}\""))
}

/// In MB, as the kernel counts it.
fn most_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024 / 1_000_000
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_manager_with_three_hundred_of_the_largest_requests_stays_below_its_limit() {
    let administrator =
        User { name: "test".into(), uid: String::new(), groups: vec!["system:masters".into()] };
    let tokens = HashMap::from([(TOKEN.to_owned(), administrator)]);
    let cluster = Cluster::new(Options { tokens, ..Options::default() });
    let client = kube::Client::new(cluster.service(), "default");
    for (_, definition) in usher_api::crd::crds() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(&client, Method::POST, path, &serde_json::to_value(definition).unwrap()).await;
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "usher-system"}});
    send(&client, Method::POST, "/api/v1/namespaces", &namespace).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    send(&client, Method::POST, "/api/v1/nodes", &node).await;
    let status = largest_status();
    let mut paths = Vec::new();
    for number in 0..COUNT {
        paths.push(ask(&client, number, &status).await);
    }

    let serving = cluster.serve_https().await.unwrap();
    let kubeconfig = std::env::temp_dir().join(format!("usher-memory-{}.kubeconfig", std::process::id()));
    std::fs::write(&kubeconfig, serving.kubeconfig_for(TOKEN)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(["manager", "--leader-elect=false", "--kubeconfig"]).arg(&kubeconfig);
    for flag in ["--metrics-address", "--health-address", "--webhook-address"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    let mut manager = command.stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    // Each is read, decided on, and written with its whole status.
    let begun = Instant::now();
    for path in &paths {
        while !has_turn(&client, path).await {
            assert!(begun.elapsed() < PATIENCE, "{path} has no turn");
            assert_eq!(manager.try_wait().unwrap(), None, "the manager runs");
            sleep(Duration::from_millis(500)).await;
        }
    }
    for path in &paths {
        let stored: Value = client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        let conditions = stored["status"]["conditions"].as_array().unwrap();
        let before = status["status"]["conditions"].as_array().unwrap();
        assert!(before.iter().all(|one| conditions.contains(one)), "conditions of others stay as they are");
    }
    let most = most_memory(manager.id().unwrap());
    manager.kill().await.unwrap();
    std::fs::remove_file(&kubeconfig).unwrap();
    println!("{COUNT} requests of the largest status: {most} MB at most in the whole manager");
    assert!(most < LIMIT_MB, "{most} MB");
}
