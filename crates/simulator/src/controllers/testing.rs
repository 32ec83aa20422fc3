//! Views for table tests, and what plans say.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::plan::{Action, Plan};
use crate::view::{Resource, Source, View};

/// So many seconds after the start of time.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn view(objects: &[Value]) -> View {
    view_since(objects, 0)
}

/// All of it is seen at that second.
pub(crate) fn view_since(objects: &[Value], second: i64) -> View {
    let mut view = View::default();
    for (index, object) in objects.iter().enumerate() {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = (index + 1).to_string().into();
        let resource = match object["kind"].as_str().unwrap() {
            "Node" => Resource::Nodes,
            "Pod" => Resource::Pods,
            "ReplicaSet" => Resource::ReplicaSets,
            "Deployment" => Resource::Deployments,
            "StatefulSet" => Resource::StatefulSets,
            "DaemonSet" => Resource::DaemonSets,
            "Job" => Resource::Jobs,
            "PodDisruptionBudget" => Resource::Budgets,
            "ReplicationController" => Resource::ReplicationControllers,
            "ControllerRevision" => Resource::Revisions,
            "HorizontalPodAutoscaler" => Resource::Autoscalers,
            "PersistentVolumeClaim" => Resource::Claims,
            other => panic!("{other}"),
        };
        let change = view.written(resource, &object.to_string(), Source::Watch).unwrap();
        view.remember(&change.unwrap(), at(second));
    }
    view
}

/// A pod that runs and is ready since the start of time.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running", "startTime": "1970-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}],
        },
    })
}

pub(crate) fn owned_pod(name: &str, kind: &str, owner: &str, uid: &str) -> Value {
    let mut pod = pod(name, &format!("node-of-{name}"));
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": true}]);
    pod
}

pub(crate) fn node(name: &str) -> Value {
    json!({
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

pub(crate) fn changed_node(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut node = node(name);
    change(&mut node);
    node
}

/// The names of what is deleted, in order.
pub(crate) fn deleted(plan: &Plan) -> Vec<&str> {
    fn name(action: &Action) -> Option<&str> {
        match action {
            Action::Delete { target, .. } => Some(&target.name),
            _ => None,
        }
    }
    plan.actions.iter().filter_map(name).collect()
}

/// What is created, in order.
pub(crate) fn created(plan: &Plan) -> Vec<&Value> {
    fn object(action: &Action) -> Option<&Value> {
        match action {
            Action::Create { object, .. } => Some(object),
            _ => None,
        }
    }
    plan.actions.iter().filter_map(object).collect()
}

/// The status that is written.
pub(crate) fn set_status(plan: &Plan) -> Value {
    let status = plan.actions.iter().find_map(|action| match action {
        Action::Patch { subresource: Some("status"), patch, .. } => Some(patch["status"].clone()),
        _ => None,
    });
    status.unwrap_or_default()
}
