//! `usher requests`: a table of the eviction requests, whose turn it is, and what is waited for.

mod rows;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use usher_api::EvictionRequest;

use crate::arguments::{Connection, selector};
use crate::live::{Live, Scope};
use crate::output::{Output, Structured, list_of, name_of};
use crate::reading::Read;
use crate::screen::Screen;
use crate::world::{World, list_exactly, scoped};
use crate::{Ending, Environment, Error, Streams};
use rows::{Changes, Columns, table};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The requests of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Requests by their labels, which include those of the pod.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector)]
    selector: Option<String>,
    /// How to print them. In a narrow terminal the table leaves columns out; `wide` has all.
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
const NONE: &str = "No eviction requests found.";

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let structured = match arguments.output {
        Some(Output::Json) => Some(Structured::Json),
        Some(Output::Yaml) => Some(Structured::Yaml),
        _ => None,
    };
    let wants_names = arguments.output == Some(Output::Name);
    if arguments.watch && (structured.is_some() || wants_names) {
        return Err(Error::Usage("--watch prints tables: leave out -o, or use -o wide".to_string()));
    }
    let connected = arguments.connection.open(environment).await?;
    let namespace = (!arguments.all_namespaces).then_some(connected.namespace.as_str());
    let labels = arguments.selector.as_deref();
    let client = &connected.client;
    if let Some(format) = structured {
        let items = objects(client, namespace, labels).await?;
        streams.out.write_all(format.render(&list_of(&items))?.as_bytes())?;
        return Ok(Ending::Done);
    }
    if wants_names {
        for request in objects(client, namespace, labels).await? {
            writeln!(streams.out, "{}", name_of(&request))?;
        }
        return Ok(Ending::Done);
    }
    let columns =
        Columns { namespace: arguments.all_namespaces, wide: arguments.output == Some(Output::Wide) };
    if arguments.watch {
        let scope = Scope {
            namespace: namespace.map(str::to_string),
            request_labels: arguments.selector.clone(),
            ..Scope::default()
        };
        let live = Live::start(client, &scope).await?;
        return follow(live, columns, environment, streams).await;
    }
    let world = World::read(client, namespace, labels).await?;
    say_if_hidden(&world, streams.err)?;
    if world.requests.is_empty() {
        match namespace {
            Some(namespace) => {
                writeln!(
                    streams.err,
                    "No eviction requests found in {namespace} namespace; -A shows all namespaces."
                )?;
            }
            None => writeln!(streams.err, "{NONE}")?,
        }
        return Ok(Ending::Done);
    }
    streams.out.write_all(table(&world, columns, environment.width, environment.now()).as_bytes())?;
    Ok(Ending::Done)
}

async fn objects(
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<Read<EvictionRequest>>, Error> {
    list_exactly(&scoped::<EvictionRequest>(client, namespace), labels).await
}

pub fn say_if_hidden(world: &World, err: &mut (dyn std::io::Write + Send)) -> Result<(), Error> {
    if world.requests_are_hidden {
        writeln!(
            err,
            "note: you may not list evictionrequests here, so which pods are being evicted and what they wait on is not shown"
        )?;
    }
    if world.budgets_are_hidden {
        writeln!(
            err,
            "note: you may not list poddisruptionbudgets here, so whether they are in the way is not shown"
        )?;
    }
    Ok(())
}

/// Draws the table anew at a terminal; elsewhere adds a line for each request that has changed.
async fn follow(
    mut live: Live,
    columns: Columns,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    say_if_hidden(&live.world, streams.err)?;
    let screen = environment.is_terminal.then(Screen::new);
    let mut changes = Changes::default();
    let mut tick = tokio::time::interval(TICK);
    loop {
        let now = environment.now();
        match &screen {
            Some(screen) => draw(screen, &live.world, columns, now),
            None => {
                let lines = changes.lines(&live.world, columns, now);
                streams.out.write_all(lines.as_bytes())?;
                streams.out.flush()?;
            }
        }
        tokio::select! {
            changed = live.changed() => drop(changed?),
            _ = tick.tick(), if screen.is_some() => {}
        }
    }
}

fn draw(screen: &Screen, world: &World, columns: Columns, now: Timestamp) {
    let text = if world.requests.is_empty() {
        NONE.to_string()
    } else {
        table(world, columns, Some(screen.size().width), now)
    };
    screen.draw(&text);
}
