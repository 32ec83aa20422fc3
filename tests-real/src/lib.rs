//! Tests that only a real control plane can judge: etcd, kube-apiserver, its controllers and scheduler, kubectl, kubelets and Helm.
//!
//! `make test-real` runs them. They need Go to build those programs once, and some need root. A test that cannot run fails and says what it needs:
//! nothing here is skipped. Tests that need only Rust are in the package `usher-tests`.
//!
//! Start reading at [`RealCluster`], which starts a control plane behind the same interface as the embedded cluster.

pub mod binaries;
mod cluster;
pub mod go_descheduler;
pub mod kubectl;
pub mod planes;
pub mod scenarios;
pub mod usher;

pub use cluster::RealCluster;
