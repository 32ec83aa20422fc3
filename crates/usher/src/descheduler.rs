//! `usher descheduler`: the descheduler alone, with the flags that the Go one has.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::StatusCode;
use tokio::sync::watch;
use usher_api::names::DESCHEDULER_LEASE;
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::descheduler::{Options, Policies, policy_file, run_until};
use usher_controllers::feeds::Feeds;
use usher_controllers::leader::Election;
use usher_controllers::metrics::Metrics;

use crate::interruption::interruption;
use crate::manager::gates::{self, Gates};
use crate::manager::{END_WITHIN, access, descheduling, http as pages, identity, listen, logs};

/// A descheduler that does one cycle gives up after this.
const ONE_CYCLE_WITHIN: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    access: access::Arguments,
    /// The policy: a DeschedulerPolicy of descheduler/v1alpha2. It is read again when it changes; one that is wrong is refused, and the one
    /// before holds.
    #[arg(long, value_name = "FILE")]
    policy_config_file: PathBuf,
    #[command(flatten)]
    descheduling: descheduling::Arguments,
    /// Plan and log, and ask no pod to leave. See also: usher deschedule --dry-run.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    dry_run: bool,
    /// Switches, as NAME=true or NAME=false, separated by commas. EvictionsInBackground (true): pods with the annotation
    /// descheduler.alpha.kubernetes.io/request-evict-only are evicted, and a refusal may mean that they are moved in the background.
    /// DeschedulerEvictionRequests (true): all others are asked by eviction requests; without it they are evicted.
    #[arg(long, value_name = "GATES", default_value = "", value_parser = gates::parse)]
    feature_gates: Gates,
    /// Let only the replica act that holds the lease.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// The name of the lease, and of this descheduler: each that runs by a policy of its own needs a name of its own, and leaves the
    /// requests of others alone.
    #[arg(long, value_name = "NAME", default_value = DESCHEDULER_LEASE)]
    leader_elect_resource_name: String,
    /// The namespace of the lease, and where cool-downs are remembered.
    #[arg(long, value_name = "NAMESPACE", default_value = "usher-system", env = "POD_NAMESPACE")]
    leader_elect_resource_namespace: String,
    /// Where /metrics and /healthz are served, over plain HTTP.
    #[arg(long, default_value = "127.0.0.1:10258")]
    metrics_address: SocketAddr,
    #[command(flatten)]
    logs: logs::Arguments,
}

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    logs::start(&arguments.logs, None)?;
    // A policy that is wrong at the start is told at once, and not after the watches have begun.
    policy_file::read(&arguments.policy_config_file).map_err(|why| anyhow::anyhow!(why))?;
    let client = arguments.access.client().await?;
    let clock = Clock::system();
    let metrics = Metrics::new(clock.clone());
    if !arguments.metrics_address.ip().is_loopback() {
        tracing::warn!("metrics are served to everybody who reaches their port");
    }
    let listener = listen("--metrics-address", arguments.metrics_address).await?;
    let scrapes = pages::serve(listener, None, {
        let metrics = metrics.clone();
        move |path, _| {
            let found = match path.as_str() {
                "/healthz" => Some(pages::Page::text(StatusCode::OK, "ok")),
                path => pages::metrics(&metrics, path),
            };
            std::future::ready(found)
        }
    });
    let namespace = &arguments.leader_elect_resource_namespace;
    let name =
        DeschedulerName { namespace: namespace.clone(), name: arguments.leader_elect_resource_name.clone() };
    let options = arguments.descheduling.options(
        &arguments.feature_gates,
        name,
        descheduling::Run::Alone { dry_run: arguments.dry_run },
    );
    if arguments.leader_elect && options.interval.is_none() {
        bail!(
            "--leader-elect is for a descheduler that goes on: give --descheduling-interval, or leave it out"
        );
    }
    let (stop, stopping) = watch::channel(false);
    let lease = &arguments.leader_elect_resource_name;
    let work = || {
        let (client, clock, options, metrics) =
            (client.clone(), clock.clone(), options.clone(), metrics.clone());
        let (stopping, policy) = (stopping.clone(), arguments.policy_config_file.clone());
        async move {
            metrics.leads(lease, true);
            cycles(client, clock, options, policy_file::follow(policy), &metrics, stopping).await;
            metrics.leads(lease, false);
        }
    };
    let working = async {
        if arguments.leader_elect {
            let election = Election::new(client.clone(), namespace, lease, &identity(), clock.clone());
            election.run(stopping.clone(), work).await;
        } else {
            work().await;
        }
    };
    let mut working = std::pin::pin!(working);
    tokio::select! {
        // It does not end by itself.
        () = scrapes => {}
        () = &mut working => {}
        () = tokio::time::sleep(ONE_CYCLE_WITHIN), if options.interval.is_none() => {
            bail!("there was no cycle within {} minutes: see above what cannot be read", ONE_CYCLE_WITHIN.as_secs() / 60);
        }
        asked = interruption() => {
            asked.context("cannot wait for signals")?;
            tracing::info!("asked to end: nothing new is begun, calls under way finish");
            stop.send_replace(true);
            if tokio::time::timeout(END_WITHIN, working).await.is_err() {
                tracing::warn!("not everything came to its end in time");
            }
        }
    }
    Ok(())
}

/// Cycle after cycle, or one.
async fn cycles(
    client: kube::Client,
    clock: Clock,
    options: Options,
    policies: Policies,
    metrics: &Metrics,
    mut stopping: watch::Receiver<bool>,
) {
    let mut feeds = Feeds::default();
    let stop = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let running = run_until(
        &mut feeds,
        client.clone(),
        clock,
        options,
        policies,
        metrics.descheduler_observer(|| {}),
        stop,
    );
    let _watches = feeds.start(&client);
    running.await;
}
