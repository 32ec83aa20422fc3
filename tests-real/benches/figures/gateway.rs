//! What the gateway adds to an eviction on the real API server, beside the same evictions without it in the same run: of pods without
//! interceptors, which pass, and of pods with one, which are refused and asked for.
//!
//! Figures are compared with the aims; a miss is printed, and fails the run.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use usher_tests::cluster::ADMIN;
use usher_tests::report::Report;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests::{Request, TestCluster};
use usher_tests_real::RealCluster as _;

const EVICTIONS: usize = 300;
const PODS: &str = "/api/v1/namespaces/default/pods";
/// What a call of the webhook may add, which reads the pod once.
const PASSES_WITHIN: Duration = Duration::from_millis(25);
/// What it may take to make a request, with the two calls of the webhook for that.
const ASKS_WITHIN: Duration = Duration::from_millis(100);

pub fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure())
}

/// The median, and what one in a hundred takes.
struct Times {
    half: Duration,
    most: Duration,
}

async fn measure() -> Result<()> {
    let cluster = TestCluster::real_living().await?;
    let without = evicted(&cluster, "without", json!({}), 201).await?;
    let reached = ClusterUnderTest::of(&cluster)?;
    let _usher = usher_tests_real::usher::start(Controllers::Gateway, &cluster, &reached).await?;
    let passes = evicted(&cluster, "passes", json!({}), 201).await?;
    let key = "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com";
    let asked = evicted(&cluster, "asked", json!({key: "1"}), 429).await?;
    let again = timed(&cluster, "asked", 429).await?;

    let mut report = Report::default();
    let figure = |times: &Times| format!("{:.1?}, {:.1?}", times.half, times.most);
    report.line("eviction without the gateway, median and p99", figure(&without), "", true);
    for (what, times, aim) in [
        ("eviction that passes the gateway", &passes, PASSES_WITHIN),
        ("eviction that becomes a request", &asked, ASKS_WITHIN),
        ("eviction that is refused again", &again, PASSES_WITHIN),
    ] {
        let met = times.half <= without.half + aim;
        report.line(what, figure(times), &format!("+{aim:?}"), met);
    }
    report.verdict()
}

/// So many pods are made, and evicted one after the other.
async fn evicted(cluster: &TestCluster, name: &str, annotations: Value, code: u16) -> Result<Times> {
    for number in 0..EVICTIONS {
        let pod = json!({
            "metadata": {"name": format!("{name}-{number}"), "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        cluster.created(PODS, &pod).await?;
    }
    timed(cluster, name, code).await
}

async fn timed(cluster: &TestCluster, name: &str, code: u16) -> Result<Times> {
    let mut times = Vec::new();
    for number in 0..EVICTIONS {
        let name = format!("{name}-{number}");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let request = Request::with_json(Method::POST, &format!("{PODS}/{name}/eviction"), &eviction);
        let begun = Instant::now();
        let answer = cluster.send(ADMIN, request).await?;
        times.push(begun.elapsed());
        ensure!(answer.status == code, "{name}: {} {}", answer.status, answer.body);
    }
    times.sort_unstable();
    Ok(Times { half: times[EVICTIONS / 2], most: times[EVICTIONS * 99 / 100] })
}
