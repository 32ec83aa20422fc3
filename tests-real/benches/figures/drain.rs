//! A drain of 50 nodes with 1,500 pods on the real control plane, in four ways: a maintenance with all bundled interceptors, as
//! installed by default, so that Deployments surge; the same without surges; one `kubectl drain -l`, which takes the nodes one after the
//! other; and one `kubectl drain` for each node, all at once. Measured are the time, the calls, and the fewest available pods of each
//! Deployment meanwhile.
//!
//! Half of the Deployments have a budget. A pod takes two seconds to stop and one to start, which is little for a real one. Each way has a
//! control plane of its own, and those of kubectl have nothing of Usher on it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use usher_tests::TestCluster;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, NODES, PODS, node, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_label};
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::{Kubectl, Printed};

use crate::availability::{Fewest, items, watch_available};
use crate::report::{Figure, Report};
use crate::size::Size;

const REPLICAS: usize = 50;
/// Pods of a Deployment that its budget allows to be missing.
const MAY_MISS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(1200);
const LOG_EVERY: Duration = Duration::from_secs(5);

/// The numbers of a run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Nodes that are drained.
    old: usize,
    /// Nodes that take their pods.
    new: usize,
    apps: usize,
    /// The first of the Deployments have a budget.
    with_budget: usize,
}

impl Scale {
    fn of(size: Size) -> Self {
        size.pick(
            Self { old: 50, new: 25, apps: 30, with_budget: 15 },
            Self { old: 5, new: 5, apps: 4, with_budget: 2 },
        )
    }
}

/// One way to drain the nodes, and its outcome.
struct Way {
    name: &'static str,
    took: Duration,
    fewest: Fewest,
    calls: String,
}

impl Way {
    fn against(&self, other: &Self) -> f64 {
        self.took.as_secs_f64() / other.took.as_secs_f64()
    }

    /// Most pods that a Deployment was short of its replicas.
    fn missing(&self) -> u64 {
        REPLICAS as u64 - self.fewest.values().min().copied().unwrap_or(0).min(REPLICAS as u64)
    }

    fn print(&self, scale: Scale) {
        println!("{}: {:.1} s, {}", self.name, self.took.as_secs_f64(), self.calls);
        let fewest = |apps: std::ops::Range<usize>| {
            let one = |at: usize| self.fewest.get(&app(at)).map_or("?".to_owned(), u64::to_string);
            apps.map(one).collect::<Vec<_>>().join(" ")
        };
        println!("  fewest available of {REPLICAS}, with a budget:    {}", fewest(0..scale.with_budget));
        println!(
            "  fewest available of {REPLICAS}, without a budget: {}",
            fewest(scale.with_budget..scale.apps)
        );
    }
}

pub async fn measure(report: &mut Report) -> Result<()> {
    let scale = Scale::of(report.size());
    println!(
        "{} nodes with {} pods of {} Deployments, {} of them with a budget of maxUnavailable {MAY_MISS}",
        scale.old,
        scale.apps * REPLICAS,
        scale.apps,
        scale.with_budget
    );
    let default = by_maintenance("maintenance, default configuration", Controllers::All, scale).await?;
    default.print(scale);
    let without_surges =
        by_maintenance("maintenance, without surges", Controllers::RequestsAndMaintenances, scale).await?;
    without_surges.print(scale);
    let at_once = by_kubectl("one kubectl drain per node, all at once", scale.old, scale).await?;
    at_once.print(scale);
    let in_sequence = by_kubectl("one kubectl drain -l", 1, scale).await?;
    in_sequence.print(scale);

    // The more nodes there are, the more there is to gain over taking them one after the other. With few, what a maintenance does once
    // and the waves of a surge weigh more.
    let aim = |full: f64, tenth: f64| report.size().pick(full, tenth);
    let figures = [
        Figure::ratio(
            "kubectl drain -l takes longer than the default configuration",
            in_sequence.against(&default),
        )
        .at_least(aim(2.5, 0.5)),
        Figure::ratio(
            "kubectl drain -l takes longer than a drain without surges",
            in_sequence.against(&without_surges),
        )
        .at_least(aim(5.0, 0.8)),
        Figure::ratio(
            "time of the default configuration, against kubectl drains at once",
            default.against(&at_once),
        )
        .at_most(aim(3.0, 4.0)),
        Figure::ratio(
            "time without surges, against kubectl drains at once",
            without_surges.against(&at_once),
        )
        .at_most(aim(2.0, 3.0)),
        Figure::count("pods missing of a Deployment, default configuration", default.missing() as f64)
            .at_most(0.0),
        Figure::count("pods missing of a Deployment, without surges", without_surges.missing() as f64),
        Figure::count("pods missing of a Deployment, kubectl drains at once", at_once.missing() as f64),
        Figure::count("pods missing of a Deployment, kubectl drain -l", in_sequence.missing() as f64),
    ];
    figures.into_iter().for_each(|figure| report.add(figure));
    Ok(())
}

fn app(at: usize) -> String {
    format!("app-{at:02}")
}

/// A control plane with nodes: the old ones full, the new ones empty.
async fn filled(scale: Scale) -> Result<(TestCluster, Kubectl)> {
    let cluster = TestCluster::real_living().await?;
    for number in 1..=scale.old + scale.new {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        node["metadata"]["labels"]["pool"] = if number <= scale.old { "old" } else { "new" }.into();
        for size in ["capacity", "allocatable"] {
            node["status"][size] = json!({"cpu": "64", "memory": "256Gi", "pods": "250"});
        }
        cluster.created(NODES, &node).await?;
    }
    let kubectl = Kubectl::new(&cluster).await?;
    fill(&cluster, &kubectl, scale).await?;
    Ok((cluster, kubectl))
}

async fn by_maintenance(name: &'static str, controllers: Controllers, scale: Scale) -> Result<Way> {
    let (cluster, _kubectl) = filled(scale).await?;
    let reached = ClusterUnderTest::of(&cluster)?;
    let (_usher, calls) = usher_tests_real::usher::start_counted(controllers, &cluster, &reached).await?;
    let count = || [&calls.reads, &calls.writes, &calls.events].map(|count| count.load(Ordering::Relaxed));
    let before = count();
    let begun = Instant::now();
    let drain = async {
        cluster.created(MAINTENANCES, &of_label("racks", "Drain", "pool", &["old"])).await?;
        let mut told = begun;
        let is_done = |maintenance: &Value| {
            if told.elapsed() >= LOG_EVERY {
                told = Instant::now();
                let drain = &maintenance["status"]["drainStatus"];
                let (waiting, leaving) = (&drain["podsPendingEviction"], &drain["podsEvicting"]);
                println!(
                    "  after {:.0?}: {waiting} pods wait for their turn, {leaving} are leaving",
                    begun.elapsed()
                );
            }
            is_drained(maintenance)
        };
        until(&cluster, &format!("{MAINTENANCES}/racks"), is_done).await?;
        Ok(begun.elapsed())
    };
    let (took, fewest) = watch_available(&cluster, drain).await?;
    let after = count();
    ensure!(on_old_nodes(&cluster, scale).await? == 0, "the maintenance says drained, and pods are left");
    let [reads, writes, events] = [0, 1, 2].map(|at| after[at] - before[at]);
    let calls = format!("{reads} reads, {writes} writes, {events} events");
    Ok(Way { name, took, fewest, calls })
}

/// Drains by so many commands, each for its share of the nodes.
async fn by_kubectl(name: &'static str, commands: usize, scale: Scale) -> Result<Way> {
    let (cluster, kubectl) = filled(scale).await?;
    let line = |number: usize| match commands {
        1 => "drain -l pool=old -v=6".to_owned(),
        _ => format!("drain n{number} -v=6"),
    };
    let begun = Instant::now();
    let drain = async {
        let lines: Vec<String> = (1..=commands).map(line).collect();
        let printed = try_join_all(lines.iter().map(|line| kubectl.run(line))).await?;
        Ok((printed, begun.elapsed()))
    };
    let ((printed, took), fewest) = watch_available(&cluster, drain).await?;
    for one in &printed {
        let last = || one.err.lines().last().unwrap_or_default();
        ensure!(one.code == 0, "kubectl drain failed: {}", last());
    }
    ensure!(on_old_nodes(&cluster, scale).await? == 0, "kubectl drain left pods");
    let calls = |verb: &str| printed.iter().map(|one| calls_of(one, verb)).sum::<usize>();
    let [gets, posts, patches] = ["GET", "POST", "PATCH"].map(calls);
    ensure!(posts >= scale.old, "kubectl logs its calls in another way: {posts} evictions were counted");
    Ok(Way { name, took, fewest, calls: format!("{gets} reads, {} writes", posts + patches) })
}

/// Calls with a verb that kubectl has logged.
fn calls_of(printed: &Printed, verb: &str) -> usize {
    let wanted = format!("verb=\"{verb}\"");
    printed.err.lines().filter(|line| line.contains("\"Response\"") && line.contains(&wanted)).count()
}

/// Fills the old nodes and leaves the new ones empty.
async fn fill(cluster: &TestCluster, kubectl: &Kubectl, scale: Scale) -> Result<()> {
    kubectl.ok("cordon -l pool=new").await?;
    for at in 0..scale.apps {
        let app = app(at);
        let mut deployment = workload("Deployment", &app, json!({"replicas": REPLICAS}));
        deployment["spec"]["template"]["metadata"]["annotations"] =
            json!({"cluster-simulator.dev/terminate-delay": "2s", "cluster-simulator.dev/start-delay": "1s"});
        cluster.created(DEPLOYMENTS, &deployment).await?;
        if at < scale.with_budget {
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
                "spec": {"maxUnavailable": MAY_MISS, "selector": {"matchLabels": {"app": app}}},
            });
            cluster.created(BUDGETS, &budget).await?;
        }
    }
    let all =
        |list: &Value, wanted: &dyn Fn(&Value) -> bool| list["items"].is_array() && items(list).all(wanted);
    let is_whole = |one: &Value| one["status"]["availableReplicas"] == REPLICAS;
    until(cluster, DEPLOYMENTS, |list| all(list, &is_whole)).await?;
    let has_room = |one: &Value| one["status"]["disruptionsAllowed"] == MAY_MISS;
    until(cluster, BUDGETS, |list| all(list, &has_room)).await?;
    kubectl.ok("uncordon -l pool=new").await?;
    Ok(())
}

/// Pods left on the old nodes. Those that have ended only need to be removed.
async fn on_old_nodes(cluster: &TestCluster, scale: Scale) -> Result<usize> {
    let pods = cluster.get(PODS).await?.body;
    let pods = pods["items"].as_array().context("no list")?;
    let has_ended = |pod: &Value| pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    let number = |pod: &Value| pod["spec"]["nodeName"].as_str().and_then(|name| name[1..].parse().ok());
    Ok(pods
        .iter()
        .filter(|pod| !has_ended(pod) && number(pod).is_some_and(|number: usize| number <= scale.old))
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
