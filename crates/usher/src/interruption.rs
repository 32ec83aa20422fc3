//! When this process is asked to end.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Ctrl-C, or a polite request from elsewhere to end.
pub async fn interruption() -> anyhow::Result<()> {
    let mut asked = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped.context("cannot wait for Ctrl-C"),
        _ = asked.recv() => Ok(()),
    }
}
