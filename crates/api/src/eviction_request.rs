//! EvictionRequest: the wish that one pod leaves its node, and the state of those who answer it.
//!
//! What the schema and its CEL rules can check is checked there, so that it holds while the webhook is down. To the webhook is
//! left what needs other objects, the caller's rights or a clock:
//! - the pod exists under `podRef` and has that UID, its labels and interceptors are copied, the `*.k8s.io` classes are allowed;
//! - the caller may delete the pod; DELETE is refused under `Forbid` while the pod exists;
//! - a caller who writes the status may delete the pod: a ValidatingAdmissionPolicy checks it too (`deploy/policies.yaml`);
//! - `progressTimestamp` is not in the future, and the deadline of an interceptor that never reported counts from the creation.
//!
//! That a new object has no status needs no rule: the status subresource drops it on creation.

#![allow(clippy::duplicated_attributes, reason = "columns of the same type repeat their type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Seconds an interceptor may stay silent, unless the requester says otherwise.
pub const PROGRESS_DEADLINE_SECONDS_DEFAULT: i32 = 1800;

/// Where the counter of refused evictions stops.
pub const FAILED_API_EVICTIONS_MAX: i32 = 1_000_000_000;

/// What is asked for: this pod, these interceptors, this patience. Nothing of it changes after creation.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "evictionrequest.coordination.k8s.io",
    version = "v1alpha1",
    kind = "EvictionRequest",
    plural = "evictionrequests",
    shortname = "er",
    namespaced,
    status = "EvictionRequestStatus",
    derive = "PartialEq",
    doc = "EvictionRequest asks that a pod leaves its node. Interceptors answer it one after the other; if none does, the pod is evicted.",
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, experimental implementation of the proposed API"
    ),
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.podRef.name", description = "Pod that is asked to leave"),
    printcolumn(
        name = "Interceptor",
        type_ = "string",
        json_path = ".status.activeInterceptorClass",
        description = "Interceptor whose turn it is"
    ),
    printcolumn(
        name = "Progress",
        type_ = "date",
        json_path = ".status.progressTimestamp",
        description = "Time since the last sign of progress"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.failedAPIEvictionCounter",
        description = "Evictions that were refused, for example by a disruption budget"
    ),
    printcolumn(
        name = "Requesters",
        type_ = "string",
        json_path = ".metadata.finalizers",
        description = "Who asked, as finalizers"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Cancellation",
        type_ = "string",
        json_path = ".status.evictionRequestCancellationPolicy",
        description = "Whether the request may still be taken back",
        priority = 1
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    validation = Rule::new("self.metadata.name == self.spec.podRef.uid")
        .message("metadata.name must be the UID of the pod in spec.podRef.uid"),
    validation = Rule::new("!has(self.metadata.generateName) || self.metadata.generateName == ''")
        .message("metadata.generateName is not supported: set metadata.name to the UID of the pod"),
    validation = Rule::new("has(self.status) || !has(oldSelf.status)").message("status cannot be removed once it is set"),
    validation = Rule::new(
        "!has(self.status) || !has(self.status.activeInterceptorClass) || (has(self.spec.interceptors) \
         && self.spec.interceptors.exists(i, i.interceptorClass == self.status.activeInterceptorClass))"
    ).message("status.activeInterceptorClass must be one of spec.interceptors"),
    validation = Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.activeInterceptorClass) \
         || (has(self.status) && has(self.status.activeInterceptorClass))"
    ).message("status.activeInterceptorClass cannot be removed once it is set"),
    // Position in the selection order = how many interceptors come before: see `selection_order`.
    validation = Rule::new(
        "(has(oldSelf.status) && has(oldSelf.status.activeInterceptorClass)) \
         || !has(self.status) || !has(self.status.activeInterceptorClass) || !has(self.spec.interceptors) \
         || !self.spec.interceptors.exists(i, self.spec.interceptors.exists(a, \
         a.interceptorClass == self.status.activeInterceptorClass && (i.priority > a.priority \
         || (i.priority == a.priority && i.interceptorClass < a.interceptorClass))))"
    ).message("status.activeInterceptorClass must start with the interceptor of the highest priority"),
    validation = Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.activeInterceptorClass) \
         || !has(self.status) || !has(self.status.activeInterceptorClass) || !has(self.spec.interceptors) \
         || self.status.activeInterceptorClass == oldSelf.status.activeInterceptorClass \
         || self.spec.interceptors.filter(i, self.spec.interceptors.exists(a, \
         a.interceptorClass == self.status.activeInterceptorClass && (i.priority > a.priority \
         || (i.priority == a.priority && i.interceptorClass < a.interceptorClass)))).size() \
         == 1 + self.spec.interceptors.filter(i, self.spec.interceptors.exists(a, \
         a.interceptorClass == oldSelf.status.activeInterceptorClass && (i.priority > a.priority \
         || (i.priority == a.priority && i.interceptorClass < a.interceptorClass)))).size()"
    ).message("status.activeInterceptorClass can only move to the interceptor of the next lower priority"),
    validation = Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.activeInterceptorClass) \
         || !has(self.status) || !has(self.status.activeInterceptorClass) \
         || self.status.activeInterceptorClass == oldSelf.status.activeInterceptorClass \
         || (has(oldSelf.status.activeInterceptorCompleted) && oldSelf.status.activeInterceptorCompleted) \
         || !has(oldSelf.status.progressTimestamp) \
         || (has(self.status.progressTimestamp) && (self.status.progressTimestamp - oldSelf.status.progressTimestamp).getSeconds() \
         >= self.spec.progressDeadlineSeconds)"
    ).message(
        "status.activeInterceptorClass can only move on once the interceptor has completed \
         or spec.progressDeadlineSeconds have passed since status.progressTimestamp"
    ),
    // That it is not set back either is for a policy, which lets the manager correct a time in the future.
    validation = Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.progressTimestamp) || !has(self.status) \
         || has(self.status.progressTimestamp)"
    ).message("status.progressTimestamp cannot be removed once it is set"),
    validation = Rule::new(
        "!has(oldSelf.status) || !has(self.status) || !has(oldSelf.status.activeInterceptorClass) \
         || !has(self.status.activeInterceptorClass) \
         || self.status.activeInterceptorClass != oldSelf.status.activeInterceptorClass \
         || !(has(oldSelf.status.activeInterceptorCompleted) && oldSelf.status.activeInterceptorCompleted) \
         || (has(self.status.activeInterceptorCompleted) && self.status.activeInterceptorCompleted)"
    ).message("status.activeInterceptorCompleted cannot be taken back: the turn is over"),
    validation = Rule::new(
        "!has(oldSelf.status) || !has(oldSelf.status.activeInterceptorClass) \
         || !has(self.status) || !has(self.status.activeInterceptorClass) \
         || self.status.activeInterceptorClass == oldSelf.status.activeInterceptorClass \
         || (!(has(self.status.activeInterceptorCompleted) && self.status.activeInterceptorCompleted) \
         && !has(self.status.expectedInterceptorFinishTime))"
    ).message(
        "when status.activeInterceptorClass moves on, status.activeInterceptorCompleted must be false \
         and status.expectedInterceptorFinishTime empty"
    )
)]
#[x_kube(
    validation = Rule::new(
        "(has(self.interceptors) && size(self.interceptors) > 0) == (has(oldSelf.interceptors) && size(oldSelf.interceptors) > 0)"
    ).message("interceptors are immutable: they cannot be added or removed after creation")
)]
pub struct EvictionRequestSpec {
    /// PodRef is the pod that is asked to leave. It is required and immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("podRef is immutable"))]
    pub pod_ref: LocalPodReference,

    /// Interceptors that may answer this request. They are taken from the annotations of the pod when the request is created
    /// and need not be set. Without interceptors the pod is evicted through the eviction API. At most 100. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["interceptorClass".into()]),
        validation = Rule::new("self == oldSelf").message("interceptors are immutable"),
        validation = Rule::new("self.filter(i, has(i.role) && i.role == 'controller').size() <= 1")
            .message("only one interceptor can have the role controller"),
        validation = Rule::new("self.all(i, (has(i.role) && i.role == 'controller') == (i.priority == 10000))")
            .message("the role controller must have the priority 10000, and no other role can have it"),
        validation = Rule::new(
            "!self.exists(i, i.priority >= 9900 && i.priority <= 10100) || self.exists(i, has(i.role) && i.role == 'controller')"
        ).message("priorities 9900-10100 can only be used together with an interceptor of the role controller"),
        validation = Rule::new(
            "self.all(c, !has(c.role) || c.role != 'controller' || self.all(i, i.priority < 9900 || i.priority > 10100 \
             || i.interceptorClass == c.interceptorClass || (c.interceptorClass.contains('.') \
             && i.interceptorClass.endsWith(c.interceptorClass.substring(c.interceptorClass.indexOf('.'))))))"
        ).message("priorities 9900-10100 are reserved for classes below the parent domain of the controller"),
        validation = Rule::new(
            "self.all(i, i.priority < 9900 || i.priority > 10100 || self.exists_one(j, j.priority == i.priority))"
        ).message("priorities 9900-10100 can be used by one interceptor each"),
        validation = Rule::new("self.filter(i, i.priority >= 9900 && i.priority <= 10100).size() <= 30")
            .message("at most 30 interceptors can have priorities in 9900-10100"),
        validation = Rule::new("self.filter(i, i.priority < 9900 || i.priority > 10100).size() <= 70")
            .message("at most 70 interceptors can have priorities outside of 9900-10100")
    )]
    pub interceptors: Vec<Interceptor>,

    /// ProgressDeadlineSeconds is how long an interceptor may go without updating status.progressTimestamp before the next one
    /// has its turn, or, after the last, the pod is evicted through the eviction API.
    /// From 600 (10 minutes) to 21600 (6 hours), 1800 (30 minutes) by default. Immutable.
    #[serde(default = "progress_deadline_seconds_default")]
    #[schemars(range(min = 600, max = 21600))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("progressDeadlineSeconds is immutable"))]
    pub progress_deadline_seconds: i32,
}

fn progress_deadline_seconds_default() -> i32 {
    PROGRESS_DEADLINE_SECONDS_DEFAULT
}

impl EvictionRequestSpec {
    /// A request for this pod with the default deadline, interceptors still to be resolved.
    pub fn for_pod(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            pod_ref: LocalPodReference { name: name.into(), uid: uid.into() },
            interceptors: Vec::new(),
            progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS_DEFAULT,
        }
    }
}

/// A pod of the same namespace. Name and UID together: a pod of the same name and another UID is another pod.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LocalPodReference {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::domain::SUBDOMAIN_PATTERN))]
    pub name: String,
    /// UID of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub uid: String,
}

/// Somebody who may answer an eviction request, as the pod's annotations name them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Interceptor {
    /// InterceptorClass is the RFC-1123 DNS subdomain by which the interceptor knows itself.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::domain::SUBDOMAIN_PATTERN))]
    pub interceptor_class: String,

    /// Priority: the highest has its turn first. The controller of the pod has 10000, so that others can come before or after
    /// it. 9900-10100 are reserved for classes that share the parent domain of the controller, each for one interceptor.
    /// At most 30 interceptors inside of that interval and 70 outside of it.
    #[schemars(range(min = 0, max = 100_000))]
    pub priority: i32,

    /// Role tells other interceptors what this one is. "controller" is reserved for the controller of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub role: Option<String>,
}

/// The order in which interceptors have their turn: the highest priority first, equal ones by class. Every component must
/// agree on it, and the CEL rules of the status say the same.
pub fn selection_order(a: &Interceptor, b: &Interceptor) -> Ordering {
    b.priority.cmp(&a.priority).then_with(|| a.interceptor_class.cmp(&b.interceptor_class))
}

/// How far the request has come, written by the eviction request controller and the interceptor whose turn it is.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequestStatus {
    /// ActiveInterceptorClass is the interceptor whose turn it is. It adopts the request by updating progressTimestamp, or
    /// leaves it by setting activeInterceptorCompleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253), regex(pattern = crate::domain::SUBDOMAIN_PATTERN))]
    pub active_interceptor_class: Option<String>,

    /// ActiveInterceptorCompleted is set once the active interceptor has done its part, fully or partially, or when there is
    /// no interceptor at all. If no further one is there and the pod still runs, it is evicted through the eviction API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub active_interceptor_completed: bool,

    /// ExpectedInterceptorFinishTime is when the active interceptor expects to be done. Empty if it cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::schema::Time")]
    pub expected_interceptor_finish_time: Option<Time>,

    /// ProgressTimestamp is when the active interceptor last reported progress. It cannot be in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::schema::Time")]
    pub progress_timestamp: Option<Time>,

    /// EvictionRequestCancellationPolicy says whether the request may be taken back. The active interceptor sets Forbid once
    /// it cannot stop any more; then the request cannot be deleted while the pod exists. Allow by default.
    #[serde(default)]
    pub eviction_request_cancellation_policy: EvictionRequestCancellationPolicy,

    /// FailedAPIEvictionCounter counts the evictions that were refused, for example by a disruption budget. It only rises.
    #[serde(default, rename = "failedAPIEvictionCounter")]
    #[schemars(range(min = 0, max = FAILED_API_EVICTIONS_MAX))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("failedAPIEvictionCounter can only be incremented"))]
    pub failed_api_eviction_counter: i32,

    /// Message tells people where the eviction request stands. May be empty.
    #[serde(default)]
    #[schemars(length(max = 32768))]
    pub message: String,

    /// Conditions with which interceptors share more about the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Whether an eviction request may be taken back before the pod is gone.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EvictionRequestCancellationPolicy {
    /// It may be deleted at any time.
    #[default]
    Allow,
    /// It stays until the pod is fully terminated.
    Forbid,
}
