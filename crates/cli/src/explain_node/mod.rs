//! `usher explain node/NAME`: who holds the node, and what its pods wait on, worst first.
//!
//! Each pod is explained as [`crate::explain`] does it; here those explanations are put together.

mod explanation;
mod read;
#[cfg(test)]
mod tests;
mod text;

use kube::Client;

use crate::output::Structured;
use crate::requests::say_if_hidden;
use crate::{Ending, Error, Streams, Surroundings};

/// Explains one node.
///
/// # Errors
/// There is no such node, or the cluster cannot be read.
pub async fn run(
    client: &Client,
    name: &str,
    output: Option<Structured>,
    surroundings: &Surroundings,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let found = read::find(client, name).await?;
    if let Some(pod) = found.pods.iter().find(|pod| pod.world.budgets_are_hidden) {
        say_if_hidden(&pod.world, streams.err)?;
    }
    let now = surroundings.now();
    let explanation = explanation::explain(&found, now);
    let text = match output {
        Some(format) => format.render(&explanation)?,
        None => text::render(&explanation, surroundings, now),
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(Ending::Done)
}
