//! `usher evict`: requests the eviction of pods, and if wanted waits until they are gone.

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client, ResourceExt as _};
use usher_api::EvictionRequest;
use usher_api::names::requester_of;
use usher_decide::eviction_request::message::GivenTurn;
use usher_decide::eviction_request::{Turn, turn};
use usher_decide::snapshot::{Pod, PodOnWire, Request};
use usher_decide::waiting_on::WaitingOn;
use usher_forecast::request_state::obstacle;

use crate::arguments::{self, Connection, DEFAULT_REQUESTER, PodArguments, Requester};
use crate::ask::{Asked, PodTarget, ask};
use crate::error::is_missing;
use crate::explain::slim_request;
use crate::reading::Read;
use crate::wait::{self, Hints, Subject};
use crate::world::list;
use crate::{Ending, Environment, Error, Streams, span};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pods: PodArguments,
    /// The requester, a DNS subdomain. Only the same requester can cancel.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_REQUESTER, value_parser = arguments::requester)]
    requester: Requester,
    /// How long an interceptor may go without progress before the next one has its turn, from 10m to 6h [default: 30m].
    #[arg(long, value_name = "DURATION", value_parser = arguments::deadline)]
    deadline: Option<i32>,
    /// Follow until the pods are gone. Ctrl-C stops following, and the request stays.
    #[arg(long)]
    wait: bool,
    /// Stop following after this long; 0 means never.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = arguments::timeout)]
    timeout: Option<SignedDuration>,
    /// Only print what would be done: `client` sends nothing, `server` lets the server check it [bare: client].
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "client",
        conflicts_with = "wait"
    )]
    dry_run: Option<DryRun>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DryRun {
    Client,
    Server,
}

/// So many pods are asked at a time.
const AT_A_TIME: usize = 16;

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let connected = arguments.connection.open(environment).await?;
    let (client, namespace) = (&connected.client, connected.namespace.as_str());
    let mut ending = Ending::Done;
    let mut pods = Vec::new();
    for found in find(client, namespace, &arguments.pods).await? {
        match found {
            Ok(pod) => pods.push(pod),
            Err(why) => {
                writeln!(streams.err, "error: {why}")?;
                ending = Ending::Incomplete;
            }
        }
    }

    let mut subjects = Vec::new();
    let asked = pods.iter().map(|pod| one(client, namespace, pod, &arguments, environment.now()));
    let mut asked = futures::stream::iter(asked).buffered(AT_A_TIME);
    while let Some((name, result)) = asked.next().await {
        match result {
            Ok(told) => {
                writeln!(streams.out, "pod/{name}: {}", told.text)?;
                for warning in told.warnings {
                    writeln!(streams.err, "warning: pod/{name}: {warning}")?;
                }
                subjects.extend(told.subject);
            }
            Err(why) => {
                writeln!(streams.err, "error: pod/{name}: {why}")?;
                ending = Ending::Incomplete;
            }
        }
    }
    streams.out.flush()?;
    if subjects.is_empty() || arguments.dry_run.is_some() {
        return Ok(ending);
    }
    let hints = Hints {
        watch: format!("{} requests -n {namespace} -w", environment.program),
        cancel: cancel_command(&environment.program, namespace, &arguments),
    };
    if !arguments.wait {
        if environment.is_terminal {
            writeln!(streams.err, "watch: {}\ncancel: {}", hints.watch, hints.cancel)?;
        }
        return Ok(ending);
    }
    let timeout = arguments.timeout.filter(|timeout| !timeout.is_zero());
    let err = &mut *streams.err;
    let following = Streams { out: &mut *streams.out, err: &mut *err };
    let waited = wait::until_gone(client, namespace, subjects, timeout, &hints, environment, following).await;
    if waited.as_ref().is_err_and(Error::is_broken_pipe) {
        writeln!(err, "output closed; the eviction is still requested\ncancel: {}", hints.cancel)?;
    }
    let waited = waited?;
    Ok(if waited == Ending::Done { ending } else { waited })
}

fn cancel_command(program: &str, namespace: &str, arguments: &Arguments) -> String {
    let pods = match &arguments.pods.selector {
        Some(selector) if selector.contains([' ', '(', '!']) => format!("-l '{selector}'"),
        Some(selector) => format!("-l {selector}"),
        None => arguments.pods.pods.join(" "),
    };
    let requester = match arguments.requester.name.as_str() {
        DEFAULT_REQUESTER => String::new(),
        name => format!(" --requester {name}"),
    };
    format!("{program} cancel {pods} -n {namespace}{requester}")
}

/// The pods that are meant; those that are named and missing as errors.
pub async fn find(
    client: &Client,
    namespace: &str,
    wanted: &PodArguments,
) -> Result<Vec<Result<PodOnWire, Error>>, Error> {
    let pods: Api<Read<PodOnWire>> = Api::namespaced(client.clone(), namespace);
    if let Some(selector) = &wanted.selector {
        let found = list(&pods, Some(selector)).await?;
        if found.is_empty() {
            return Err(Error::NoPodSelected {
                namespace: namespace.to_string(),
                selector: selector.clone(),
            });
        }
        return Ok(found.into_iter().map(Ok).collect());
    }
    let mut names = wanted.pods.clone();
    names.sort();
    names.dedup();
    let found = names.iter().map(|name| async {
        match pods.get(name).await {
            Ok(pod) => Ok(pod.wanted()),
            Err(why) if is_missing(&why) => {
                Ok(Err(Error::NoSuchPod { namespace: namespace.to_string(), name: name.clone() }))
            }
            Err(why) => Err(Error::from(why)),
        }
    });
    let found: Vec<Result<Result<PodOnWire, Error>, Error>> =
        futures::stream::iter(found).buffered(AT_A_TIME).collect().await;
    found.into_iter().collect()
}

/// What is said about one pod.
struct EvictReport {
    text: String,
    warnings: Vec<String>,
    /// Something to wait for.
    subject: Option<Subject>,
}

async fn one(
    client: &Client,
    namespace: &str,
    pod: &PodOnWire,
    arguments: &Arguments,
    now: Timestamp,
) -> (String, Result<EvictReport, Error>) {
    let name = pod.name_any();
    let result = ask_one(client, namespace, pod, arguments, now).await;
    (name, result)
}

async fn ask_one(
    client: &Client,
    namespace: &str,
    pod: &PodOnWire,
    arguments: &Arguments,
    now: Timestamp,
) -> Result<EvictReport, Error> {
    let target = PodTarget {
        namespace: namespace.to_string(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
    };
    let subject = Some(Subject::new(namespace, &target.name, &target.uid));
    let phase = pod.phase();
    if matches!(phase, "Succeeded" | "Failed") {
        return Ok(EvictReport {
            text: format!("has already ended ({phase})"),
            warnings: Vec::new(),
            subject: None,
        });
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(EvictReport { text: "is already terminating".to_string(), warnings: Vec::new(), subject });
    }
    let requester = &arguments.requester;
    let obstacle_to = |request: Option<&EvictionRequest>| {
        let request = request.and_then(slim_request);
        obstacle(&Pod::from(pod.clone()), request.as_ref(), &requester.name, now)
    };
    if arguments.dry_run == Some(DryRun::Client) {
        let text = format!("eviction would be requested as {} (dry run)", requester.name);
        let warnings = obstacle_to(None).iter().map(warning).collect();
        return Ok(EvictReport { text, warnings, subject });
    }
    let dry_run = arguments.dry_run == Some(DryRun::Server);
    let asked = ask(client, &target, requester, arguments.deadline, dry_run).await?;
    let (Asked::Created(request) | Asked::Joined(request) | Asked::Already(request)) = &asked;
    let obstacle = obstacle_to(Some(request));
    let next = next(slim_request(request).as_ref(), obstacle.is_none(), now);
    Ok(report_of(&asked, requester, arguments.deadline, dry_run, &Outlook { next, obstacle }, subject))
}

/// What is to be expected of a request.
struct Outlook {
    next: String,
    obstacle: Option<WaitingOn>,
}

fn report_of(
    asked: &Asked,
    requester: &Requester,
    deadline: Option<i32>,
    dry_run: bool,
    outlook: &Outlook,
    subject: Option<Subject>,
) -> EvictReport {
    let name = &requester.name;
    let (Asked::Created(request) | Asked::Joined(request) | Asked::Already(request)) = asked;
    let mut warnings: Vec<String> = outlook.obstacle.iter().map(warning).collect();
    let mut text = match asked {
        Asked::Created(_) => format!("eviction requested as {name}; {}", outlook.next),
        Asked::Joined(_) => {
            let others: Vec<&str> = request
                .finalizers()
                .iter()
                .filter_map(|finalizer| requester_of(finalizer))
                .filter(|other| *other != name.as_str())
                .collect();
            let others = if others.is_empty() { "others".to_string() } else { others.join(", ") };
            format!("eviction requested as {name}; already requested by {others}")
        }
        Asked::Already(_) => {
            let since = request.creation_timestamp().map(|time| time.0.to_string());
            format!("eviction already requested as {name}, at {}", since.unwrap_or_default())
        }
    };
    if dry_run {
        text.push_str(" (server dry run)");
    }
    let actual = request.spec.progress_deadline_seconds;
    if deadline.is_some_and(|wanted| wanted != actual) {
        let actual = span::human(SignedDuration::from_secs(actual.into()));
        warnings.push(format!("the request keeps its deadline of {actual}, which cannot be changed"));
    }
    EvictReport { text, warnings, subject }
}

fn next(request: Option<&Request>, is_evictable: bool, now: Timestamp) -> String {
    match request.map(|request| (request, turn(request, now))) {
        Some((request, Turn::Pass { to, why })) => {
            GivenTurn { to: &to.interceptor_class, why, request }.to_string()
        }
        Some((_, Turn::Active { class, .. } | Turn::Unknown { class })) => format!("{class} has its turn"),
        Some((_, Turn::Nobody(_))) | None if is_evictable => {
            "no interceptor, so the eviction API is next".to_string()
        }
        Some((_, Turn::Nobody(_))) | None => "no interceptor".to_string(),
    }
}

/// What the person should know before it does not happen.
fn warning(obstacle: &WaitingOn) -> String {
    let then = match obstacle {
        WaitingOn::InterceptorsNotResolved => ", and waits: ",
        _ => "; ",
    };
    format!("{}{then}{}", obstacle.sentence(), obstacle.advice())
}
