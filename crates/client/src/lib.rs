//! The client's side of the protocol, once for the manager, the command line, admission and the SDK.
//!
//! - [`eviction`]: evicts or deletes the very pod that was meant, and [`refusal`] tells apart what the server answers.
//! - [`requests`]: asks that a pod leaves, joins those who ask already, and takes it back, whoever else writes at the same time.
//! - [`asks`]: the same for somebody who asks by plain evictions.
//! - [`retry`]: how often and when a write is tried again after somebody else was faster.
//! - [`clock`]: the time, so that it can be virtual.
//! - [`failure`]: what may be told of a call that failed.
//!
//! It depends on the types of the API and on a client. It decides nothing.

pub mod asks;
pub mod clock;
pub mod eviction;
pub mod failure;
pub mod refusal;
pub mod requests;
pub mod retry;

pub use asks::{Asking, ReadRequest};
pub use clock::Clock;
pub use eviction::{Evicted, EvictionOptions, delete_pod, evict};
pub use failure::kind_of;
pub use requests::{AskError, Asked, Requests, Withdrawn};
