//! Planning a descheduling cycle, ours beside the Go descheduler over the same objects, with all ten plugins: how long it takes, how it
//! grows, what a cycle costs in which little has changed, and how much memory it needs.
//!
//! Each size has a process of its own, so that memory is that of the size. The Go descheduler gets its caches filled before the clock
//! starts; sizes for which it would take minutes are left to ours alone.
//!
//! Figures are compared with the aims; a miss is printed, and fails the run.

mod cluster;
mod ours;

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use usher_tests::descheduling::verdict::Answer;
use usher_tests_real::go_descheduler::{Asking, Judge};
use usher_tests::report::Report;

use ours::Measured;

/// Nodes where both are measured, with 30 pods each.
const BOTH: [usize; 3] = [50, 100, 500];
/// Nodes where growth is measured.
const GROWTH: [usize; 4] = [625, 1250, 2500, 5000];
const PATIENCE: Duration = Duration::from_secs(120);

pub fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let Some(place) = args.iter().position(|arg| arg == "measure") {
        let nodes = args.get(place + 1).context("how many nodes?")?.parse()?;
        println!("{}", serde_json::to_string(&ours::measure(nodes)?)?);
        return Ok(());
    }
    let mut report = Report::default();
    beside_go(&mut report)?;
    growth(&mut report)?;
    report.verdict()
}

fn measure(nodes: usize) -> Result<Measured> {
    let output = Command::new(std::env::current_exe()?).args(["measure", &nodes.to_string()]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Measured = serde_json::from_slice(&output.stdout)?;
    println!(
        "  ours, {nodes} nodes, {} pods: taken in in {:.2} s, planned in {:.3} s ({} proposals), planned again in {:.4} s, with 1 % changed in {:.4} s, {} MB",
        measured.pods,
        measured.taken_in,
        measured.full,
        measured.proposals,
        measured.unchanged,
        measured.changed,
        measured.megabytes
    );
    Ok(measured)
}

fn beside_go(report: &mut Report) -> Result<()> {
    println!("building and starting the Go descheduler, the first time takes minutes");
    for nodes in BOTH {
        let ours = measure(nodes)?;
        let Some(go) = ask_go(nodes)? else {
            println!(
                "  Go, {nodes} nodes: no answer within {PATIENCE:?}, so ours is at least so much faster"
            );
            let ratio = PATIENCE.as_secs_f64() / ours.full;
            report.line(
                &format!("times faster at {nodes} nodes"),
                format!("more than {ratio:.0}"),
                ">= 50",
                ratio >= 50.0,
            );
            break;
        };
        let evictions = go.outcomes.first().map_or(0, Vec::len);
        println!("  Go, {nodes} nodes: planned in {:.2} s ({evictions} evictions)", go.seconds);
        let ratio = go.seconds / ours.full;
        report.line(&format!("times faster at {nodes} nodes"), format!("{ratio:.0}"), ">= 50", ratio >= 50.0);
    }
    Ok(())
}

/// None if it takes too long.
fn ask_go(nodes: usize) -> Result<Option<Answer>> {
    let judge = Judge::start()?;
    let stop = judge.stopper();
    let (sender, receiver) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        let mut judge = judge;
        let asking = Asking { least: 1, most: 1, own_indexes: true };
        let answer = judge.ask(&cluster::policy(), &cluster::objects(nodes), asking);
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
    let all: Vec<Measured> = GROWTH.iter().map(|nodes| measure(*nodes)).collect::<Result<_>>()?;
    let (first, last) = (all.first().context("no sizes")?, all.last().context("no sizes")?);
    report.line(
        "a full cycle, 5,000 nodes and 150,000 pods",
        format!("{:.2} s", last.full),
        "<= 3 s",
        last.full <= 3.0,
    );
    report.line("memory", format!("{} MB", last.megabytes), "<= 500 MB", last.megabytes <= 500);
    let part = last.full / last.changed;
    report.line(
        "a full cycle, beside one in which 1 % changed",
        format!("{part:.0} times"),
        ">= 20",
        part >= 20.0,
    );
    #[allow(clippy::cast_precision_loss)]
    let per_pod = |one: &Measured| one.full / one.pods as f64;
    let growth = per_pod(last) / per_pod(first);
    report.line("time for a pod, at 8 times the size", format!("{growth:.2} times"), "<= 1.5", growth <= 1.5);
    Ok(())
}
