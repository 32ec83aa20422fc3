//! The dry run of a drain: what a maintenance would do if it were created now, and what it would meet.

mod read;
#[cfg(test)]
mod tests;
mod text;

use kube::Client;
use usher_api::NodeMaintenance;
use usher_decide::outlook::outlook;
use usher_decide::snapshot::Maintenance;

use crate::{Ending, Error, Streams, Surroundings};

/// Prints what the maintenance would do. Nothing in the cluster is touched, and the maintenance need not exist.
///
/// It ends with [`Ending::Incomplete`] if pods could never leave, so that the drain would not end by itself.
///
/// # Errors
/// The cluster cannot be read.
pub async fn print(
    client: &Client,
    maintenance: &NodeMaintenance,
    surroundings: &Surroundings,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let read = read::cluster(client).await?;
    if read.budgets_are_hidden {
        writeln!(streams.err, "note: you may not list disruption budgets, so they are not considered")?;
    }
    let outlook = outlook(&Maintenance::from(maintenance.clone()), &read.cluster, surroundings.now());
    streams.out.write_all(text::render(&outlook, surroundings).as_bytes())?;
    Ok(if outlook.is_stuck() { Ending::Incomplete } else { Ending::Done })
}
