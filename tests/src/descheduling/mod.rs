//! The Go descheduler as the judge of ours.
//!
//! A [`Snapshot`] is a small cluster with a policy, made from a seed. [`judge`] asks the Go descheduler about it, [`verdict`] is what it
//! said in a few words, and [`recordings`] keeps verdicts in files, so that ours is judged without Go.

mod clusters;
mod dice;
pub mod judge;
mod plugins;
mod policies;
pub mod recordings;
mod snapshot;
pub mod verdict;

pub use clusters::Objects;
pub use plugins::{PLUGINS, Subject};
pub use snapshot::{Snapshot, fixed_now};
