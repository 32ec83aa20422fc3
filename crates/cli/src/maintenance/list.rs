//! `usher maintenance list`: a table of the maintenances.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::Key;

use super::rows::{Changes, table};
use crate::arguments::Connection;
use crate::live::{Listed, observe};
use crate::output::{Output, Structured, list_of, name_of};
use crate::reading::Read;
use crate::screen::Screen;
use crate::world::{key_of, list_exactly};
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How to print them.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// Keep showing what changes.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Times in the table move on by themselves.
const TICK: Duration = Duration::from_secs(1);
const NONE: &str = "No node maintenances found.";

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let wide = arguments.output == Some(Output::Wide);
    if arguments.watch && !matches!(arguments.output, None | Some(Output::Wide)) {
        return Err(Error::Usage("--watch prints tables: leave out -o, or use -o wide".to_string()));
    }
    let client = arguments.connection.open(environment).await?.client;
    if arguments.watch {
        return follow(&client, wide, environment, streams).await;
    }
    let maintenances: Vec<Read<NodeMaintenance>> = list_exactly(&Api::all(client), None).await?;
    match arguments.output {
        Some(Output::Json) => {
            write!(streams.out, "{}", Structured::Json.render(&list_of(&maintenances))?)?;
        }
        Some(Output::Yaml) => {
            write!(streams.out, "{}", Structured::Yaml.render(&list_of(&maintenances))?)?;
        }
        Some(Output::Name) => {
            for maintenance in &maintenances {
                writeln!(streams.out, "{}", name_of(maintenance))?;
            }
        }
        _ if maintenances.is_empty() => writeln!(streams.err, "{NONE}")?,
        _ => {
            let understood = maintenances.into_iter().filter_map(Read::object);
            let known = understood.map(|one| (key_of(&one), one)).collect();
            write!(streams.out, "{}", table(&known, wide, environment.width, environment.now()))?;
        }
    }
    Ok(Ending::Done)
}

/// Draws the table anew at a terminal; elsewhere adds a line for each maintenance that has changed.
async fn follow(
    client: &Client,
    wide: bool,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let api: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut known: BTreeMap<Key, NodeMaintenance> = BTreeMap::new();
    let mut listed = Listed::default();
    let screen = environment.is_terminal.then(Screen::new);
    let mut changes = Changes::default();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => observe(&mut known, &mut listed, event, |object| object, |_, _| {}),
                Some(Err(watcher::Error::InitialListFailed(why))) if !listed.is_done => return Err(why.into()),
                _ => {}
            },
            _ = tick.tick(), if screen.is_some() => {}
        }
        let now = environment.now();
        match &screen {
            _ if !listed.is_done => {}
            Some(screen) if known.is_empty() => screen.draw(NONE),
            Some(screen) => screen.draw(&table(&known, wide, Some(screen.size().width), now)),
            None => {
                streams.out.write_all(changes.lines(&known, wide, now).as_bytes())?;
                streams.out.flush()?;
            }
        }
    }
}
