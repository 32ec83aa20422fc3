//! `usher maintenance describe`: all that is to be known of one maintenance.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client};
use usher_api::NodeMaintenance;
use usher_forecast::joining::overlaps;

use super::description::{MaintenanceFound, render};
use super::follow::{Until, until_drained};
use super::progress::Progress;
use super::read;
use super::selection::{self, read_nodes};
use crate::arguments::Connection;
use crate::explain::events_of;
use crate::live::{Live, OnNodes, Scope};
use crate::output::Structured;
use crate::requests::say_if_hidden;
use crate::world::{World, list};
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The maintenance.
    #[arg(value_name = "MAINTENANCE", value_parser = selection::maintenance)]
    name: String,
    /// Then follow its drain; exit codes as those of `drain`.
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// Print the object in this format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structured>,
    #[command(flatten)]
    connection: Connection,
}

/// Where events of objects without a namespace are.
const EVENTS: &str = "default";

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let maintenance = read(&client, &arguments.name).await?;
    if let Some(format) = arguments.output {
        streams.out.write_all(format.render(&maintenance)?.as_bytes())?;
        return Ok(Ending::Done);
    }
    let maintenance = maintenance.wanted()?;
    let events = events(&client, &maintenance).await?;
    let all = list(&Api::all(client.clone()), None).await?;
    let nodes = read_nodes(&client).await?;
    let world = match pods(&client, &maintenance).await {
        Ok(world) => Some(world),
        Err(Error::Forbidden(why)) => {
            // Who follows it is told then.
            if !arguments.watch {
                writeln!(streams.err, "note: what the pods wait on is not shown: {why}")?;
            }
            None
        }
        Err(why) => return Err(why),
    };
    if let Some(world) = world.as_ref().filter(|_| !arguments.watch) {
        say_if_hidden(world, streams.err)?;
    }
    let now = environment.now();
    let progress = world.map(|world| Progress::at_once(&maintenance, &world, now));
    let found = MaintenanceFound {
        maintenance: &maintenance,
        progress,
        overlaps: overlaps(&maintenance, &all, &nodes),
        events,
    };
    streams.out.write_all(render(&found, environment, now).as_bytes())?;
    streams.out.flush()?;
    if arguments.watch {
        writeln!(streams.out)?;
        return until_drained(&client, maintenance, Until::default(), environment, streams).await;
    }
    Ok(Ending::Done)
}

/// The pods of its nodes with their requests and budgets.
async fn pods(client: &Client, maintenance: &NodeMaintenance) -> Result<World, Error> {
    let scope = Scope { on_nodes: Some(OnNodes::of(maintenance)), ..Scope::default() };
    Ok(Live::start(client, &scope).await?.world)
}

async fn events(client: &Client, maintenance: &NodeMaintenance) -> Result<Vec<Event>, Error> {
    let uid = maintenance.metadata.uid.clone().unwrap_or_default();
    events_of(client, EVENTS, &uid).await
}
