//! Effects into API calls: with preconditions, and with errors told apart by what is to be done about them.
//!
//! - [`requests`]: the effects of a decision on an eviction request.
//! - [`maintenances`]: those on a maintenance, its nodes and its pods.
//! - [`interceptions`]: those of the bundled interceptors.
//! - [`descheduling`]: what becomes of a descheduler's plan.
//! - [`evict_policies`]: those of the Pod Evict Policy.
//! - `requesters`: who asks, joining and withdrawing.
//! - [`events`]: telling people, once and not per retry.
//! - [`spans`]: what tracing shows of it.
//! - [`usage`]: what nodes and pods really use, for a descheduler's plan.
//! - `written`: what was written lately, and no watch has told of.
//!
//! Nothing here decides whether something is to be done.

mod config_map;
pub mod descheduling;
pub mod events;
pub mod evict_policies;
pub mod interceptions;
pub mod maintenances;
mod requesters;
pub mod requests;
pub mod spans;
mod status;
pub mod usage;
mod written;

pub use descheduling::{DeschedulerName, Descheduling, DeschedulingApplied};
pub use events::Events;
pub use evict_policies::EvictPolicies;
pub use interceptions::{AvailableCounts, Interceptions};
pub use maintenances::Maintenances;
pub use requests::{Failure, RefusedWrite, RequestApplied, Requests};
pub use usher_client::{Clock, FailureClass, kind_of};
