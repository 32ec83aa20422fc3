//! A small cluster with a policy.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use usher_descheduler::{Cluster, Differences, InProgress, Plan, Planner, Policy, Usage};

use super::clusters::Objects;
use super::dice::Dice;
use super::plugins::Subject;
use super::policies::{self, QUERY};

/// What a descheduler is asked about.
#[derive(Debug)]
pub struct Snapshot {
    pub objects: Objects,
    pub policy: String,
}

/// When all snapshots are looked at by ours. Of the Go descheduler they are asked now, because it looks at the clock.
pub fn fixed_now() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

impl Snapshot {
    /// Ages of pods are counted from `now`; everything else comes from the seed.
    pub fn make(subject: Subject, seed: u64, now: Timestamp) -> Self {
        let mut dice = Dice::new(seed * 16 + subject.number);
        let objects = Objects::make(&mut dice, subject, now);
        let policy = policies::make(&mut dice, subject, objects.roomy);
        Self { objects, policy: policy.to_string() }
    }

    /// Tells whether the generator still makes what was asked about.
    pub fn hash(&self) -> u32 {
        let text = format!("{}{}", self.policy, self.objects.to_json());
        text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    /// What ours plans. Without differences it is to decide as the Go descheduler does.
    pub fn plan(&self, differences: Differences, now: Timestamp) -> Result<Plan> {
        let policy = Policy::read(&self.policy).map_err(|errors| anyhow::anyhow!("{errors}"))?;
        let cluster = self.objects.cluster()?;
        Ok(Planner::new(differences).plan(&cluster, &policy, &InProgress::default(), now))
    }
}

impl Objects {
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        for (key, objects) in [
            ("nodes", &self.nodes),
            ("pods", &self.pods),
            ("namespaces", &self.namespaces),
            ("budgets", &self.budgets),
            ("priorityClasses", &self.priority_classes),
            ("claims", &self.claims),
        ] {
            json.insert(key.to_owned(), Value::Array(objects.clone()));
        }
        json.insert("usageOfNodes".to_owned(), json!(self.usage_of_nodes));
        json.insert("usageOfPods".to_owned(), json!(self.usage_of_pods));
        json.insert("fractions".to_owned(), json!(self.fractions));
        Value::Object(json)
    }

    /// The same, as ours knows it.
    pub fn cluster(&self) -> Result<Cluster> {
        let mut cluster = Cluster::default();
        for node in typed(&self.nodes)? {
            cluster.set_node(&node);
        }
        for pod in typed(&self.pods)? {
            cluster.set_pod(&pod);
        }
        for namespace in typed(&self.namespaces)? {
            cluster.set_namespace(&namespace);
        }
        for budget in typed(&self.budgets)? {
            cluster.set_budget(&budget);
        }
        for class in typed(&self.priority_classes)? {
            cluster.set_priority_class(&class);
        }
        for claim in typed(&self.claims)? {
            cluster.set_claim(&claim);
        }
        for (node, usage) in &self.usage_of_nodes {
            cluster.set_usage_of_node(node, &Usage::Resources(quantities(usage)));
        }
        for (pod, usage) in &self.usage_of_pods {
            let (namespace, name) = pod.split_once('/').context("a pod without a namespace")?;
            cluster.set_usage_of_pod(namespace, name, &Usage::Resources(quantities(usage)));
        }
        for (node, fraction) in &self.fractions {
            cluster
                .set_usage_of_node(node, &Usage::Fraction { query: QUERY.to_owned(), fraction: *fraction });
        }
        Ok(cluster)
    }
}

fn typed<T: DeserializeOwned>(objects: &[Value]) -> Result<Vec<T>> {
    let read = |object: &Value| T::deserialize(object).with_context(|| format!("{object}"));
    objects.iter().map(read).collect()
}

fn quantities(usage: &BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    usage.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).collect()
}
