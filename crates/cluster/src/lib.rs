//! The embedded cluster: a Kubernetes-compatible API server in process.

pub mod defaults;
pub mod error;
pub mod managed_fields;
pub mod patch;
pub mod schema;
