//! The dry run of a drain and the explanation of a node, on the living embedded cluster in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::sync::Arc;

use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_cli::{Ending, Streams, Surroundings};
use usher_tests::living::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, Living, NODES, PODS, node, template, workload};
use usher_tests::maintenances::{MAINTENANCES, Manager, is_drained, of_nodes, start_manager};
use usher_tests::witness::Witness;

struct Scene {
    living: Living,
    witness: Witness,
    manager: Option<Manager>,
}

impl std::ops::Deref for Scene {
    type Target = Living;

    fn deref(&self) -> &Living {
        &self.living
    }
}

impl Scene {
    async fn new(nodes: usize) -> Self {
        let living = Living::start(1, nodes).await.unwrap();
        living.install_crds().await.unwrap();
        let witness = Witness::of(&living.cluster);
        Self { living, witness, manager: None }
    }

    fn surroundings(&self) -> Surroundings {
        let server = self.cluster.server().clone();
        Surroundings { clock: Arc::new(move || server.now()), ..Surroundings::plain() }
    }

    async fn deployment(&self, name: &str, replicas: usize, keeps: usize) {
        self.create(DEPLOYMENTS, &workload("Deployment", name, json!({"replicas": replicas}))).await.unwrap();
        self.budget(name, name, json!({"minAvailable": keeps})).await;
        self.rolled_out(name).await.unwrap();
    }

    async fn budget(&self, name: &str, app: &str, rule: Value) {
        let mut budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": rule,
        });
        budget["spec"]["selector"] = json!({"matchLabels": {"app": app}});
        self.create(BUDGETS, &budget).await.unwrap();
    }

    /// What the dry run of a maintenance prints, and how it ends.
    async fn dry_run(&self, maintenance: Value) -> (Ending, String) {
        let maintenance: NodeMaintenance = serde_json::from_value(maintenance).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let streams = Streams { out: &mut out, err: &mut err };
        let client = self.witness.client("admin");
        let ending =
            usher_cli::outlook::print(&client, &maintenance, &self.surroundings(), streams).await.unwrap();
        assert_eq!(String::from_utf8(err).unwrap(), "");
        (ending, String::from_utf8(out).unwrap())
    }
}

/// A pod of nobody.
fn bare_pod(name: &str, node: &str) -> Value {
    let mut pod = template("solo", "100m");
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = node.into();
    pod
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_order_obstacles_and_places_and_touches_nothing() {
    let scene = Scene::new(3).await;
    scene.deployment("web", 6, 5).await;
    scene.deployment("db", 2, 2).await;
    scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    scene.create(PODS, &bare_pod("solo", "n1")).await.unwrap();
    let settled = |pods: &Value| {
        pods["items"].as_array().unwrap().iter().all(|pod| pod["status"]["phase"] == "Running")
    };
    scene.until(PODS, settled).await.unwrap();
    scene.until(&format!("{BUDGETS}/db"), |budget| budget["status"]["currentHealthy"] == 2).await.unwrap();
    let before = scene.get(NODES).await.unwrap();
    let mut maintenance = of_nodes("new", "Drain", &["n1", "n2"]);
    maintenance["spec"]["drainLimit"] = json!({"maxNodes": 1});
    let (ending, text) = scene.dry_run(maintenance).await;
    println!("{text}");
    assert_eq!(ending, Ending::Incomplete);
    assert_eq!(scene.get(NODES).await.unwrap()["items"], before["items"]);
}
