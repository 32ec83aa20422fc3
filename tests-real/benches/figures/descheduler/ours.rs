//! Ours, measured in a process of its own.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use usher_descheduler::{Cluster, Differences, InProgress, Planner, Policy};

use super::cluster;

const TRIES: usize = 5;

/// Times are in seconds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub pods: usize,
    pub taken_in: f64,
    pub full: f64,
    pub proposals: usize,
    pub unchanged: f64,
    pub changed: f64,
    pub megabytes: u64,
}

pub fn measure(nodes: usize) -> Result<Measured> {
    let policy = Policy::read(&cluster::policy()).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let now = jiff::Timestamp::now();
    let mut known = Cluster::default();
    let mut taken_in = 0.0;
    for number in 0..nodes {
        known.set_node(&serde_json::from_value(cluster::node(number))?);
    }
    let pods = nodes * cluster::PODS_OF_NODE;
    for number in 0..pods {
        let pod = serde_json::from_value(cluster::pod(number, nodes, 0, now))?;
        let start = Instant::now();
        known.set_pod(&pod);
        taken_in += start.elapsed().as_secs_f64();
    }
    for namespace in cluster::namespaces() {
        known.set_namespace(&serde_json::from_value(namespace)?);
    }
    let cycle = |planner: &mut Planner, known: &Cluster, in_progress: &InProgress| {
        let start = Instant::now();
        let plan = planner.plan(known, &policy, in_progress, now);
        (plan, start.elapsed().as_secs_f64())
    };
    // The shortest of a few: others use the machine too.
    let mut planner = Planner::new(Differences::default());
    let (plan, mut full) = cycle(&mut planner, &known, &InProgress::default());
    for _ in 0..TRIES {
        let again = cycle(&mut Planner::new(Differences::default()), &known, &InProgress::default());
        full = full.min(again.1);
    }
    let mut in_progress = InProgress::default();
    for proposal in &plan.proposals {
        let pod = &proposal.pod;
        in_progress.set_leaving(&pod.namespace, &pod.name, &pod.uid, "somebody", now);
    }
    let (mut unchanged, mut changed) = (f64::MAX, f64::MAX);
    for round in 1..=TRIES {
        unchanged = unchanged.min(cycle(&mut planner, &known, &in_progress).1);
        for number in (0..pods).filter(|number| number % 100 == 50) {
            known.set_pod(&serde_json::from_value(cluster::pod(number, nodes, round, now))?);
        }
        changed = changed.min(cycle(&mut planner, &known, &in_progress).1);
    }
    let megabytes = most_memory()?;
    Ok(Measured { pods, taken_in, full, proposals: plan.proposals.len(), unchanged, changed, megabytes })
}

/// The most that the process has had at any time.
fn most_memory() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes / 1024)
}
