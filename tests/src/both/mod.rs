//! Tests that run on both clusters. Each is a function of a [`TestCluster`](crate::TestCluster): the package `usher-tests` calls it with the
//! embedded cluster, `usher-tests-real` with a real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod admission;
pub mod cli;
pub mod crd_rules;
pub mod policies;
pub mod too_large;
pub mod unreadable;
pub mod webhooks;
