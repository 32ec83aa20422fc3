//! What a person types, and what comes of it.

use anyhow::{Context as _, Result};
use clap::Parser;
use usher_cli::{Ending, Environment, Error, Streams};

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

/// What could be typed at the end of a line, which a space ends.
pub async fn completed(line: &str, kubeconfig: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split(' ').map(str::to_string).collect();
    let commands = words.iter().take_while(|word| !word.is_empty() && !word.starts_with('-')).count();
    let after = if words[0] == "maintenance" { 2 } else { 1 };
    words.insert(commands.min(after), format!("--kubeconfig={kubeconfig}"));
    let command = <Line as clap::CommandFactory>::command();
    let answer = usher_cli::completion::answer(&command, &words, &Environment::plain()).await;
    let is_name = |line: &&str| !line.starts_with(':');
    answer.lines().filter(is_name).map(str::to_string).collect()
}

/// Runs a command of `usher`, split at white space.
///
/// # Errors
/// There is no such command.
pub async fn usher(line: &str, environment: &Environment) -> Result<Printed> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ending = usher_to(line, environment, &mut out, &mut err).await?;
    Ok(Printed { ending, out: String::from_utf8(out)?, err: String::from_utf8(err)? })
}

/// The same, writing to where it is told.
///
/// # Errors
/// There is no such command.
pub async fn usher_to(
    line: &str,
    environment: &Environment,
    out: &mut (dyn std::io::Write + Send),
    err: &mut (dyn std::io::Write + Send),
) -> Result<Result<Ending, Error>> {
    let words = std::iter::once("usher").chain(line.split_whitespace());
    let line = Line::try_parse_from(words).with_context(|| format!("usher {line}"))?;
    Ok(usher_cli::run(line.command, environment, Streams { out, err }).await)
}

/// The cells of a printed table. Three spaces separate columns, and cells hold single spaces only.
#[must_use]
pub fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}
