//! The embedded cluster: a Kubernetes-compatible API server in process.

pub mod crd;
pub mod error;
pub mod schema;
pub mod table;
pub mod validation;
