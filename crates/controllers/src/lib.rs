//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`eviction_request`]: the eviction request controller.
//! - [`maintenance`]: the node maintenance controller.
//! - [`queue`]: what is to be looked at, and when.
//!
//! Nothing is decided here.

pub mod eviction_request;
mod intern;
pub mod maintenance;
pub mod queue;
mod watch;
