//! `usher demo`: a cluster in this process and a short session on it.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use usher_cluster::{Cluster, Options, User};

use crate::session::Session;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where to write the kubeconfig; by default a file in the system's folder for temporary files.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Keep the cluster up until Ctrl-C even when this is no terminal.
    #[arg(long)]
    stay: bool,
}

const TOKEN: &str = "demo";

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let administrator =
        User { name: "demo".into(), uid: String::new(), groups: vec!["system:masters".into()] };
    let tokens = HashMap::from([(TOKEN.to_string(), administrator)]);
    let cluster = Cluster::new(Options { tokens, ..Options::default() });
    let serving = cluster.serve_https().await.context("no free port on loopback")?;
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("usher-demo-{}.kubeconfig", std::process::id()))
    });
    write_private(&kubeconfig, &serving.kubeconfig_for(TOKEN)).with_context(|| {
        format!("cannot write {}; name another file with --kubeconfig", kubeconfig.display())
    })?;

    println!("An embedded cluster is up at {}. It lives in this process and nowhere else.", serving.url());
    let stays = arguments.stay || std::io::stdin().is_terminal();
    // Whatever way it ends, the kubeconfig goes with the cluster.
    let result = tokio::select! {
        result = play(&cluster, &kubeconfig, stays) => result,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    };
    std::fs::remove_file(&kubeconfig).with_context(|| format!("{} stays behind", kubeconfig.display()))?;
    result
}

/// The session, and then the cluster for others to use, until somebody interrupts it.
async fn play(cluster: &Cluster, kubeconfig: &Path, stays: bool) -> anyhow::Result<()> {
    session(&Session::on(cluster)).await?;
    if stays {
        println!("\nThe cluster stays up until Ctrl-C. In another shell:\n");
        println!("  export KUBECONFIG={}", kubeconfig.display());
        println!("  kubectl get nodes,pods,er,nm -A");
        std::future::pending::<()>().await;
    }
    println!("\nThis is no terminal, so the cluster ends here. `usher demo --stay` keeps it up for kubectl,");
    println!("with KUBECONFIG set to the file that --kubeconfig names.");
    Ok(())
}

/// The token in it makes its reader the administrator, so only the owner may read it.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

async fn session(session: &Session) -> anyhow::Result<()> {
    let pods = "/api/v1/namespaces/shop/pods";
    let requests = "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/shop/evictionrequests";
    let maintenances = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

    println!("\n# Usher's two kinds are custom resources.");
    for (_, definition) in usher_api::crd::crds() {
        let definition = serde_json::to_value(definition)?;
        session.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }

    println!("\n# Two nodes, a shop with two pods on one of them, and a budget that lets one go at a time.");
    println!("# (No controllers run here yet, so this script plays kubelet and disruption controller.)");
    session
        .create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        )
        .await?;
    for name in ["node-1", "node-2"] {
        session.create("/api/v1/nodes", &node(name)).await?;
    }
    let mut uids = Vec::new();
    for name in ["web-1", "web-2"] {
        let made = session.create(pods, &pod(name)).await?;
        uids.push(made.body["metadata"]["uid"].as_str().unwrap_or_default().to_string());
        session
            .patch(&format!("{pods}/{name}/status"), &running(), &format!("Pod {name} runs on node-1"))
            .await?;
    }
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    session
        .create(
            budgets,
            &json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }),
        )
        .await?;
    let counted = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    session
        .patch(&format!("{budgets}/web/status"), &counted, "PodDisruptionBudget web counted: 1 may go")
        .await?;
    session.show("kubectl get pods -n shop", pods).await?;
    session.show("kubectl get pdb -n shop", budgets).await?;

    println!("\n# The eviction API as it is today: the first pod goes, the second is refused.");
    for name in ["web-1", "web-2"] {
        println!("$ evict {name}");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let json = [(http::header::CONTENT_TYPE, "application/json")];
        let path = format!("{pods}/{name}/eviction");
        let answer = session.send(http::Method::POST, &path, &json, Some(&eviction)).await?;
        answer.print(&format!("Pod {name} is being evicted"));
    }
    session.show("kubectl get pods -n shop", pods).await?;

    println!(
        "\n# What Usher adds: ask for the eviction, and declare the maintenance. Bad input is refused by the schema."
    );
    let deadline = |seconds: i64| {
        json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": uids[1],
                "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
            },
            "spec": {"podRef": {"name": "web-2", "uid": uids[1]}, "progressDeadlineSeconds": seconds},
        })
    };
    session.create(requests, &deadline(5)).await?;
    session.create(requests, &deadline(1800)).await?;
    session.show("kubectl get er -n shop", requests).await?;
    session
        .create(
            maintenances,
            &json!({
                "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
                "metadata": {"name": "kernel"},
                "spec": {
                    "stage": "Cordon", "reason": "new kernel",
                    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]},
                    ]}]},
                },
            }),
        )
        .await?;
    println!("$ kubectl patch nm kernel --type merge -p '{{\"spec\":{{\"stage\":\"Idle\"}}}}'");
    let back = json!({"spec": {"stage": "Idle"}});
    session.patch(&format!("{maintenances}/kernel"), &back, "stage set back").await?;
    session.show("kubectl get nm", maintenances).await
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "shop/web:1"}]},
    })
}

fn running() -> Value {
    json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "web", "ready": true, "restartCount": 0, "image": "shop/web:1", "imageID": "", "state": {"running": {}},
        }],
    }})
}
