//! Availability, measured: how many pods of a selector were ready, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Empty};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use embedded_apiserver::Cluster;
use embedded_apiserver::ServerBody;

/// Counts the pods of a selector that are ready and not on their way out, at every change, until it is dropped.
pub struct Meter {
    counts: Counts,
    measuring: JoinHandle<()>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.measuring.abort();
    }
}

impl Meter {
    /// Measures the pods of a namespace that a label selector, in its text form, selects.
    pub fn start(cluster: &Cluster, namespace: &str, selector: &str) -> Self {
        let encoded: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={encoded}");
        let counts = Arc::new(Mutex::new(Vec::new()));
        let measuring = tokio::spawn(measure(cluster.clone(), path, counts.clone()));
        Self { counts, measuring }
    }

    /// All counts so far, each with the time from which on it was so.
    pub fn counts(&self) -> Vec<(Timestamp, usize)> {
        self.counts.lock().clone()
    }

    /// The smallest count from `since` on, including the one that held then. Nothing if nothing was counted.
    pub fn minimum_since(&self, since: Timestamp) -> Option<usize> {
        let counts = self.counts.lock();
        let first = counts.iter().rposition(|(at, _)| *at <= since).unwrap_or_default();
        counts.get(first..)?.iter().map(|(_, count)| *count).min()
    }
}

type Counts = Arc<Mutex<Vec<(Timestamp, usize)>>>;

/// What is there first, then every change. A watch that ends goes on where it was; one that has missed something
/// starts again.
async fn measure(cluster: Cluster, path: String, counts: Counts) {
    let mut ready = BTreeSet::new();
    let mut from: Option<String> = None;
    loop {
        let version = match from.take() {
            Some(version) => version,
            None => {
                let Some(body) = open(&cluster, &path).await else { return };
                let Ok(list) = body.collect().await;
                let list: Value = serde_json::from_slice(&list.to_bytes()).unwrap_or_default();
                let there = list["items"].as_array().into_iter().flatten();
                ready = there.filter(|pod| is_ready(pod)).map(name_of).collect();
                note(&mut counts.lock(), cluster.now(), ready.len());
                list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string()
            }
        };
        let Some(mut body) = open(&cluster, &format!("{path}&watch=true&resourceVersion={version}")).await
        else {
            return;
        };
        from = Some(version);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(lines) = frame.into_data() else { continue };
            for event in serde_json::Deserializer::from_slice(&lines).into_iter::<Value>().flatten() {
                let pod = &event["object"];
                if event["type"] == "ERROR" {
                    from = None;
                    continue;
                }
                if event["type"] != "DELETED" && is_ready(pod) {
                    ready.insert(name_of(pod));
                } else {
                    ready.remove(&name_of(pod));
                }
                from = pod["metadata"]["resourceVersion"].as_str().map(String::from);
                note(&mut counts.lock(), cluster.now(), ready.len());
            }
        }
    }
}

async fn open(cluster: &Cluster, path: &str) -> Option<ServerBody> {
    let request = Request::get(path).body(Empty::new()).ok()?;
    let Ok(response) = cluster.service().oneshot(request).await;
    if response.status() != 200 {
        tracing::warn!(path, code = response.status().as_u16(), "cannot be measured");
        return None;
    }
    Some(response.into_body())
}

fn name_of(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_string()
}

fn note(counts: &mut Vec<(Timestamp, usize)>, now: Timestamp, count: usize) {
    if counts.last().is_none_or(|(_, last)| *last != count) {
        counts.push((now, count));
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}
