//! Which pods should leave their nodes, decided purely: a cluster and a policy in, a typed plan out. No runtime, no client, and
//! the time is an argument; a stopwatch measures how long plugins take.
//!
//! Policies are those of the Go descheduler (`descheduler/v1alpha2`), and so are the decisions; docs/descheduler.md lists where they
//! differ. A plan proposes and never acts, so a dry run is a plan that nobody carries out.
//!
//! Where to start reading:
//! - [`policy`]: the policy file, read strictly.
//! - [`Cluster`]: what is known of nodes and pods, slimly and object by object.
//! - [`Planner`]: a cycle, from what changed since the last one to the [`Plan`].
//! - `evictor`: the filters that every proposal passes.
//! - `plugins`: one file for each plugin.
//! - [`requester`]: what becomes of a plan.
//! - [`usage`]: what nodes and pods really use, as far as their sources say.
//! - [`CarryOut`]: what may still be done of it when something fails.

mod carry_out;
pub mod cluster;
mod cycle;
mod emptied;
mod evictor;
mod explain;
mod in_progress;
mod matching;
mod memory;
mod nodes;
mod places;
mod plan;
mod planner;
mod plugins;
pub mod policy;
mod promises;
pub mod quantity;
mod replacements;
mod replicas;
pub mod requester;
pub mod schedule;
pub mod selector;
mod slots;
#[cfg(test)]
mod testing;
pub mod usage;

pub use carry_out::{Asks, CarriedOut, CarryOut};
pub use cluster::{Cluster, Usage};
pub use evictor::kept::Kept;
pub use explain::{Explanation, PluginView, explain};
pub use in_progress::InProgress;
pub use places::Place;
pub use plan::{OwnerRef, Plan, PluginCount, PodRef, Problem, Proposal, Reason, Stop, Stopped};
pub use planner::{Differences, Planner, Took, plan};
pub use policy::Policy;
