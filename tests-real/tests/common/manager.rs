//! A manager to which the API server sends its reviews.
#![allow(dead_code, reason = "each of the tests needs some of it")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::{Scene, free_address};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// `usher manager` as a process of its own, to which API servers send their reviews.
pub struct Manager {
    pub process: Child,
    pub metrics: SocketAddr,
    pub health: SocketAddr,
    pub webhook: SocketAddr,
}

impl Scene {
    /// What there is, or null.
    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"], None).await;
        if text.trim().is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
    }

    pub async fn manager_with(&self, gates: &str, is_authorized: bool) -> Manager {
        let gates = format!("--feature-gates={gates}");
        let authorization = format!("--metrics-authorization={is_authorized}");
        self.manager_process(&[&gates, &authorization], None).await
    }

    /// With these arguments, and with what it says in this file.
    pub async fn manager_process(&self, arguments: &[&str], log: Option<&Path>) -> Manager {
        let manager = self.manager_at(free_address(), arguments, log).await;
        self.lead_webhook_to(&manager).await;
        manager
    }

    /// One that answers at an address to which the API server sends its reviews already.
    pub async fn manager_at(&self, webhook: SocketAddr, arguments: &[&str], log: Option<&Path>) -> Manager {
        let (metrics, health) = (free_address(), free_address());
        let mut command = Command::new(usher_tests_real::binaries::usher().unwrap());
        command.arg("manager").arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--namespace", "usher-system", "--log-format", "json"]);
        command.args(["--metrics-address", &metrics.to_string(), "--health-address", &health.to_string()]);
        command.args(["--webhook-address", &webhook.to_string(), "--webhook-name", "localhost"]);
        command.args(arguments);
        if let Some(log) = log {
            let log = File::create(log).unwrap();
            command.stdout(log.try_clone().unwrap()).stderr(log);
        }
        let process = command.kill_on_drop(true).spawn().unwrap();
        let manager = Manager { process, metrics, health, webhook };
        let begun = Instant::now();
        while manager.page(manager.health, "/readyz").is_none_or(|(code, _)| code != 200) {
            assert!(begun.elapsed() < PATIENCE, "the manager does not get ready");
            sleep(Duration::from_millis(50)).await;
        }
        manager
    }

    /// What the Service does in a cluster with a network: API servers reach a replica that is there.
    pub async fn lead_webhook_to(&self, manager: &Manager) {
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            let configuration = self.get(kind, "usher").await;
            let count = configuration["webhooks"].as_array().unwrap().len();
            let patch: Vec<Value> = (0..count)
                .map(|at| {
                    let client = &configuration["webhooks"][at]["clientConfig"];
                    let path = client["service"]["path"].as_str().map(str::to_owned).unwrap_or_else(|| {
                        // Without both it is the gateway's, which the manager has not filled in yet.
                        let url = client["url"].as_str().unwrap_or("/gateway/evictions");
                        let starts = ["/admit", "/validate", "/gateway"];
                        url[starts.into_iter().find_map(|start| url.find(start)).unwrap()..].to_owned()
                    });
                    let url = format!("https://localhost:{}{path}", manager.webhook.port());
                    let value = json!({"url": url, "caBundle": client["caBundle"]});
                    json!({"op": "replace", "path": format!("/webhooks/{at}/clientConfig"), "value": value})
                })
                .collect();
            let patch = Value::from(patch).to_string();
            self.kubectl(&["patch", kind, "usher", "--type=json", "-p", &patch], None).await;
        }
        self.until_webhook_answers().await;
    }

    /// The API server learns of webhook configurations in its own time. It has learned of both when a request passes the one that changes requests,
    /// and then the one that checks them.
    async fn until_webhook_answers(&self) {
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": "0", "namespace": "default"}, "spec": {"podRef": {"name": "missing", "uid": "0"}},
        });
        let begun = Instant::now();
        loop {
            let created = self.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&request)).await;
            match created {
                Err(why) if !why.contains("failed calling webhook") => return,
                // A manager that is switched off answers, and refuses nothing.
                Ok(_) => return,
                Err(why) => assert!(begun.elapsed() < PATIENCE, "the webhook does not answer: {why}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Manager {
    pub fn page(&self, address: SocketAddr, path: &str) -> Option<(u16, String)> {
        page(address, path)
    }

    pub fn metrics(&self) -> String {
        self.page(self.metrics, "/metrics").unwrap().1
    }

    pub fn leads(&self) -> bool {
        self.metrics().contains("leader_election_master_status{name=\"usher-manager\"} 1\n")
    }

    pub async fn until_leads(&self) {
        let begun = Instant::now();
        while !self.leads() {
            assert!(begun.elapsed() < PATIENCE, "nobody takes over");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// As a kubelet ends it. It has to go politely.
    pub async fn end(mut self) {
        let pid = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        let ended = tokio::time::timeout(PATIENCE, self.process.wait()).await.unwrap().unwrap();
        assert_eq!(ended.code(), Some(0));
    }
}

/// The status code of a page over plain HTTP, and the whole answer; `None` if there is none in time.
pub fn page(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let code = answer.split(' ').nth(1)?.parse().ok()?;
    Some((code, answer))
}
