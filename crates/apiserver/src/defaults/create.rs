//! What a kind's strategy gives a new object, beyond defaults: it happens once, so that it can be taken away.

use serde_json::{Value, json};

use super::qos::qos_class;
use crate::schema::SchemaRef;

/// Completes a defaulted object that is about to be created: its first status and the namespace's finalizer.
pub(crate) fn prepare_create(object: &mut Value, schema: SchemaRef<'_>) {
    match schema.node().definition.as_deref() {
        Some("io.k8s.api.core.v1.Pod") => {
            object["status"] = json!({"phase": "Pending", "qosClass": qos_class(object)});
            if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
                object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": object["metadata"]["creationTimestamp"],
                }]);
            }
        }
        Some("io.k8s.api.core.v1.Namespace") => {
            object["status"] = json!({"phase": "Active"});
            if !object["spec"].is_object() {
                object["spec"] = json!({});
            }
            match object["spec"]["finalizers"].as_array_mut() {
                Some(finalizers) if finalizers.iter().any(|f| f == "kubernetes") => {}
                Some(finalizers) => finalizers.push("kubernetes".into()),
                None => object["spec"]["finalizers"] = json!(["kubernetes"]),
            }
        }
        Some("io.k8s.api.core.v1.PersistentVolumeClaim" | "io.k8s.api.core.v1.PersistentVolume") => {
            object["status"] = json!({"phase": "Pending"});
        }
        _ => {}
    }
}
