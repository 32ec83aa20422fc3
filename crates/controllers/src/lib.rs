//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`eviction_request`]: the eviction request controller.
//! - [`leader`]: one of several replicas acts.
//! - [`metrics`]: what can be measured.
//! - [`pulse`]: whether the loop still turns.
//! - [`maintenance`]: the node maintenance controller.
//! - [`queue`]: what is to be looked at, and when.
//!
//! Nothing is decided here.

pub mod eviction_request;
mod intern;
pub mod leader;
pub mod maintenance;
pub mod metrics;
pub mod observer;
mod pauses;
pub mod pulse;
pub mod queue;
mod watch;
