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

use crate::cluster::Cluster;

/// Counts the pods of a selector that are ready and not on their way out, at every change, until it is dropped.
pub struct Meter {
    counts: Arc<Mutex<Vec<(Timestamp, usize)>>>,
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
        let path = format!("/api/v1/namespaces/{namespace}/pods?watch=true&labelSelector={encoded}");
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

/// A watch that ends is opened again: it begins with all that is there.
async fn measure(cluster: Cluster, path: String, counts: Arc<Mutex<Vec<(Timestamp, usize)>>>) {
    loop {
        let Ok(request) = Request::get(&path).body(Empty::new()) else { return };
        let Ok(response) = cluster.service().oneshot(request).await;
        if response.status() != 200 {
            tracing::warn!(path, code = response.status().as_u16(), "cannot be measured");
            return;
        }
        let mut body = response.into_body();
        let mut ready = BTreeSet::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(lines) = frame.into_data() else { continue };
            for event in serde_json::Deserializer::from_slice(&lines).into_iter::<Value>().flatten() {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_string();
                if event["type"] != "DELETED" && is_ready(&event["object"]) {
                    ready.insert(name);
                } else {
                    ready.remove(&name);
                }
                note(&mut counts.lock(), cluster.server().now(), ready.len());
            }
        }
    }
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
