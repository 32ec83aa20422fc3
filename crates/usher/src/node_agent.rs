//! `usher node-agent`: the agent on a node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use jiff::SignedDuration;
use tokio::sync::watch;
use usher_api::node_agent::NodeAgentMark;
use usher_apply::Clock;
use usher_node_agent::agent::{self, Beside, Options};
use usher_node_agent::folder::{Folder, ManifestState, kept_name, put_back};
use usher_node_agent::kubelet::{GracePeriod, KubeletConfig};
use usher_node_agent::shutdown::{self, Noticed, Shutdown, ShutdownState, maintenance_name};
use usher_node_agent::shutdown_limit::ShutdownLimit;

use crate::interruption::interruption;
use crate::manager::{END_WITHIN, access, duration, http as pages, listen, logs};

/// So long it is waited for the names of pods that are left.
const LEFT_WITHIN: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Put all manifests back that the agent has taken, whatever maintenances say: for a node whose agent is gone.
    Restore(Files),
    /// Say that the node will be gone soon: its pods are asked to leave as for a shutdown, and it is waited for them until the deadline.
    Notify(Box<Notify>),
}

#[derive(clap::Args)]
struct Notify {
    #[command(flatten)]
    access: access::Arguments,
    #[command(flatten)]
    node: Node,
    /// Why, such as spot. The maintenance says it.
    #[arg(long, value_name = "REASON")]
    reason: String,
    /// How long the node has, such as 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: SignedDuration,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    logs: logs::Arguments,
}

#[derive(clap::Args)]
struct Node {
    /// The name of the node.
    #[arg(long = "node", value_name = "NAME", env = "NODE_NAME", default_value = "")]
    name: String,
    /// Where the kernel says which start of the node this is.
    #[arg(long, value_name = "FILE", default_value = "/proc/sys/kernel/random/boot_id", hide = true)]
    boot_id_file: PathBuf,
    /// In which groups pods leave when the node shuts down, by the lowest priority of each, such as 0,1000,2000000000. By default those of
    /// the kubelet's shutdownGracePeriodByPodPriority.
    #[arg(long, value_name = "PRIORITIES", value_delimiter = ',')]
    shutdown_priorities: Vec<i32>,
}

impl Node {
    fn shutdown(
        &self,
        client: kube::Client,
        config: &KubeletConfig,
        complete_after_boot: bool,
    ) -> anyhow::Result<Shutdown> {
        anyhow::ensure!(!self.name.is_empty(), "which node is this? Name it with --node or NODE_NAME");
        let boot = std::fs::read_to_string(&self.boot_id_file)
            .with_context(|| format!("cannot read {}", self.boot_id_file.display()))?;
        let given = |priority: &i32| GracePeriod { priority: *priority, shutdown_grace_period_seconds: 0 };
        let periods = match &self.shutdown_priorities[..] {
            [] => config.shutdown_grace_period_by_pod_priority.clone(),
            priorities => priorities.iter().map(given).collect(),
        };
        let (node, boot) = (self.name.clone(), boot.trim().to_owned());
        Ok(Shutdown {
            client,
            clock: Clock::system(),
            options: shutdown::Options { node, boot, periods, complete_after_boot, limit: None },
        })
    }
}

#[derive(clap::Args)]
struct Run {
    #[command(flatten)]
    access: access::Arguments,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    files: Files,
    /// Delay shutdowns of the node, by systemd-logind, until its pods have left.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    delay_shutdown: bool,
    /// The system bus of the node. By default the socket run/dbus/system_bus_socket under --host-root.
    #[arg(long, value_name = "ADDRESS")]
    bus_address: Option<String>,
    /// Let systemd-logind delay shutdowns for at least so long, such as 10m, if it does not: a drop-in etc/systemd/logind.conf.d under
    /// --host-root is written for that, and logind reads it. By default no file of the system is changed.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    raise_shutdown_limit: Option<SignedDuration>,
    /// Where /metrics and /healthz are served, over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10271")]
    metrics_address: SocketAddr,
    /// Complete the maintenance of a shutdown as soon as the node has started again. By default that is left to an administrator.
    #[arg(long)]
    complete_after_boot: bool,
    #[command(flatten)]
    logs: logs::Arguments,
}

#[derive(clap::Args)]
struct Files {
    /// The kubelet's configuration, which says where manifests of static pods are.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config: PathBuf,
    /// The folder of manifests, if the kubelet has it from elsewhere than its configuration.
    #[arg(long, value_name = "FOLDER")]
    static_pod_path: Option<PathBuf>,
    /// Where the file system of the node is, for an agent in a container.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    host_root: PathBuf,
}

impl Files {
    fn on_host(&self, path: &Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn kubelet(&self) -> anyhow::Result<KubeletConfig> {
        let mut config = match KubeletConfig::read(&self.on_host(&self.kubelet_config)) {
            Ok(config) => config,
            Err(why) if self.static_pod_path.is_some() => {
                tracing::warn!(%why, "the folder is the one of --static-pod-path");
                KubeletConfig::default()
            }
            Err(why) => return Err(why.into()),
        };
        if let Some(path) = &self.static_pod_path {
            config.static_pod_path = path.display().to_string();
        }
        Ok(config)
    }

    fn folder(&self, config: &KubeletConfig) -> anyhow::Result<Option<Folder>> {
        let Some(path) = config.static_pod_folder() else { return Ok(None) };
        let there = self.on_host(&path);
        anyhow::ensure!(
            !there.is_file(),
            "staticPodPath {} is a single file, which the agent cannot move: make it a folder",
            path.display()
        );
        Ok(Some(Folder::new(there)))
    }
}

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Some(Command::Restore(files)) => restore(&files),
        Some(Command::Notify(notify)) => give_notice(*notify).await,
        None => start(arguments.run).await,
    }
}

fn restore(files: &Files) -> anyhow::Result<()> {
    let folder = files.folder(&files.kubelet()?)?.context("the kubelet has no folder of static pods")?;
    let lock = match folder.lock() {
        Err(why) if why.is_in_use() => {
            anyhow::bail!("an agent is at work in {}: end it first", folder.path().display())
        }
        lock => lock?,
    };
    let all = folder.read()?.taken;
    if all.is_empty() {
        println!("no manifest is taken");
    }
    for taken in all {
        let contents = folder.read()?;
        folder.carry_out(&put_back(&contents, &taken))?;
        match taken.place {
            ManifestState::Replaced => println!(
                "{} was replaced meanwhile, and is kept as {}",
                taken.file,
                kept_name(&contents, &taken.file)
            ),
            _ => println!("{} is back", taken.file),
        }
    }
    lock.remove();
    Ok(())
}

fn metrics(mark: &NodeAgentMark) -> String {
    let rows = [
        ("taken_manifests", "Manifests of static pods that are taken for maintenances.", mark.taken.len()),
        (
            "delays_shutdown",
            "1 if shutdowns of the node wait for its pods.",
            usize::from(mark.delays_shutdown),
        ),
        ("warnings", "What is wrong, as the annotation of the node says it.", mark.warnings.len()),
    ];
    let text = |(name, help, value): &(&str, &str, usize)| {
        let name = format!("usher_node_agent_{name}");
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n")
    };
    rows.iter().map(text).collect()
}

async fn give_notice(arguments: Notify) -> anyhow::Result<()> {
    logs::start(&arguments.logs, None)?;
    anyhow::ensure!(
        !arguments.deadline.is_zero(),
        "--deadline is over already: give it some time, such as 2m"
    );
    let until = jiff::Timestamp::now().checked_add(arguments.deadline);
    let until = until.ok().context("--deadline is too far away: give it a time such as 2m")?;
    let config = arguments.files.kubelet().unwrap_or_else(|why| {
        if arguments.node.shutdown_priorities.is_empty() {
            tracing::warn!(%why, "pods leave in the order of the default plan: see --host-root, --kubelet-config or --shutdown-priorities");
        }
        KubeletConfig::default()
    });
    let client = arguments.access.client().await?;
    let shutdown = arguments.node.shutdown(client, &config, false)?;
    let name = maintenance_name(&arguments.node.name);
    let mut noticed = shutdown.give_notice(&arguments.reason, until).await?;
    match noticed {
        Noticed::Made => println!("maintenance {name} asks the pods to leave until {until}"),
        Noticed::Joined | Noticed::JoinedShutdown => {
            println!(
                "maintenance {name} is there already and asks the pods to leave, by its own deadline; it is waited for until {until}"
            );
        }
    }
    while jiff::Timestamp::now() < until {
        if shutdown.is_drained().await {
            println!("all pods have left");
            return Ok(());
        }
        // The maintenance of a shutdown goes if that is cancelled, and the notice stands.
        if noticed == Noticed::JoinedShutdown && shutdown.is_withdrawn().await {
            noticed = shutdown.give_notice(&arguments.reason, until).await?;
            println!("the shutdown was cancelled: maintenance {name} asks the pods to leave until {until}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("the time is over, and these pods are left: {}", shutdown.left(LEFT_WITHIN).await)
}

async fn start(arguments: Run) -> anyhow::Result<()> {
    logs::start(&arguments.logs, None)?;
    let config = arguments.files.kubelet()?;
    let folder = arguments.files.folder(&config)?;
    let mut warnings: Vec<String> = config.unmovable().into_iter().collect();
    if folder.is_none() {
        warnings.push("the kubelet has no staticPodPath: no static pod is moved".to_owned());
    }
    if config.shuts_down_gracefully() && arguments.delay_shutdown {
        warnings.push(
            "the kubelet ends pods by itself when the node shuts down, at the same time as they are asked to leave: remove \
             shutdownGracePeriod and shutdownGracePeriodByPodPriority from its configuration, and give the priorities by \
             --shutdown-priorities"
                .to_owned(),
        );
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let client = arguments.access.client().await?;
    let mut shutdown = arguments.node.shutdown(client.clone(), &config, arguments.complete_after_boot)?;
    if let Some(limit) = arguments.raise_shutdown_limit {
        let at_least = limit.try_into().context("--raise-shutdown-limit is no length of time")?;
        let folder = arguments.files.on_host(Path::new("/etc/systemd/logind.conf.d"));
        shutdown.options.limit = Some(ShutdownLimit { at_least, folder });
    }
    let options = Options {
        node: arguments.node.name.clone(),
        folder,
        has_url: !config.static_pod_url.is_empty(),
        folder_name: config.static_pod_path.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        warnings,
    };
    let (progress, followed) = watch::channel(ShutdownState::default());
    let (delays, delayed) = watch::channel(Err(String::new()));
    let shown = Arc::new(watch::Sender::default());
    let mark = shown.subscribe();
    let periods = shutdown.options.periods.clone();
    let beside = Beside { shutdown: followed, delays: delayed, periods, shown };
    let listener = listen("--metrics-address", arguments.metrics_address).await?;
    let scrapes = pages::serve(listener, None, move |path, _| {
        let found = match path.as_str() {
            "/healthz" => Some(pages::Page::text(StatusCode::OK, "ok")),
            "/metrics" => Some(pages::Page::text(StatusCode::OK, metrics(&mark.borrow()))),
            _ => None,
        };
        std::future::ready(found)
    });
    let socket = arguments.files.on_host(Path::new("/run/dbus/system_bus_socket"));
    let bus = arguments.bus_address.unwrap_or_else(|| format!("unix:path={}", socket.display()));
    let delaying = async {
        if arguments.delay_shutdown {
            shutdown.run(bus, progress, delays).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let (stop, mut stopping) = watch::channel(false);
    let asked = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let mut work = std::pin::pin!(agent::run_until(client, Clock::system(), options, beside, asked));
    tokio::select! {
        () = &mut work => {}
        () = delaying => {}
        () = scrapes => {}
        asked = interruption() => {
            asked.context("cannot wait for signals")?;
            stop.send_replace(true);
            let _ = tokio::time::timeout(END_WITHIN, work).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_limit_of_shutdowns_is_raised_only_if_somebody_says_so() {
        let limit = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["node-agent"][..], words].concat()).unwrap();
            line.arguments.run.raise_shutdown_limit
        };
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&["--raise-shutdown-limit=10m"]), Some(SignedDuration::from_mins(10)));
    }

    #[test]
    fn metrics_say_what_is_taken_and_whether_shutdowns_wait() {
        let mark =
            NodeAgentMark { taken: vec!["a.yaml".into()], delays_shutdown: true, ..NodeAgentMark::default() };
        let text = metrics(&mark);
        for line in [
            "usher_node_agent_taken_manifests 1",
            "usher_node_agent_delays_shutdown 1",
            "usher_node_agent_warnings 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }
}
