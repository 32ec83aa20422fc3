//! `usher maintenance`: node maintenances, from the first to the last stage.

mod catch_up;
mod causes;
pub mod create;
mod describe;
mod description;
pub mod draft;
pub mod follow;
pub mod guards;
mod list;
mod lookups;
pub mod picture;
mod progress;
#[cfg(test)]
mod progress_tests;
mod release;
mod rows;
pub mod selection;
mod stage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};

use crate::arguments::Connection;
use crate::error::is_missing;
use crate::reading::Read;
use crate::{Ending, Environment, Error, Streams, drain};
use draft::DraftArguments;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the maintenances and how far they have come.
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    /// Show one maintenance: its nodes, its plan, what it waits on and what happened.
    Describe(describe::Arguments),
    /// Create a maintenance that changes nothing yet, or one that starts with a --stage.
    Start(StartArguments),
    /// Move on to stage Cordon: its nodes take no new pods.
    Cordon(stage::CordonArguments),
    /// Move on to stage Drain and follow it; exit codes as those of `drain`.
    Drain(stage::DrainArguments),
    /// Move on to stage Complete: withdraw its eviction requests and uncordon its nodes.
    Complete(stage::EndArguments),
    /// Delete a maintenance. It withdraws its eviction requests and uncordons its nodes first.
    Cancel(stage::EndArguments),
}

#[derive(Debug, clap::Args)]
struct StartArguments {
    #[command(flatten)]
    draft: DraftArguments,
    #[command(flatten)]
    guards: guards::GuardArguments,
    /// The stage to start with.
    #[arg(long, value_enum, ignore_case = true, default_value = "idle")]
    stage: StartStage,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StartStage {
    Idle,
    Cordon,
    Drain,
}

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    match arguments.command {
        Command::List(arguments) => list::run(arguments, environment, streams).await,
        Command::Describe(arguments) => describe::run(arguments, environment, streams).await,
        Command::Start(arguments) => start(arguments, environment, streams).await,
        Command::Cordon(arguments) => stage::cordon(arguments, environment, streams).await,
        Command::Drain(arguments) => stage::drain(arguments, environment, streams).await,
        Command::Complete(arguments) => stage::complete(arguments, environment, streams).await,
        Command::Cancel(arguments) => stage::cancel(arguments, environment, streams).await,
    }
}

async fn start(
    arguments: StartArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let stage = match arguments.stage {
        StartStage::Idle => Stage::Idle,
        StartStage::Cordon => Stage::Cordon,
        StartStage::Drain => Stage::Drain,
    };
    let draft = arguments.draft.draft(stage)?;
    let client = arguments.connection.open(environment).await?.client;
    let guards = (stage == Stage::Drain).then_some(&arguments.guards);
    let made =
        drain::make(&client, &arguments.draft, &draft, false, guards, environment, &mut *streams.err).await?;
    let (create::Made::Created(made) | create::Made::Existing(made)) = made;
    let (name, nodes) = (made.name_any(), selection::describe(&made.spec.node_selector));
    writeln!(streams.out, "maintenance {name} created in stage {stage:?}: {nodes}")?;
    let next = match stage {
        Stage::Idle => {
            format!("nothing is changed yet; continue with {} maintenance cordon {name}", environment.program)
        }
        Stage::Cordon => format!("continue with {} maintenance drain {name}", environment.program),
        Stage::Drain | Stage::Complete => {
            format!("watch: {} maintenance describe {name} --watch", environment.program)
        }
    };
    writeln!(streams.err, "{next}")?;
    Ok(Ending::Done)
}

/// The maintenance of that name.
async fn get(client: &Client, name: &str) -> Result<NodeMaintenance, Error> {
    read(client, name).await?.wanted()
}

/// The same, whether or not it can be understood.
async fn read(client: &Client, name: &str) -> Result<Read<NodeMaintenance>, Error> {
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    maintenances.get(name).await.map_err(|why| if is_missing(&why) { missing(name) } else { why.into() })
}

fn missing(name: &str) -> Error {
    Error::Refused(format!("there is no maintenance {name:?}: see kubectl get nodemaintenances"))
}

/// When the drain is expected to be done, if that is known and it is not.
fn eta(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let drain = maintenance.status.as_ref()?.drain_status.as_ref()?;
    drain.expected_finish_time.as_ref().map(|time| time.0)
}
