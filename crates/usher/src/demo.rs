//! `usher demo`: a living cluster in this process and a short session on it.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use usher_cluster::clock::SystemClock;
use usher_cluster::life;

use crate::local::{Kubeconfig, Local, interruption};
use crate::session::Session;

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

/// Pods start at once, and take a moment to end, so that the session can show it.
const TIMES: life::Times =
    life::Times { start: Duration::ZERO, run: Duration::from_secs(5), terminate: Duration::from_secs(3) };

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let local = Local::start("demo", Arc::new(SystemClock)).await?;
    let kubeconfig = local.kubeconfig(arguments.kubeconfig, "demo")?;
    let _life = life::start(&local.cluster, life::Options { times: TIMES, ..life::Options::default() });
    let url = local.serving.url();
    println!("An embedded cluster is up at {url}. It lives in this process and nowhere else.");
    let stays = arguments.stay || std::io::stdin().is_terminal();
    tokio::select! {
        played = play(&local, &kubeconfig, stays) => played,
        interrupted = interruption() => interrupted,
    }
}

/// The session, and then the cluster for others to use, until somebody interrupts it.
async fn play(local: &Local, kubeconfig: &Kubeconfig, stays: bool) -> anyhow::Result<()> {
    session(&Session::on(&local.cluster)).await?;
    if stays {
        println!("\nThe cluster stays up until Ctrl-C. In another shell:\n");
        println!("  export KUBECONFIG={}", kubeconfig.0.display());
        println!("  kubectl get nodes,pods,er,nm -A");
        std::future::pending::<()>().await;
    }
    println!(
        "\nThis is no terminal, so the cluster ends here. `usher demo --stay` keeps it up for kubectl, and"
    );
    println!("`usher sandbox` starts a larger one to play with.");
    Ok(())
}

const PODS: &str = "/api/v1/namespaces/shop/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
const REQUESTS: &str = "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/shop/evictionrequests";
const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

async fn session(session: &Session) -> anyhow::Result<()> {
    println!("\n# Usher's two kinds are custom resources.");
    for (_, definition) in usher_api::crd::crds() {
        let definition = serde_json::to_value(definition)?;
        session.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }

    println!("\n# Two nodes, a shop with two pods, and a budget that lets one go at a time.");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    session.create("/api/v1/namespaces", &namespace).await?;
    for name in ["node-1", "node-2"] {
        session.create("/api/v1/nodes", &node(name)).await?;
    }
    session.create("/apis/apps/v1/namespaces/shop/deployments", &deployment()).await?;
    session.create(BUDGETS, &budget()).await?;
    settled(session).await?;
    session.show("kubectl get pods -n shop", PODS).await?;
    session.show("kubectl get pdb -n shop", BUDGETS).await?;

    println!(
        "\n# The eviction API as it is today: the first pod goes, the second is refused until the first is replaced."
    );
    let pods = session.get(PODS).await?.body["items"].as_array().cloned().unwrap_or_default();
    for pod in &pods {
        let name = text(&pod["metadata"]["name"]);
        println!("$ evict {name}");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        session
            .post(&format!("{PODS}/{name}/eviction"), &eviction, &format!("Pod {name} is being evicted"))
            .await?;
    }
    session.show("kubectl get pods -n shop", PODS).await?;

    println!(
        "\n# What Usher adds: ask for the eviction, and declare the maintenance. Bad input is refused by the schema."
    );
    let Some(pod) = pods.last() else { bail!("the shop has no pods") };
    session.create(REQUESTS, &request(pod, 5)).await?;
    session.create(REQUESTS, &request(pod, 1800)).await?;
    session.show("kubectl get er -n shop", REQUESTS).await?;
    session.create(MAINTENANCES, &maintenance()).await?;
    println!("$ kubectl patch nm kernel --type merge -p '{{\"spec\":{{\"stage\":\"Idle\"}}}}'");
    let back = json!({"spec": {"stage": "Idle"}});
    session.patch(&format!("{MAINTENANCES}/kernel"), &back, "stage set back").await?;
    session.show("kubectl get nm", MAINTENANCES).await
}

/// Waits until the budget has counted two healthy pods.
async fn settled(session: &Session) -> anyhow::Result<()> {
    let counted = async {
        loop {
            let budget = session.get(&format!("{BUDGETS}/web")).await?.body;
            if budget["status"]["currentHealthy"] == 2 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted)
        .await
        .context("the shop did not open within 20 s")?
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "shop/web:1"}]},
            },
        },
    })
}

fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    })
}

fn request(pod: &Value, deadline: i64) -> Value {
    let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": uid,
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
        },
        "spec": {"podRef": {"name": name, "uid": uid}, "progressDeadlineSeconds": deadline},
    })
}

fn maintenance() -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "kernel"},
        "spec": {
            "stage": "Cordon", "reason": "new kernel",
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]},
            ]}]},
        },
    })
}
