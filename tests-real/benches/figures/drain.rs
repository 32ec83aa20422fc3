//! A maintenance of 50 nodes with 1,500 pods on the real control plane, beside `kubectl drain` of the same nodes in the same
//! run: how long each takes, and with how many calls. Half of the applications have a budget. A pod takes two seconds to
//! stop and one to start, little for a real one.
//!
//! Figures are compared with the aims; a miss is printed, and fails the run.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::counted::{counted, own_client};
use usher_tests_real::kubectl::Kubectl;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, NODES, PODS, node, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_label};
use usher_tests::report::Report;
use usher_tests::scenario::beside::WITHOUT_SURGES;
use usher_tests::{TestCluster, crds};
use usher_tests_real::RealCluster as _;

/// The nodes that are emptied, and those that take their pods.
const OLD: usize = 50;
const NEW: usize = 25;
const APPS: usize = 30;
const REPLICAS: usize = 50;
/// The first of the applications have a budget, that lets so many of their pods be missing.
const WITH_BUDGET: usize = 15;
const MAY_MISS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(600);
const LOG_EVERY: Duration = Duration::from_secs(5);

pub fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> Result<()> {
    let cluster = TestCluster::real_living().await?;
    crds::install(&cluster).await?;
    for number in 1..=OLD + NEW {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        node["metadata"]["labels"]["pool"] = if number <= OLD { "old" } else { "new" }.into();
        for size in ["capacity", "allocatable"] {
            node["status"][size] = json!({"cpu": "64", "memory": "256Gi", "pods": "250"});
        }
        cluster.created(NODES, &node).await?;
    }
    let kubectl = Kubectl::new(&cluster).await?;
    let (client, calls) = counted(own_client(&cluster).await?);
    let manager = tokio::spawn(run_all(client, Clock::system(), &WITHOUT_SURGES));

    fill(&cluster, &kubectl).await?;
    println!("filled; the maintenance begins");
    let before = [&calls.reads, &calls.writes, &calls.events].map(|count| count.load(Ordering::Relaxed));
    let begun = Instant::now();
    cluster.created(MAINTENANCES, &of_label("racks", "Drain", "pool", &["old"])).await?;
    let path = format!("{MAINTENANCES}/racks");
    let mut told = begun;
    let tell_and_look = |maintenance: &Value| {
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            let drain = &maintenance["status"]["drainStatus"];
            let (waiting, asked) = (&drain["podsPendingEviction"], &drain["podsEvicting"]);
            println!(
                "  after {:.0?}: {waiting} pods wait for their turn, {asked} are asked to go",
                begun.elapsed()
            );
        }
        is_drained(maintenance)
    };
    until(&cluster, &path, tell_and_look).await?;
    let by_usher = begun.elapsed();
    let after = [&calls.reads, &calls.writes, &calls.events].map(|count| count.load(Ordering::Relaxed));
    let left = on_old_nodes(&cluster).await?;
    ensure!(left == 0, "the maintenance says drained, and {left} pods are left");
    cluster.delete(&path).await?;
    cluster.until_gone(&path).await?;
    manager.abort();
    println!("drained by a maintenance in {by_usher:.1?}; the same for kubectl drain");
    empty(&cluster, &kubectl).await?;

    fill(&cluster, &kubectl).await?;
    let begun = Instant::now();
    let printed = kubectl.run("drain -l pool=old -v=6").await?;
    let by_kubectl = begun.elapsed();
    ensure!(printed.code == 0, "kubectl drain failed: {}", printed.err.lines().last().unwrap_or_default());
    ensure!(on_old_nodes(&cluster).await? == 0, "kubectl drain left pods");
    let kubectl_calls = |verb: &str| {
        let wanted = format!("verb=\"{verb}\"");
        printed.err.lines().filter(|line| line.contains("\"Response\"") && line.contains(&wanted)).count()
    };
    let [gets, posts, patches] = ["GET", "POST", "PATCH"].map(kubectl_calls);
    ensure!(posts >= OLD, "the calls of kubectl cannot be counted any more: {posts} evictions");

    let [reads, writes, events] = [0, 1, 2].map(|at| after[at] - before[at]);
    println!("{OLD} nodes with {} pods, {WITH_BUDGET} of {APPS} applications with a budget", APPS * REPLICAS);
    println!("  maintenance:   {by_usher:.1?}, {reads} reads, {writes} writes, {events} events");
    println!("  kubectl drain: {by_kubectl:.1?}, {gets} reads, {} writes", posts + patches);
    let mut report = Report::default();
    let ratio = by_kubectl.as_secs_f64() / by_usher.as_secs_f64();
    report.line("times faster than kubectl drain", format!("{ratio:.1}"), ">= 5", ratio >= 5.0);
    report.verdict()
}

/// Fills the old nodes and leaves the new ones empty.
async fn fill(cluster: &TestCluster, kubectl: &Kubectl) -> Result<()> {
    kubectl.ok("cordon -l pool=new").await?;
    for at in 0..APPS {
        let app = format!("app-{at}");
        let mut deployment = workload("Deployment", &app, json!({"replicas": REPLICAS}));
        deployment["spec"]["template"]["metadata"]["annotations"] =
            json!({"cluster-simulator.dev/terminate-delay": "2s", "cluster-simulator.dev/start-delay": "1s"});
        cluster.created(DEPLOYMENTS, &deployment).await?;
        if at < WITH_BUDGET {
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
                "spec": {"maxUnavailable": MAY_MISS, "selector": {"matchLabels": {"app": app}}},
            });
            cluster.created(BUDGETS, &budget).await?;
        }
    }
    let whole = |all: &Value| each(all, |one| one["status"]["availableReplicas"] == REPLICAS);
    until(cluster, DEPLOYMENTS, whole).await?;
    until(cluster, BUDGETS, |all| each(all, |one| one["status"]["disruptionsAllowed"] == MAY_MISS)).await?;
    kubectl.ok("uncordon -l pool=new").await?;
    Ok(())
}

fn each(list: &Value, wanted: impl Fn(&Value) -> bool) -> bool {
    list["items"].as_array().is_some_and(|all| all.iter().all(wanted))
}

async fn empty(cluster: &TestCluster, kubectl: &Kubectl) -> Result<()> {
    kubectl.ok("delete deployments,poddisruptionbudgets --all").await?;
    until(cluster, &format!("{PODS}?limit=1"), |all| each(all, |_| false)).await
}

/// How many pods are left on the old nodes. Those that have ended need nothing more than to be removed.
async fn on_old_nodes(cluster: &TestCluster) -> Result<usize> {
    let pods = cluster.get(PODS).await?.body;
    let pods = pods["items"].as_array().context("no list")?;
    let has_ended = |pod: &Value| pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    let number = |pod: &Value| pod["spec"]["nodeName"].as_str().and_then(|name| name[1..].parse().ok());
    Ok(pods
        .iter()
        .filter(|pod| !has_ended(pod) && number(pod).is_some_and(|number: usize| number <= OLD))
        .count())
}

async fn until(cluster: &TestCluster, path: &str, mut wanted: impl FnMut(&Value) -> bool) -> Result<()> {
    let begun = Instant::now();
    while !wanted(&cluster.get(path).await?.body) {
        ensure!(begun.elapsed() < PATIENCE, "{path} is not as wanted after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
