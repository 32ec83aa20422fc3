//! What the command line works out by itself: dry runs, and where requests, nodes and drains stand.
//!
//! A forecast is a decision that nobody applies. It calls the functions of `usher-decide` that the manager calls, so both agree.
//! Only the command line uses this crate. It is apart from `usher-decide` because all other crates wait for that one to compile.
//!
//! The crate is pure, like `usher-decide`: no runtime, no client, no clock. It may depend on `usher-api` and `usher-decide` only.
//!
//! Where to start reading:
//! - [`outlook`]: the dry run of a maintenance that does not exist yet.
//! - [`request_state`]: what a request waits for, and what an eviction that nobody requested yet would wait for.
//! - [`node_state`]: which maintenances hold a node, and how far their drains are.
//! - [`followed_drain`]: whether a drain has ended, and how.
//! - [`joining`]: whether to create a maintenance or to follow one that does the same.

pub mod followed_drain;
pub mod joining;
pub mod node_state;
pub mod outlook;
pub mod request_state;
