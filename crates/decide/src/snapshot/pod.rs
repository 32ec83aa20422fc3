//! A pod, as far as an eviction is concerned.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use usher_api::PodType;
use usher_api::evict_policy::{EvictPolicy, EvictWanted, policy_annotation};
use usher_api::names::{
    DELETION_COST_BEFORE_ANNOTATION, EVICTION_REQUEST_GROUP, HAND_OVER_ANNOTATION,
    MAINTENANCE_SCHEDULING_GATE, MIRROR_ANNOTATION, POD_DELETION_COST_ANNOTATION,
};
use usher_api::workloads::POD_TEMPLATE_HASH_LABEL;

use crate::admission::resolve::resolve;

use super::Key;
use super::taints::Toleration;
use super::wire::{Gate, PodCondition, PodOnWire};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub fn parse(text: &str) -> Self {
        match text {
            // A pod that was only just created has no phase yet.
            "" | "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The controller that manages an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

impl Owner {
    fn is_node(&self, node: &str) -> bool {
        &*self.api_version == "v1" && &*self.kind == "Node" && &*self.name == node
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub key: Key,
    pub uid: Arc<str>,
    pub created: Timestamp,
    /// Empty until it is scheduled.
    pub node: Arc<str>,
    pub priority: i32,
    pub labels: Arc<BTreeMap<String, String>>,
    pub phase: Phase,
    /// Since when it is ready, if it is.
    pub ready_since: Option<Timestamp>,
    pub owner: Option<Arc<Owner>>,
    /// It stands for a static pod. The annotation alone does not say so, since whoever creates a pod can write it: the kubelet
    /// names its node as the controller too.
    pub is_mirror: bool,
    /// Its annotations name at least one interceptor that counts.
    pub names_interceptors: bool,
    /// How many seconds it has to end.
    pub grace_seconds: u32,
    /// Why it has not started. Few pods wait.
    pub waiting: Option<Box<Waiting>>,
    /// What the Pod Evict Policy decides by, if there is any of it.
    pub evict: Option<Box<EvictFacts>>,
    /// What few pods have.
    pub rare: Option<Box<RareOfPod>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RareOfPod {
    /// Set while it terminates: when its grace ends.
    pub deletion: Option<Timestamp>,
    pub finalizers: Box<[String]>,
    /// What its owner says of its deletion when a ReplicaSet is scaled down, as it was written.
    pub deletion_cost: Option<Box<str>>,
    /// It is to be deleted before others when its ReplicaSet is scaled down, and what it had before that.
    pub preferred: Option<PreferredForDeletion>,
    /// It is to take the place of another pod, and no ReplicaSet has it yet.
    pub hand_over: Option<HandOverPod>,
}

/// Who ends a pod that Kubernetes wants to evict, and whether it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictFacts {
    /// What the pod itself says.
    pub policy: Option<EvictPolicy>,
    /// The mark that was written for this pod.
    pub wanted: Option<EvictWanted>,
    /// There is a mark, whatever it says.
    pub is_shown: bool,
    /// The taint eviction controller wanted to delete it, now or before: its condition is there, which goes back to false after a while.
    pub was_driven_off: bool,
    pub tolerations: Box<[Toleration]>,
    /// The interceptors that it names.
    pub classes: Box<[String]>,
    pub resource_version: String,
}

/// A pod that was made to take the place of one that is asked to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOverPod {
    /// The ReplicaSet that is to adopt it, in its namespace.
    pub set: Arc<str>,
    /// The UID of the request that it was made for.
    pub request: Arc<str>,
    pub resource_version: String,
    /// It has the label of its ReplicaSet, which is about to adopt it.
    pub is_labelled: bool,
}

/// A mark by which a ReplicaSet deletes a pod before others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferredForDeletion {
    pub cost: i32,
    /// The cost that its owner gave it, as it was written.
    pub before: Option<String>,
}

impl PreferredForDeletion {
    /// Marks are below this.
    pub const MARKS: i32 = i32::MIN + (1 << 24);

    /// Nobody has written another cost since.
    pub fn is_mark(&self) -> bool {
        self.cost < Self::MARKS
    }
}

/// A pod that has no node yet, or whose containers do not start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    pub resource_version: String,
    /// The node that its DaemonSet made it for, if the gate of node maintenance keeps it from there.
    pub held_for: Option<Arc<str>>,
    /// What the scheduler says, if it has found no node.
    pub unschedulable: Option<String>,
    /// Why a container of it does not start, by the kubelet's reason, such as `ImagePullBackOff`.
    pub not_started: Option<Arc<str>>,
}

impl Pod {
    /// The request that it has, if it has one: its name is the UID of the pod.
    pub fn request_key(&self) -> Key {
        Key::new(self.key.namespace.clone(), self.uid.clone())
    }

    pub fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    pub fn is_terminating(&self) -> bool {
        self.deletion().is_some()
    }

    /// Set while it terminates: when its grace ends.
    pub fn deletion(&self) -> Option<Timestamp> {
        self.rare.as_ref()?.deletion
    }

    pub fn finalizers(&self) -> &[String] {
        self.rare.as_ref().map(|rare| &rare.finalizers[..]).unwrap_or_default()
    }

    /// What its owner says of its deletion when a ReplicaSet is scaled down, as it was written.
    pub fn deletion_cost(&self) -> Option<&str> {
        self.rare.as_ref()?.deletion_cost.as_deref()
    }

    /// It is to be deleted before others when its ReplicaSet is scaled down, and what it had before that.
    pub fn preferred(&self) -> Option<&PreferredForDeletion> {
        self.rare.as_ref()?.preferred.as_ref()
    }

    /// It is to take the place of another pod, and no ReplicaSet has it yet.
    pub fn hand_over(&self) -> Option<&HandOverPod> {
        self.rare.as_ref()?.hand_over.as_ref()
    }

    /// It is to be handed over to a ReplicaSet that its name does not tell: only its annotation does.
    pub fn is_named_after_another_set(&self) -> bool {
        let named = set_after_which_it_is_named(&self.key.name);
        self.hand_over().is_some_and(|it| named != Some(&*it.set))
    }

    /// Which part of a drain plan it belongs to.
    pub fn kind(&self) -> PodType {
        if self.is_mirror {
            PodType::Static
        } else if self.is_daemon() {
            PodType::DaemonSet
        } else {
            PodType::Default
        }
    }

    /// It says that a DaemonSet controls it; kinds of other groups may have that name too.
    pub fn is_daemon(&self) -> bool {
        let is_daemon_set =
            |owner: &Arc<Owner>| &*owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/");
        self.owner.as_ref().is_some_and(is_daemon_set)
    }
}

impl From<PodOnWire> for Pod {
    fn from(pod: PodOnWire) -> Self {
        let mut meta = pod.metadata;
        let text = |text: Option<String>| Arc::<str>::from(text.unwrap_or_default());
        let annotations = meta.annotations.take().unwrap_or_default();
        let hand_over = hand_over(&meta, &annotations);
        let interceptors = resolve(&annotations).interceptors;
        let owners = meta.owner_references.into_iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| {
            Arc::new(Owner {
                api_version: owner.api_version.into(),
                kind: owner.kind.into(),
                name: owner.name.into(),
                uid: owner.uid.into(),
            })
        });
        let not_started: Option<Arc<str>> = pod.status.not_started().map(Arc::from);
        let conditions = pod.status.conditions.unwrap_or_default();
        let condition =
            |kind: &str, status: &str| conditions.iter().find(|it| it.kind == kind && it.status == status);
        let ready = condition("Ready", "True");
        let was_driven_off = conditions.iter().any(is_of_taints);
        let policy = policy_annotation(Some(&annotations)).and_then(|text| text.parse().ok());
        let is_shown = EvictWanted::is_shown(&annotations);
        let evict = (policy.is_some() || is_shown || was_driven_off).then(|| {
            let classes = interceptors.iter().map(|interceptor| interceptor.interceptor_class.clone());
            Box::new(EvictFacts {
                policy,
                wanted: EvictWanted::of(&annotations, meta.uid.as_deref().unwrap_or_default()),
                is_shown,
                was_driven_off,
                tolerations: pod.spec.tolerations.clone().unwrap_or_default().into(),
                classes: classes.collect(),
                resource_version: meta.resource_version.clone().unwrap_or_default(),
            })
        });
        let is_unscheduled = pod.spec.node_name.is_empty();
        let waiting = (is_unscheduled || not_started.is_some()).then(|| {
            let is_ours = |gate: &Gate| gate.name == MAINTENANCE_SCHEDULING_GATE;
            let is_held = pod.spec.scheduling_gates.iter().flatten().any(is_ours);
            let unscheduled = condition("PodScheduled", "False").filter(|it| it.reason == "Unschedulable");
            Box::new(Waiting {
                resource_version: meta
                    .resource_version
                    .clone()
                    .filter(|_| is_unscheduled)
                    .unwrap_or_default(),
                held_for: is_held.then(|| pod.spec.only_node().into()),
                unschedulable: unscheduled.map(|condition| condition.message.clone()),
                not_started,
            })
        });
        let is_mirror = annotations.contains_key(MIRROR_ANNOTATION)
            && owner.as_ref().is_some_and(|owner| owner.is_node(&pod.spec.node_name));
        let rare = RareOfPod {
            deletion: meta.deletion_timestamp.map(|time| time.0),
            finalizers: meta.finalizers.unwrap_or_default().into(),
            deletion_cost: annotations.get(POD_DELETION_COST_ANNOTATION).map(|cost| cost.as_str().into()),
            preferred: preferred(&annotations),
            hand_over,
        };
        Self {
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid),
            created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            node: pod.spec.node_name.as_str().into(),
            priority: pod.spec.priority,
            labels: Arc::new(meta.labels.unwrap_or_default()),
            phase: Phase::parse(&pod.status.phase),
            ready_since: ready.map(|it| it.since.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
            owner,
            is_mirror,
            evict,
            rare: (rare != RareOfPod::default()).then(|| Box::new(rare)),
            names_interceptors: !interceptors.is_empty(),
            grace_seconds: u32::try_from(pod.spec.termination_grace_period_seconds.max(0))
                .unwrap_or(u32::MAX),
            waiting,
        }
    }
}

/// The disruption controller sets the condition back after two minutes, and leaves no reason then.
fn is_of_taints(condition: &PodCondition) -> bool {
    condition.kind == "DisruptionTarget"
        && (condition.status == "False" || condition.reason == "DeletionByTaintManager")
}

/// The name of a ReplicaSet of more than 57 letters is cut in those of its pods.
fn set_after_which_it_is_named(pod: &str) -> Option<&str> {
    pod.rsplit_once('-').map(|(set, _)| set)
}

/// One that has a controller is handed over, whatever its annotation says. One that has lost the annotation, and whom nobody controls
/// yet, is about to be adopted by the ReplicaSet after which it is named.
fn hand_over(meta: &ObjectMeta, annotations: &BTreeMap<String, String>) -> Option<HandOverPod> {
    let owners = meta.owner_references.as_deref()?;
    let is_request = |owner: &&OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.kind == "EvictionRequest" && group == Some(EVICTION_REQUEST_GROUP)
    };
    let request = owners.iter().find(is_request)?;
    if owners.iter().any(|owner| owner.controller == Some(true)) {
        return None;
    }
    let is_labelled = meta.labels.as_ref().is_some_and(|all| all.contains_key(POD_TEMPLATE_HASH_LABEL));
    let set = match annotations.get(HAND_OVER_ANNOTATION) {
        Some(set) => set.as_str(),
        None if is_labelled => set_after_which_it_is_named(meta.name.as_deref()?)?,
        None => return None,
    };
    Some(HandOverPod {
        set: set.into(),
        request: request.uid.as_str().into(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        is_labelled,
    })
}

/// Only what was written together is a mark.
fn is_cost(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|cost| cost.to_string() == text)
}

fn preferred(annotations: &BTreeMap<String, String>) -> Option<PreferredForDeletion> {
    let before = annotations.get(DELETION_COST_BEFORE_ANNOTATION)?;
    let cost = annotations.get(POD_DELETION_COST_ANNOTATION).and_then(|text| text.parse().ok());
    Some(PreferredForDeletion {
        cost: cost.unwrap_or(0),
        // What the server would not take for a cost was none.
        before: Some(before).filter(|text| is_cost(text)).cloned(),
    })
}
