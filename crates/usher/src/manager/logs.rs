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

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A word that is no level would be taken for a module, and everything else not be logged.
fn level(text: &str) -> Result<Targets, String> {
    let is_level = |level: &str| LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
    let is_known = |part: &str| match part.split_once('=') {
        Some((module, level)) => !module.is_empty() && is_level(level),
        None => is_level(part),
    };
    let parsed = text.split(',').all(is_known).then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| {
        format!("use one of {}, or a list such as warn,usher_controllers=debug", LEVELS.join(", "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_does_not_exist_is_refused_with_those_that_do() {
        for right in ["info", "WARN", "off", "warn,usher_controllers=debug"] {
            assert!(level(right).is_ok(), "{right}");
        }
        for wrong in
            ["nonsense", "infos", "", "info,", "usher_controllers=loud", "=debug", "warn,usher_controllers"]
        {
            let why = level(wrong).unwrap_err();
            assert!(
                why.starts_with("use one of off, error, warn, info, debug, trace, or a list"),
                "{wrong}: {why}"
            );
        }
    }
}
