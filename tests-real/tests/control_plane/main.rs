//! Usher and the recordings on the real control plane: definitions, policies, admission, the command line, the manager as a process, drainers that
//! know nothing of Usher, and what `deploy/` installs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod admission;
mod cli;
mod cli_unreadable;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod deploy;
mod example_process;
mod gateway_drainers;
mod gateway_kubectl;
mod gateway_outages;
mod go_descheduler;
mod guide;
mod kubectl;
mod kubectl_create;
mod manager;
mod node_shutdown;
mod same_answers;
mod traces;
