//! `testbed`: a real control plane from the command line.

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use usher_testbed::{Binary, ControlPlane, Instance, Options, RealNodes, Toolbox, real_nodes};

/// A real Kubernetes control plane with fake nodes, on loopback, for tests.
#[derive(Parser)]
#[command(name = "testbed", version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build the programs of the control plane that are not cached, and print their paths
    Build {
        /// Build the programs that only tests start, too: Helm, the Go descheduler, foreign drainers, kubelets
        #[arg(long)]
        for_tests: bool,
    },
    /// Start a control plane and keep it until Ctrl-C
    Up(Up),
    /// End a control plane that `up` started
    Down(Named),
    /// List the control planes that are up
    Status,
    /// Print the path of the admin kubeconfig
    Kubeconfig(Named),
    /// Run the matching kubectl against a control plane
    Kubectl {
        #[command(flatten)]
        named: Named,
        /// Arguments of kubectl, after `--`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

#[derive(Args)]
struct Named {
    /// Which control plane
    #[arg(long, default_value = "default")]
    name: String,
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    named: Named,
    /// How many fake nodes
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// How many real nodes, each with a kubelet and containerd of its own; they need root
    #[arg(long, default_value_t = 0)]
    real_nodes: usize,
    /// How many zones the nodes are spread over
    #[arg(long, default_value_t = 3, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    zones: usize,
    /// Only etcd and kube-apiserver: nothing acts on the objects
    #[arg(long)]
    no_controllers: bool,
    /// Return when it is ready, and leave it running until `testbed down`
    #[arg(long)]
    detach: bool,
    /// This process is the one that a detached start left running
    #[arg(long, hide = true)]
    detached: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln, which panics where nobody reads: the reader of a detached process is gone.
            let _ = writeln!(std::io::stderr(), "testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(action: Action) -> Result<()> {
    match action {
        Action::Build { for_tests } => {
            let toolbox = tokio::task::spawn_blocking(|| usher_testbed::toolbox(&Binary::ALL)).await??;
            toolbox.iter().for_each(|(_, path)| println!("{}", path.display()));
            if for_tests {
                let toolbox = tokio::task::spawn_blocking(usher_testbed::toolbox_of_tests).await??;
                toolbox.iter().for_each(|(_, path)| println!("{}", path.display()));
            }
            Ok(())
        }
        Action::Up(up) if up.detach => detach(&up).await,
        Action::Up(up) => stay(&up).await,
        Action::Down(named) => {
            usher_testbed::stop_instance(&named.name)?;
            eprintln!("testbed: {} is down", named.name);
            Ok(())
        }
        Action::Status => status(),
        Action::Kubeconfig(named) => {
            println!("{}", usher_testbed::find_instance(&named.name)?.kubeconfig().display());
            Ok(())
        }
        Action::Kubectl { named, arguments } => {
            let instance = usher_testbed::find_instance(&named.name)?;
            let kubectl = usher_testbed::kubectl_path().await?;
            let error = Command::new(&kubectl)
                .args(arguments)
                .env("KUBECONFIG", instance.kubeconfig())
                .env("KUBECACHEDIR", instance.folder.join("kubectl-cache"))
                .exec();
            Err(error).with_context(|| format!("cannot run {}", kubectl.display()))
        }
    }
}

/// Builds before anything else: its progress is seen, and signals still end it at once.
fn build_for(up: &Up) -> Result<Toolbox> {
    let needed: &[Binary] = if up.no_controllers { &Binary::API_SERVER_ONLY } else { &Binary::ALL };
    Ok(usher_testbed::toolbox(needed)?)
}

/// Runs a control plane until a signal ends it.
async fn stay(up: &Up) -> Result<()> {
    build_for(up)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let ending = async {
        loop {
            tokio::select! {
                _ = interrupted.recv() => break,
                _ = terminated.recv() => break,
                // A detached control plane is meant to outlive its terminal.
                _ = hung_up.recv() => if !up.detached { break },
            }
        }
    };
    let mut users = Options::default().users;
    users.extend(real_nodes::users(up.real_nodes));
    let options = Options {
        users,
        name: Some(up.named.name.clone()),
        nodes: up.nodes,
        zones: up.zones,
        controllers: !up.no_controllers,
        ..Options::default()
    };
    let started = Instant::now();
    let living = async {
        let mut plane = ControlPlane::start_for_command(options).await?;
        let token = |user: &str| plane.token_of(user).map(str::to_owned);
        let _real = RealNodes::start(up.real_nodes, plane.url(), plane.ca_pem(), token).await?;
        if !up.detached {
            eprintln!("testbed: {} is ready after {:.1} s", plane.name(), started.elapsed().as_secs_f64());
            introduce(plane.name(), plane.kubeconfig(), &plane.kubectl());
            eprintln!("Ctrl-C ends it and removes everything.");
        }
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            plane.check_alive()?;
        }
    };
    // Leaving the select drops the control plane, started or still starting, and with it everything it made.
    tokio::select! {
        () = ending => Ok(()),
        failed = living => failed,
    }
}

/// Starts `testbed up` once more as a process of its own, and waits until it is ready.
async fn detach(up: &Up) -> Result<()> {
    let toolbox = build_for(up)?;
    let program = std::env::current_exe().context("cannot find the testbed program itself")?;
    let mut command = Command::new(program);
    command.args(["up", "--detached", "--name", &up.named.name]);
    command.args(["--nodes", &up.nodes.to_string(), "--zones", &up.zones.to_string()]);
    command.args(["--real-nodes", &up.real_nodes.to_string()]);
    if up.no_controllers {
        command.arg("--no-controllers");
    }
    let started = Instant::now();
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut owner = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the process that keeps the control plane")?;
    let ready = tokio::select! {
        ready = ready_instance(&mut owner) => Some(ready?),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
    };
    let Some(instance) = ready else {
        // Its watchdog removes what it has started so far.
        owner.kill().and_then(|()| owner.wait()).context("cannot end the start")?;
        bail!("interrupted before {} was ready", up.named.name);
    };
    eprintln!("testbed: {} is ready after {:.1} s", instance.name, started.elapsed().as_secs_f64());
    introduce(
        &instance.name,
        &instance.kubeconfig(),
        toolbox.path(Binary::Kubectl).unwrap_or(Path::new("kubectl")),
    );
    eprintln!("`testbed down --name {}` ends it.", instance.name);
    Ok(())
}

/// Waits until the control plane of `owner` is ready, or tells why it will not be.
async fn ready_instance(owner: &mut Child) -> Result<Instance> {
    loop {
        let ours = |instance: &Instance| instance.owner == owner.id() && instance.ready;
        if let Some(instance) = usher_testbed::instances()?.into_iter().find(ours) {
            return Ok(instance);
        }
        if owner.try_wait()?.is_some() {
            let message = owner.stderr.take().map(std::io::read_to_string).transpose()?.unwrap_or_default();
            bail!("{}", message.trim().trim_start_matches("testbed: "));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Says how to use it. The path goes to stdout, for scripts.
fn introduce(name: &str, kubeconfig: &Path, kubectl: &Path) {
    println!("{}", kubeconfig.display());
    eprintln!("Use it with any of:");
    eprintln!("  testbed kubectl --name {name} -- get nodes");
    eprintln!("  export KUBECONFIG={}", kubeconfig.display());
    eprintln!("  {} --kubeconfig {} get nodes", kubectl.display(), kubeconfig.display());
}

fn status() -> Result<()> {
    let instances = usher_testbed::instances()?;
    if instances.is_empty() {
        eprintln!("testbed: no control plane is up");
    }
    for instance in instances {
        let state = if instance.ready { "ready" } else { "starting" };
        let kind = if instance.command { "testbed up" } else { "another program" };
        println!(
            "{}  {state}  {}  process {} ({kind})  {}",
            instance.name,
            instance.url,
            instance.owner,
            instance.kubeconfig().display()
        );
    }
    Ok(())
}
