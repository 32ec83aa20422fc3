//! `usher drain`: creates a maintenance that empties nodes, and shows how it goes.

use jiff::SignedDuration;
use kube::{Api, ResourceExt as _};
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_decide::snapshot::Node;

use crate::arguments::{self, Connection};
use crate::maintenance::create::{Made, create, differences, overlaps};
use crate::maintenance::draft::{DraftArguments, check};
use crate::maintenance::follow::{Until, goes_on, until_drained};
use crate::maintenance::picture::plural;
use crate::maintenance::selection::{read_nodes, told};
use crate::world::list;
use crate::{Ending, Error, Streams, Surroundings, outlook};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    draft: DraftArguments,
    #[command(flatten)]
    waiting: Waiting,
    /// Only say what would happen: waves, budgets that will block, pods that can never leave, and what will not fit.
    #[arg(long, conflicts_with_all = ["wait", "timeout", "ignore_daemonsets"])]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Whether and how long a drain is followed.
#[derive(Debug, Clone, clap::Args)]
pub struct Waiting {
    /// Follow until the nodes are drained. Ctrl-C stops following, and the maintenance goes on.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub wait: bool,
    /// Stop following after this long; 0 means never [default: never].
    #[arg(long, value_name = "DURATION", value_parser = arguments::timeout)]
    timeout: Option<SignedDuration>,
    /// Be done when only pods of DaemonSets and static pods are left.
    ///
    /// They come last in every plan, and as yet nothing ends them unless they have an interceptor. The maintenance goes on
    /// waiting for them; complete it when the work on the nodes is done.
    #[arg(long)]
    ignore_daemonsets: bool,
}

impl Waiting {
    pub fn until(&self) -> Until {
        let timeout = self.timeout.filter(|timeout| !timeout.is_zero());
        Until { timeout, ignores_daemons: self.ignore_daemonsets }
    }
}

pub async fn run(
    arguments: Arguments,
    surroundings: &Surroundings,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let draft = arguments.draft.draft(Stage::Drain)?;
    let client = arguments.connection.open(surroundings).await?.client;
    if arguments.dry_run {
        look_before(&client, &arguments.draft, &draft, &mut *streams.err).await?;
        return outlook::print(&client, &draft, surroundings, streams).await;
    }
    let made = make(&client, &arguments.draft, &draft, true, surroundings, &mut *streams.err).await?;
    let maintenance = match made {
        Made::Created(created) => {
            let nodes = told(&created.spec.node_selector);
            writeln!(streams.out, "maintenance {} created: it drains {nodes}", created.name_any())?;
            created
        }
        Made::Found(found) => {
            writeln!(
                streams.out,
                "maintenance {} drains these nodes already: following it",
                found.name_any()
            )?;
            for difference in differences(&found, &draft) {
                writeln!(streams.err, "warning: {difference}")?;
            }
            found
        }
    };
    streams.out.flush()?;
    if !arguments.waiting.wait {
        write!(streams.err, "{}", goes_on(&surroundings.program, &maintenance.name_any()))?;
        return Ok(Ending::Done);
    }
    until_drained(&client, *maintenance, arguments.waiting.until(), surroundings, streams).await
}

/// Checks a draft against the nodes of the cluster, which it returns.
async fn look_before(
    client: &kube::Client,
    arguments: &DraftArguments,
    draft: &NodeMaintenance,
    err: &mut (dyn std::io::Write + Send),
) -> Result<Vec<Node>, Error> {
    let nodes = read_nodes(client).await?;
    let meant = arguments.nodes.among(&nodes)?;
    for warning in check(draft, meant.len(), nodes.len())? {
        writeln!(err, "warning: {warning}")?;
    }
    Ok(nodes)
}

/// Creates the maintenance of a draft, with what should be known about it before.
pub async fn make(
    client: &kube::Client,
    arguments: &DraftArguments,
    draft: &NodeMaintenance,
    joins: bool,
    surroundings: &Surroundings,
    err: &mut (dyn std::io::Write + Send),
) -> Result<Made, Error> {
    let nodes = look_before(client, arguments, draft, err).await?;
    let is_named = arguments.name.is_some();
    let made = create(client, draft, is_named, joins, &nodes, &surroundings.program).await?;
    let (Made::Created(made_one) | Made::Found(made_one)) = &made;
    let known = list(&Api::all(client.clone()), None).await?;
    for (other, shared) in overlaps(made_one, &known, &nodes) {
        let (name, stage) = (other.name_any(), other.spec.stage);
        let shared = match &shared[..] {
            [one] => one.clone(),
            many => plural(many.len(), "node"),
        };
        let meaning = match stage {
            Stage::Drain => "; pods leave once both have reached them",
            _ => "",
        };
        writeln!(err, "note: maintenance {name} holds {shared} too, in stage {stage:?}{meaning}")?;
    }
    Ok(made)
}
