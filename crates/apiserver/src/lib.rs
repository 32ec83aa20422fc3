//! A Kubernetes-compatible API server in the process, as a tower service for `kube::Client` or over HTTP on loopback for
//! `kubectl`. It is general: it knows nothing of Usher, and nothing of the kubelets and controllers that a simulator such as
//! `cluster-simulator` puts beside it. The server alone is a database that behaves as a cluster's.
//!
//! It answers what kubectl's everyday commands, kube-rs controllers, custom resources, admission webhooks and admission
//! policies send; what nobody sends gets a clean 404 or 501. Kinds are rows in a table (`kinds`), handlers are generic
//! (`rest`), shapes are data (`schema`), objects are bytes (`store`). Programs hold a [`Cluster`]; to read the code, start
//! at `server`, which takes a request through all of them.

#![warn(unreachable_pub)]

mod admission;
mod attributes;
mod auth;
pub mod clock;
mod cluster;
mod crd;
mod defaults;
mod discovery;
mod encoding;
mod error;
mod events;
pub mod faults;
mod head;
mod housekeeping;
mod kinds;
mod managed_fields;
mod negotiate;
mod patch;
mod protobuf;
mod request;
mod response;
mod rest;
mod schema;
mod selectors;
mod serve;
mod server;
mod store;
mod strategy;
mod table;
mod validation;

pub use admission::{Caller, Endpoint, InProcess, in_process};
pub use attributes::User;
pub use auth::{AUTHENTICATED, MASTERS};
pub use cluster::{Cluster, ClusterService, ServedKind};
pub use response::{ServerBody, ServerResponse};
pub use serve::Serving;
pub use server::Options;
pub use store::{Compacted, EventKind, Growth, Key, LogEvent, Meta, Object, Snapshot, Store};

/// What those who play the components of a cluster need of its rules.
pub mod toolkit {
    pub use crate::head::metadata_of;
    pub use crate::patch::only;
    pub use crate::selectors::LabelSelector;
    pub use crate::validation::Quantity;
}

/// The snippets of the README are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
