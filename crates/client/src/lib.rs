//! The client's side of the protocol, once for the manager, the command line, admission and the SDK.
//!
//! - [`eviction`]: evicts or deletes the very pod that was meant, and [`refusal`] tells apart what the server answers.
//! - [`requests`]: asks that a pod leaves, joins those who ask already, and takes it back: once ([`Writer`]), or until it is done, whoever else
//!   writes at the same time ([`Requests`]).
//! - [`gateway`]: the same for somebody who asks by plain evictions, and [`marks`] for a pod whose workload takes over.
//! - [`retry`]: how often and when a write is tried again after somebody else was faster.
//! - [`clock`]: the time, so that it can be virtual.
//! - [`failure`]: what is to be done about a call that failed, and what may be told of it.
//!
//! It depends on the types of the API and on a client. It decides nothing.

pub mod clock;
pub mod eviction;
pub mod failure;
pub mod gateway;
pub mod marks;
pub mod refusal;
pub mod requests;
pub mod retry;

pub use clock::Clock;
pub use eviction::{Evicted, EvictionOptions, delete_pod, evict};
pub use failure::{FailureClass, kind_of};
pub use gateway::GatewayRequest;
pub use marks::{PodToMark, mark_pod};
pub use requests::{ReadRequest, Requested, Requests, Version, Withdrawn, WriteError, Writer};
