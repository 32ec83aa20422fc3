//! Eviction requests in figures: how fast pods leave and with how many calls, on the real control plane beside a bare loop
//! of evictions and `kubectl drain`; how often a budget is tried; with how many writes pods of DaemonSets leave and come back, and how
//! Deployments surge; and what the
//! controllers weigh at 150,000 pods and as many requests, with ten DaemonSets on each of 5,000 nodes beside them.
//!
//! `USHER_BENCH_PODS` makes the last one smaller, and `USHER_BENCH_ONLY=memory` or `surges` does nothing else. Figures are compared with the aims; a miss is printed, and fails the run.

mod daemons;
mod memory;
mod removal;
mod surges;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, names, workload};
use usher_tests::report::Report;
use usher_tests::requests::{REQUESTS, start_controller};
use usher_tests::witness::Witness;

/// Pods behind a budget that lets one go at a time.
const BEHIND_BUDGET: usize = 100;

pub fn main() -> Result<()> {
    // The measurement of memory has a process for the server and one for the controller: this program, started anew.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", pods] => return threads()?.block_on(memory::serve(pods.parse()?)),
        ["control", url] => return threads()?.block_on(memory::control(url)),
        _ => {}
    }
    let pods = std::env::var("USHER_BENCH_PODS").ok().map_or(Ok(150_000), |n| n.parse::<usize>())?;
    let mut report = Report::default();
    match std::env::var("USHER_BENCH_ONLY").as_deref() {
        Ok("memory") => {
            threads()?.block_on(memory::measure(pods, &mut report))?;
            return report.verdict();
        }
        Ok("surges") => {
            for_virtual_time()?.block_on(surges::measure(&mut report))?;
            threads()?.block_on(surges::compare(&mut report))?;
            return report.verdict();
        }
        _ => {}
    }
    for_virtual_time()?.block_on(behind_a_budget(&mut report))?;
    for_virtual_time()?.block_on(daemons::measure(&mut report))?;
    for_virtual_time()?.block_on(surges::measure(&mut report))?;
    threads()?.block_on(removal::measure(&mut report))?;
    threads()?.block_on(surges::compare(&mut report))?;
    threads()?.block_on(memory::measure(pods, &mut report))?;
    report.verdict()
}

fn for_virtual_time() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().start_paused(true).build()?)
}

fn threads() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// All pods of a deployment are asked to leave, and its budget lets one go at a time. In virtual time.
async fn behind_a_budget(report: &mut Report) -> Result<()> {
    let living = Living::start(1, BEHIND_BUDGET / 3).await?;
    living.install_crds().await?;
    let witness = Witness::of(&living.cluster);
    let _controller = start_controller(&living.cluster, &witness);
    let deployment = workload("Deployment", "web", json!({"replicas": BEHIND_BUDGET}));
    living.create(DEPLOYMENTS, &deployment).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await?;
    living.rolled_out("web").await?;
    let has_room = |budget: &serde_json::Value| budget["status"]["disruptionsAllowed"] == 1;
    living.until(&format!("{BUDGETS}/web"), has_room).await?;
    let before = living.pods("web").await?;
    let begun = living.cluster.now();
    for name in names(&before) {
        living.request(name, &json!([])).await?;
    }
    living.until(REQUESTS, |requests| requests["items"] == json!([])).await?;
    let took = living.cluster.now().duration_since(begun).as_secs();
    let after = living.pods("web").await?;
    let stayed = names(&after).into_iter().filter(|name| names(&before).contains(name)).count();
    ensure!(stayed == 0, "{stayed} pods have not left");
    let seen = witness.seen();
    let seen = seen.lock();
    ensure!(seen.breaches.is_empty(), "{:?}", seen.breaches);
    println!("{BEHIND_BUDGET} pods behind a budget of 1: {took} s of cluster time");
    let per_pod = seen.evictions as f64 / BEHIND_BUDGET as f64;
    report.line(
        "evictions sent per pod behind the budget",
        format!("{per_pod:.2}"),
        "<= 1.1",
        per_pod <= 1.1,
    );
    Ok(())
}
