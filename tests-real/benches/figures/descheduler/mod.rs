//! A descheduling cycle with all ten plugins, next to the Go descheduler with the same objects: the time to plan and the time to evict,
//! each the median of five runs. Ours alone: how planning grows, a cycle in which little has changed, and memory.
//!
//! Both plan with full caches and evict through a client that answers at once. Ours has a process for each size, so that memory is that of
//! the size. Sizes for which the Go descheduler would take minutes are measured for ours alone.

mod cluster;
mod ours;

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use usher_tests::descheduling::verdict::Answer;
use usher_tests_real::go_descheduler::{Asking, Judge};

use crate::report::{Figure, Report};
use ours::Measured;

/// Runs of which the median counts.
const RUNS: u32 = 5;
/// How long all runs of the Go descheduler may take together.
const PATIENCE: Duration = Duration::from_secs(600);
/// Nodes with 30 pods each, for both deschedulers.
const BOTH: [usize; 3] = [50, 100, 500];
/// Nodes for the growth of ours.
const GROWTH: [usize; 4] = [625, 1250, 2500, 5000];

pub fn measure(report: &mut Report) -> Result<()> {
    next_to_go(report)?;
    growth(report)
}

/// Prints what this process has measured of ours at one size.
pub fn measure_ours(nodes: usize) -> Result<()> {
    println!("{}", serde_json::to_string(&ours::measure(nodes)?)?);
    Ok(())
}

fn ours(nodes: usize) -> Result<Measured> {
    let output =
        Command::new(std::env::current_exe()?).args(["part", "deschedule", &nodes.to_string()]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Measured = serde_json::from_slice(&output.stdout)?;
    println!(
        "ours, {nodes} nodes, {} pods: read in {:.2} s, planned in {:.4} s ({} proposals), asked in {:.4} s, \
         planned again in {:.4} s, with 1 % changed in {:.4} s, {:.0} MB",
        measured.pods,
        measured.read,
        measured.planning,
        measured.proposals,
        measured.evicting,
        measured.unchanged,
        measured.changed,
        measured.megabytes
    );
    Ok(measured)
}

fn next_to_go(report: &mut Report) -> Result<()> {
    println!("building and starting the Go descheduler, the first time takes minutes");
    for nodes in report.size().pick(&BOTH[..], &BOTH[..1]) {
        let ours = ours(*nodes)?;
        let Some(go) = ask_go(*nodes)? else {
            println!("Go, {nodes} nodes: no answer within {PATIENCE:?}, so larger sizes are left out");
            break;
        };
        let evictions = go.outcomes.first().map_or(0, Vec::len);
        let planning = median(go.runs.iter().map(|run| run.planning).collect())?;
        let evicting = median(go.runs.iter().map(|run| run.evicting).collect())?;
        println!(
            "Go, {nodes} nodes: planned in {planning:.3} s, evicted {evictions} pods in {evicting:.4} s"
        );
        let name = format!("Go descheduler takes longer to plan, {nodes} nodes");
        report.add(Figure::ratio(name, planning / ours.planning).at_least(50.0));
        let per_pod = |time: f64, pods: usize| time / pods.max(1) as f64;
        // Go's fake client takes objects as they are, where ours encodes each request and its events as for a server.
        let name = format!("time to ask a pod to leave, against Go's fake client, {nodes} nodes");
        let ratio = per_pod(ours.evicting, ours.proposals) / per_pod(evicting, evictions);
        report.add(Figure::ratio(name, ratio));
    }
    Ok(())
}

/// The answer of the Go descheduler, or nothing if it takes too long.
fn ask_go(nodes: usize) -> Result<Option<Answer>> {
    let judge = Judge::start()?;
    let stop = judge.stopper();
    let (sender, receiver) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        let mut judge = judge;
        let asking = Asking { least: RUNS, most: RUNS, own_indexes: true };
        let answer = judge.ask(&cluster::policy(), &cluster::objects(nodes), asking);
        // Without a receiver it came too late.
        let _ = sender.send(answer);
    });
    let answer = match receiver.recv_timeout(PATIENCE) {
        Ok(answer) => Some(answer?),
        Err(_) => {
            stop.stop();
            None
        }
    };
    let _ = asking.join();
    Ok(answer)
}

fn growth(report: &mut Report) -> Result<()> {
    let sizes = GROWTH.map(|nodes| report.size().of(nodes));
    let all: Vec<Measured> = sizes.iter().map(|nodes| ours(*nodes)).collect::<Result<_>>()?;
    let (first, last) = (all.first().context("no sizes")?, all.last().context("no sizes")?);
    let name = format!("a full cycle, {} pods", last.pods);
    report.add(Figure::measured(name, last.planning, "s").at_most(3.0));
    report.add(Figure::measured("peak memory, whole process", last.megabytes, "MB").at_most(500.0));
    let name = "a full cycle, against one in which 1 % changed";
    report.add(Figure::ratio(name, last.planning / last.changed).at_least(20.0).at_full_size());
    let per_pod = |one: &Measured| one.planning / one.pods as f64;
    let name = "planning time for a pod, at 8 times the size";
    report.add(Figure::ratio(name, per_pod(last) / per_pod(first)).at_most(1.5));
    Ok(())
}

fn median(mut times: Vec<f64>) -> Result<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("nothing was measured")
}
