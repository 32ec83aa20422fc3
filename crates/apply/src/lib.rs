//! Effects into API calls: with preconditions, and with errors told apart by what is to be done about them.
//!
//! - [`requests`]: the effects of a decision on an eviction request.
//! - [`maintenances`]: those on a maintenance, its nodes and its pods.
//! - [`interceptions`]: those of the bundled interceptors.
//! - [`refusal`]: what the server's answer to an eviction means.
//! - [`events`]: telling people, once and not per retry.
//! - [`spans`]: what tracing shows of it.
//! - [`clock`]: the time, so that it can be virtual.
//!
//! Nothing here decides whether something is to be done.

pub mod clock;
pub mod events;
pub mod interceptions;
pub mod maintenances;
pub mod refusal;
pub mod requests;
pub mod spans;
mod status;

pub use clock::Clock;
pub use events::Events;
pub use interceptions::Interceptions;
pub use maintenances::Maintenances;
pub use requests::{Failure, Outcome, Requests, summary};
