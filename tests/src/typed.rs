//! What a person types, and what comes of it.

use anyhow::{Context as _, Result};
use clap::Parser;
use usher_cli::{Ending, Error, Streams, Surroundings};

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: usher_cli::Command,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Printed {
    pub ending: Result<Ending, Error>,
    pub out: String,
    pub err: String,
}

impl Printed {
    #[must_use]
    pub fn code(&self) -> u8 {
        self.ending.as_ref().map_or_else(Error::code, |ending| ending.code())
    }

    /// The error, or nothing.
    #[must_use]
    pub fn error(&self) -> String {
        self.ending.as_ref().err().map(ToString::to_string).unwrap_or_default()
    }
}

/// Runs a command of `usher`, split at white space.
///
/// # Errors
/// There is no such command.
pub async fn usher(line: &str, surroundings: &Surroundings) -> Result<Printed> {
    let words = std::iter::once("usher").chain(line.split_whitespace());
    let line = Line::try_parse_from(words).with_context(|| format!("usher {line}"))?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    let ending = usher_cli::run(line.command, surroundings, streams).await;
    Ok(Printed { ending, out: String::from_utf8(out)?, err: String::from_utf8(err)? })
}
