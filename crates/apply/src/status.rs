//! A status as a merge patch, made from its type: what it does not have is removed.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use k8s_openapi::serde::Serialize;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use usher_api::{EvictionRequest, EvictionRequestStatus, NodeMaintenance, NodeMaintenanceStatus};

static OF_REQUESTS: LazyLock<JSONSchemaProps> = LazyLock::new(schema::<EvictionRequest>);
static OF_MAINTENANCES: LazyLock<JSONSchemaProps> = LazyLock::new(schema::<NodeMaintenance>);

/// The whole status of an eviction request.
pub fn of_request(status: &EvictionRequestStatus) -> Value {
    patch(&OF_REQUESTS, status)
}

/// The whole status of a maintenance.
pub fn of_maintenance(status: &NodeMaintenanceStatus) -> Value {
    patch(&OF_MAINTENANCES, status)
}

/// What the definition says of the status.
fn schema<K: CustomResourceExt>() -> JSONSchemaProps {
    let versions = K::crd().spec.versions;
    let schema = versions.into_iter().find_map(|version| version.schema?.open_api_v3_schema);
    schema.and_then(|schema| schema.properties?.remove("status")).unwrap_or_default()
}

fn patch(schema: &JSONSchemaProps, status: &impl Serialize) -> Value {
    let mut status = json!(status);
    remove_the_rest(schema, &mut status);
    json!({"status": status})
}

/// Fields that are not there become null, which a merge patch removes. What is true or false is always said.
fn remove_the_rest(schema: &JSONSchemaProps, value: &mut Value) {
    let (Some(fields), Value::Object(value)) = (&schema.properties, value) else { return };
    for (name, schema) in fields {
        let is_flag = schema.type_.as_deref() == Some("boolean");
        let nothing = || if is_flag { Value::Bool(false) } else { Value::Null };
        remove_the_rest(schema, value.entry(name.as_str()).or_insert_with(nothing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As API servers merge.
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            into.clone_from(patch);
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (name, field) in fields {
            match field {
                Value::Null => drop(into.as_object_mut().unwrap().remove(name)),
                field => merge(&mut into[name], field),
            }
        }
    }

    #[test]
    fn a_status_replaces_the_one_before_whatever_that_had() {
        let requests = [
            json!({
                "activeInterceptorCompleted": false, "message": "", "evictionRequestCancellationPolicy": "Allow",
                "failedAPIEvictionCounter": 0,
            }),
            json!({
                "activeInterceptorClass": "a.example.com", "activeInterceptorCompleted": true,
                "expectedInterceptorFinishTime": "2026-01-01T00:00:00Z", "progressTimestamp": "2026-01-01T00:00:00Z",
                "message": "m", "evictionRequestCancellationPolicy": "Forbid", "failedAPIEvictionCounter": 3,
                "conditions": [{
                    "type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }),
        ];
        let drain = json!({
            "planPosition": 1, "drainMessage": "Evicting", "podsPendingEviction": 1, "podsEvicting": 2, "nodesDrained": 3,
        });
        let mut later = drain.clone();
        later["expectedFinishTime"] = json!("2026-01-01T00:00:00Z");
        later["drainTargetSet"] = json!(0);
        let maintenances = [
            json!({"nodes": 0}),
            json!({"nodes": 1, "drainStatus": drain}),
            json!({
                "nodes": 2, "drainStatus": later, "leftNodes": [{"name": "n"}],
                "stageStatuses": [{"name": "Drain", "startTimestamp": "2026-01-01T00:00:00Z"}],
            }),
        ];
        for (before, after) in requests.iter().flat_map(|one| requests.iter().map(move |other| (one, other)))
        {
            let mut object = json!({"status": before});
            merge(&mut object, &of_request(&serde_json::from_value(after.clone()).unwrap()));
            assert_eq!(&object["status"], after, "after {before}");
        }
        for (before, after) in
            maintenances.iter().flat_map(|one| maintenances.iter().map(move |other| (one, other)))
        {
            let mut object = json!({"status": before});
            merge(&mut object, &of_maintenance(&serde_json::from_value(after.clone()).unwrap()));
            assert_eq!(&object["status"], after, "after {before}");
        }
    }

    #[test]
    fn every_field_of_a_definition_is_in_the_patch() {
        let patch = of_maintenance(&NodeMaintenanceStatus::default());
        for field in ["drainStatus", "nodeStatuses", "drainTargetSets", "conditions", "leftNodes"] {
            assert_eq!(patch["status"].get(field), Some(&Value::Null), "{field}");
        }
        let patch = of_request(&EvictionRequestStatus::default());
        for field in ["activeInterceptorClass", "progressTimestamp", "expectedInterceptorFinishTime"] {
            assert_eq!(patch["status"].get(field), Some(&Value::Null), "{field}");
        }
    }
}
