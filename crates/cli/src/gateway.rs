//! `usher gateway status`: what becomes of plain evictions, where, and who was turned away.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use usher_api::gateway::GatewayMode;
use usher_api::names::{EVICTION_REQUEST_GROUP, GATEWAY_MODE_LABEL};
use usher_decide::snapshot::{NamespaceOnWire, Pod, PodOnWire};

use crate::arguments::Connection;
use crate::error::is_code;
use crate::output::Structured;
use crate::reading::Read;
use crate::request_text::{WaitText as _, state_in, turn_text};
use crate::table::Table;
use crate::world::{World, list_as, scoped};
use crate::{Ending, Environment, Error, Streams, span};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the mode, the namespaces that say otherwise, the evictions that are under way as requests, and pods that their workloads
    /// take over.
    Status(StatusArguments),
}

#[derive(Debug, clap::Args)]
struct StatusArguments {
    /// Print all that is known in this format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structured>,
    #[command(flatten)]
    connection: Connection,
}

/// The configuration with the webhooks of Usher.
const CONFIGURATION: &str = "usher";

/// What is known of the gateway.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Where namespaces do not say otherwise. Nothing: it may not be read.
    mode: Option<String>,
    /// API servers ask it.
    is_registered: Option<bool>,
    /// They trust it, and know where it is.
    is_reachable: Option<bool>,
    namespaces: Option<Vec<NamespaceMode>>,
    evictions: Vec<Eviction>,
    /// Pods that their workloads take over. Nothing: pods may not be listed.
    wanted: Option<Vec<Wanted>>,
}

/// A pod that Kubernetes wants to evict, and that its workload takes over.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    namespace: String,
    pod: String,
    node: String,
    since: Timestamp,
    /// Who evicts it by the eviction API, if somebody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Debug, Serialize)]
struct NamespaceMode {
    name: String,
    mode: String,
}

/// A pod whose plain evictions became a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Eviction {
    namespace: String,
    pod: String,
    user: String,
    requested: Timestamp,
    last_asked: Timestamp,
    turn: String,
    waiting_on: String,
}

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let Command::Status(arguments) = arguments.command;
    let connected = arguments.connection.open(environment).await?;
    let now = environment.now();
    let status = read(&connected.client, now).await?;
    let text = match arguments.output {
        Some(format) => format.render(&status)?,
        None => render(&status, now),
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(Ending::Done)
}

async fn read(client: &Client, now: Timestamp) -> Result<Status, Error> {
    let world = World::read(client, None, None).await?;
    let mut evictions = Vec::new();
    for request in world.requests.values() {
        let state = state_in(&world, request, now);
        evictions.extend(request.asks().iter().map(|(_, ask)| Eviction {
            namespace: request.key.namespace.to_string(),
            pod: request.pod_name.to_string(),
            user: ask.by.clone(),
            requested: request.created,
            last_asked: ask.at.0,
            turn: turn_text(request, now),
            waiting_on: state.wait.phrase(now),
        }));
    }
    let configurations: Api<Read<ValidatingWebhookConfiguration>> = Api::all(client.clone());
    let found = permitted(configurations.get_opt(CONFIGURATION).await)?;
    let found = found.map(|found| found.and_then(Read::object));
    let name = format!("gateway.{EVICTION_REQUEST_GROUP}");
    let hook = found.as_ref().map(|found| {
        found.as_ref().and_then(|it| it.webhooks.as_ref()?.iter().find(|hook| hook.name == name))
    });
    let is_reachable = hook.map(|hook| hook.is_some_and(|hook| is_filled_in(&hook.client_config)));
    let mode = found.as_ref().map(|found| {
        let label = found.as_ref().and_then(|found| found.labels().get(GATEWAY_MODE_LABEL).cloned());
        label.unwrap_or_else(|| GatewayMode::Off.as_str().to_owned())
    });
    let namespaces: Api<Read<NamespaceOnWire>> = Api::all(client.clone());
    let labelled = namespaces.list(&ListParams::default().labels(GATEWAY_MODE_LABEL)).await;
    let namespaces = permitted(labelled)?.map(|list| {
        let all = list.items.into_iter().filter_map(Read::object);
        all.map(|namespace| NamespaceMode {
            mode: namespace.labels().get(GATEWAY_MODE_LABEL).cloned().unwrap_or_default(),
            name: namespace.name_any(),
        })
        .collect()
    });
    let pods = match list_as::<PodOnWire, Pod>(&scoped(client, None), None).await {
        Ok(pods) => Some(pods),
        Err(Error::Forbidden(_)) => None,
        Err(why) => return Err(why),
    };
    let wanted = pods.map(|pods| pods.iter().filter_map(wanted).collect());
    let is_registered = hook.map(|hook| hook.is_some());
    Ok(Status { mode, is_registered, is_reachable, namespaces, evictions, wanted })
}

fn wanted(pod: &Pod) -> Option<Wanted> {
    let mark = pod.evict.as_ref()?.wanted.as_ref()?;
    Some(Wanted {
        namespace: pod.key.namespace.to_string(),
        pod: pod.key.name.to_string(),
        node: pod.node.to_string(),
        since: mark.since.0,
        user: mark.asked.as_ref().map(|ask| ask.by.clone()),
    })
}

/// Whether API servers know where it is, and whom to trust there. At a URL that may be an authority of the system's.
fn is_filled_in(config: &WebhookClientConfig) -> bool {
    config.service.as_ref().is_none_or(|service| service.path.is_some() && config.ca_bundle.is_some())
}

/// Nothing if it may not be read.
fn permitted<T>(read: kube::Result<T>) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(why) if is_code(&why, 403) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

fn render(status: &Status, now: Timestamp) -> String {
    let meaning = |mode: &str| match mode.parse() {
        Ok(GatewayMode::Off) => "plain evictions are carried out past interceptors",
        Ok(GatewayMode::Block) => "plain evictions are refused until interceptors are done",
        Ok(GatewayMode::Request) => "plain evictions become eviction requests",
        Err(_) => "no such mode, so that of the cluster counts",
    };
    let mut text = match status.mode.as_deref() {
        None => "Mode: not known, you may not get validatingwebhookconfigurations\n".to_owned(),
        Some(mode) => format!("Mode: {mode} ({})\n", meaning(mode)),
    };
    if status.is_registered == Some(false) {
        text.push_str("No API server asks the gateway: its webhook is not installed, so evictions pass.\n");
    } else if status.is_reachable == Some(false) {
        text.push_str("API servers cannot ask the gateway yet: the manager has not filled in where it is, so evictions pass.\n");
    }
    match &status.namespaces {
        None => text.push_str("Namespaces: not known, you may not list them\n"),
        Some(namespaces) if namespaces.is_empty() => {}
        Some(namespaces) => {
            let mut table = Table::new(&["NAMESPACE", "MODE", "MEANING"]);
            for NamespaceMode { name, mode } in namespaces {
                table.row(vec![name.clone(), mode.clone(), meaning(mode).to_owned()]);
            }
            text.push_str(&format!("\n{}", table.render()));
        }
    }
    let ago = |time: Timestamp| format!("{} ago", span::age(time, now));
    if let Some(wanted) = status.wanted.as_deref().filter(|wanted| !wanted.is_empty()) {
        let mut table = Table::new(&["NAMESPACE", "POD", "NODE", "WANTED GONE", "BY"]);
        for it in wanted {
            let by = it.user.clone().unwrap_or_else(|| "the cluster".to_owned());
            table.row(vec![it.namespace.clone(), it.pod.clone(), it.node.clone(), ago(it.since), by]);
        }
        text.push_str(&format!(
            "\nPods that their workloads take over (evict policy ControllerTakeOver):\n\n{}",
            table.render()
        ));
    }
    if status.evictions.is_empty() {
        text.push_str("\nNo plain evictions are under way as eviction requests.\n");
        return text;
    }
    let mut table =
        Table::new(&["NAMESPACE", "POD", "EVICTED BY", "REQUESTED", "LAST TRY", "TURN", "WAITING ON"]);
    for it in &status.evictions {
        table.row(vec![
            it.namespace.clone(),
            it.pod.clone(),
            it.user.clone(),
            ago(it.requested),
            ago(it.last_asked),
            it.turn.clone(),
            it.waiting_on.clone(),
        ]);
    }
    text.push_str(&format!("\n{}", table.render()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_status_tells_the_mode_where_it_differs_and_who_was_turned_away() {
        let status = Status {
            mode: Some("request".to_owned()),
            is_registered: Some(true),
            is_reachable: Some(true),
            namespaces: Some(vec![
                NamespaceMode { name: "quiet".to_owned(), mode: "off".to_owned() },
                NamespaceMode { name: "typo".to_owned(), mode: "on".to_owned() },
            ]),
            evictions: vec![Eviction {
                namespace: "shop".to_owned(),
                pod: "web-1".to_owned(),
                user: "alice".to_owned(),
                requested: at("2026-01-01T11:58:00Z"),
                last_asked: at("2026-01-01T11:59:55Z"),
                turn: "a.example.com (1/2)".to_owned(),
                waiting_on: "interceptor".to_owned(),
            }],
            wanted: Some(vec![Wanted {
                namespace: "shop".to_owned(),
                pod: "web-2".to_owned(),
                node: "n1".to_owned(),
                since: at("2026-01-01T11:59:30Z"),
                user: None,
            }]),
        };
        assert_eq!(
            render(&status, at("2026-01-01T12:00:00Z")),
            "Mode: request (plain evictions become eviction requests)

NAMESPACE   MODE   MEANING
quiet       off    plain evictions are carried out past interceptors
typo        on     no such mode, so that of the cluster counts

Pods that their workloads take over (evict policy ControllerTakeOver):

NAMESPACE   POD     NODE   WANTED GONE   BY
shop        web-2   n1     30s ago       the cluster

NAMESPACE   POD     EVICTED BY   REQUESTED   LAST TRY   TURN                  WAITING ON
shop        web-1   alice        2m ago      5s ago     a.example.com (1/2)   interceptor
"
        );
    }

    #[test]
    fn a_service_is_reached_once_the_manager_has_filled_it_in() {
        for (config, wanted) in [
            (json!({"service": {"namespace": "n", "name": "s"}}), false),
            (json!({"service": {"namespace": "n", "name": "s", "path": "/p"}}), false),
            (json!({"service": {"namespace": "n", "name": "s"}, "caBundle": "QQ=="}), false),
            (json!({"service": {"namespace": "n", "name": "s", "path": "/p"}, "caBundle": "QQ=="}), true),
            (json!({"url": "https://example.com/p"}), true),
        ] {
            let read: WebhookClientConfig = serde_json::from_value(config.clone()).unwrap();
            assert_eq!(is_filled_in(&read), wanted, "{config}");
        }
    }

    #[test]
    fn what_is_missing_or_hidden_is_said() {
        let nothing = |is_registered, is_reachable, mode: Option<&str>| Status {
            mode: mode.map(str::to_owned),
            is_registered,
            is_reachable,
            namespaces: None,
            evictions: Vec::new(),
            wanted: None,
        };
        let now = at("2026-01-01T12:00:00Z");
        let hidden = render(&nothing(None, None, None), now);
        assert!(hidden.contains("you may not get validatingwebhookconfigurations"), "{hidden}");
        assert!(
            hidden.contains("you may not list them") && hidden.contains("No plain evictions"),
            "{hidden}"
        );
        let missing = render(&nothing(Some(false), Some(false), Some("off")), now);
        assert!(missing.contains("its webhook is not installed"), "{missing}");
        let early = render(&nothing(Some(true), Some(false), Some("request")), now);
        assert!(early.contains("has not filled in where it is"), "{early}");
    }
}
