//! `usher sandbox`: a cluster that lives in this process, to try things on with kubectl.

mod manifests;
mod sample;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use usher_cluster::life::{self, Times};
use usher_cluster::{Cluster, Options, User};

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
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workloads {
    /// A web deployment with a budget, a stateful set, a daemon set and a single replica.
    Sample,
    /// An empty cluster.
    None,
}

/// Slow enough to be seen, fast enough not to bore.
const TIMES: Times =
    Times { start: Duration::from_secs(2), run: Duration::from_secs(5), terminate: Duration::from_secs(2) };

/// The kubeconfig; it goes with the sandbox.
struct Kubeconfig(PathBuf);

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if let Err(why) = std::fs::remove_file(&self.0) {
            eprintln!("{} stays behind: {why}", self.0.display());
        }
    }
}

impl Kubeconfig {
    /// Only its owner may read it: it holds a token. Somebody else's file is never overwritten.
    fn write(path: PathBuf, text: &str) -> anyhow::Result<Self> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let hint = || format!("cannot write {}: name another file with --kubeconfig", path.display());
        let mut file = opened.with_context(hint)?;
        let written = file.write_all(text.as_bytes());
        let kubeconfig = Self(path);
        written.with_context(|| format!("cannot write {}", kubeconfig.0.display()))?;
        Ok(kubeconfig)
    }
}

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Everything that can be wrong with the arguments is found before anything starts.
    let mut given: Vec<(PathBuf, Vec<Value>)> = Vec::new();
    for file in &arguments.files {
        given.push((file.clone(), manifests::read(file)?));
    }
    let token = token();
    let administrator =
        User { name: "sandbox".into(), uid: String::new(), groups: vec!["system:masters".into()] };
    let tokens = HashMap::from([(token.clone(), administrator)]);
    let cluster = Cluster::new(Options { tokens, ..Options::default() });
    let serving = cluster.serve_https().await.context("no free port on loopback")?;
    let path = arguments.kubeconfig.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("usher-sandbox-{}.kubeconfig", std::process::id()))
    });
    let kubeconfig = Kubeconfig::write(path, &serving.kubeconfig_for(&token))?;

    let _life = life::start(&cluster, life::Options { times: TIMES, trace: None });
    let mut interrupted = std::pin::pin!(interruption());
    let filled = fill(&cluster, arguments.nodes, arguments.workloads, &given);
    tokio::select! {
        filled = filled => filled?,
        stopped = &mut interrupted => return stopped,
    }
    say_how_to_use(&kubeconfig.0, arguments.nodes);
    interrupted.await
}

/// Ctrl-C, or a polite request from elsewhere to end.
async fn interruption() -> anyhow::Result<()> {
    let mut asked = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped.context("cannot wait for Ctrl-C"),
        _ = asked.recv() => Ok(()),
    }
}

async fn fill(
    cluster: &Cluster,
    nodes: u16,
    workloads: Workloads,
    given: &[(PathBuf, Vec<Value>)],
) -> anyhow::Result<()> {
    for (_, definition) in usher_api::crd::crds() {
        manifests::create(cluster, &serde_json::to_value(definition)?).await?;
    }
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
        "A cluster with {nodes} nodes lives here until Ctrl-C. In another shell: export KUBECONFIG={} && kubectl get \
         nodes,pods -A",
        kubeconfig.display()
    );
}

/// Other users of this machine can reach the port, so the token must be one that they cannot guess.
fn token() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    // Keys of a `RandomState` come from the system's random source; the hash of nothing is as secret as they are.
    (0..4_u8).map(|part| format!("{:016x}", RandomState::new().hash_one(part))).collect()
}
