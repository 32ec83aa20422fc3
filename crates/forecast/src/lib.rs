//! Dry runs for the command line: what a node maintenance would do before it exists, and what would stop its pods.
//!
//! A forecast is a decision that nobody applies. It calls the functions of `usher-decide` that the manager calls, so both agree.
//! Only the command line uses this crate, which keeps it out of the way when the manager is compiled.
//!
//! The crate is pure, like `usher-decide`: no runtime, no client, no clock. It may depend on `usher-api` and `usher-decide` only.
//!
//! Where to start reading: [`outlook`], the dry run of a maintenance.

pub mod outlook;
