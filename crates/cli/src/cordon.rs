//! `usher cordon` and `usher uncordon`: like kubectl's, but they know of maintenances.

use std::collections::BTreeSet;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use usher_api::NodeMaintenance;
use usher_decide::admission::node_cordon::{CordonOutcome, outcome};
use usher_decide::snapshot::{Node, NodeOnWire};

use crate::arguments::Connection;
use crate::ask::FIELD_MANAGER;
use crate::error::MANAGER_PODS;
use crate::maintenance::selection::NodeArguments;
use crate::reading::{Read, names};
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct CordonArguments {
    #[command(flatten)]
    nodes: NodeArguments,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub struct UncordonArguments {
    #[command(flatten)]
    nodes: NodeArguments,
    /// Also uncordon nodes that a maintenance holds. It cordons them again.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

/// What is to be done about one node, and what is to be said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    is_refused: bool,
    changes: bool,
    message: String,
    warning: Option<String>,
}

pub async fn cordon(
    arguments: CordonArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let plan = |node: &Node| to_cordon(node, &environment.program);
    each(&client, &arguments.nodes, true, plan, streams).await
}

pub async fn uncordon(
    arguments: UncordonArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let known = known_maintenances(&client).await;
    let plan = |node: &Node| to_uncordon(node, known.as_ref(), arguments.force, &environment.program);
    each(&client, &arguments.nodes, false, plan, streams).await
}

async fn each(
    client: &Client,
    wanted: &NodeArguments,
    unschedulable: bool,
    plan: impl Fn(&Node) -> Plan,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let all = wanted.read(client).await?.nodes;
    let nodes: Api<Read<NodeOnWire>> = Api::all(client.clone());
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_string()), ..PatchParams::default() };
    let mut ending = Ending::Done;
    for node in wanted.among(&all)? {
        let plan = plan(node);
        let name = &node.name;
        if plan.is_refused {
            writeln!(streams.err, "error: node/{name}: {}", plan.message)?;
            ending = Ending::Incomplete;
            continue;
        }
        if plan.changes {
            let patch = json!({"metadata": {"uid": *node.uid}, "spec": {"unschedulable": unschedulable}});
            if let Err(why) = nodes.patch(name, &parameters, &Patch::Merge(&patch)).await {
                writeln!(streams.err, "error: node/{name}: {}", Error::from(why))?;
                ending = Ending::Incomplete;
                continue;
            }
        }
        writeln!(streams.out, "node/{name}: {}", plan.message)?;
        if let Some(warning) = plan.warning {
            writeln!(streams.err, "warning: node/{name}: {warning}")?;
        }
    }
    Ok(ending)
}

fn to_cordon(node: &Node, program: &str) -> Plan {
    let message = if node.unschedulable { "already cordoned" } else { "cordoned" }.to_string();
    let warning = match outcome(holders(node), node.was_unschedulable, true, None) {
        CordonOutcome::Outlasts(by) => {
            Some((by, "it was cordoned before that, and stays cordoned afterwards".to_string()))
        }
        CordonOutcome::EndsWith(by) => {
            let end = if by.len() == 1 { "that ends" } else { "all of them end" };
            Some((by, format!("it is uncordoned when {end}: cordon it again then")))
        }
        CordonOutcome::Stays | CordonOutcome::CordonedAgain { .. } | CordonOutcome::Released(_) => None,
    };
    let warning = warning
        .map(|(by, end)| format!("{}; {end}. See {program} maintenance describe {}", held_by(&by), by[0]));
    Plan { changes: !node.unschedulable, message, warning, is_refused: false }
}

/// The names of all maintenances, for who may see them.
async fn known_maintenances(client: &Client) -> Option<BTreeSet<String>> {
    let names = names::<NodeMaintenance>(client, None, &ListParams::default()).await.ok()?;
    Some(names.into_iter().collect())
}

fn to_uncordon(node: &Node, known: Option<&BTreeSet<String>>, force: bool, program: &str) -> Plan {
    let uncordoned = || {
        let message = if node.unschedulable { "uncordoned" } else { "already uncordoned" };
        Plan { changes: node.unschedulable, message: message.to_string(), ..Plan::default() }
    };
    let refused = |message| Plan { is_refused: true, message, ..Plan::default() };
    match outcome(holders(node), node.was_unschedulable, false, known) {
        CordonOutcome::Stays | CordonOutcome::EndsWith(_) | CordonOutcome::Outlasts(_) => uncordoned(),
        CordonOutcome::Released(_) if force => uncordoned(),
        CordonOutcome::Released(gone) => refused(format!(
            "cordoned by maintenance {}, which is gone: the manager uncordons it, so check that it runs, with {MANAGER_PODS}; \
             --force does it now",
            gone.join(", ")
        )),
        CordonOutcome::CordonedAgain { by, .. } if force => {
            let warning = format!(
                "{}, which cordons it again; end it with {program} maintenance complete {}",
                held_by(&by),
                by[0]
            );
            Plan { warning: Some(warning), ..uncordoned() }
        }
        CordonOutcome::CordonedAgain { by, stays_afterwards } => {
            let complete: Vec<String> =
                by.iter().map(|name| format!("{program} maintenance complete {name}")).collect();
            let afterwards = if stays_afterwards {
                "; it was cordoned before the maintenance and stays cordoned afterwards"
            } else {
                ""
            };
            refused(format!(
                "{} and would cordon it again: end that with {}{afterwards}",
                held_by(&by),
                complete.join(" and ")
            ))
        }
    }
}

fn holders(node: &Node) -> impl Iterator<Item = &str> {
    node.held_by.iter().flatten().map(|name| &**name)
}

fn held_by(holders: &[&str]) -> String {
    match holders {
        [one] => format!("maintenance {one} holds it"),
        many => format!("the maintenances {} hold it", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::node;

    fn state(unschedulable: bool, held_by: &[&str], was_unschedulable: bool) -> Node {
        let held_by = (!held_by.is_empty()).then(|| held_by.iter().map(|name| (*name).into()).collect());
        Node { unschedulable, held_by, was_unschedulable, ..node("n1") }
    }

    #[test]
    fn a_node_is_cordoned_with_a_word_about_who_holds_it() {
        for (node, changes, message, warning) in [
            (state(false, &[], false), true, "cordoned", None),
            (state(true, &[], false), false, "already cordoned", None),
            (
                state(true, &["m"], false),
                false,
                "already cordoned",
                Some(
                    "maintenance m holds it; it is uncordoned when that ends: cordon it again then. See usher maintenance \
                     describe m",
                ),
            ),
            (
                state(true, &["m"], true),
                false,
                "already cordoned",
                Some(
                    "maintenance m holds it; it was cordoned before that, and stays cordoned afterwards. See usher maintenance \
                     describe m",
                ),
            ),
        ] {
            let plan = to_cordon(&node, "usher");
            assert_eq!(
                (plan.changes, plan.message.as_str(), plan.warning.as_deref()),
                (changes, message, warning)
            );
            assert!(!plan.is_refused);
        }
    }

    #[test]
    fn a_node_that_is_held_is_uncordoned_by_force_only() {
        let free = to_uncordon(&state(true, &[], false), None, false, "usher");
        assert_eq!((free.changes, free.message.as_str(), free.is_refused), (true, "uncordoned", false));
        let open = to_uncordon(&state(false, &[], false), None, false, "usher");
        assert_eq!((open.changes, open.message.as_str()), (false, "already uncordoned"));
        let held = to_uncordon(&state(true, &["m"], false), None, false, "usher");
        assert!(held.is_refused && !held.changes);
        assert_eq!(
            held.message,
            "maintenance m holds it and would cordon it again: end that with usher maintenance complete m"
        );
        let both = to_uncordon(&state(true, &["a", "b"], true), None, false, "usher");
        assert_eq!(
            both.message,
            "the maintenances a, b hold it and would cordon it again: end that with usher maintenance complete a and usher \
             maintenance complete b; it was cordoned before the maintenance and stays cordoned afterwards"
        );
        let none = BTreeSet::new();
        let orphaned = to_uncordon(&state(true, &["m"], false), Some(&none), false, "usher");
        assert!(
            orphaned.is_refused && orphaned.message.contains("maintenance m, which is gone"),
            "{orphaned:?}"
        );
        let others = BTreeSet::from(["m".to_owned()]);
        assert_eq!(to_uncordon(&state(true, &["m"], false), Some(&others), false, "usher"), held);
        let released = to_uncordon(&state(true, &["m"], false), Some(&none), true, "usher");
        assert!(released.changes && released.warning.is_none(), "nobody cordons it again: {released:?}");
        let forced = to_uncordon(&state(true, &["m"], false), None, true, "usher");
        assert!(forced.changes && !forced.is_refused);
        assert!(forced.warning.unwrap().starts_with("maintenance m holds it, which cordons it again"));
    }
}
