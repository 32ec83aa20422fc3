//! Admission over HTTPS: the verdicts of `usher_decide::admission`, and the certificates to serve them with.
//!
//! An adapter: it reads AdmissionReviews, finds the pod, asks for the caller's rights, has the verdict made, and answers. Two
//! replicas may serve at once; they share nothing but a Secret.
//!
//! Where to start reading:
//! - [`admission`]: from a review to its answer, `maintenances` for those of nodes, `objects` for what is read of them; `pods` and [`rights`] are what it asks the cluster.
//! - [`gateway`]: plain evictions, the only reviews that lead to writes, and so need a key ([`gateway_key`]).
//! - [`server`]: HTTPS with limits: on [`connections`], on [`memory`], and on who its [`clients`] are.
//! - [`configurations`]: what is registered with the API server, and why it cannot stop a cluster.
//! - [`rotation`]: when certificates change, purely; [`certificates`] makes them, [`keeper`] keeps them in a Secret and in the
//!   configurations, [`directory`] takes existing ones instead, [`tls`] swaps them under a running server.

pub mod admission;
pub mod certificates;
pub mod clients;
pub mod configurations;
pub mod connections;
pub mod directory;
pub mod gateway;
pub mod gateway_key;
mod held_nodes;
pub mod keeper;
mod maintenances;
pub mod memory;
mod objects;
mod pods;
mod review;
pub mod rights;
pub mod rotation;
pub mod server;
pub mod tls;

pub use admission::{Admission, Endpoint};
pub use clients::Clients;
pub use directory::Directory;
pub use gateway::GatewayOptions;
pub use gateway_key::GatewayKey;
pub use keeper::Keeper;
pub use server::{serve, serve_clients};
pub use tls::ServingCertificate;

pub use usher_client::Clock;
