//! The time that the gateway adds to an eviction on the real API server, next to the same evictions without it in the same run.
//! Evictions of pods without interceptors pass; those of pods with one are refused and become requests.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use usher_tests::cluster::ADMIN;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests::{Request, TestCluster};
use usher_tests_real::RealCluster as _;

use crate::report::{Figure, Report};

const EVICTIONS: usize = 300;
const PODS: &str = "/api/v1/namespaces/default/pods";
/// What a call of the webhook may add: it reads the pod once.
const PASSES_WITHIN: Duration = Duration::from_millis(25);
/// What the creation of a request may add: it calls the webhook twice more.
const ASKS_WITHIN: Duration = Duration::from_millis(100);

/// Times of many evictions.
struct Times {
    median: Duration,
    p99: Duration,
}

pub async fn measure(report: &mut Report) -> Result<()> {
    let cluster = TestCluster::real_living().await?;
    let without = evicted(&cluster, "without", json!({}), 201).await?;
    let reached = ClusterUnderTest::of(&cluster)?;
    let _usher = usher_tests_real::usher::start(Controllers::Gateway, &cluster, &reached).await?;
    let passes = evicted(&cluster, "passes", json!({}), 201).await?;
    let key = "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com";
    let asked = evicted(&cluster, "asked", json!({key: "1"}), 429).await?;
    let again = timed(&cluster, "asked", 429).await?;

    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    for (what, times, most) in [
        ("without the gateway", &without, None),
        ("that passes the gateway", &passes, Some(PASSES_WITHIN)),
        ("that becomes a request", &asked, Some(ASKS_WITHIN)),
        ("that is refused again", &again, Some(PASSES_WITHIN)),
    ] {
        println!("eviction {what}: median {:.1?}, p99 {:.1?}", times.median, times.p99);
        if let Some(most) = most {
            let added = milliseconds(times.median) - milliseconds(without.median);
            let name = format!("added to the median eviction {what}");
            report.add(Figure::measured(name, added, "ms").at_most(milliseconds(most)));
        }
    }
    Ok(())
}

/// Creates pods and evicts them one after the other.
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
    Ok(Times { median: times[EVICTIONS / 2], p99: times[EVICTIONS * 99 / 100] })
}
