//! What workloads say of eviction requests.

use std::collections::HashMap;
use std::sync::Arc;

use usher_api::workloads::{BundledInterceptor, Strategy, deployment_of};
use usher_decide::interceptors::surge::{would_let_go, would_surge_by};
use usher_decide::snapshot::{DaemonSet, Deployment, Key, Namespace, Pod, StatefulSet};

use crate::outlook;

#[derive(Debug, Default)]
pub struct Workloads {
    /// `None`: they may not be read, and count as if they were there and said nothing.
    daemon_sets: Option<HashMap<Key, DaemonSet>>,
    stateful_sets: HashMap<Key, StatefulSet>,
    deployments: HashMap<Key, Deployment>,
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Those that the manager runs without.
    switched_off: Vec<BundledInterceptor>,
}

/// How a Deployment surges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Surging {
    pub by: u32,
    /// New pods come beside the replicas.
    pub hands_over: bool,
}

/// A workload that opted in to its `maxUnavailable`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opted {
    pub kind: &'static str,
    pub key: Key,
}

impl Workloads {
    pub fn new(
        daemon_sets: Option<Vec<DaemonSet>>,
        stateful_sets: Vec<StatefulSet>,
        namespaces: Vec<Namespace>,
    ) -> Self {
        let by_key = |sets: Vec<DaemonSet>| sets.into_iter().map(|set| (set.key.clone(), set)).collect();
        Self {
            daemon_sets: daemon_sets.map(by_key),
            stateful_sets: stateful_sets.into_iter().map(|set| (set.key.clone(), set)).collect(),
            deployments: HashMap::new(),
            namespaces: namespaces.into_iter().map(|it| (it.name.clone(), it)).collect(),
            switched_off: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_deployments(mut self, deployments: Vec<Deployment>) -> Self {
        self.deployments = deployments.into_iter().map(|it| (it.key.clone(), it)).collect();
        self
    }

    /// With a manager that runs without these.
    pub fn without(self, switched_off: Vec<BundledInterceptor>) -> Self {
        Self { switched_off, ..self }
    }

    pub(super) fn is_off(&self, which: BundledInterceptor) -> bool {
        self.switched_off.contains(&which)
    }

    /// Whether the bundled interceptor of the pod's owner would answer a request for it: it is on, and the pod has no other controller.
    pub(super) fn is_answered_for(&self, pod: &outlook::Pod) -> bool {
        let Some(bundled) = bundled_of(&pod.pod) else { return false };
        !self.is_off(bundled) && pod.has_bundled_controller()
    }

    fn strategy(&self, which: BundledInterceptor, key: &Key, own: Option<&str>) -> Strategy {
        let namespace = self.namespaces.get(&key.namespace).and_then(|it| it.strategy.as_deref());
        Strategy::of(which, own, namespace).unwrap_or_else(|unknown| unknown.instead)
    }

    /// What the DaemonSet of the pod says, if it has one that exists.
    pub(super) fn daemon_set(&self, pod: &Pod) -> Option<Strategy> {
        let owner = pod.owner.as_ref().filter(|_| pod.is_daemon() && !pod.is_mirror)?;
        let key = Key::new(pod.key.namespace.clone(), owner.name.clone());
        let own = match &self.daemon_sets {
            None => None,
            Some(sets) => sets.get(&key).filter(|set| set.uid == owner.uid)?.strategy.as_deref(),
        };
        Some(self.strategy(BundledInterceptor::DaemonSet, &key, own))
    }

    /// The Deployment of the pod, and how it surges before the pod goes, if it does.
    pub(super) fn surge(&self, pod: &Pod) -> Option<(Key, Surging)> {
        let (deployment, strategy) = self.deployment(pod)?;
        let by = would_surge_by(deployment, strategy)?;
        Some((deployment.key.clone(), Surging { by, hands_over: strategy == Strategy::HandOver }))
    }

    /// The Deployment of the pod, if all that it lacks to surge is a `maxSurge`.
    pub(super) fn lacks_max_surge(&self, pod: &Pod) -> Option<Key> {
        let (deployment, strategy) = self.deployment(pod)?;
        let update = deployment.rolling_update.as_ref()?;
        let surges_by_default = matches!(strategy, Strategy::Default | Strategy::Surge | Strategy::HandOver);
        let is_off = !surges_by_default || self.is_off(BundledInterceptor::Deployment);
        (!is_off && update.max_surge.up(1) == 0).then(|| deployment.key.clone())
    }

    /// With what counts for it. A pod tells its Deployment by the name of its ReplicaSet, so that these are not read.
    fn deployment(&self, pod: &Pod) -> Option<(&Deployment, Strategy)> {
        let owner = pod.owner.as_ref()?;
        let bundled = BundledInterceptor::of_owner(&owner.api_version, &owner.kind);
        bundled.filter(|it| *it == BundledInterceptor::Deployment)?;
        let key = Key::new(pod.key.namespace.clone(), deployment_of(&owner.name, &pod.labels)?);
        let deployment = self.deployments.get(&key)?;
        let strategy = self.strategy(BundledInterceptor::Deployment, &key, deployment.strategy.as_deref());
        Some((deployment, strategy))
    }

    /// The workload of the pod, and how many of its pods may be unavailable, if it opted in.
    pub(super) fn max_unavailable(&self, pod: &Pod) -> Option<(Opted, u32)> {
        let of_deployment = || {
            let (deployment, strategy) = self.deployment(pod)?;
            let at_once = would_let_go(deployment, strategy)?;
            Some((Opted { kind: "Deployment", key: deployment.key.clone() }, at_once))
        };
        let of_set = |(key, at_once)| (Opted { kind: "StatefulSet", key }, at_once);
        self.stateful_set(pod).map(of_set).or_else(of_deployment)
    }

    fn stateful_set(&self, pod: &Pod) -> Option<(Key, u32)> {
        let owner = pod.owner.as_ref()?;
        bundled_of(pod).filter(|it| *it == BundledInterceptor::StatefulSet)?;
        let key = Key::new(pod.key.namespace.clone(), owner.name.clone());
        let set = self.stateful_sets.get(&key).filter(|set| set.uid == owner.uid)?;
        let strategy = self.strategy(BundledInterceptor::StatefulSet, &key, set.strategy.as_deref());
        let update = set.rolling_update.as_ref().filter(|_| strategy == Strategy::MaxUnavailable)?;
        Some((key, update.max_unavailable))
    }
}

fn bundled_of(pod: &Pod) -> Option<BundledInterceptor> {
    let owner = pod.owner.as_ref()?;
    BundledInterceptor::of_owner(&owner.api_version, &owner.kind)
}
