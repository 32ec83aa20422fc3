//! Draining as `kubectl drain` does: cordon, evict all pods at once, ask again where a budget refuses, and wait until
//! they are gone.

use super::short;
use super::stage::{PAUSE, Stage};
use crate::Request;
use anyhow::{Result, bail};
use futures::future::try_join_all;
use http::Method;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// kubectl waits 5 s after a refusal; that is long for a test in real time.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// # Errors
/// It does not end in time, or does although it should be blocked.
pub async fn drain(
    stage: &Stage,
    user: Option<&str>,
    node: &str,
    within: Duration,
    blocked: bool,
) -> Result<()> {
    stage.set_schedulable(user, node, false).await?.accepted()?;
    match (timeout(within, empty(stage, user, node)).await, blocked) {
        (Ok(Ok(())), false) | (Err(_), true) => Ok(()),
        (Ok(Ok(())), true) => bail!("the drain should be blocked, but came to its end"),
        (Ok(Err(why)), _) => Err(why),
        (Err(_), false) => bail!("the drain does not end within {within:?}"),
    }
}

async fn empty(stage: &Stage, user: Option<&str>, node: &str) -> Result<()> {
    let pods = format!("/api/v1/namespaces/{}/pods", stage.namespace);
    let node = short::node_name(&stage.namespace, node);
    let list = stage.cluster.get(&format!("{pods}?fieldSelector=spec.nodeName%3D{node}")).await?;
    let there = list["items"].as_array().into_iter().flatten();
    let leaving = there.filter(|pod| !stays(pod));
    try_join_all(leaving.map(|pod| evict(stage, user, &pods, pod))).await.map(|_| ())
}

/// Daemons come back at once, and mirror pods are the kubelet's.
fn stays(pod: &Value) -> bool {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true)
        || !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null()
}

async fn evict(stage: &Stage, user: Option<&str>, pods: &str, pod: &Value) -> Result<()> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{pods}/{name}");
    loop {
        let answer = stage.evict(user, &path, name, Value::Null).await?;
        match answer.status {
            200..300 => break,
            404 => return Ok(()),
            429 => sleep(AFTER_REFUSAL).await,
            code => bail!("the eviction of {name} is answered with {code} {}", answer.body),
        }
    }
    loop {
        let answer = stage.cluster.send(user, Request::new(Method::GET, &path)).await?;
        if answer.status == 404 || answer.body["metadata"]["uid"] != pod["metadata"]["uid"] {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}
