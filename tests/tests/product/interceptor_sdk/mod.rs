//! The SDK for interceptors and requesters: on the embedded cluster in virtual time, and its example as a process of its own on
//! the real control plane with the controller. On the embedded one the tests play the controller.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod example_process;
mod registration;
mod removal;
mod requests;
mod turns;
mod world;
