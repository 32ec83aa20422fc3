//! `usher demo`: a living cluster with Usher in this process, and what Usher does for its pods.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster_simulator as life;
use embedded_apiserver::Cluster;
use embedded_apiserver::clock::ScaledClock;
use kube::Client;
use serde_json::{Value, json};
use usher_api::names::{DEPLOYMENT_CLASS, SURGE_ANNOTATION};
use usher_interceptors::{InterceptorClass, InterceptorRunner, Turn, TurnError};

use crate::interruption::interruption;
use crate::local::{Kubeconfig, Local};
use crate::shell::Shell;
use crate::{manifests, resident};

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to write the kubeconfig; a file that is there already is left alone. By default a file in the system's
    /// folder for temporary files.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Keep the cluster up until Ctrl-C even when this is no terminal.
    #[arg(long)]
    stay: bool,
}

/// A second here is a minute in the cluster, so that a deadline of ten minutes can be shown.
const SPEED: f64 = 60.0;
const TIMES: life::Times = life::Times {
    start: Duration::from_secs(30),
    run: Duration::from_secs(60),
    terminate: Duration::from_secs(30),
};
/// For anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interceptors of the database: one that works, and one that never says a word.
const BACKUP: &str = "backup.shop.example";
const SILENT: &str = "silent.shop.example";

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let clock = ScaledClock::new(SPEED).map_err(anyhow::Error::msg)?;
    let local = Local::start("demo", Arc::new(clock)).await?;
    let kubeconfig = local.kubeconfig(arguments.kubeconfig, "demo")?;
    let options = life::Options { times: TIMES, node_heartbeats: true, ..life::Options::default() };
    let _life = life::start(&local.cluster, options);
    let stays = arguments.stay || std::io::stdin().is_terminal();
    tokio::select! {
        played = play(&local.cluster, &kubeconfig, stays) => played,
        interrupted = interruption() => interrupted,
    }
}

/// The session, and then the cluster for others to use, until somebody interrupts it.
async fn play(cluster: &Cluster, kubeconfig: &Kubeconfig, stays: bool) -> anyhow::Result<()> {
    let _resident = resident::move_in(cluster).await?;
    println!("A cluster with Usher runs in this process. A second here is a minute in the cluster.");
    for object in objects() {
        manifests::create(cluster, &object).await?;
    }
    let client = Client::new(cluster.service(), "default");
    let clock = resident::clock_of(cluster);
    let runner =
        InterceptorRunner::new(client, InterceptorClass::new(BACKUP)?).with_clock(move || clock.now());
    let clock = resident::clock_of(cluster);
    let shell = Shell::new(&kubeconfig.0, &clock);
    tokio::select! {
        never = runner.run(back_up) => match never {},
        shown = session(&shell, cluster) => shown?,
    }
    if stays {
        println!("\nThe cluster runs until Ctrl-C. In another shell:\n");
        println!("  export KUBECONFIG={}", kubeconfig.0.display());
        println!("  kubectl get nodes,pods,er -A");
        std::future::pending::<()>().await;
    }
    println!(
        "\nThis is not a terminal, so the cluster stops here. `usher demo --stay` keeps it running for kubectl;"
    );
    println!("`usher sandbox` starts one with more workloads to try things on.");
    Ok(())
}

/// What the owner of the database wrote: it copies the data before the pod goes.
async fn back_up(turn: Turn) -> Result<(), TurnError> {
    for percent in [25, 50, 75] {
        turn.progress(format!("{percent} % of the data is copied")).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    turn.complete("all data is copied").await
}

async fn session(shell: &Shell<'_>, cluster: &Cluster) -> anyhow::Result<()> {
    rolling_maintenance(shell, cluster).await?;
    for object in shop() {
        manifests::create(cluster, &object).await?;
    }
    println!(
        "\n# 2. A database with two interceptors. The first copies its data and reports progress; the second never reports."
    );
    running(cluster, "db-0").await?;
    shell.usher("evict db-0 -n shop --deadline 10m").await?;
    asked(cluster, |status| status["activeInterceptorClass"] == BACKUP).await?;
    shell.usher("requests -n shop").await?;
    asked(cluster, |status| status["message"].as_str().is_some_and(|message| message.starts_with("75 %")))
        .await?;
    shell.usher("explain db-0 -n shop").await?;
    asked(cluster, |status| status["activeInterceptorClass"] == SILENT).await?;
    shell.usher("requests -n shop").await?;
    println!(
        "\n# It reports nothing within the deadline of 10 minutes, so the pod goes through the eviction API."
    );
    nobody_asked(cluster).await?;
    shell.usher("requests -n shop").await?;

    println!("\n# 3. An eviction is requested and cancelled: the pod stays.");
    running(cluster, "cart-0").await?;
    shell.usher("evict cart-0 -n shop").await?;
    shell.usher("cancel cart-0 -n shop").await?;
    nobody_asked(cluster).await?;
    shell.usher("requests -n shop").await?;
    shell.usher("explain cart-0 -n shop").await?;

    println!(
        "\n# 4. A single replica behind a budget that allows no disruption. Its Deployment surges: a new pod comes before the old one \
         goes, and nobody has to help."
    );
    let web = pod_of(cluster, "web").await?;
    let clock = resident::clock_of(cluster);
    let begun = clock.now();
    let ready = life::Meter::start(cluster, "shop", "app=web");
    shell.usher(&format!("evict {web} -n shop")).await?;
    surges(cluster, "web").await?;
    shell.usher(&format!("explain {web} -n shop")).await?;
    nobody_asked(cluster).await?;
    shell.usher("requests -n shop").await?;
    let least = ready.minimum_since(begun).context("nobody counted the pods of the website")?;
    println!("\n# {web} is gone, and the website had at least {least} ready pod throughout.");
    anyhow::ensure!(least >= 1, "the website was down");
    Ok(())
}

/// All nodes are emptied one after another, and the front page keeps what its budget asks for.
async fn rolling_maintenance(shell: &Shell<'_>, cluster: &Cluster) -> anyhow::Result<()> {
    println!(
        "\n# 1. {NODES} nodes get a new kernel, one after another. The front page has {FRONT} pods, and its budget \
         wants {FRONT_LEAST} of them healthy at any time. On every node a DaemonSet collects logs: it leaves last, and comes back."
    );
    let budget = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/front";
    until(cluster, budget, |budget| budget["status"]["currentHealthy"] == FRONT).await?;
    let clock = resident::clock_of(cluster);
    let begun = clock.now();
    let ready = life::Meter::start(cluster, "shop", "app=front");
    shell.usher("drain node-1 --reason kernel --name kernel-1").await?;
    shell.usher("maintenance complete kernel-1").await?;
    println!("\n# The other nodes follow:");
    for number in 2..=NODES {
        let words = format!("drain node-{number} --reason kernel --name kernel-{number}");
        let output = shell.quietly(&words).await?;
        let end = output.lines().find(|line| line.contains(" drained: ")).context("node is not drained")?;
        println!("\n$ usher {words} | grep ' drained: '\n{end}");
        shell.quietly(&format!("maintenance complete kernel-{number}")).await?;
    }
    shell.usher("maintenance list").await?;
    let least = ready.minimum_since(begun).context("nobody counted the pods of the front page")?;
    let took = clock.now().duration_since(begun).as_secs() / 60;
    println!(
        "\n# All {NODES} nodes were drained, in {took} minutes of the cluster's time. The front page had at least {least} \
         ready pods throughout."
    );
    anyhow::ensure!(least >= FRONT_LEAST, "the budget of the front page was broken");
    Ok(())
}

const NODES: usize = 5;
/// The pods of the front page, and how many must be ready.
const FRONT: usize = 8;
const FRONT_LEAST: usize = 7;

/// What is at a path of the cluster.
async fn get(cluster: &Cluster, path: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(Client::new(cluster.service(), "default").request(request).await?)
}

const PODS: &str = "/api/v1/namespaces/shop/pods";
const REQUESTS: &str = "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/shop/evictionrequests";

/// Waits until the request has such a status.
async fn asked(cluster: &Cluster, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let is_wanted = |request: &Value| wanted(&request["status"]);
    until(cluster, REQUESTS, |requests| {
        requests["items"].as_array().is_some_and(|all| all.iter().any(is_wanted))
    })
    .await
    .map(|_| ())
}

/// Waits until a Deployment surges, and in its turn has said until when it expects to be done.
async fn surges(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/shop/deployments/{name}");
    until(cluster, &path, |it| it["metadata"]["annotations"][SURGE_ANNOTATION].is_string()).await?;
    asked(cluster, |status| {
        status["activeInterceptorClass"] == DEPLOYMENT_CLASS
            && status["expectedInterceptorFinishTime"].is_string()
    })
    .await
}

/// Waits until no request is left.
async fn nobody_asked(cluster: &Cluster) -> anyhow::Result<()> {
    until(cluster, REQUESTS, |requests| requests["items"].as_array().is_some_and(Vec::is_empty))
        .await
        .map(|_| ())
}

/// Waits until a pod runs.
async fn running(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let path = format!("{PODS}?fieldSelector=metadata.name%3D{name},status.phase%3DRunning");
    until(cluster, &path, |pods| pods["items"].as_array().is_some_and(|all| !all.is_empty()))
        .await
        .map(|_| ())
}

/// The name of a running pod of an application whose budget has counted it.
async fn pod_of(cluster: &Cluster, app: &str) -> anyhow::Result<String> {
    let budget = format!("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/{app}");
    until(cluster, &budget, |budget| budget["status"]["currentHealthy"] == 1).await?;
    let pods = get(cluster, &format!("{PODS}?labelSelector=app%3D{app}")).await?;
    let name = pods["items"][0]["metadata"]["name"].as_str().map(str::to_string);
    name.with_context(|| format!("{app} has no pod"))
}

async fn until(cluster: &Cluster, path: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let found = async {
        loop {
            let object = get(cluster, path).await?;
            if wanted(&object) {
                return anyhow::Ok(object);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .with_context(|| format!("{path} did not get ready in time"))?
}

/// Nodes, and the front page of a shop.
fn objects() -> Vec<Value> {
    let node = |number: usize| {
        let name = format!("node-{number}");
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        })
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let mut logs = workload("DaemonSet", "logs", 0, json!({}));
    if let Some(spec) = logs["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    let front = [workload("Deployment", "front", FRONT, json!({})), budget("front", FRONT_LEAST), logs];
    (1..=NODES).map(node).chain([namespace]).chain(front).collect()
}

/// The rest of the shop: a database, a cart and a website.
fn shop() -> Vec<Value> {
    let interceptor = |class: &str| format!("{}{class}", usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX);
    let both = json!({interceptor(BACKUP): "12000/backup", interceptor(SILENT): "500"});
    vec![
        workload("StatefulSet", "db", 1, both),
        workload("StatefulSet", "cart", 1, json!({interceptor(SILENT): "500"})),
        workload("Deployment", "web", 1, json!({})),
        budget("web", 1),
    ]
}

fn workload(kind: &str, app: &str, replicas: usize, annotations: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app, "namespace": "shop"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}, "annotations": annotations},
                "spec": {"containers": [{"name": app, "image": format!("shop/{app}:1")}]},
            },
        },
    });
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = app.into();
    }
    object
}

fn budget(app: &str, least: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "shop"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    })
}
