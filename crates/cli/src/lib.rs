//! The commands people type: evict pods or drain whole nodes, see who requested it and what is waited for, cancel it, and have it
//! explained.
//!
//! Arguments are typed once read ([`arguments`]). What is known of the cluster is a [`world`], read once or followed;
//! `usher-forecast` says where a request stands (`RequestState`); nothing here works it out. What people see is made
//! by pure functions of objects and the time; objects are read leniently, and their strings made harmless for terminals, in one
//! place ([`reading`], [`terminal`]): the table in [`requests`], the progress in [`wait`], the text in
//! [`explain`] and [`explain_node`], the dry run of a drain in [`outlook`]. [`maintenance`] has the same of node
//! maintenances, on which [`drain`] is built. Only the commands themselves talk to the server.
//!
//! Depends on the API types and on the decisions of `usher-decide`, `usher-forecast` and `usher-descheduler`; on `usher-client`, to make and withdraw
//! requests, and on `usher-apply`, to read real usage. Commands create, change and delete requests and maintenances, and cordon nodes;
//! nothing here changes a pod.

mod arguments;
mod ask;
mod cancel;
pub mod completion;
mod connect;
mod cordon;
mod deschedule;
mod drain;
mod environment;
mod error;
mod evict;
mod explain;
mod explain_deployment;
mod explain_node;
mod gateway;
pub mod kubeconfig;
mod live;
mod maintenance;
mod outlook;
mod output;
mod reading;
mod request_text;
mod requests;
#[cfg(test)]
mod samples;
mod screen;
mod sheet;
mod sketch;
mod span;
mod table;
mod terminal;
mod wait;
mod world;

use std::io::Write;
use std::process::ExitCode;

pub use arguments::DEFAULT_REQUESTER;
pub use environment::Environment;
pub use error::Error;
pub use terminal::escaped_lines;

/// The commands for people.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Request the eviction of pods: interceptors first, then the eviction API within the disruption budgets.
    ///
    /// Requesting it again changes nothing. Exit codes with --wait: 0 all pods are gone, 3 some are not gone at the timeout, 4 the
    /// request was withdrawn, 130 interrupted.
    Evict(evict::Arguments),
    /// List the eviction requests: whose turn it is and what each waits on.
    Requests(requests::Arguments),
    /// Withdraw what was requested with `evict`.
    Cancel(cancel::Arguments),
    /// Explain why pods have not been evicted yet, or what blocks nodes: since when, until when, and what you can do.
    Explain(explain::Arguments),
    /// Drain nodes: cordon them, evict their pods in order within the budgets, and show how it goes.
    ///
    /// It creates a NodeMaintenance, or follows the one that drains the same nodes already. As with kubectl, pods without a
    /// controller need --force and emptyDir data needs --delete-emptydir-data. Exit codes: 0 drained, 3 not drained at the timeout,
    /// 4 cancelled or no node selected any more, 130 interrupted, 141 output closed. In all but the first the maintenance continues.
    Drain(drain::Arguments),
    /// Manage node maintenances: list, describe, start, cordon, drain, complete and cancel them.
    #[command(visible_alias = "nm")]
    Maintenance(maintenance::Arguments),
    /// Show what becomes of plain evictions, as kubectl drain sends them, and who was turned away.
    Gateway(gateway::Arguments),
    /// Show what a descheduler's policy would do, or why a pod is meant or kept.
    Deschedule(deschedule::Arguments),
    /// Mark nodes as unschedulable, and say which maintenances hold them.
    Cordon(cordon::CordonArguments),
    /// Mark nodes as schedulable, unless a maintenance holds them.
    Uncordon(cordon::UncordonArguments),
}

/// How a command ended, if nothing went wrong with the command itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// Something was not done; it was said what.
    Incomplete,
    /// Pods are still there at the timeout, or nodes still held.
    NotGone,
    /// The request was withdrawn, the maintenance cancelled, or no node is selected any more: the pods stay.
    Withdrawn,
    Interrupted,
}

impl Ending {
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Incomplete => 1,
            Self::NotGone => 3,
            Self::Withdrawn => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ending.code().into()
    }
}

/// Where a command writes: what was asked for, and remarks.
pub struct Streams<'a> {
    pub out: &'a mut (dyn Write + Send),
    pub err: &'a mut (dyn Write + Send),
}

/// Runs a command to its end.
///
/// # Errors
/// The command could not do its work. The error is one line that says what to do, and a list below it if there is one.
pub async fn run(command: Command, environment: &Environment, streams: Streams<'_>) -> Result<Ending, Error> {
    let mut out = terminal::Escaped::new(streams.out, environment.colours);
    let mut err = terminal::Escaped::new(streams.err, environment.colours);
    let streams = Streams { out: &mut out, err: &mut err };
    // A command is a large future, which is not to be moved about on the stack.
    let (ended, notes) = reading::noting(Box::pin(run_one(command, environment, streams))).await;
    for note in notes {
        writeln!(err, "warning: {note}")?;
    }
    ended
}

async fn run_one(command: Command, environment: &Environment, streams: Streams<'_>) -> Result<Ending, Error> {
    match command {
        Command::Evict(arguments) => evict::run(arguments, environment, streams).await,
        Command::Requests(arguments) => requests::run(arguments, environment, streams).await,
        Command::Cancel(arguments) => cancel::run(arguments, environment, streams).await,
        Command::Explain(arguments) => explain::run(arguments, environment, streams).await,
        Command::Drain(arguments) => drain::run(arguments, environment, streams).await,
        Command::Maintenance(arguments) => maintenance::run(arguments, environment, streams).await,
        Command::Gateway(arguments) => gateway::run(arguments, environment, streams).await,
        Command::Deschedule(arguments) => deschedule::run(arguments, environment, streams).await,
        Command::Cordon(arguments) => cordon::cordon(arguments, environment, streams).await,
        Command::Uncordon(arguments) => cordon::uncordon(arguments, environment, streams).await,
    }
}
