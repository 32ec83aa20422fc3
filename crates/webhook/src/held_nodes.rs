//! Which pods of DaemonSets are kept off which nodes: the ConfigMap that the manager writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use parking_lot::Mutex;
use usher_api::names::HELD_NODES_CONFIG_MAP;

/// It is not read more often than this: DaemonSets make many pods at once.
const FRESH_FOR: SignedDuration = SignedDuration::from_secs(1);

type Data = Arc<BTreeMap<String, String>>;

pub(crate) struct HeldNodes {
    maps: Api<ConfigMap>,
    read: Mutex<Option<(Timestamp, Data)>>,
}

impl HeldNodes {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { maps: Api::namespaced(client, namespace), read: Mutex::default() }
    }

    /// As of a second ago at the most.
    pub async fn get(&self, now: Timestamp) -> kube::Result<Data> {
        if let Some((at, data)) = &*self.read.lock()
            && now.duration_since(*at).abs() < FRESH_FOR
        {
            return Ok(data.clone());
        }
        let found = self.maps.get_opt(HELD_NODES_CONFIG_MAP).await?;
        let data = Arc::new(found.and_then(|map| map.data).unwrap_or_default());
        *self.read.lock() = Some((now, data.clone()));
        Ok(data)
    }
}
