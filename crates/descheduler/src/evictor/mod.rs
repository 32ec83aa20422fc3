//! The default evictor: the filters that every proposal passes.

pub mod fit;
pub mod kept;
#[cfg(test)]
mod tests;

use crate::cluster::Cluster;
use crate::cluster::pod::{Phase, Pod};
use crate::cluster::shape::Shape;
use crate::cycle::Cycle;
use crate::policy::args::{DefaultEvictorArgs, PriorityThreshold, SYSTEM_CRITICAL_PRIORITY};
use fit::Fit;
use kept::Kept;

/// The evictor of one profile. What it thinks of a shape is remembered until something beside pods and nodes changes.
#[derive(Debug)]
pub struct Evictor {
    pub args: DefaultEvictorArgs,
    /// The priority from which on pods are kept.
    threshold: i32,
    /// By number of the shape: its generation, and whether it passes.
    shapes: Vec<(u64, bool)>,
    pub fit: Fit,
}

/// What the priority threshold of a policy comes to in a cluster.
pub enum Threshold {
    Value(i32),
    Unknown(String),
    TooHigh(String, i32),
}

impl Threshold {
    pub fn of(threshold: &PriorityThreshold, cluster: &Cluster) -> Self {
        match threshold {
            PriorityThreshold::Value(value) => Self::Value(*value),
            PriorityThreshold::Class(name) => match cluster.priority_class(name) {
                None => Self::Unknown(name.clone()),
                Some(value) if value > SYSTEM_CRITICAL_PRIORITY => Self::TooHigh(name.clone(), value),
                Some(value) => Self::Value(value),
            },
        }
    }
}

impl Evictor {
    pub fn new(args: DefaultEvictorArgs, threshold: i32) -> Self {
        Self { args, threshold, shapes: Vec::new(), fit: Fit::default() }
    }

    /// Whether the pod passes all filters but those just before an eviction. Pods that a cycle has decided on do not count as replicas.
    pub fn passes(&mut self, cycle: &Cycle<'_>, slot: u32) -> bool {
        let Some((pod, shape)) = cycle.pod(slot) else {
            return false;
        };
        if shape.traits.evict {
            return true;
        }
        self.shape_passes(cycle.cluster, pod.shape, shape)
            && self.pod_keeps(pod, shape, cycle.now).is_none()
            && (cycle.is_leaving(slot) || self.replicas_keep(shape, |uid| cycle.replicas(uid)).is_none())
    }

    /// The same before a cycle. Replicas are those that are there.
    pub fn counts(&mut self, cluster: &Cluster, pod: &Pod, shape: &Shape, now: jiff::Timestamp) -> bool {
        if shape.traits.evict {
            return true;
        }
        self.shape_passes(cluster, pod.shape, shape)
            && self.pod_keeps(pod, shape, now).is_none()
            && self.replicas_keep(shape, |uid| u64::from(cluster.owned(uid))).is_none()
    }

    /// The last filters: room on another node, the labels of the namespace, and what was asked before. A pod that is leaving was asked:
    /// its replacement may have taken the room already.
    pub fn pre_eviction(&mut self, cycle: &Cycle<'_>, slot: u32) -> Result<(), Kept> {
        if self.args.node_fit && !cycle.is_leaving(slot) && self.fit.other_node(cycle, slot).is_none() {
            return Err(Kept::FitsNowhere);
        }
        self.pre_eviction_but_room(cycle, slot)
    }

    /// The same, but for the room.
    pub fn pre_eviction_but_room(&self, cycle: &Cycle<'_>, slot: u32) -> Result<(), Kept> {
        let Some((_, shape)) = cycle.pod(slot) else {
            return Err(Kept::FitsNowhere);
        };
        if let Some(selector) = &self.args.namespace_label_selector {
            let labels = cycle.cluster.namespace_labels(&shape.namespace);
            if !labels.is_some_and(|labels| selector.matches(labels)) {
                return Err(Kept::NamespaceLabelSelector);
            }
        }
        match cycle.cool_down(slot).filter(|_| !cycle.is_leaving(slot)) {
            Some(kept) => Err(kept),
            None => Ok(()),
        }
    }

    /// Whether the last filters let all pods of its shape pass, but for what was asked before. False if that cannot be told of all of them
    /// at once.
    pub fn pre_eviction_of_shape(&mut self, cycle: &Cycle<'_>, slot: u32) -> bool {
        if self.args.node_fit && !self.fit.any_of_shape(cycle, slot) {
            return false;
        }
        self.args.namespace_label_selector.as_ref().is_none_or(|selector| {
            let namespace = cycle.pod(slot).map(|(_, shape)| shape.namespace.as_ref());
            let labels = namespace.and_then(|namespace| cycle.cluster.namespace_labels(namespace));
            labels.is_some_and(|labels| selector.matches(labels))
        })
    }

    /// The first filter that keeps the pod, in the order of the Go descheduler.
    pub fn keeps(&self, cycle: &Cycle<'_>, slot: u32) -> Option<Kept> {
        let (pod, shape) = cycle.pod(slot)?;
        if shape.traits.evict {
            return None;
        }
        let (early, late) = self.shape_keeps(cycle.cluster, shape);
        let of_pod = self.pod_keeps(pod, shape, cycle.now);
        let is_about_age = matches!(of_pod, Some(Kept::MinPodAge { .. }));
        let (of_pod, age) = if is_about_age { (None, of_pod) } else { (of_pod, None) };
        let replicas = self.replicas_keep(shape, |uid| cycle.replicas(uid));
        early.or(of_pod).or(late).or(replicas).or(age)
    }

    fn shape_passes(&mut self, cluster: &Cluster, number: u32, shape: &Shape) -> bool {
        let generation = cluster.shape_generation(number);
        let index = number as usize;
        if self.shapes.len() <= index {
            self.shapes.resize(index + 1, (0, false));
        }
        if self.shapes[index].0 != generation {
            let passes = self.shape_keeps(cluster, shape) == (None, None);
            self.shapes[index] = (generation, passes);
        }
        self.shapes[index].1
    }

    /// What keeps all pods of a shape: the first of what is looked at before the owners, and the first of what is looked at after them.
    fn shape_keeps(&self, cluster: &Cluster, shape: &Shape) -> (Option<Kept>, Option<Kept>) {
        let protections = &self.args.protections;
        let traits = &shape.traits;
        let priority = shape.priority.unwrap_or(i32::MIN);
        let early = if self.args.no_eviction_is_mandatory && traits.prefer_no_eviction {
            Some(Kept::NoEviction)
        } else if traits.mirror {
            Some(Kept::MirrorPod)
        } else if traits.is_static {
            Some(Kept::StaticPod)
        } else if protections.system_critical && priority >= SYSTEM_CRITICAL_PRIORITY {
            Some(Kept::SystemCritical { priority })
        } else if protections.system_critical
            && shape.priority.is_some_and(|priority| priority >= self.threshold)
        {
            Some(Kept::PriorityThreshold { priority, threshold: self.threshold })
        } else if protections.failed_bare && shape.owners.is_empty() {
            Some(Kept::NoOwner)
        } else {
            None
        };
        let late = if protections.local_storage && traits.local_storage {
            Some(Kept::LocalStorage)
        } else if protections.daemon_sets && traits.daemon_set {
            Some(Kept::DaemonSet)
        } else if let Some(kept) = self.claims_keep(cluster, shape) {
            Some(kept)
        } else if protections.without_pdb && !cluster.is_covered(&shape.namespace, &shape.labels) {
            Some(Kept::NoBudget)
        } else if protections.resource_claims && traits.resource_claims {
            Some(Kept::ResourceClaims)
        } else if self.args.label_selector.as_ref().is_some_and(|selector| !selector.matches(&shape.labels)) {
            Some(Kept::LabelSelector)
        } else {
            None
        };
        (early, late)
    }

    fn claims_keep(&self, cluster: &Cluster, shape: &Shape) -> Option<Kept> {
        let protections = &self.args.protections;
        if !protections.pvc {
            return None;
        }
        let classes = &protections.protected_storage_classes;
        if classes.is_empty() {
            return shape.claims.first().map(|claim| Kept::Claim { claim: claim.to_string() });
        }
        let of = |claim: &str| cluster.storage_class(&shape.namespace, claim);
        let unknown = shape.claims.iter().find(|claim| of(claim).is_none());
        if let Some(claim) = unknown {
            return Some(Kept::ClaimUnknown { claim: claim.to_string() });
        }
        let protected = shape.claims.iter().filter_map(|claim| of(claim));
        let mut protected = protected.filter(|class| classes.iter().any(|one| one == class));
        protected.next().map(|class| Kept::StorageClass { class: class.to_owned() })
    }

    /// What keeps this pod and not all of its shape.
    fn pod_keeps(&self, pod: &Pod, shape: &Shape, now: jiff::Timestamp) -> Option<Kept> {
        if pod.terminating {
            return Some(Kept::Terminating);
        }
        if !self.args.protections.failed_bare && shape.owners.is_empty() && pod.phase != Phase::Failed {
            return Some(Kept::NoOwnerAndNotFailed);
        }
        let age = self.args.min_pod_age?;
        let is_old = pod.started.is_some_and(|started| {
            let now = now.as_nanosecond();
            now - i128::from(started) * 1_000_000_000 >= age.as_nanos()
        });
        (!is_old).then_some(Kept::MinPodAge { at_least_seconds: age.as_secs() })
    }

    /// When a pod that is too young is old enough, in seconds since 1970.
    pub fn old_enough_at(&self, pod: &Pod) -> Option<i64> {
        let age = self.args.min_pod_age?;
        let rounded_up = age.as_secs() + i64::from(age.subsec_nanos() > 0);
        pod.started.map(|started| started.saturating_add(rounded_up))
    }

    /// More than one owner is not looked at.
    fn replicas_keep(&self, shape: &Shape, replicas: impl Fn(&str) -> u64) -> Option<Kept> {
        let at_least = self.args.min_replicas;
        let [owner] = &*shape.owners else {
            return None;
        };
        if at_least <= 1 {
            return None;
        }
        let replicas = replicas(&owner.uid);
        (replicas < at_least).then_some(Kept::MinReplicas { replicas, at_least })
    }
}
