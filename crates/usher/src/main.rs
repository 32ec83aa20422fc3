//! The `usher` command: arguments and wiring only.

#[cfg(feature = "sandbox")]
mod demo;
mod descheduler;
mod interruption;
#[cfg(feature = "sandbox")]
mod local;
mod manager;
#[cfg(feature = "sandbox")]
mod manifests;
mod node_agent;
#[cfg(feature = "sandbox")]
mod resident;
#[cfg(feature = "sandbox")]
mod sandbox;
#[cfg(feature = "sandbox")]
mod shell;
#[cfg(any(test, not(feature = "sandbox")))]
mod without_sandbox;
#[cfg(not(feature = "sandbox"))]
use {without_sandbox as demo, without_sandbox as sandbox};

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use usher_cli::{Environment, Streams, completion};

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
    /// Run the descheduler alone: plan in cycles by a policy, and ask pods to leave.
    ///
    /// It reads the policies of the Go descheduler (descheduler/v1alpha2). It runs until SIGTERM, or for one cycle with
    /// --descheduling-interval=0.
    Descheduler(descheduler::Arguments),
    /// Run the agent of a node: its static pods leave for maintenances and come back.
    ///
    /// It runs until SIGTERM. What it has taken stays taken meanwhile, and the next one goes on.
    NodeAgent(node_agent::Arguments),
    /// Print a completion script for your shell, as in: source <(usher completion bash).
    Completion { shell: completion::Shell },
}

fn main() -> ExitCode {
    let environment = Environment::of_this_process();
    if let Some(words) = to_be_completed() {
        return on(Threads::One, async {
            let answer = completion::answer(&Arguments::command(), &words, &environment).await;
            print!("{answer}");
            ExitCode::SUCCESS
        });
    }
    let named = Arguments::command().bin_name(environment.program.clone());
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
    match arguments.command {
        Command::People(command) => on(Threads::One, people(command, &environment)),
        Command::Completion { shell } => {
            let written = completion::script(shell, &mut Arguments::command(), &mut std::io::stdout());
            ended(written.map(|()| usher_cli::Ending::Done))
        }
        Command::Demo(arguments) => on(Threads::OnePerCore, serve(demo::run(arguments))),
        Command::Sandbox(arguments) => on(Threads::OnePerCore, serve(sandbox::run(arguments))),
        Command::Descheduler(arguments) => on(Threads::OnePerCore, serve(descheduler::run(arguments))),
        Command::NodeAgent(arguments) => on(Threads::One, serve(node_agent::run(arguments))),
        Command::Manager(arguments) => on(Threads::OnePerCore, serve(manager::run(arguments))),
    }
}

/// How many threads a command runs on.
enum Threads {
    /// A command of people waits for a server most of the time: waking threads would cost it more than its work.
    One,
    OnePerCore,
}

fn on(threads: Threads, command: impl Future<Output = ExitCode>) -> ExitCode {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::OnePerCore => tokio::runtime::Builder::new_multi_thread(),
    };
    match builder.enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(why) => {
            eprintln!("error: cannot start: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(command: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match command.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // One line with all causes; backtraces are for developers, who have tests.
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

async fn people(command: usher_cli::Command, environment: &Environment) -> ExitCode {
    let streams = Streams { out: &mut std::io::stdout(), err: &mut std::io::stderr() };
    ended(usher_cli::run(command, environment, streams).await)
}

fn ended(result: Result<usher_cli::Ending, usher_cli::Error>) -> ExitCode {
    match result {
        Ok(ending) => ending.into(),
        Err(why) => {
            if !why.is_broken_pipe() {
                eprintln!("error: {}", usher_cli::escaped_lines(&why.to_string(), false));
            }
            why.code().into()
        }
    }
}

/// The words of a command line that a shell, or kubectl for one, wants to be completed.
fn to_be_completed() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = arguments.next()?;
    let file = std::path::Path::new(&program).file_name()?;
    if file == completion::KUBECTL_FILE {
        return Some(arguments.collect());
    }
    (arguments.next()? == completion::ASKED).then(|| arguments.collect())
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").replace(":; ", ": ")
}
