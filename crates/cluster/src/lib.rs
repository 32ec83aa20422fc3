//! The embedded cluster: a Kubernetes-compatible API server in process.

pub mod admission;
pub mod attributes;
pub mod auth;
pub mod error;
pub mod protobuf;
pub mod schema;
