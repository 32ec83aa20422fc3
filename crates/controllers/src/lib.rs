//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`Controllers`]: which of them run in a manager, on the same watches: start reading there.
//! - [`Context`]: what the process around the controllers gives them, such as metrics.
//! - [`descheduler`]: plans in cycles, and asks pods to leave.
//! - [`evict_policy`]: pods that Kubernetes wants to evict, and whose workloads take over.
//! - [`eviction_request`]: the eviction request controller.
//! - [`feeds`]: the watches that controllers share.
//! - [`interceptors`]: the bundled interceptors.
//! - [`leader`]: one of several replicas acts.
//! - [`metrics`]: what can be measured.
//! - [`pulse`]: whether the loop still turns.
//! - [`maintenance`]: the node maintenance controller.
//! - [`reconcile`]: the loop that all controllers share.
//! - [`queue`]: what is to be looked at, and when.
//! - [`watch`]: watches that go on, whatever somebody wrote into an object.
//!
//! What becomes of pods, requests, nodes and maintenances is decided in `usher-decide` and `usher-descheduler`. What is decided here is
//! only who acts ([`leader`]), and when ([`queue`]).

mod all;
mod context;
pub mod descheduler;
pub mod evict_policy;
pub mod eviction_request;
pub mod feeds;
mod guard;
pub mod interceptors;
mod intern;
pub mod leader;
mod listed;
pub mod maintenance;
pub mod metrics;
mod pauses;
pub mod pulse;
pub mod queue;
pub mod reconcile;
pub mod watch;

pub use all::{Controller, Controllers, run_all};
pub use context::{Context, OnSynced, Stop};
