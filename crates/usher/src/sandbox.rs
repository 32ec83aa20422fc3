//! `usher sandbox`: a cluster that lives in this process, to try things on with kubectl.

mod sample;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster_simulator::{self as life, Times};
use embedded_apiserver::Cluster;
use embedded_apiserver::clock::ScaledClock;
use serde_json::Value;

use crate::interruption::interruption;
use crate::local::Local;
use crate::{manifests, resident};

#[derive(clap::Args)]
pub struct Arguments {
    /// How many nodes there are, spread over three zones.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,
    /// Workloads to begin with.
    #[arg(long, value_enum, default_value_t = Workloads::Sample)]
    workloads: Workloads,
    /// Manifests to create in the cluster, in this order.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write the kubeconfig; a file that is there already is left alone. By default a file in the system's
    /// folder for temporary files.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How many times as fast as real time the cluster's time goes: above 0, up to 1000, such as 60 or 0.5. Pods start
    /// and end, grace periods and back-offs pass, and objects age at this speed. What clients wait for does not:
    /// timeouts of requests, watches and webhooks stay in real time.
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = speed, allow_negative_numbers = true)]
    speed: ScaledClock,
}

/// A clock of the speed given.
fn speed(text: &str) -> Result<ScaledClock, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    ScaledClock::new(speed)
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workloads {
    /// A web deployment with a budget, a stateful set, a daemon set and a single replica.
    Sample,
    /// An empty cluster.
    None,
}

/// Slow enough to be seen, fast enough to wait for.
const TIMES: Times =
    Times { start: Duration::from_secs(2), run: Duration::from_secs(5), terminate: Duration::from_secs(2) };

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Everything that can be wrong with the arguments is found before anything starts.
    let mut given: Vec<(PathBuf, Vec<Value>)> = Vec::new();
    for file in &arguments.files {
        given.push((file.clone(), manifests::read(file)?));
    }
    let local = Local::start("sandbox", Arc::new(arguments.speed)).await?;
    let kubeconfig = local.kubeconfig(arguments.kubeconfig, "sandbox")?;

    let options =
        life::Options { times: TIMES, node_heartbeats: true, node_leases: true, ..life::Options::default() };
    let _life = life::start(&local.cluster, options);
    let mut interrupted = std::pin::pin!(interruption());
    let started = async {
        let resident = resident::move_in(&local.cluster).await?;
        fill(&local.cluster, arguments.nodes, arguments.workloads, &given).await?;
        anyhow::Ok(resident)
    };
    let _resident = tokio::select! {
        started = started => started?,
        stopped = &mut interrupted => return stopped,
    };
    say_how_to_use(&kubeconfig.0, arguments.nodes);
    interrupted.await
}

async fn fill(
    cluster: &Cluster,
    nodes: u16,
    workloads: Workloads,
    given: &[(PathBuf, Vec<Value>)],
) -> anyhow::Result<()> {
    for number in 1..=nodes {
        manifests::create(cluster, &sample::node(number)).await?;
    }
    if workloads == Workloads::Sample {
        for object in sample::workloads() {
            manifests::create(cluster, &object).await?;
        }
    }
    for (file, objects) in given {
        for object in objects {
            let created = manifests::create(cluster, object).await;
            created.with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

fn say_how_to_use(kubeconfig: &Path, nodes: u16) {
    println!(
        "A cluster with {nodes} nodes and Usher runs here until Ctrl-C. In another shell:\n\n  export KUBECONFIG={}\n  kubectl \
         get nodes,pods -A\n",
        kubeconfig.display()
    );
}
