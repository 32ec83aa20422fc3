//! Deployments that surge before their pods leave. In virtual time: the number of writes, and the time. On the real control plane: the same
//! drain by requests, by `kubectl drain`, and by a script that scales up, evicts and scales back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use embedded_apiserver::Cluster;
use serde_json::{Value, json};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::counted::{counted, own_client};
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, NODES, PODS, TIMES, node, workload};
use usher_tests::maintenances::{MAINTENANCES, of_nodes};
use usher_tests::requests::{DRAIN, REQUESTS};
use usher_tests::scenario::beside::answer_inside;
use usher_tests::{TestCluster, crds};
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

use crate::availability::{Fewest, items, watch_available};
use crate::report::{Figure, Report};

/// Deployments of one replica, each with a budget that keeps it.
const SINGLES: usize = 20;
/// Deployments of three, each with a budget that lets one go.
const TRIPLES: usize = 10;
const NODE: &str = "n1";
/// How long `kubectl drain` may try: the budgets of single replicas never let it finish.
const KUBECTL_SECONDS: u64 = 30;
/// Bounds against regressions: the embedded cluster took 19.7 writes for a pod and the real one 15.1 (2026-11). Most are status reports
/// of the request, the surge and the drain. Fewer writes are work of their own; 10 is wanted on both.
const WRITES_EMBEDDED: f64 = 20.0;
const WRITES_REAL: f64 = 16.0;
const PATIENCE: Duration = Duration::from_secs(180);

/// Their names, and how many replicas each has.
fn apps() -> impl Iterator<Item = (String, usize)> {
    let singles = (0..SINGLES).map(|number| (format!("single-{number}"), 1));
    singles.chain((0..TRIPLES).map(|number| (format!("triple-{number}"), 3)))
}

fn deployment(name: &str, replicas: usize) -> Value {
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let mut deployment = workload("Deployment", name, json!({"replicas": replicas, "strategy": strategy}));
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"requests": {"cpu": "10m"}});
    deployment
}

fn budget(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": replicas.saturating_sub(1).max(1), "selector": {"matchLabels": {"app": name}}},
    })
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node && pod["metadata"]["deletionTimestamp"].is_null()
}

/// All are drained off the first node. In virtual time: pods take two seconds to start, and nothing else takes any.
pub async fn measure(report: &mut Report) -> Result<()> {
    let living = Living::start(1, 6).await?;
    living.install_crds().await?;
    let on = |cluster: &Cluster| kube::Client::new(cluster.service(), "default");
    for (path, configuration) in answer_inside(&living.cluster, on(&living.cluster), &BundledInterceptor::ALL)
    {
        living.create(&path, &configuration).await?;
    }
    for (name, replicas) in apps() {
        living.create(DEPLOYMENTS, &deployment(&name, replicas)).await?;
        living.create(BUDGETS, &budget(&name, replicas)).await?;
        living.rolled_out(&name).await?;
    }
    let (client, calls) = counted(on(&living.cluster));
    let (now, timers) = (living.cluster.clone(), living.cluster.clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let manager = tokio::spawn(run_all(client, clock, &BundledInterceptor::ALL));
    let before = living.get(PODS).await?;
    let leaving: Vec<&Value> = items(&before).filter(|pod| is_on(pod, NODE)).collect();
    // Those of one Deployment go one after the other.
    let batches = apps().map(|(name, _)| {
        leaving.iter().filter(|pod| pod["metadata"]["labels"]["app"] == name.as_str()).count()
    });
    let batches = batches.max().unwrap_or(0);
    let begun = living.cluster.now();
    living.create(MAINTENANCES, &of_nodes("one", "Drain", &[NODE])).await?;
    living.until(PODS, |list| !items(list).any(|pod| is_on(pod, NODE))).await?;
    let took = living.cluster.now().duration_since(begun).as_secs_f64();
    let is_calm = |list: &Value| items(list).all(|it| it["metadata"]["annotations"].get(SURGE).is_none());
    living.until(DEPLOYMENTS, is_calm).await?;
    living.until(REQUESTS, |list| items(list).next().is_none()).await?;
    manager.abort();
    let pods = leaving.len();
    let writes = calls.writes.load(Ordering::Relaxed) as f64 / pods as f64;
    println!("{pods} pods of {} surging Deployments leave in {took:.1} s of cluster time", SINGLES + TRIPLES);
    report.add(
        Figure::count("writes of the manager per surging pod, embedded cluster", writes)
            .at_most(WRITES_EMBEDDED),
    );
    let ratio = took / (TIMES.start.as_secs_f64() * batches as f64);
    let name = format!("time, against the start of the surge pods in {batches} batches");
    report.add(Figure::ratio(name, ratio).at_most(1.3));
    Ok(())
}

const SURGE: &str = "evictionrequest.coordination.k8s.io/surge";

/// One way to drain the node, and its outcome.
struct Way {
    took: Duration,
    /// Pods left on the node at the end.
    left: usize,
    /// Deployments that had fewer available pods than replicas at some time.
    below: usize,
}

/// The same on the real control plane, in three ways one after the other, each with Deployments of its own.
pub async fn compare(report: &mut Report) -> Result<()> {
    let cluster = TestCluster::real_living().await?;
    crds::install(&cluster).await?;
    for number in 1..=6 {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        cluster.created(NODES, &node).await?;
    }
    let kubectl = Kubectl::new(&cluster).await?;
    let (client, calls) = counted(own_client(&cluster).await?);
    let manager = tokio::spawn(run_all(client, Clock::system(), &BundledInterceptor::ALL));

    let asked = make(&cluster, &kubectl).await?;
    let before = calls.writes.load(Ordering::Relaxed);
    let surged = watched(&cluster, async {
        for pod in &asked {
            cluster.created(REQUESTS, &request(pod)).await?;
        }
        emptied(&cluster, PATIENCE).await
    })
    .await?;
    let writes = (calls.writes.load(Ordering::Relaxed) - before + asked.len()) as f64 / asked.len() as f64;
    remove(&cluster, &kubectl).await?;

    make(&cluster, &kubectl).await?;
    let drained = watched(&cluster, async {
        // It waits for the single replicas as long as it is let.
        kubectl.run(&format!("drain {NODE} --timeout={KUBECTL_SECONDS}s")).await?;
        left(&cluster).await
    })
    .await?;
    remove(&cluster, &kubectl).await?;

    let scripted_pods = make(&cluster, &kubectl).await?;
    let scripted = watched(&cluster, scripted(&cluster, &kubectl, &scripted_pods)).await?;
    remove(&cluster, &kubectl).await?;
    manager.abort();

    for (name, way) in
        [("by requests", &surged), ("kubectl drain", &drained), ("scale, evict, scale back", &scripted)]
    {
        println!(
            "{name}: {:.1} s, {} pods left on the node, {} Deployments seen below what they want",
            way.took.as_secs_f64(),
            way.left,
            way.below
        );
    }
    let against_script = surged.took.as_secs_f64() / scripted.took.as_secs_f64();
    report.add(Figure::ratio("time of a drain by requests, against the script", against_script));
    report.add(Figure::count("pods left on the node by requests", surged.left as f64).at_most(0.0));
    let below = surged.below as f64;
    report.add(Figure::count("Deployments below their replicas, by requests", below).at_most(0.0));
    let left = drained.left as f64;
    report.add(Figure::count("pods left by kubectl drain, which waits indefinitely", left).at_least(1.0));
    report.add(Figure::count("writes per surging pod, real control plane", writes).at_most(WRITES_REAL));
    Ok(())
}

/// Deployments that run, the first node cordoned, and the pods on it.
async fn make(cluster: &TestCluster, kubectl: &Kubectl) -> Result<Vec<Value>> {
    for (name, replicas) in apps() {
        cluster.created(DEPLOYMENTS, &deployment(&name, replicas)).await?;
        cluster.created(BUDGETS, &budget(&name, replicas)).await?;
    }
    until(cluster, DEPLOYMENTS, |list| {
        items(list).all(|it| it["status"]["availableReplicas"] == it["spec"]["replicas"])
    })
    .await?;
    until(cluster, BUDGETS, |list| items(list).all(|it| it["status"]["expectedPods"] != 0)).await?;
    kubectl.ok(&format!("cordon {NODE}")).await?;
    let pods = cluster.get(PODS).await?.body;
    Ok(items(&pods).filter(|pod| is_on(pod, NODE)).cloned().collect())
}

async fn remove(cluster: &TestCluster, kubectl: &Kubectl) -> Result<()> {
    kubectl.ok(&format!("uncordon {NODE}")).await?;
    kubectl.ok("delete deployments,poddisruptionbudgets --all").await?;
    until(cluster, PODS, |list| items(list).next().is_none()).await?;
    until(cluster, REQUESTS, |list| items(list).next().is_none()).await
}

fn request(pod: &Value) -> Value {
    let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid, "finalizers": [DRAIN]},
        "spec": {"podRef": {"name": name, "uid": uid}, "interceptors": [
            {"interceptorClass": "deployment.apps.k8s.io", "priority": 10001, "role": "deployment-controller"},
            {"interceptorClass": "replicaset.apps.k8s.io", "priority": 10000, "role": "controller"},
        ]},
    })
}

/// As a careful person scripts it: all are scaled up, then the pods are evicted, then all are scaled back.
async fn scripted(cluster: &TestCluster, kubectl: &Kubectl, pods: &[Value]) -> Result<usize> {
    let sizes = |more: usize| apps().map(move |(name, replicas)| (name, replicas + more));
    for (name, replicas) in sizes(1) {
        kubectl.ok(&format!("scale deployment {name} --replicas={replicas}")).await?;
    }
    until(cluster, DEPLOYMENTS, |list| {
        items(list).all(|it| it["status"]["availableReplicas"] == it["spec"]["replicas"])
    })
    .await?;
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("{PODS}/{name}/eviction");
        let begun = Instant::now();
        while cluster.created(&path, &eviction).await.is_err() {
            ensure!(begun.elapsed() < PATIENCE, "{name} is not evicted");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let left = emptied(cluster, PATIENCE).await?;
    for (name, replicas) in sizes(0) {
        kubectl.ok(&format!("scale deployment {name} --replicas={replicas}")).await?;
    }
    Ok(left)
}

/// Measures the time of a drain, and which Deployments fall below their replicas meanwhile.
async fn watched(cluster: &TestCluster, drain: impl Future<Output = Result<usize>>) -> Result<Way> {
    let begun = Instant::now();
    let (left, fewest) = watch_available(cluster, drain).await?;
    Ok(Way { left, took: begun.elapsed(), below: below(&fewest) })
}

fn below(fewest: &Fewest) -> usize {
    apps().filter(|(name, replicas)| fewest.get(name).is_some_and(|least| *least < *replicas as u64)).count()
}

async fn left(cluster: &TestCluster) -> Result<usize> {
    let pods = cluster.get(PODS).await?.body;
    Ok(items(&pods).filter(|pod| is_on(pod, NODE)).count())
}

/// Waits until nothing is left on the node, and tells what is.
async fn emptied(cluster: &TestCluster, patience: Duration) -> Result<usize> {
    let begun = Instant::now();
    loop {
        let left = left(cluster).await?;
        if left == 0 || begun.elapsed() > patience {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until(cluster: &TestCluster, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let list = cluster.get(path).await?.body;
        ensure!(list["items"].is_array(), "{path} is no list");
        if wanted(&list) {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "{path} is not as wanted after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
