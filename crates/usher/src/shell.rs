//! A scripted session: each line is shown as a person would type it, carried out, and its output printed.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use jiff::Timestamp;
use usher_apply::Clock;
use usher_cli::{Environment, Streams};

/// `usher` as typed in a session.
#[derive(Parser)]
#[command(name = "usher")]
struct Line {
    #[command(subcommand)]
    command: usher_cli::Command,
}

pub struct Shell<'a> {
    kubeconfig: &'a Path,
    environment: Environment,
}

impl<'a> Shell<'a> {
    /// On the cluster of this kubeconfig, by its clock.
    pub fn new(kubeconfig: &'a Path, clock: &Clock) -> Self {
        let clock = clock.clone();
        let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
        Self { kubeconfig, environment: Environment { clock, ..Environment::plain() } }
    }

    /// Types `usher` with these words, and prints what it says.
    pub async fn usher(&self, words: &str) -> anyhow::Result<()> {
        println!("\n$ usher {words}");
        print!("{}", self.quietly(words).await?);
        Ok(())
    }

    /// The output of `usher` with these words.
    pub async fn quietly(&self, words: &str) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig.to_str().context("the kubeconfig's path is no text")?;
        let words = ["usher"].into_iter().chain(words.split(' ')).chain(["--kubeconfig", kubeconfig]);
        let line = Line::try_parse_from(words)?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let streams = Streams { out: &mut out, err: &mut err };
        usher_cli::run(line.command, &self.environment, streams).await?;
        out.append(&mut err);
        Ok(String::from_utf8(out)?)
    }
}
