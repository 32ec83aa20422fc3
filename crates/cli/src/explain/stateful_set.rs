//! What the interceptor of StatefulSets waits for: the pods of the set that are not available, and why.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use usher_api::EvictionRequest;
use usher_api::names::STATEFUL_SET_CLASS;
use usher_api::workloads::BundledInterceptor;
use usher_decide::interceptors::has_turn;
use usher_decide::interceptors::stateful_set::unavailable;
use usher_decide::snapshot::{Pod, PodOnWire, StatefulSet, StatefulSetOnWire};

use super::explanation::slim_request;
use crate::reading::Read;
use crate::world::{list_as, scoped};

/// A StatefulSet and its pods.
pub struct SetFound {
    pub set: StatefulSet,
    pub pods: Vec<Pod>,
}

/// A pod of the set that is not available.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableFacts {
    pub pod: String,
    /// One word: VolumeCannotMove, Unschedulable, NotReady and others.
    pub reason: &'static str,
    pub message: String,
}

impl SetFound {
    /// The set of the pod, if its interceptor has the turn. Who may not read it gets an explanation without it.
    pub async fn read(client: &Client, pod: &PodOnWire, request: &EvictionRequest) -> Option<Self> {
        let has_turn = has_turn(&slim_request(request)?, STATEFUL_SET_CLASS);
        let is_set = |api_version: &str, kind: &str| {
            BundledInterceptor::of_owner(api_version, kind) == Some(BundledInterceptor::StatefulSet)
        };
        let owners = pod.owner_references().iter().filter(|_| has_turn);
        let owner = owners
            .filter(|owner| owner.controller == Some(true))
            .find(|owner| is_set(&owner.api_version, &owner.kind))?;
        let namespace = pod.namespace()?;
        let sets: Api<Read<StatefulSetOnWire>> = Api::namespaced(client.clone(), &namespace);
        let set = StatefulSet::from(sets.get(&owner.name).await.ok()?.object()?);
        let labels = set.selector.as_ref()?.to_string();
        let pods = list_as(&scoped::<PodOnWire>(client, Some(&namespace)), Some(&labels)).await.ok()?;
        Some(Self { set, pods })
    }

    /// From the highest ordinal down, as they are waited for.
    pub fn unavailable(&self, now: Timestamp) -> Vec<UnavailableFacts> {
        let pods = self.pods.iter().cloned().map(Arc::new);
        let facts =
            unavailable(&self.set, pods, now).into_iter().rev().map(|(ordinal, why)| UnavailableFacts {
                pod: format!("{}-{ordinal}", self.set.key.name),
                reason: why.reason(),
                message: why.words(),
            });
        facts.collect()
    }
}
