//! The SDK for interceptors and requesters, on the embedded cluster in virtual time. The tests play the controller.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod registration;
mod removal;
mod requests;
mod turns;
mod world;
