//! The `usher` command: arguments and wiring only.

mod demo;
mod local;
mod manager;
mod sandbox;
mod session;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Walks pods off nodes politely.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start an embedded cluster, show a short session on it, and say how to point kubectl at it.
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
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(why)
            if !why.use_stderr() || why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            why.exit()
        }
        Err(why) => {
            let text = why.to_string();
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            eprintln!("{}", lines.join("; "));
            return ExitCode::from(2);
        }
    };
    let ended = match arguments.command {
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
