//! `usher explain deployment/NAME`: whether it surges, by how much, what that waits for, and which of its pods leave.
//!
//! This is what the specification has in the status of Deployments (`replicasToEvict`, `EvictionRequestInProgress`), to which nobody can
//! add anything. It is told by the same decision that the manager makes.

mod explanation;
mod read;
#[cfg(test)]
mod tests;
mod text;

use jiff::Timestamp;
use kube::Client;

use crate::Error;
pub use explanation::DeploymentExplanation;
pub use text::render;

/// Looks at one Deployment, its pods and what is over it.
///
/// # Errors
/// There is no such Deployment, or the cluster cannot be read.
pub async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<DeploymentExplanation, Error> {
    let found = read::find(client, namespace, name).await?;
    Ok(explanation::explain(&found, now))
}
