//! `usher explain node/NAME`: who holds the node, and what its pods wait on, worst first.
//!
//! Each pod is explained as [`crate::explain`] does it; here those explanations are put together.

mod explanation;
mod read;
#[cfg(test)]
mod tests;
mod text;

use jiff::Timestamp;
use kube::Client;

use crate::Error;
pub use explanation::{Beside, Group, NodeExplanation, groups};
pub use read::close_to;
pub use text::{render, render_group};

/// Looks at one node and its pods.
///
/// # Errors
/// There is no such node, or the cluster cannot be read.
pub async fn read(client: &Client, name: &str, now: Timestamp) -> Result<NodeExplanation, Error> {
    let found = read::find(client, name).await?;
    Ok(explanation::explain(&found, now))
}
