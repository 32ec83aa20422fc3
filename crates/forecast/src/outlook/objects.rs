//! Pods and nodes with what decides where a pod may run. These are read for one look ahead and then forgotten; the
//! controllers keep the slim ones of [`usher_decide::snapshot`], which these contain.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{self as core, NodeSelector, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};
use usher_api::interceptor_rules::CONTROLLER_ROLE;
use usher_api::names::{HAND_OVER_ANNOTATION, INTERCEPTOR_ANNOTATION_PREFIX, MIRROR_ANNOTATION};
use usher_api::workloads::BundledInterceptor;
use usher_api::{Interceptor, PodType, stands_for};
use usher_decide::admission::resolve::resolve;
use usher_decide::snapshot::{self, NodeCondition, PodStatus};

use super::placement::Rules;
use super::resources::{Resources, requests_of};

#[derive(Debug, Clone)]
pub struct Pod {
    pub pod: snapshot::Pod,
    pub wants: Resources,
    pub rules: Rules,
    /// In the order of their turns.
    pub interceptors: Vec<Interceptor>,
    /// It has data that go with it.
    pub has_local_data: bool,
}

impl Pod {
    /// Nothing recreates it. `kubectl drain` wants `--force` for these.
    pub fn has_no_controller(&self) -> bool {
        // One that is to be handed over to a ReplicaSet is about to have one, and its request until then.
        self.is_evictable() && self.pod.owner.is_none() && self.pod.hand_over().is_none()
    }

    /// No other controller than a bundled one answers for it.
    pub fn has_bundled_controller(&self) -> bool {
        let is_other = |it: &Interceptor| {
            it.role.as_deref() == Some(CONTROLLER_ROLE)
                && !BundledInterceptor::has_class(&it.interceptor_class)
        };
        !self.interceptors.iter().any(is_other)
    }

    /// It has data that are deleted with it. `kubectl drain` wants `--delete-emptydir-data` for these.
    pub fn loses_data(&self) -> bool {
        self.is_evictable() && self.has_local_data
    }

    /// A drain makes it leave, which it does not do yet.
    fn is_evictable(&self) -> bool {
        self.is_there() && self.pod.kind() == PodType::Default && !self.pod.is_terminating()
    }

    /// It is on a node, and a drain waits for it.
    pub fn is_there(&self) -> bool {
        !self.pod.node.is_empty() && !self.pod.phase.is_terminal()
    }
}

#[derive(Debug, Clone)]
pub struct Node {
    pub node: snapshot::Node,
    pub taints: Vec<Taint>,
    pub offers: Resources,
    /// How many pods it takes.
    pub pods: i64,
}

#[derive(Debug, Clone, Deserialize)]
pub struct PodOnWire {
    #[serde(deserialize_with = "light")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: WirePodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodSpec {
    node_name: String,
    priority: i32,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    resources: Option<Requests>,
    overhead: Option<BTreeMap<String, Quantity>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    resources: Option<Requests>,
    restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Requests {
    requests: Option<BTreeMap<String, Quantity>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    empty_dir: Option<serde::de::IgnoredAny>,
}

stands_for!(PodOnWire, core::Pod);

/// Of the annotations only those that somebody here reads; never who wrote which field.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Light {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn light<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let light = Light::deserialize(from)?;
    let mut annotations = light.annotations.unwrap_or_default();
    annotations.retain(|key, _| {
        [MIRROR_ANNOTATION, HAND_OVER_ANNOTATION].contains(&key.as_str())
            || key.starts_with(INTERCEPTOR_ANNOTATION_PREFIX)
    });
    Ok(ObjectMeta {
        name: light.name,
        namespace: light.namespace,
        uid: light.uid,
        deletion_timestamp: light.deletion_timestamp,
        labels: light.labels,
        annotations: Some(annotations),
        finalizers: light.finalizers,
        owner_references: light.owner_references,
        ..ObjectMeta::default()
    })
}

impl From<PodOnWire> for Pod {
    fn from(pod: PodOnWire) -> Self {
        let PodOnWire { metadata, spec, status } = pod;
        let requests = |resources: &Option<Requests>| {
            let given = resources.as_ref().and_then(|resources| resources.requests.as_ref());
            Resources::new(given.into_iter().flatten())
        };
        let containers: Vec<Resources> =
            spec.containers.iter().flatten().map(|container| requests(&container.resources)).collect();
        let init: Vec<(Resources, bool)> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|one| (requests(&one.resources), one.restart_policy.as_deref() == Some("Always")))
            .collect();
        let overhead = Resources::new(spec.overhead.iter().flatten());
        let mut wants = requests_of(&containers, &init, &overhead);
        // What is asked for the pod as a whole counts instead of its parts.
        if let Some(whole) = spec.resources.as_ref().and_then(|whole| whole.requests.as_ref()) {
            let given = Resources::new(whole);
            if whole.contains_key("cpu") {
                wants.cpu = given.cpu.saturating_add(overhead.cpu);
            }
            if whole.contains_key("memory") {
                wants.memory = given.memory.saturating_add(overhead.memory);
            }
        }
        let affinity = spec.affinity.and_then(|affinity| affinity.node_affinity);
        let required = affinity.and_then(|affinity| affinity.required);
        let interceptors =
            metadata.annotations.as_ref().map(|all| resolve(all).interceptors).unwrap_or_default();
        Self {
            wants,
            rules: Rules::new(
                spec.node_selector.unwrap_or_default(),
                required.as_ref(),
                spec.tolerations.unwrap_or_default(),
            ),
            interceptors,
            has_local_data: spec.volumes.iter().flatten().any(|volume| volume.empty_dir.is_some()),
            pod: snapshot::PodOnWire::new(metadata, spec.node_name, spec.priority, status).into(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct NodeOnWire {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: WireNodeSpec,
    #[serde(default)]
    status: WireNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WireNodeSpec {
    unschedulable: bool,
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WireNodeStatus {
    allocatable: Option<BTreeMap<String, Quantity>>,
    conditions: Option<Vec<NodeCondition>>,
}

stands_for!(NodeOnWire, core::Node);

impl From<NodeOnWire> for Node {
    fn from(node: NodeOnWire) -> Self {
        let NodeOnWire { metadata, spec, status } = node;
        let mut offers = Resources::new(status.allocatable.iter().flatten());
        let pods = offers.others.remove("pods").unwrap_or(0) / 1000;
        Self {
            taints: spec.taints.unwrap_or_default(),
            offers,
            pods,
            node: snapshot::NodeOnWire::new(metadata, spec.unschedulable, status.conditions).into(),
        }
    }
}
