//! Who has enough replicas: where `minReplicas` decides, pods are looked at again when their owner gets enough or too few.

use crate::cluster::shape::Shape;
use crate::cluster::{Cluster, Map, Set};

#[derive(Debug, Default)]
pub struct Replicas {
    owners: Map<Box<str>, Owner>,
    of_pod: Map<u32, Box<str>>,
    touched: Set<Box<str>>,
}

#[derive(Debug, Default)]
struct Owner {
    has_enough: Option<bool>,
    pods: Set<u32>,
}

impl Replicas {
    /// Any pod, bound or not: all of them are replicas.
    pub fn observe(&mut self, slot: u32, shape: &Shape) {
        let [owner] = &*shape.owners else {
            return;
        };
        self.owners.entry(owner.uid.clone()).or_default().pods.insert(slot);
        self.of_pod.insert(slot, owner.uid.clone());
        self.touched.insert(owner.uid.clone());
    }

    pub fn forget(&mut self, slot: u32) {
        if let Some(uid) = self.of_pod.remove(&slot) {
            if let Some(owner) = self.owners.get_mut(&uid) {
                owner.pods.remove(&slot);
                if owner.pods.is_empty() {
                    self.owners.remove(&uid);
                }
            }
            self.touched.insert(uid);
        }
    }

    /// The pods of owners that got enough replicas or too few since the last time. Pods that are new know already.
    pub fn turned(&mut self, cluster: &Cluster, at_least: u64) -> Vec<u32> {
        let mut turned = Vec::new();
        for uid in self.touched.drain() {
            let Some(owner) = self.owners.get_mut(&uid) else {
                continue;
            };
            let has_enough = u64::from(cluster.owned(&uid)) >= at_least;
            if owner.has_enough.replace(has_enough).is_some_and(|had| had != has_enough) {
                turned.extend(&owner.pods);
            }
        }
        turned
    }
}
