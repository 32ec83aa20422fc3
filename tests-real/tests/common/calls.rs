//! The API server asked directly, and a manager that can be killed.
#![allow(dead_code, reason = "each of the tests needs some of it")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;
use usher_api::lenient::value_of;

use super::{Scene, free_address};

/// Alone, so that a new one need not wait for the lease of the one that was killed.
pub fn start_manager(scene: &Scene) -> Child {
    let mut command = Command::new(usher_tests_real::binaries::usher().unwrap());
    command.arg("manager").arg("--kubeconfig").arg(&scene.kubeconfig);
    command.args(["--namespace", "usher-system", "--leader-elect=false"]);
    for flag in ["--metrics-address", "--health-address", "--webhook-address"] {
        command.args([flag, &free_address().to_string()]);
    }
    // One line for every eviction would be too much.
    command.args(["--log-level", "warn"]);
    command.kill_on_drop(true).spawn().unwrap()
}

pub async fn client_of(scene: &Scene) -> Client {
    let kubeconfig = Kubeconfig::read_from(scene.plane.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Many at a time, in no order.
pub async fn create_all(client: &Client, path: &str, objects: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut created = Vec::new();
    let mut calls = JoinSet::new();
    for object in objects {
        if calls.len() >= 32 {
            created.push(calls.join_next().await.unwrap().unwrap());
        }
        let (client, path) = (client.clone(), path.to_owned());
        calls.spawn(async move { call(&client, Method::POST, &path, &object).await });
    }
    created.extend(calls.join_all().await);
    created
}

pub async fn call(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = client.request(request.body(body).unwrap()).await;
    answer.unwrap_or_else(|why| panic!("{path}: {why}"))
}

pub async fn list(client: &Client, path: &str) -> Vec<Value> {
    // One by one: an object may be nested deeper than a value can be read.
    let request = Request::get(path).body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap_or_else(|why| panic!("{path}: {why}"));
    let list: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
    let items: Vec<Box<RawValue>> = serde_json::from_str(list["items"].get()).unwrap();
    items.iter().map(|item| value_of(item.get())).collect()
}

pub async fn left(client: &Client, path: &str) -> usize {
    list(client, path).await.len()
}

/// Waits until a list holds no more than so many.
pub async fn until_left(client: &Client, path: &str, most: usize, patience: Duration) {
    let begun = Instant::now();
    loop {
        let now = left(client, path).await;
        if now <= most {
            return;
        }
        assert!(begun.elapsed() < patience, "{now} of {path} are left after {patience:?}");
        sleep(Duration::from_millis(20)).await;
    }
}
