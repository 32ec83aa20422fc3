//! The embedded cluster: a Kubernetes-compatible API server in process.

pub mod attributes;
pub mod error;
pub mod schema;
pub mod store;
