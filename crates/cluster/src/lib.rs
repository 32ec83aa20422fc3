//! The embedded cluster: a Kubernetes-compatible API server in the process, as a tower service for `kube::Client` or
//! over HTTP on loopback for `kubectl`. It is general and knows nothing of Usher.
//!
//! It answers what kubectl's everyday commands, kube-rs controllers, custom resources and admission webhooks send; what
//! nobody sends gets a clean 404 or 501. Kinds are rows in a table ([`kinds`]), handlers are generic ([`rest`]), shapes
//! are data ([`schema`]), objects are bytes ([`store`]). Start reading at [`server`], which takes a request through
//! them, and at [`cluster`], which is what programs hold. The server alone is a database; [`life`] adds the nodes,
//! scheduler and controllers that make it a cluster.

pub mod admission;
pub mod attributes;
pub mod auth;
pub mod clock;
mod cluster;
pub mod crd;
pub mod defaults;
mod discovery;
pub mod encoding;
pub mod error;
mod events;
pub mod faults;
mod head;
mod housekeeping;
pub mod kinds;
pub mod life;
pub mod managed_fields;
mod negotiate;
pub mod patch;
mod protobuf;
mod request;
mod response;
pub mod rest;
pub mod schema;
pub mod selectors;
mod serve;
pub mod server;
pub mod store;
mod strategy;
pub mod table;
pub mod validation;

pub use attributes::User;
pub use cluster::{Cluster, ClusterService};
pub use serve::Serving;
pub use server::Options;
