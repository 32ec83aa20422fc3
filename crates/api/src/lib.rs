//! The API of Usher: what people and components write into a cluster, and how those words are read.
//!
//! This crate holds the two custom resources, the names the specification gives to annotations, finalizers and conditions, and
//! the parser for interceptor annotations. It does no I/O, has no runtime and reads no clock, so everything else may build on it.
//!
//! Where to start reading:
//! - [`eviction_request`]: the wish that one pod leaves, and who may answer it.
//! - [`node_maintenance`]: the intent to empty a set of nodes, in an order.
//! - [`interceptor_annotation`]: how a pod names its interceptors, and [`interceptor_rules`] for what is allowed there.
//! - [`names`]: every well-known string.
//! - [`workloads`]: the bundled interceptors, and how workloads opt in and out of them; [`report`]: what an interceptor reports.
//! - [`gateway`]: who asks by a plain eviction, and how that is remembered.
//! - [`node_agent`]: what the agent of a node writes on it.
//! - [`evict_policy`]: who ends a pod that Kubernetes wants to evict.
//! - [`lenient`]: lists in which some objects cannot be read.
//! - [`crd`]: the definitions that are installed; `deploy/crds` is generated from them.

pub mod crd;
pub mod domain;
pub mod evict_policy;
pub mod eviction_request;
pub mod gateway;
pub mod interceptor_annotation;
pub mod interceptor_rules;
pub mod lenient;
pub mod names;
pub mod node_agent;
pub mod node_maintenance;
pub mod refusal;
pub mod report;
mod resource;
mod schema;
pub mod workloads;

/// So many conditions a status has room for.
pub const CONDITIONS_MAX: usize = 16;

pub use eviction_request::{
    EvictionRequest, EvictionRequestCancellationPolicy, EvictionRequestSpec, EvictionRequestStatus,
    Interceptor, LocalPodReference,
};
pub use interceptor_annotation::{annotation_of, interceptors_of};
pub use interceptor_rules::AnnotationError;
pub use node_maintenance::{
    DrainLimit, DrainPlanEntry, DrainStatus, DrainTargetIntersection, DrainTargetList, DrainTargetSet,
    DrainedReason, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStage, NodeMaintenanceStatus,
    NodeReference, NodeStatus, PodType, StageStatus,
};
pub use refusal::{Refusal, RefusalReason};
