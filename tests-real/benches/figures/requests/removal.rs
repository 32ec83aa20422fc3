//! Pods that leave the nodes of the real control plane, in three ways, in turns in the same run.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use usher_apply::Clock;
use usher_controllers::eviction_request;
use usher_tests::counted::{counted, own_client};
use usher_tests::living::{NODES, PODS, node};
use usher_tests::requests::{DRAIN, REQUESTS};
use usher_tests::{TestCluster, crds};
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

use crate::report::{Figure, Report};

/// Pods of one round of one way.
const EACH: usize = 200;
const ROUNDS: usize = 2;
/// All on one node, so that kubectl has one to drain.
const NODE: &str = "n1";
const CONNECTIONS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn measure(report: &mut Report) -> Result<()> {
    let cluster = TestCluster::real_living().await?;
    crds::install(&cluster).await?;
    let mut node = node(NODE);
    node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
    cluster.created(NODES, &node).await?;
    let kubectl = Kubectl::new(&cluster).await?;
    let (client, calls) = counted(own_client(&cluster).await?);
    let controller = tokio::spawn(eviction_request::run(client, Clock::system()));
    let [mut requested, mut bare, mut drained] = [Duration::ZERO; 3];
    for round in 1..=ROUNDS {
        let pods = make_pods(&cluster).await?;
        let begun = Instant::now();
        each(&pods, |pod| create(&cluster, REQUESTS.to_owned(), request(pod))).await?;
        until_none(&cluster, PODS).await?;
        requested += begun.elapsed();
        until_none(&cluster, REQUESTS).await?;

        let pods = make_pods(&cluster).await?;
        let begun = Instant::now();
        each(&pods, |pod| create(&cluster, eviction_path(pod), eviction(pod))).await?;
        until_none(&cluster, PODS).await?;
        bare += begun.elapsed();

        make_pods(&cluster).await?;
        let begun = Instant::now();
        // The pods have no owner, so it has to be forced.
        kubectl.ok(&format!("drain --force {NODE}")).await?;
        until_none(&cluster, PODS).await?;
        drained += begun.elapsed();
        println!("{round} of {ROUNDS} rounds: {requested:.1?}, {bare:.1?}, {drained:.1?}");
    }
    controller.abort();

    let rate = |took: Duration| (EACH * ROUNDS) as f64 / took.as_secs_f64();
    println!(
        "pods removed per second on the real control plane: {:.0} through requests, {:.0} by a bare loop of evictions \
         over {CONNECTIONS} connections, {:.0} by kubectl drain",
        rate(requested),
        rate(bare),
        rate(drained)
    );
    let against = |other: Duration| rate(requested) / rate(other);
    report.add(Figure::ratio("pods removed per second by requests, against a bare loop", against(bare)));
    report.add(Figure::ratio("pods removed per second by requests, against kubectl drain", against(drained)));
    let per_pod = |count: usize| count as f64 / (EACH * ROUNDS) as f64;
    let load = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
    // The requester's own create is the first.
    let writes = 1.0 + per_pod(load(&calls.writes));
    // Four, and a conflict now and then.
    report.add(Figure::count("writes per pod, with the creation of the request", writes).at_most(4.05));
    println!("events per pod: {:.2}", per_pod(load(&calls.events)));
    // The watches are opened, and nothing is asked again.
    let reads = load(&calls.reads);
    // One confirms each request before its pod is evicted; the rest are lists and watches.
    let most = EACH * ROUNDS + 20;
    report.add(
        Figure::count("reads in the whole run: one per pod, no polling", reads as f64).at_most(most as f64),
    );
    Ok(())
}

/// Pods that run, on their nodes from the beginning: the scheduler is not what is measured.
async fn make_pods(cluster: &TestCluster) -> Result<Vec<Value>> {
    let pods: Vec<Value> = (0..EACH)
        .map(|number| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}")},
                "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}]},
            })
        })
        .collect();
    let made = each(&pods, |pod| create(cluster, PODS.to_owned(), pod.clone())).await?;
    until_none(cluster, &format!("{PODS}?fieldSelector=status.phase%21%3DRunning")).await?;
    Ok(made)
}

async fn each<'a, F>(pods: &'a [Value], call: impl Fn(&'a Value) -> F) -> Result<Vec<Value>>
where
    F: Future<Output = Result<Value>>,
{
    stream::iter(pods).map(call).buffer_unordered(CONNECTIONS).try_collect().await
}

async fn create(cluster: &TestCluster, path: String, object: Value) -> Result<Value> {
    cluster.created(&path, &object).await
}

fn request(pod: &Value) -> Value {
    let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid, "finalizers": [DRAIN]},
        "spec": {"podRef": {"name": name, "uid": uid}, "interceptors": []},
    })
}

fn eviction_path(pod: &Value) -> String {
    format!("{PODS}/{}/eviction", pod["metadata"]["name"].as_str().unwrap_or_default())
}

fn eviction(pod: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}})
}

/// Waits until a list is empty.
async fn until_none(cluster: &TestCluster, path: &str) -> Result<()> {
    let begun = Instant::now();
    let separator = if path.contains('?') { '&' } else { '?' };
    loop {
        let answer = cluster.get(&format!("{path}{separator}limit=1")).await?;
        if answer.body["items"].as_array().context("no list")?.is_empty() {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "{path} is not empty after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
