//! Moving a maintenance on to its next stages, and ending it.

use jiff::SignedDuration;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_forecast::followed_drain::has_released;

use super::create::names_of;
use super::guards::GuardArguments;
use super::release;
use super::selection::{self, read_nodes};
use super::{get, missing, read};
use crate::arguments::Connection;
use crate::ask::FIELD_MANAGER;
use crate::drain::{DryRun, Waiting, follow};
use crate::error::{MANAGER_PODS, is_code, is_missing};
use crate::outlook;
use crate::reading::Read;
use crate::wait::out_of_time;
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
pub struct CordonArguments {
    /// The maintenance.
    #[arg(value_name = "MAINTENANCE", value_parser = selection::maintenance)]
    name: String,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub struct DrainArguments {
    /// The maintenance.
    #[arg(value_name = "MAINTENANCE", value_parser = selection::maintenance)]
    name: String,
    #[command(flatten)]
    guards: GuardArguments,
    #[command(flatten)]
    waiting: Waiting,
    /// Only print what would happen, as `drain --dry-run` does.
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

#[derive(Debug, clap::Args)]
pub struct EndArguments {
    /// The maintenance.
    #[arg(value_name = "MAINTENANCE", value_parser = selection::maintenance)]
    name: String,
    /// Wait until it has released its nodes, and say which are uncordoned.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    wait: bool,
    /// Stop waiting after this long; 0 means never [default: never].
    #[arg(long, value_name = "DURATION", value_parser = crate::arguments::timeout)]
    timeout: Option<SignedDuration>,
    #[command(flatten)]
    connection: Connection,
}

/// Somebody else may write at the same time, but hardly so often.
const ATTEMPTS: usize = 20;

/// Whether there was something to do.
enum Moved {
    Now(Box<NodeMaintenance>),
    Already(Box<NodeMaintenance>),
}

pub async fn cordon(
    arguments: CordonArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let moved = move_to(&client, &arguments.name, Stage::Cordon, false, &environment.program).await?;
    writeln!(streams.out, "{}", describe(&moved, Stage::Cordon))?;
    Ok(Ending::Done)
}

pub async fn drain(
    arguments: DrainArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let known = get(&client, &arguments.name).await?;
    if let Some(at @ (DryRun::Client | DryRun::Server)) = arguments.dry_run {
        let flags = arguments.waiting.flags(arguments.guards);
        if at == DryRun::Server {
            let moved = move_to(&client, &arguments.name, Stage::Drain, true, &environment.program).await?;
            writeln!(streams.out, "{} (server dry run)\n", describe(&moved, Stage::Drain))?;
        }
        return outlook::print(&client, &known, flags, environment, streams).await;
    }
    if known.spec.stage < Stage::Drain {
        let nodes = read_nodes(&client).await?;
        arguments.guards.check(&client, &names_of(&known, &nodes)).await?;
    }
    let moved = move_to(&client, &arguments.name, Stage::Drain, false, &environment.program).await?;
    let begun = describe(&moved, Stage::Drain);
    let (Moved::Now(maintenance) | Moved::Already(maintenance)) = moved;
    follow(&client, *maintenance, &begun, &arguments.waiting, environment, streams).await
}

pub async fn complete(
    arguments: EndArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let before = read_nodes(&client).await?;
    let moved = move_to(&client, &arguments.name, Stage::Complete, false, &environment.program).await?;
    writeln!(streams.out, "{}", describe(&moved, Stage::Complete))?;
    streams.out.flush()?;
    let is_over = |maintenance: Option<&NodeMaintenance>| maintenance.is_none_or(has_released);
    end(&client, &arguments, &before, is_over, environment, streams).await
}

pub async fn cancel(
    arguments: EndArguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let client = arguments.connection.open(environment).await?.client;
    let name = &arguments.name;
    let before = read_nodes(&client).await?;
    let known = read(&client, name).await?;
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    // Whatever it looks like, it can be deleted.
    let uid = known.uid();
    let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match maintenances.delete(name, &parameters).await {
        Ok(_) => {}
        Err(why) if is_missing(&why) => {}
        Err(why) => return Err(why.into()),
    }
    let was = known.object().map(|known| format!("; it was in stage {:?}", known.spec.stage));
    writeln!(streams.out, "maintenance {name} is being deleted{}", was.unwrap_or_default())?;
    // What others have put on it is theirs to take off.
    let is_gone = move |one: Option<&NodeMaintenance>| {
        one.is_none_or(|one| one.metadata.uid != uid || has_released(one))
    };
    end(&client, &arguments, &before, is_gone, environment, streams).await
}

/// Waits until it has released its nodes, and says what became of them.
async fn end(
    client: &Client,
    arguments: &EndArguments,
    before: &[usher_decide::snapshot::Node],
    is_over: impl Fn(Option<&NodeMaintenance>) -> bool,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let name = &arguments.name;
    if !arguments.wait {
        return Ok(Ending::Done);
    }
    let timeout = arguments.timeout.filter(|timeout| !timeout.is_zero());
    let over =
        await_condition(Api::<Read<NodeMaintenance>>::all(client.clone()), name, |one: Option<&Read<_>>| {
            match one {
                Some(one) => one.as_object().is_some_and(|one| is_over(Some(one))),
                None => is_over(None),
            }
        });
    let ending = tokio::select! {
        over = over => {
            over.map_err(|why| Error::Server(why.to_string()))?;
            Ending::Done
        }
        () = out_of_time(timeout) => Ending::NotGone,
        stopped = tokio::signal::ctrl_c() => {
            stopped?;
            Ending::Interrupted
        }
    };
    let after = read_nodes(client).await?;
    let released = release::describe(name, before, &after);
    for line in &released {
        writeln!(streams.out, "{line}")?;
    }
    match ending {
        Ending::Done => {
            if released.is_empty() {
                writeln!(streams.out, "it held no nodes")?;
            }
            let left = read(client, name).await.ok();
            let left = left.as_ref().and_then(Read::as_object);
            if let Some(left) = left.filter(|left| left.metadata.deletion_timestamp.is_some()) {
                let finalizers = left.finalizers().join(", ");
                writeln!(
                    streams.out,
                    "maintenance {name} is gone once the owners of its finalizers remove them: {finalizers}"
                )?;
            }
        }
        _ => writeln!(
            streams.err,
            "maintenance {name} has not released all of its nodes yet, and continues; see {} maintenance describe {name}, and \
             check that the manager runs: {MANAGER_PODS}",
            environment.program
        )?,
    }
    Ok(ending)
}

fn describe(moved: &Moved, stage: Stage) -> String {
    match moved {
        Moved::Now(maintenance) => {
            let what = if stage == Stage::Cordon { "; its nodes take no new pods" } else { "" };
            format!("maintenance {} moved to stage {stage:?}{what}", maintenance.name_any())
        }
        Moved::Already(maintenance) => {
            format!("maintenance {} is already in stage {stage:?}", maintenance.name_any())
        }
    }
}

/// `is_dry`: the server only says whether it would do it.
async fn move_to(
    client: &Client,
    name: &str,
    stage: Stage,
    is_dry: bool,
    program: &str,
) -> Result<Moved, Error> {
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    let field_manager = Some(FIELD_MANAGER.to_string());
    let parameters = PatchParams { dry_run: is_dry, field_manager, ..PatchParams::default() };
    for _ in 0..ATTEMPTS {
        let known = get(client, name).await?;
        if known.metadata.deletion_timestamp.is_some() && stage != Stage::Complete {
            return Err(Error::Refused(format!("maintenance {name} is being deleted: start another one")));
        }
        if known.spec.stage == stage {
            return Ok(Moved::Already(Box::new(known)));
        }
        if !known.spec.stage.may_become(stage) {
            return Err(Error::Refused(back(name, known.spec.stage, stage, program)));
        }
        let patch = json!({
            "metadata": {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version},
            "spec": {"stage": stage},
        });
        match maintenances.patch(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(moved) => return Ok(Moved::Now(Box::new(moved.wanted()?))),
            Err(why) if is_code(&why, 409) => {}
            Err(why) if is_missing(&why) => return Err(missing(name)),
            Err(why) => return Err(why.into()),
        }
    }
    Err(Error::Refused(format!("others keep changing maintenance {name}: try again in a moment")))
}

fn back(name: &str, from: Stage, to: Stage, program: &str) -> String {
    let instead = if from == Stage::Complete {
        format!("to do it again, use {program} maintenance start")
    } else {
        format!("to end it and uncordon its nodes, use {program} maintenance complete {name}")
    };
    format!("maintenance {name} is in stage {from:?}, and stages never go back to {to:?}: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_to_go_back_is_told_what_to_do_instead() {
        assert_eq!(
            back("m", Stage::Drain, Stage::Cordon, "usher"),
            "maintenance m is in stage Drain, and stages never go back to Cordon: to end it and uncordon its nodes, use \
             usher maintenance complete m"
        );
        assert!(back("m", Stage::Complete, Stage::Drain, "usher").ends_with("use usher maintenance start"));
    }
}
