//! Tests that run unchanged on both clusters: the embedded one and the real control plane.
//!
//! [`TestCluster`] is the interface both are reached by. [`corpus`] holds the conformance corpus: requests as data,
//! the real API server as the judge, and the embedded one judged by it. [`scenario`] does the same for what happens
//! over time.

pub mod budget_watch;
pub mod chaos;
pub mod cluster;
pub mod corpus;
pub mod counted;
pub mod crds;
pub mod descheduler;
pub mod descheduling;
pub mod example;
pub mod follower;
pub mod guide;
pub mod hostile;
pub mod interference;
pub mod kubectl;
pub mod living;
pub mod maintenances;
pub mod manifests;
pub mod planes;
pub mod report;
pub mod request_calm;
pub mod request_hours;
pub mod requests;
pub mod rights;
pub mod scenario;
pub mod second_tries;
pub mod seeds;
pub mod typed;
pub mod upheaval;
pub mod verbs;
pub mod webhook_server;
pub mod witness;

pub use cluster::{Answer, Request, TestCluster};

/// A simulated cluster takes objects apart and puts them together all the time, in millions of small pieces: a third of
/// its time goes to the allocator of the system, and far less to this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
