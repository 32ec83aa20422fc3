//! A real Kubernetes control plane on loopback, as the judge of what Usher does.
//!
//! The binaries (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok) are built once
//! from the Go modules pinned in `modules/` and cached outside the work tree, or taken from
//! `KUBEBUILDER_ASSETS`. Every control plane has its own folder, ports, certificates and tokens, so several run
//! side by side, and nothing of it outlives the process that started it.
//!
//! Start reading at [`ControlPlane::start`]. [`binaries`] says what is built and how, `watchdog` how nothing is
//! left behind. The crate depends on nothing else of the workspace: it knows Kubernetes, not Usher.

pub mod binaries;
mod build;
mod cache;
mod components;
mod control_plane;
mod credentials;
mod error;
pub mod image;
mod instance;
mod kubectl;
pub mod network;
mod nodes;
mod options;
pub mod packages;
mod ports;
mod process;
pub mod real_nodes;
mod watchdog;

pub use binaries::Binary;
pub use build::{
    Toolbox, descheduler_judge_path, drainers_path, helm_path, kubectl_path, older_kubectl_paths, toolbox,
    toolbox_of_tests,
};
pub use control_plane::ControlPlane;
pub use error::Error;
pub use instance::{Instance, find_instance, instances, stop_instance};
pub use options::{Options, User};
pub use real_nodes::RealNodes;
