//! Logs of the manager, for people or for machines, on stderr.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use super::traces::Traces;

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// How log lines are written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// What is logged: error, warn, info, debug or trace, or by module, such as warn,usher_controllers=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log_level: Targets,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line of text.
    Text,
    /// An object of JSON per line.
    Json,
}

fn level(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|_| {
        "not error, warn, info, debug, trace, or a list such as warn,usher_controllers=debug".to_string()
    })
}

pub fn start(arguments: &Arguments, traces: Option<&Traces>) -> anyhow::Result<()> {
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match arguments.log_format {
        Format::Text => to_stderr.boxed(),
        Format::Json => to_stderr.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(arguments.log_level.clone()))
        .with(traces.map(Traces::layer))
        .try_init()?;
    Ok(())
}
