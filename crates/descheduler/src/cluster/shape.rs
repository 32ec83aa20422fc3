//! What pods of one workload have in common: nearly everything that decisions look at.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use usher_api::names::MIRROR_ANNOTATION;

use super::labels::Labels;
use super::node_affinity::{NodeTerm, RequiredNodes};
use super::resources::{Amounts, ResourceNames, pod_requests};
use crate::quantity;
use crate::selector::Selector;

/// Pods of one shape differ by name, node, age and status only.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub namespace: Arc<str>,
    pub labels: Labels,
    pub owners: Box<[Owner]>,
    pub requests: Amounts,
    /// The resources that any container asks for.
    pub asked: Box<[u16]>,
    /// The number of its placement.
    pub placement: u32,
    pub preferred_nodes: Box<[(i32, Option<NodeTerm>)]>,
    pub anti_affinity: Box<[AntiAffinityTerm]>,
    pub spread: Box<[SpreadConstraint]>,
    /// Sorted.
    pub images: Box<[Box<str>]>,
    pub priority: Option<i32>,
    pub qos: Qos,
    pub claims: Box<[Box<str>]>,
    pub traits: Traits,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// It is the one that makes the pod again.
    pub is_controller: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Qos {
    BestEffort,
    Burstable,
    Guaranteed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Traits {
    /// The annotation that has a pod pass all filters.
    pub evict: bool,
    pub prefer_no_eviction: bool,
    pub mirror: bool,
    pub is_static: bool,
    pub local_storage: bool,
    pub resource_claims: bool,
    /// It has a node selector or a node affinity, required or preferred.
    pub chooses_nodes: bool,
    pub daemon_set: bool,
}

/// A required anti-affinity term, with the namespaces that it speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AntiAffinityTerm {
    /// Sorted.
    pub namespaces: Box<[Box<str>]>,
    /// Nothing matches if there is none.
    pub selector: Option<Selector>,
    pub topology_key: Box<str>,
}

/// A topology spread constraint as one pod has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub max_skew: i32,
    pub topology_key: Box<str>,
    /// With the labels of `matchLabelKeys`. Nothing matches if there is none.
    pub selector: Option<Selector>,
    pub do_not_schedule: bool,
    pub honors_affinity: bool,
    pub honors_taints: bool,
}

const EVICT: &str = "descheduler.alpha.kubernetes.io/evict";
const PREFER_NO_EVICTION: &str = "descheduler.alpha.kubernetes.io/prefer-no-eviction";
const SOURCE: &str = "kubernetes.io/config.source";

impl Shape {
    pub fn of(pod: &core::Pod, namespace: Arc<str>, placement: u32, names: &mut ResourceNames) -> Self {
        let empty = core::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let labels = Labels::of_object(pod.metadata.labels.as_ref());
        let affinity = spec.affinity.as_ref();
        let node_affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = node_affinity
            .and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default();
        let anti_affinity = affinity
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
            .and_then(|one| one.required_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default();
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        let claims = volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let annotations = pod.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|all| all.get(key));
        let mut images: Vec<Box<str>> =
            spec.containers.iter().map(|one| one.image.as_deref().unwrap_or_default().into()).collect();
        images.sort();
        let spread = spec.topology_spread_constraints.as_deref().unwrap_or_default();
        Self {
            owners: owners.iter().map(Owner::of).collect(),
            requests: pod_requests(spec, names),
            asked: asked(spec, names),
            placement,
            preferred_nodes: preferred
                .iter()
                .map(|one| (one.weight, NodeTerm::of(&one.preference)))
                .collect(),
            anti_affinity: anti_affinity.iter().map(|term| AntiAffinityTerm::of(term, &namespace)).collect(),
            spread: spread.iter().filter_map(|one| SpreadConstraint::of(one, &labels)).collect(),
            images: images.into(),
            priority: spec.priority,
            qos: qos(pod, spec),
            claims: claims.map(|claim| claim.claim_name.as_str().into()).collect(),
            traits: Traits {
                evict: annotation(EVICT).is_some(),
                prefer_no_eviction: annotation(PREFER_NO_EVICTION).is_some(),
                mirror: annotation(MIRROR_ANNOTATION).is_some(),
                is_static: annotation(SOURCE).is_some_and(|source| source != "api"),
                local_storage: volumes.iter().any(|one| one.host_path.is_some() || one.empty_dir.is_some()),
                resource_claims: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
                chooses_nodes: spec.node_selector.is_some() || node_affinity.is_some(),
                daemon_set: owners.iter().any(|owner| owner.kind == "DaemonSet"),
            },
            namespace,
            labels,
        }
    }

    /// The weight that its preferred node affinity gives to a node.
    pub fn weight(&self, name: &str, labels: &Labels) -> i32 {
        let matching = self
            .preferred_nodes
            .iter()
            .filter(|(_, term)| term.as_ref().is_some_and(|term| term.matches(name, labels)));
        matching.fold(0, |sum, (weight, _)| sum.wrapping_add(*weight))
    }
}

/// What a placement is made of.
pub fn placement_of(pod: &core::Pod) -> super::node_affinity::Placement {
    let empty = core::PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    super::node_affinity::Placement {
        nodes: RequiredNodes::of(spec),
        tolerations: tolerations.iter().map(super::node_affinity::Toleration::of).collect(),
    }
}

impl Owner {
    fn of(owner: &OwnerReference) -> Self {
        Self {
            api_version: owner.api_version.as_str().into(),
            is_controller: owner.controller == Some(true),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        }
    }
}

impl AntiAffinityTerm {
    /// Namespaces are those that are listed, else that of the pod, as in the Go descheduler; a `namespaceSelector` is not looked at.
    fn of(term: &core::PodAffinityTerm, namespace: &str) -> Self {
        let listed = term.namespaces.as_deref().unwrap_or_default();
        let mut namespaces: Vec<Box<str>> = listed.iter().map(|one| one.as_str().into()).collect();
        if namespaces.is_empty() {
            namespaces.push(namespace.into());
        }
        namespaces.sort();
        namespaces.dedup();
        Self {
            namespaces: namespaces.into(),
            selector: term.label_selector.as_ref().and_then(|selector| Selector::of(selector).ok()),
            topology_key: term.topology_key.as_str().into(),
        }
    }
}

impl SpreadConstraint {
    /// None if its selector is not valid.
    fn of(constraint: &core::TopologySpreadConstraint, labels: &Labels) -> Option<Self> {
        let selector = match &constraint.label_selector {
            Some(selector) => Some(Selector::of(selector).ok()?),
            None => None,
        };
        let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
        let own = keys.iter().filter_map(|key| labels.get(key).map(|value| (key.as_str(), value)));
        let honors = |policy: &Option<String>, default: &str| policy.as_deref().unwrap_or(default) == "Honor";
        Some(Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.as_str().into(),
            selector: selector.map(|selector| selector.and_labels(own)),
            do_not_schedule: constraint.when_unsatisfiable == "DoNotSchedule",
            honors_affinity: honors(&constraint.node_affinity_policy, "Honor"),
            honors_taints: honors(&constraint.node_taints_policy, "Ignore"),
        })
    }
}

fn asked(spec: &core::PodSpec, names: &mut ResourceNames) -> Box<[u16]> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let requests = containers.filter_map(|one| one.resources.as_ref()?.requests.as_ref());
    let mut asked: Vec<u16> =
        requests.flat_map(|one| one.keys()).map(|name| names.number_of_pod(name)).collect();
    asked.sort_unstable();
    asked.dedup();
    asked.into()
}

fn qos(pod: &core::Pod, spec: &core::PodSpec) -> Qos {
    match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("BestEffort") => return Qos::BestEffort,
        Some("Burstable") => return Qos::Burstable,
        Some("Guaranteed") => return Qos::Guaranteed,
        _ => {}
    }
    let mut requests = [0_i128; 2];
    let mut limits = [0_i128; 2];
    let mut all_limited = true;
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for (index, name) in ["cpu", "memory"].iter().enumerate() {
            let resources = container.resources.as_ref();
            let positive = |quantities: Option<&std::collections::BTreeMap<String, _>>| {
                let quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
                    quantities.and_then(|all| all.get(*name));
                quantity.and_then(|one| quantity::parse_milli(&one.0)).unwrap_or(0).max(0)
            };
            requests[index] += positive(resources.and_then(|one| one.requests.as_ref()));
            let limit = positive(resources.and_then(|one| one.limits.as_ref()));
            limits[index] += limit;
            all_limited &= limit > 0;
        }
    }
    if requests == [0, 0] && limits == [0, 0] {
        Qos::BestEffort
    } else if all_limited && requests == limits {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}
