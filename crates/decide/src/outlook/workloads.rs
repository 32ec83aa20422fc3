//! What workloads say of eviction requests.

use std::collections::HashMap;
use std::sync::Arc;

use usher_api::workloads::{BundledInterceptor, Strategy};

use crate::snapshot::{DaemonSet, Key, Namespace, Pod, StatefulSet};

#[derive(Debug, Default)]
pub struct Workloads {
    /// `None`: they may not be read, and count as if they were there and said nothing.
    daemon_sets: Option<HashMap<Key, DaemonSet>>,
    stateful_sets: HashMap<Key, StatefulSet>,
    namespaces: HashMap<Arc<str>, Namespace>,
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
            namespaces: namespaces.into_iter().map(|it| (it.name.clone(), it)).collect(),
        }
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

    /// The StatefulSet of the pod, and how many of its pods may be unavailable, if it opted in.
    pub(super) fn stateful_set(&self, pod: &Pod) -> Option<(Key, u32)> {
        let owner = pod.owner.as_ref()?;
        let bundled = BundledInterceptor::of_owner(&owner.api_version, &owner.kind);
        bundled.filter(|it| *it == BundledInterceptor::StatefulSet)?;
        let key = Key::new(pod.key.namespace.clone(), owner.name.clone());
        let set = self.stateful_sets.get(&key).filter(|set| set.uid == owner.uid)?;
        let strategy = self.strategy(BundledInterceptor::StatefulSet, &key, set.strategy.as_deref());
        let update = set.rolling_update.as_ref().filter(|_| strategy == Strategy::MaxUnavailable)?;
        Some((key, update.max_unavailable))
    }
}
