//! Semantic validation of built-in objects, with the wording of Kubernetes: what everyday users meet.
//!
//! [`validate_create`] and [`validate_update`] check the metadata of every kind and the rules of the kinds that
//! have any here. Objects are expected to be defaulted; a field that only defaulting can leave empty is not
//! reported as missing. Updates of subresources (status, binding, scale) must not run [`validate_update`], only
//! [`metadata::validate_update`].

mod config;
mod events;
mod fields;
pub(crate) mod metadata;
pub(crate) mod names;
mod nodes;
mod pod_update;
mod pods;
mod policies;
mod policy;
pub(crate) mod quantity;
mod rbac;
mod selectors;
mod services;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod webhooks;
mod workloads;

use serde_json::Value;

use crate::error::FieldError;
use metadata::NameRule;

pub use quantity::Quantity;

const IMMUTABLE: &str = "field is immutable";
const NEGATIVE: &str = "must be greater than or equal to 0";

/// What names of a built-in kind look like.
pub(crate) fn name_rule(group: &str, kind: &str) -> NameRule {
    match (group, kind) {
        ("", "Namespace" | "Service") => NameRule::DnsLabel,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::DnsSubdomain,
    }
}

/// Errors of a new object, defaulted and named.
pub(crate) fn validate_create(group: &str, kind: &str, object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = metadata::validate_create(object, namespaced, name_rule(group, kind));
    errors.extend(metadata::finalizer_names(object));
    errors.extend(validate_kind(group, kind, object));
    errors
}

/// Errors of a changed object.
pub(crate) fn validate_update(group: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate_update(old, new);
    errors.extend(metadata::finalizer_names(new));
    match (group, kind) {
        ("", "Pod") => {
            errors.extend(validate_kind(group, kind, new));
            errors.extend(pod_update::pod(old, new));
        }
        ("", "ConfigMap" | "Secret") => {
            errors.extend(config::update(old, new));
            errors.extend(validate_kind(group, kind, new));
        }
        _ => {
            errors.extend(validate_kind(group, kind, new));
            errors.extend(validate_change(group, kind, old, new));
        }
    }
    errors
}

/// The rules that an object of the kind must keep at all times.
fn validate_kind(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    match (group, kind) {
        ("", "Pod") => pods::spec(&object["spec"], "spec"),
        ("", "PodTemplate") => pods::template(&object["template"], "template"),
        ("", "Node") => nodes::taints(&object["spec"]["taints"]),
        ("" | "events.k8s.io", "Event") => events::event(object),
        ("", "Service") => services::service(object),
        ("", "ConfigMap") => config::config_map(object),
        ("", "Secret") => config::secret(object),
        ("", "ReplicationController") => workloads::replication_controller(object),
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "ReplicaSet") => workloads::replica_set(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("batch", "Job") => workloads::job(object),
        ("batch", "CronJob") => workloads::cron_job(object),
        ("policy", "PodDisruptionBudget") => policy::disruption_budget(object),
        ("autoscaling", "HorizontalPodAutoscaler") => policy::autoscaler(object),
        ("coordination.k8s.io", "Lease") => policy::lease(object),
        ("scheduling.k8s.io", "PriorityClass") => policy::priority_class(object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => rbac::role(object, kind == "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            rbac::binding(object, kind == "RoleBinding")
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => webhooks::configuration(object),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policies::validating(object),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => policies::mutating(object),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            policies::validating_binding(object)
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            policies::mutating_binding(object)
        }
        _ => Vec::new(),
    }
}

/// What may not change.
fn validate_change(group: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let frozen: &[&str] = match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => &["spec.selector"],
        ("apps", "StatefulSet") => {
            &["spec.selector", "spec.volumeClaimTemplates", "spec.serviceName", "spec.podManagementPolicy"]
        }
        ("batch", "Job") => {
            return workloads::job_update(old, new);
        }
        ("scheduling.k8s.io", "PriorityClass") => return policy::priority_class_update(old, new),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["roleRef"],
        ("", "Service") => return services::update(old, new),
        ("", "Node") => return nodes::update(old, new),
        _ => &[],
    };
    frozen.iter().filter_map(|field| immutable(old, new, field)).collect()
}

/// The error of a changed field that is immutable; `field` is a dotted path.
fn immutable(old: &Value, new: &Value, field: &str) -> Option<FieldError> {
    let pointer = format!("/{}", field.replace('.', "/"));
    let at = |object: &Value| object.pointer(&pointer).cloned().unwrap_or(Value::Null);
    let (before, after) = (at(old), at(new));
    (!fields::same(&before, &after)).then(|| FieldError::invalid(field, after, IMMUTABLE))
}

/// The error of a negative number.
fn non_negative(parent: &Value, field: &str, path: &str) -> Option<FieldError> {
    let value = fields::int_at(parent, field)?;
    (value < 0).then(|| FieldError::invalid(format!("{path}.{field}"), value, NEGATIVE))
}
