//! The dry run of a drain: what a maintenance would do if it were created now, and what it would meet.

mod read;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;

use kube::Client;
use usher_api::NodeMaintenance;
use usher_decide::snapshot::Maintenance;
use usher_forecast::outlook::{Finding, Severity, outlook};

use crate::maintenance::guards::GuardArguments;
use crate::{Ending, Environment, Error, Streams};

/// With which flags the drain would be run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags {
    pub guards: GuardArguments,
    /// Pods of DaemonSets and static pods need not be gone.
    pub ignores_daemons: bool,
}

/// What the dry run tells beside the outlook.
pub struct Context {
    /// Without these flags the drain would be refused.
    pub missing: Vec<&'static str>,
    pub ignores_daemons: bool,
    /// Budgets may not be read, so nothing can be said about them.
    pub budgets_are_hidden: bool,
}

impl Context {
    /// Whether pods stay until somebody does something.
    pub fn is_stuck_by(&self, finding: &Finding) -> bool {
        let is_daemon = matches!(
            finding,
            Finding::DaemonSet { .. } | Finding::UnansweredDaemonSet { .. } | Finding::MirrorPods { .. }
        );
        finding.severity() == Severity::Never && !(self.ignores_daemons && is_daemon)
    }
}

/// Prints what the maintenance would do. Nothing in the cluster is touched, and the maintenance need not exist.
///
/// It ends with [`Ending::Incomplete`] if the drain would be refused, or would not end by itself.
///
/// # Errors
/// The cluster cannot be read.
pub async fn print(
    client: &Client,
    maintenance: &NodeMaintenance,
    flags: Flags,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let read = read::cluster(client).await?;
    let maintenance = Maintenance::from(maintenance.clone());
    let outlook = outlook(&maintenance, &read.cluster, environment.now());
    let nodes: BTreeSet<&str> = outlook.waves.iter().flatten().map(|stop| &*stop.node).collect();
    let context = Context {
        missing: flags.guards.missing(read.cluster.pods.iter().filter(|pod| nodes.contains(&*pod.pod.node))),
        ignores_daemons: flags.ignores_daemons,
        budgets_are_hidden: read.budgets_are_hidden,
    };
    streams.out.write_all(text::render(&outlook, &context, environment).as_bytes())?;
    let is_stuck = outlook.findings.iter().any(|finding| context.is_stuck_by(finding));
    Ok(if is_stuck || !context.missing.is_empty() { Ending::Incomplete } else { Ending::Done })
}
