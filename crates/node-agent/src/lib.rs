//! What the kubelet would do for node maintenances and does not: an agent on each node does it.
//!
//! - [`static_pods`]: which static pods leave and which come back, as a pure decision. Start reading here.
//! - [`folder`]: the kubelet's folder of manifests, and how a manifest leaves it and comes back, whenever the agent is killed.
//! - [`shutdown`]: shutdowns become maintenances, and wait for the pods; [`logind`] tells of them, and [`shutdown_limit`] lets them wait longer.
//! - [`kubelet`]: what the kubelet's configuration says.
//! - [`agent`]: the loop around it.

pub mod agent;
pub mod folder;
pub mod kubelet;
pub mod logind;
pub mod shutdown;
pub mod shutdown_limit;
pub mod static_pods;
