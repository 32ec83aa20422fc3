//! How many pods of each Deployment stay available while something happens.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use usher_tests::TestCluster;
use usher_tests::living::DEPLOYMENTS;

/// Shorter than a pod takes to start, so that no gap is missed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Fewest available pods seen, by Deployment.
pub type Fewest = BTreeMap<String, u64>;

/// Awaits `work`, and looks at all Deployments of the namespace meanwhile.
pub async fn watch_available<T>(
    cluster: &TestCluster,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Fewest)> {
    let mut fewest = Fewest::new();
    let mut work = std::pin::pin!(work);
    loop {
        let pause = tokio::time::sleep(LOOK_EVERY);
        tokio::select! {
            done = &mut work => return Ok((done?, fewest)),
            () = pause => {}
        }
        let deployments = cluster.get(DEPLOYMENTS).await?.body;
        for deployment in items(&deployments) {
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            let available = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
            let least = fewest.entry(name.to_owned()).or_insert(available);
            *least = available.min(*least);
        }
    }
}

pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
