//! Calls that eviction requests take: how often a budget is tried, and the writes for pods of DaemonSets. On the real control plane:
//! how fast pods leave and with how many calls, next to a bare loop of evictions and `kubectl drain`.

mod daemons;
mod removal;

use anyhow::{Result, ensure};
use serde_json::json;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, names, workload};
use usher_tests::requests::{REQUESTS, start_controller};
use usher_tests::witness::Witness;

use crate::report::{Figure, Report};
use crate::{threads, virtual_time};

/// Pods behind a budget that lets one go at a time.
const BEHIND_BUDGET: usize = 100;

pub fn measure(report: &mut Report) -> Result<()> {
    virtual_time()?.block_on(behind_a_budget(report))?;
    virtual_time()?.block_on(daemons::measure(report))?;
    threads()?.block_on(removal::measure(report))
}

/// All pods of a Deployment are asked to leave, and its budget lets one go at a time. In virtual time.
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
    report.add(Figure::count("evictions sent per pod behind the budget", per_pod).at_most(1.1));
    Ok(())
}
