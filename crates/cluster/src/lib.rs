//! The embedded cluster: a Kubernetes-compatible API server in process.

pub mod error;
pub mod patch;
pub mod schema;
