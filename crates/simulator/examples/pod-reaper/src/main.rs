//! A controller of somebody else, tested on a cluster that lives in this process: no socket, no container, and three days that
//! take no time.
//!
//! The controller is an ordinary kube-rs one: it deletes pods that have run for a day. The test gives it a cluster with two
//! nodes and a Deployment, lets 73 hours pass, and looks at what became of the pods.
//!
//! ```sh
//! cargo run -p pod-reaper
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_simulator as simulator;
use embedded_apiserver::clock::{Clock, TokioClock};
use embedded_apiserver::{Cluster, Options};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What the controller needs: a client, and a clock that a test may set.
struct Reaper {
    client: Client,
    clock: Arc<dyn Clock>,
}

async fn reconcile(pod: Arc<Pod>, reaper: Arc<Reaper>) -> Result<Action, kube::Error> {
    let Some(started) = pod.status.as_ref().and_then(|status| status.start_time.as_ref()) else {
        return Ok(Action::await_change());
    };
    let left = DAY - reaper.clock.now().duration_since(started.0);
    if left.is_positive() {
        return Ok(Action::requeue(left.unsigned_abs()));
    }
    let pods: Api<Pod> = Api::namespaced(reaper.client.clone(), &pod.namespace().unwrap_or_default());
    match pods.delete(&pod.name_any(), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
        other => other.map(|_| Action::await_change()),
    }
}

async fn run(reaper: Arc<Reaper>) {
    let pods: Api<Pod> = Api::all(reaper.client.clone());
    let retry = |_: Arc<Pod>, _: &kube::Error, _: Arc<Reaper>| Action::requeue(Duration::from_secs(5));
    Controller::new(pods, watcher::Config::default())
        .run(reconcile, retry, reaper)
        .for_each(|_| std::future::ready(()))
        .await;
}

/// The names of all pods that there were within 73 hours.
async fn three_days() -> anyhow::Result<BTreeSet<String>> {
    let clock = Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000)?));
    let cluster = Cluster::new(Options { clock: clock.clone(), seed: Some(1), ..Options::default() });
    let _life = simulator::start(&cluster, simulator::Options::default());
    let client = Client::new(cluster.service(), "default");

    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["n1", "n2"] {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    }
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}},
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;

    let controller = tokio::spawn(run(Arc::new(Reaper { client: client.clone(), clock })));
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut seen = BTreeSet::new();
    for _ in 0..73 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let now = pods.list(&ListParams::default()).await?;
        seen.extend(now.iter().map(|pod| pod.name_any()));
    }
    controller.abort();
    Ok(seen)
}

/// On a paused runtime time passes when everybody waits for it, and only then.
fn in_virtual_time<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    Ok(runtime.block_on(work))
}

fn main() -> anyhow::Result<()> {
    let began = Instant::now();
    let seen = in_virtual_time(three_days())??;
    println!("73 hours took {:?}; there were {} pods: {seen:?}", began.elapsed(), seen.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pod_outlives_a_day() {
        let seen = in_virtual_time(three_days()).unwrap().unwrap();
        assert_eq!(seen.len(), 8, "two pods, and two again after each of three days: {seen:?}");
    }
}
