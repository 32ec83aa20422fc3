//! The tests that need only Rust, and everything they share with the tests on a real control plane (package `usher-tests-real`).
//!
//! [`TestCluster`] is one interface to both clusters, and [`both`] holds the tests that run on both. [`corpus`] holds the
//! conformance corpus: requests as data, with the recorded answers of the real API server, which the embedded server must give.
//! [`scenario`] does the same for what happens over time.

pub mod both;
pub mod budget_watch;
pub mod chaos;
pub mod cluster;
pub mod corpus;
pub mod counted;
pub mod crds;
pub mod descheduler;
pub mod descheduling;
pub mod fingerprint;
pub mod follower;
pub mod guide;
pub mod hostile;
pub mod interference;
pub mod living;
pub mod maintenances;
pub mod manifests;
pub mod request_calm;
pub mod request_hours;
pub mod requests;
pub mod rights;
pub mod scenario;
pub mod sdk;
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
