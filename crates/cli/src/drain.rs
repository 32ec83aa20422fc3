//! `usher drain`: creates a maintenance that drains nodes, and shows how it goes.

use jiff::SignedDuration;
use kube::{Api, ResourceExt as _};
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_decide::snapshot::Node;
use usher_forecast::joining::overlaps;

use crate::arguments::{self, Connection};
use crate::maintenance::create::{Made, Would, create, create_dry, differences, would};
use crate::maintenance::draft::{DraftArguments, check};
use crate::maintenance::follow::{Until, goes_on, until_drained};
use crate::maintenance::guards::GuardArguments;
use crate::maintenance::picture::plural;
use crate::maintenance::selection::{KnownNodes, describe};
use crate::outlook::{self, Flags};
use crate::world::list;
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    draft: DraftArguments,
    #[command(flatten)]
    guards: GuardArguments,
    #[command(flatten)]
    waiting: Waiting,
    /// Only print what would happen: waves, budgets in the way, pods that cannot be evicted, and what will not fit.
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "client"
    )]
    dry_run: Option<DryRun>,
    #[command(flatten)]
    connection: Connection,
}

/// Where a drain is tried. What it would do is worked out here, and nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DryRun {
    Client,
    /// The server is asked, too, whether it would take what is to be written: permissions and admission are checked.
    Server,
    /// Nowhere, as kubectl calls it: it is done.
    #[value(name = "none", hide = true)]
    Not,
}

/// Whether and how long a drain is followed.
#[derive(Debug, Clone, clap::Args)]
pub struct Waiting {
    /// Follow until the nodes are drained. Ctrl-C stops following, and the maintenance continues.
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
    /// Be done when only DaemonSet and static pods are left.
    ///
    /// They come last in every plan: DaemonSets take their pods off when it reaches them, and node agents static pods. The maintenance
    /// goes on with them; complete it when the work on the nodes is done.
    #[arg(long)]
    ignore_daemonsets: bool,
}

impl Waiting {
    pub fn until(&self) -> Until {
        let timeout = self.timeout.filter(|timeout| !timeout.is_zero());
        Until { timeout, ignores_daemons: self.ignore_daemonsets }
    }

    pub fn flags(&self, guards: GuardArguments) -> Flags {
        Flags { guards, ignores_daemons: self.ignore_daemonsets }
    }
}

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let draft = arguments.draft.draft(Stage::Drain)?;
    let client = arguments.connection.open(environment).await?.client;
    if let Some(at @ (DryRun::Client | DryRun::Server)) = arguments.dry_run {
        return dry_run(&client, &arguments, &draft, at == DryRun::Server, environment, streams).await;
    }
    let guards = Some(&arguments.guards);
    let made = make(&client, &arguments.draft, &draft, true, guards, environment, &mut *streams.err).await?;
    let (maintenance, begun) = match made {
        Made::Created(created) => {
            let nodes = describe(&created.spec.node_selector);
            let begun = format!("maintenance {} created: it drains {nodes}", created.name_any());
            (created, begun)
        }
        Made::Existing(found) => {
            for difference in differences(&found, &draft) {
                writeln!(streams.err, "warning: {difference}")?;
            }
            let begun = format!("maintenance {} already drains these nodes: following it", found.name_any());
            (found, begun)
        }
    };
    follow(&client, *maintenance, &begun, &arguments.waiting, environment, streams).await
}

/// Says how a drain began, and follows it if that is wanted. However this ends, the maintenance is there, and how to see it is said.
pub async fn follow(
    client: &kube::Client,
    maintenance: NodeMaintenance,
    begun: &str,
    waiting: &Waiting,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let Streams { out, err } = streams;
    let goes_on = goes_on(&environment.program, &maintenance.name_any());
    let said = writeln!(out, "{begun}").and_then(|()| out.flush()).map_err(Error::from);
    if said.is_ok() && !waiting.wait {
        write!(err, "{goes_on}")?;
        return Ok(Ending::Done);
    }
    let streams = Streams { out, err: &mut *err };
    let ended = match said {
        Ok(()) => until_drained(client, maintenance, waiting.until(), environment, streams).await,
        Err(why) => Err(why),
    };
    if ended.as_ref().is_err_and(Error::is_broken_pipe) {
        write!(err, "output closed; {goes_on}")?;
    }
    ended
}

/// `on_server`: the server says whether it would create the maintenance, and what would become of it then is told.
async fn dry_run(
    client: &kube::Client,
    arguments: &Arguments,
    draft: &NodeMaintenance,
    on_server: bool,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let nodes = look_before(client, &arguments.draft, draft, &mut *streams.err).await?;
    let (is_named, program) = (arguments.draft.name.is_some(), &environment.program);
    let flags = arguments.waiting.flags(arguments.guards);
    match would(client, draft, is_named, &nodes, program).await? {
        Would::Follow(name) => {
            writeln!(
                streams.out,
                "Dry run: maintenance {name} already drains these nodes, so it would be followed and nothing created.\n\
                 See {program} maintenance describe {name}"
            )?;
            Ok(Ending::Done)
        }
        Would::Create(name) if on_server => {
            let created = create_dry(client, draft, name).await?;
            let (name, nodes) = (created.name_any(), describe(&created.spec.node_selector));
            writeln!(streams.out, "maintenance {name} created (server dry run): it would drain {nodes}\n")?;
            outlook::print(client, &created, flags, environment, streams).await
        }
        Would::Create(_) => outlook::print(client, draft, flags, environment, streams).await,
    }
}

/// Checks a draft against the nodes of the cluster, which it returns.
async fn look_before(
    client: &kube::Client,
    arguments: &DraftArguments,
    draft: &NodeMaintenance,
    err: &mut (dyn std::io::Write + Send),
) -> Result<Vec<Node>, Error> {
    let KnownNodes { nodes, are_all } = arguments.nodes.read(client).await?;
    let meant = arguments.nodes.among(&nodes)?;
    for warning in check(draft, meant.len(), if are_all { nodes.len() } else { usize::MAX })? {
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
    guards: Option<&GuardArguments>,
    environment: &Environment,
    err: &mut (dyn std::io::Write + Send),
) -> Result<Made, Error> {
    let nodes = look_before(client, arguments, draft, err).await?;
    let is_named = arguments.name.is_some();
    let made = create(client, draft, is_named, joins, guards, &nodes, &environment.program).await?;
    let (Made::Created(made_one) | Made::Existing(made_one)) = &made;
    let known = list(&Api::all(client.clone()), None).await?;
    for (other, shared) in overlaps(made_one, &known, &nodes) {
        let (name, stage) = (other.name_any(), other.spec.stage);
        let shared = match &shared[..] {
            [one] => one.clone(),
            many => plural(many.len(), "node"),
        };
        let meaning = match stage {
            Stage::Drain if other.spec.drain_limit.is_some() => {
                "; where its limit has let it begin, pods are evicted once both have reached them"
            }
            Stage::Drain => "; pods are evicted once both have reached them",
            _ => "",
        };
        writeln!(err, "note: maintenance {name} holds {shared} too, in stage {stage:?}{meaning}")?;
    }
    Ok(made)
}
