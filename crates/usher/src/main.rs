//! The `usher` command: arguments and wiring only.

mod demo;
mod local;
mod manager;
mod manifests;
mod resident;
mod sandbox;
mod shell;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use usher_cli::{Streams, Surroundings};

/// The sandbox and the manager's caches are millions of small pieces; this is the allocator with which the benchmarks take
/// their figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Walks pods off nodes politely.
#[derive(Parser)]
#[command(name = "usher", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    People(usher_cli::Command),
    /// Start an embedded cluster with Usher, show what it does in under a minute, and say how to point kubectl at it.
    ///
    /// At a terminal the cluster stays up until Ctrl-C; otherwise the command ends after the session.
    Demo(demo::Arguments),
    /// Start a cluster that lives: simulated nodes, scheduler and controllers, to try things on with kubectl.
    ///
    /// It runs until Ctrl-C and leaves nothing behind.
    Sandbox(sandbox::Arguments),
    /// Run the controllers in a cluster.
    ///
    /// Replicas elect one that acts. It runs until SIGTERM, then finishes the calls under way and releases the lease.
    Manager(manager::Arguments),
    /// Print a completion script for your shell, as in: source <(usher completion bash).
    Completion { shell: usher_cli::Shell },
}

#[tokio::main]
async fn main() -> ExitCode {
    let surroundings = Surroundings::of_this_process();
    let named = Arguments::command().bin_name(surroundings.program.clone());
    let parsed = named.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(why)
            if !why.use_stderr() || why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            why.exit()
        }
        Err(why) => {
            eprintln!("{}", one_line(&why.to_string()));
            return ExitCode::from(2);
        }
    };
    let ended = match arguments.command {
        Command::People(command) => return people(command, &surroundings).await,
        Command::Completion { shell } => {
            let written = usher_cli::complete(shell, &mut Arguments::command(), &mut std::io::stdout());
            written.map_err(anyhow::Error::from)
        }
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Sandbox(arguments) => sandbox::run(arguments).await,
        Command::Manager(arguments) => manager::run(arguments).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // One line with all causes; backtraces are for developers, who have tests.
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

async fn people(command: usher_cli::Command, surroundings: &Surroundings) -> ExitCode {
    let streams = Streams { out: &mut std::io::stdout(), err: &mut std::io::stderr() };
    match usher_cli::run(command, surroundings, streams).await {
        Ok(ending) => ending.into(),
        Err(why) if why.is_broken_pipe() => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").replace(":; ", ": ")
}
