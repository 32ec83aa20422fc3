//! Logs of the manager, for people or for machines, on stderr.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

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

pub fn start(arguments: &Arguments) -> anyhow::Result<()> {
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let registry = tracing_subscriber::registry().with(arguments.log_level.clone());
    match arguments.log_format {
        Format::Text => registry.with(to_stderr).try_init()?,
        Format::Json => registry.with(to_stderr.json().flatten_event(true)).try_init()?,
    }
    Ok(())
}
