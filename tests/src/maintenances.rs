//! Node maintenances on a living cluster: the controllers beside it, and hands to make and look at maintenances.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::Result;
use embedded_apiserver::Cluster;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use usher_apply::Clock;
use usher_cli::Environment;
use usher_controllers::run_all;

use crate::scenario::beside::WITHOUT_SURGES;

use crate::living::{Living, NODES};
use crate::witness::Witness;

pub const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

/// Both controllers, until this is dropped, as if their process were killed.
#[derive(Debug)]
pub struct Manager(JoinHandle<()>);

impl Drop for Manager {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the eviction request and the node maintenance controller, the evictions under the eyes of a witness.
#[must_use]
pub fn start_manager(cluster: &Cluster, witness: &Witness) -> Manager {
    let server = cluster.clone();
    let clock = Clock::from_fn(move || server.now());
    Manager(tokio::spawn(run_all(witness.manager("manager-1"), clock, &WITHOUT_SURGES)))
}

/// A living cluster with the definitions on it, and the manager if it is started.
pub struct Scene {
    living: Living,
    pub witness: Witness,
    manager: Option<Manager>,
}

impl Deref for Scene {
    type Target = Living;

    fn deref(&self) -> &Living {
        &self.living
    }
}

impl Scene {
    /// # Errors
    /// The cluster refused something.
    pub async fn without_manager(nodes: usize) -> Result<Self> {
        let living = Living::start(1, nodes).await?;
        living.install_crds().await?;
        Ok(Self::of(living))
    }

    /// Without a manager, and with what the cluster has.
    #[must_use]
    pub fn of(living: Living) -> Self {
        let witness = Witness::of(&living.cluster);
        Self { living, witness, manager: None }
    }

    /// # Errors
    /// The cluster refused something.
    pub async fn new(nodes: usize) -> Result<Self> {
        let mut scene = Self::without_manager(nodes).await?;
        scene.restart_manager();
        Ok(scene)
    }

    /// Ends the manager, if there is one, and starts another.
    pub fn restart_manager(&mut self) {
        self.manager = None;
        self.manager = Some(start_manager(&self.living.cluster, &self.witness));
    }

    /// Of a command of a person: the cluster, and its time.
    #[must_use]
    pub fn environment(&self) -> Environment {
        let server = self.living.cluster.clone();
        let cluster = Some(self.witness.client("person"));
        Environment { clock: Arc::new(move || server.now()), cluster, ..Environment::plain() }
    }
}

/// A maintenance of the nodes with these host names.
#[must_use]
pub fn of_nodes(name: &str, stage: &str, nodes: &[&str]) -> Value {
    of_label(name, stage, "kubernetes.io/hostname", nodes)
}

/// A maintenance of the nodes with a label.
#[must_use]
pub fn of_label(name: &str, stage: &str, key: &str, values: &[&str]) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": values}]},
        ]}},
    })
}

/// Whether its condition Drained is true.
#[must_use]
pub fn is_drained(maintenance: &Value) -> bool {
    let conditions = maintenance["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Drained" && c["status"] == "True"))
}

impl Living {
    /// # Errors
    /// It is not there.
    pub async fn maintenance(&self, name: &str) -> Result<Value> {
        self.get(&format!("{MAINTENANCES}/{name}")).await
    }

    /// # Errors
    /// It was refused.
    pub async fn set_stage(&self, name: &str, stage: &str) -> Result<Value> {
        self.patch(&format!("{MAINTENANCES}/{name}"), &json!({"spec": {"stage": stage}})).await
    }

    /// Whether the node takes no new pods, and who holds it.
    ///
    /// # Errors
    /// It is not there.
    pub async fn cordon(&self, node: &str) -> Result<(bool, Option<String>)> {
        let node = self.get(&format!("{NODES}/{node}")).await?;
        let held = &node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"];
        Ok((node["spec"]["unschedulable"] == true, held.as_str().map(str::to_owned)))
    }

    /// How many pods are on a node.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<Value>> {
        let list = self.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The messages of events with a reason.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn told(&self, reason: &str) -> Result<Vec<String>> {
        let events = self.get("/api/v1/namespaces/default/events").await?;
        let with_reason =
            events["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason);
        Ok(with_reason.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect())
    }
}
