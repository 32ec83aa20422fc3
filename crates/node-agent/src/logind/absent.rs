//! A build that cannot reach logind.

use std::time::Duration;

use futures::stream::BoxStream;

/// Why shutdowns are not delayed.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build of usher cannot reach systemd-logind, so shutdowns of the node are not delayed: build it with --features logind, or switch this off with --delay-shutdown=false"
)]
pub struct LogindError;

/// There is no connection in this build, and so nothing to hold.
pub enum Inhibitor {}

/// There is no connection in this build.
pub enum Logind {}

impl Logind {
    /// # Errors
    /// Always.
    pub async fn connect(_: &str) -> Result<Self, LogindError> {
        Err(LogindError)
    }

    /// # Errors
    /// Never called: there is no connection.
    pub async fn inhibit(&self) -> Result<Inhibitor, LogindError> {
        match *self {}
    }

    /// # Errors
    /// Never called: there is no connection.
    pub async fn longest_delay(&self) -> Result<Duration, LogindError> {
        match *self {}
    }

    /// # Errors
    /// Never called: there is no connection.
    pub async fn reload(&self) -> Result<(), LogindError> {
        match *self {}
    }

    /// # Errors
    /// Never called: there is no connection.
    pub async fn is_shutting_down(&self) -> Result<bool, LogindError> {
        match *self {}
    }

    /// # Errors
    /// Never called: there is no connection.
    pub async fn shutdowns(&self) -> Result<BoxStream<'static, bool>, LogindError> {
        match *self {}
    }
}
