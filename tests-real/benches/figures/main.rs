//! Measures the figures of docs/benchmarks.md, each next to a baseline or an aim.
//!
//! `cargo bench -p usher-tests-real --bench figures -- requests` measures one group, and without a name all are measured, each in a process
//! of its own. All groups are one program, because each program would take as long to link. The last lines say which aims were missed.

mod availability;
mod descheduler;
mod drain;
mod gateway;
mod life;
mod maintenance;
mod memory;
mod process_memory;
mod report;
mod requests;
mod seeds;
mod size;
mod store;
mod surges;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use tokio::runtime::{Builder, Runtime};

use report::{Figure, Report, Verdict, handed_over, is_optimised};
use size::Size;

/// Set for the process of one group, which hands its figures to the process that started it.
const HAND_OVER: &str = "USHER_FIGURES_HAND_OVER";

/// An aim was missed.
const MISSED: u8 = 1;
/// A measurement failed.
const FAILED: u8 = 2;

/// Measures how fast Usher is and how much it needs, next to baselines in the same run
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Arguments {
    /// Groups of figures to measure [default: all]
    groups: Vec<Group>,
    /// Size of the measured clusters
    #[arg(long, value_enum, default_value_t = Size::Full)]
    size: Size,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by `cargo test --benches`: nothing is measured
    #[arg(long, hide = true)]
    test: bool,
}

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// The embedded API server, next to kube-apiserver and etcd
    Store,
    /// The simulated cluster: from nothing to all pods, then an idle hour
    Life,
    /// An hour of faults, for many seeds
    Seeds,
    /// Calls and speed of eviction requests, next to plain evictions and kubectl drain
    Requests,
    /// Deployments that surge before their pods leave, next to kubectl drain and a script
    Surges,
    /// Memory of the manager's controllers in a large cluster
    Memory,
    /// Time that node maintenance takes to plan and to follow events
    Maintenance,
    /// A drain of many nodes, next to kubectl drain in sequence and all at once
    Drain,
    /// Time that the gateway adds to an eviction
    Gateway,
    /// Planning and evicting of a descheduling cycle, next to the Go descheduler
    Descheduler,
}

impl Group {
    fn measure(self, report: &mut Report) -> Result<()> {
        match self {
            Self::Store => threads()?.block_on(store::measure(report)),
            Self::Life => virtual_time()?.block_on(life::measure(report)),
            Self::Seeds => seeds::measure(report),
            Self::Requests => requests::measure(report),
            Self::Surges => {
                virtual_time()?.block_on(surges::measure(report))?;
                threads()?.block_on(surges::compare(report))
            }
            Self::Memory => threads()?.block_on(memory::measure(report)),
            Self::Maintenance => maintenance::measure(report),
            Self::Drain => threads()?.block_on(drain::measure(report)),
            Self::Gateway => threads()?.block_on(gateway::measure(report)),
            Self::Descheduler => descheduler::measure(report),
        }
    }

    /// As the command line names it.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn virtual_time() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().start_paused(true).build()?)
}

fn threads() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The figures of one group, and how long they took.
struct Measured {
    group: Group,
    figures: Vec<Figure>,
    took: Duration,
    failure: Option<String>,
}

fn main() -> ExitCode {
    let all: Vec<String> = std::env::args().skip(1).collect();
    if let ["part", part @ ..] = all.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        return match run_part(part) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&format!("{why:#}")),
        };
    }
    let arguments = Arguments::parse();
    if arguments.test {
        return ExitCode::SUCCESS;
    }
    let hands_over = std::env::var_os(HAND_OVER).is_some();
    if !is_optimised() && !hands_over {
        println!("!! unoptimised build: only counts are judged");
    }
    let measured = match arguments.groups[..] {
        [only] => vec![here(only, arguments.size, hands_over)],
        [] => Group::value_variants().iter().map(|group| apart(*group, arguments.size)).collect(),
        _ => arguments.groups.iter().map(|group| apart(*group, arguments.size)).collect(),
    };
    if hands_over {
        // The process that started this one tells the rest.
        return measured.iter().find_map(|one| one.failure.as_deref()).map_or(ExitCode::SUCCESS, failed);
    }
    conclude(&measured, arguments.size)
}

fn failed(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(FAILED)
}

/// Parts of a measurement that need a process of their own, because its memory or its threads are measured.
fn run_part(part: &[&str]) -> Result<()> {
    match part {
        ["serve", pods, nodes] => threads()?.block_on(memory::serve(pods.parse()?, nodes.parse()?)),
        ["control", url] => threads()?.block_on(memory::control(url)),
        ["deschedule", nodes] => descheduler::measure_ours(nodes.parse()?),
        _ => bail!("no part of a measurement: {}", part.join(" ")),
    }
}

/// Measures a group in this process.
fn here(group: Group, size: Size, hands_over: bool) -> Measured {
    let begun = Instant::now();
    let mut report = Report::new(size, hands_over);
    let failure = group.measure(&mut report).err().map(|why| format!("{why:#}"));
    Measured { group, figures: report.into_figures(), took: begun.elapsed(), failure }
}

/// Measures a group in a process of its own, so that groups share no memory.
fn apart(group: Group, size: Size) -> Measured {
    println!("\n== {}", group.name());
    let begun = Instant::now();
    let mut figures = Vec::new();
    let failure = run_apart(group, size, &mut figures).err().map(|why| format!("{why:#}"));
    Measured { group, figures, took: begun.elapsed(), failure }
}

fn run_apart(group: Group, size: Size, figures: &mut Vec<Figure>) -> Result<()> {
    let mut process = Command::new(std::env::current_exe()?)
        .args([group.name().as_str(), "--size", size.name()])
        .env(HAND_OVER, "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let output = process.stdout.take().context("no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match handed_over(&line) {
            Some(figure) => figures.push(figure),
            None => println!("{line}"),
        }
    }
    let status = process.wait()?;
    if !status.success() {
        bail!("the measurement ended with {status}");
    }
    Ok(())
}

/// Prints all figures once more, and what was missed or failed.
fn conclude(measured: &[Measured], size: Size) -> ExitCode {
    if measured.len() > 1 {
        println!("\nAll figures, {} size:", size.name());
        for one in measured {
            for figure in &one.figures {
                println!("{:<12} {}", one.group.name(), figure.line(size));
            }
        }
    }
    println!();
    let mut code = ExitCode::SUCCESS;
    let (mut met, mut missed, mut not_judged) = (0, 0, 0);
    for Measured { group, figures, took, failure } in measured {
        let verdicts: Vec<Verdict> = figures.iter().map(|figure| figure.verdict(size)).collect();
        let count = |verdict: Verdict| verdicts.iter().filter(|one| **one == verdict).count();
        met += count(Verdict::Met);
        missed += count(Verdict::Missed);
        not_judged += count(Verdict::NotJudged);
        let again = format!("make bench FIGURE={}{}", group.name(), size.pick("", " SIZE=tenth"));
        for figure in figures.iter().filter(|figure| figure.verdict(size) == Verdict::Missed) {
            println!("missed: {}; repeat it with: {again}", figure.line(size));
            code = ExitCode::from(MISSED);
        }
        if let Some(why) = failure {
            println!(
                "failed: {} after {:.0} s: {why}; repeat it with: {again}",
                group.name(),
                took.as_secs_f64()
            );
        }
    }
    if measured.iter().any(|one| one.failure.is_some()) {
        code = ExitCode::from(FAILED);
    }
    let took: Duration = measured.iter().map(|one| one.took).sum();
    println!(
        "figures at {} size: {met} aims met, {missed} missed, {not_judged} not judged, in {:.0} s",
        size.name(),
        took.as_secs_f64()
    );
    code
}
