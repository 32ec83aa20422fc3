//! What is to be done, decided purely: no runtime, no client, no clock. The time is an argument.
//!
//! A decision is made of effects (what to write), of what is waited for, and of when to look again. Controllers, webhooks,
//! the node agent and the command line are thin adapters over these functions; what is waited for is derived here and
//! nowhere else.
//!
//! Where to start reading:
//! - [`eviction_request`]: the life of one request, from its first turn to its end.
//! - [`budgets`]: who may go when a disruption budget allows some, and not all.
//! - [`maintenance`]: node maintenances, planned together: which nodes are held, which pods are asked to leave, and when it is over.
//! - [`admission`]: verdicts on what others write.
//! - [`interceptors`]: the bundled ones, for DaemonSets, StatefulSets, Deployments with or without an autoscaler, and ReplicaSets.
//! - [`evict_policy`]: pods that Kubernetes wants to evict, and whose workloads take over.
//!
//! They share [`snapshot`], the slim objects that decisions look at, [`decision`], what a decision is made of, and [`waiting_on`], what
//! an eviction waits for.

pub mod admission;
pub mod budgets;
pub mod decision;
pub mod evict_policy;
pub mod eviction_request;
pub mod interceptors;
pub mod maintenance;
pub mod snapshot;
pub mod waiting_on;

/// Times in statuses and grace periods are what others wrote: no sum of them goes beyond the last time that there is.
pub(crate) fn later(at: jiff::Timestamp, by: jiff::SignedDuration) -> jiff::Timestamp {
    at.saturating_add(by).unwrap_or(jiff::Timestamp::MAX)
}
