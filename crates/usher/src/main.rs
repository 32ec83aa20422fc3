//! The `usher` command: arguments and wiring only.

mod demo;
mod session;

use std::process::ExitCode;

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
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // One line that says what to do, whatever the environment thinks of backtraces.
            eprintln!("usher: {why:#}");
            ExitCode::FAILURE
        }
    }
}
