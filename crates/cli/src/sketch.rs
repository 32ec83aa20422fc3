//! Objects of which only a few fields are read: of ten thousand requests hardly any is spoken of, and of a maintenance of a thousand
//! nodes only the status changes. Where more has to be known, the same text is read again ([`Read::again`]).
//!
//! [`Read::again`]: crate::reading::Read::again

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use usher_api::{EvictionRequest, NodeMaintenance, NodeMaintenanceStatus, stands_for};
use usher_decide::eviction_request::BLOCKED_CONDITION;
use usher_decide::snapshot::Key;

/// Whose a request is, and whether it has to be read.
#[derive(Debug, Clone, Deserialize)]
pub struct RequestSketch {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    spec: SpecSketch,
    #[serde(default)]
    status: Option<StatusSketch>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecSketch {
    pod_ref: PodName,
}

#[derive(Debug, Clone, Deserialize)]
struct PodName {
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusSketch {
    #[serde(default)]
    active_interceptor_class: Option<IgnoredAny>,
    #[serde(default)]
    conditions: Option<Vec<ConditionSketch>>,
}

#[derive(Debug, Clone, Deserialize)]
struct ConditionSketch {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl RequestSketch {
    pub fn pod_key(&self) -> Key {
        Key::new(self.metadata.namespace.clone().unwrap_or_default(), self.pod_name().to_string())
    }

    fn pod_name(&self) -> &str {
        &self.spec.pod_ref.name
    }

    /// Whether [`may_be_blocked`](usher_forecast::request_state::may_be_blocked) could say so of the whole request.
    pub fn could_be_blocked(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            let mut conditions = status.conditions.iter().flatten();
            status.active_interceptor_class.is_some()
                || conditions.any(|one| one.type_ == BLOCKED_CONDITION && one.status == "True")
        })
    }
}

/// A maintenance without what is wanted of it.
#[derive(Debug, Clone, Deserialize)]
pub struct MaintenanceSketch {
    #[serde(deserialize_with = "without_owners_of_fields")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: Option<NodeMaintenanceStatus>,
}

impl MaintenanceSketch {
    /// Whether the same is wanted as of this one: each change of that counts as a generation.
    pub fn is_of_generation(&self, known: &NodeMaintenance) -> bool {
        let generation = self.metadata.generation;
        generation.is_some()
            && generation == known.metadata.generation
            && self.metadata.uid == known.metadata.uid
    }
}

fn identity<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
    let Identity { name, namespace, resource_version } = Identity::deserialize(from)?;
    Ok(ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() })
}

/// Who has written which field is as long as the rest of the metadata many times over, and nobody asks for it.
fn without_owners_of_fields<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        finalizers: Option<Vec<String>>,
    }
    let known = Metadata::deserialize(from)?;
    Ok(ObjectMeta {
        name: known.name,
        uid: known.uid,
        resource_version: known.resource_version,
        generation: known.generation,
        creation_timestamp: known.creation_timestamp,
        deletion_timestamp: known.deletion_timestamp,
        labels: known.labels,
        annotations: known.annotations,
        finalizers: known.finalizers,
        ..ObjectMeta::default()
    })
}

stands_for!(RequestSketch, EvictionRequest);
stands_for!(MaintenanceSketch, NodeMaintenance);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(status: Value) -> RequestSketch {
        let request = json!({
            "metadata": {"name": "u", "namespace": "shop", "resourceVersion": "1", "labels": {"app": "web"}},
            "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": []}, "status": status,
        });
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn a_request_has_to_be_read_that_is_blocked_or_has_an_active_interceptor() {
        let blocked = |status: &str| json!({"conditions": [{"type": BLOCKED_CONDITION, "status": status}]});
        assert!(request(blocked("True")).could_be_blocked());
        assert!(request(json!({"activeInterceptorClass": "db"})).could_be_blocked());
        let evicted = json!({"conditions": [{"type": "Evicted", "status": "True"}]});
        for free in [Value::Null, json!({}), blocked("False"), evicted] {
            assert!(!request(free.clone()).could_be_blocked(), "{free}");
        }
        assert_eq!(request(Value::Null).pod_key(), Key::new("shop", "web"));
    }
}
