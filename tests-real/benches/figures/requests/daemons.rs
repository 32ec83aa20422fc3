//! The number of writes that take pods of DaemonSets off their nodes and let them come back.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use embedded_apiserver::Cluster;
use serde_json::{Value, json};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::counted::counted;
use usher_tests::living::{DAEMON_SETS, Living, PODS, template, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_nodes};
use usher_tests::scenario::beside::answer_inside;

use crate::report::{Figure, Report};

const NODE_COUNT: usize = 20;
const SETS: usize = 5;

/// Nodes with nothing but daemons are drained and given back. In virtual time; all writes of the manager count, those to nodes and
/// to the maintenance as well.
pub async fn measure(report: &mut Report) -> Result<()> {
    let living = Living::start(1, NODE_COUNT).await?;
    living.install_crds().await?;
    let on = |cluster: &Cluster| kube::Client::new(cluster.service(), "default");
    for (path, configuration) in answer_inside(&living.cluster, on(&living.cluster), &BundledInterceptor::ALL)
    {
        living.create(&path, &configuration).await?;
    }
    let pods = NODE_COUNT * SETS;
    for number in 0..SETS {
        let mut set = workload("DaemonSet", &format!("agent-{number}"), json!({}));
        set["spec"]["template"] = template(&format!("agent-{number}"), "10m");
        living.create(DAEMON_SETS, &set).await?;
    }
    let running = |list: &Value| {
        let all = list["items"].as_array().into_iter().flatten();
        all.filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    living.until(PODS, |list| running(list) == pods).await?;
    let (client, calls) = counted(on(&living.cluster));
    let (now, timers) = (living.cluster.clone(), living.cluster.clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let manager = tokio::spawn(run_all(client, clock, &BundledInterceptor::ALL));
    let names: Vec<String> = (1..=NODE_COUNT).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    living.create(MAINTENANCES, &of_nodes("all", "Drain", &names)).await?;
    living.until(&format!("{MAINTENANCES}/all"), is_drained).await?;
    let drained = calls.writes.load(Ordering::Relaxed);
    ensure!(running(&living.get(PODS).await?) == 0, "daemons are left");
    living.set_stage("all", "Complete").await?;
    living.until(PODS, |list| running(list) == pods).await?;
    let all = calls.writes.load(Ordering::Relaxed);
    manager.abort();
    let per_pod = |writes: usize| writes as f64 / pods as f64;
    println!(
        "{pods} pods of DaemonSets on {NODE_COUNT} nodes: {drained} writes until drained, {all} until they are back"
    );
    let (leave, back) = (per_pod(drained), per_pod(all - drained));
    report.add(Figure::count("writes per DaemonSet pod that leaves", leave).at_most(8.0));
    report.add(Figure::count("writes per DaemonSet pod that comes back", back).at_most(2.0));
    Ok(())
}
