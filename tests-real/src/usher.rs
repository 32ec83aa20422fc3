//! Usher with a real control plane, in the process of the test.

use std::sync::Arc;

use anyhow::Result;
use usher_tests::cluster::ADMIN;
use usher_tests::counted::{Calls, counted};
use usher_tests::scenario::beside::{self, Controllers, Usher};
use usher_tests::scenario::{ClusterUnderTest, migration};
use usher_tests::{TestCluster, crds, manifests};
use usher_webhook::configurations::NAMESPACE;

use crate::kubectl::Kubectl;

/// Starts Usher as the manager's service account, with the rights that `deploy/` gives it and no other.
///
/// # Errors
/// The cluster refused something, or never asks the webhook.
pub async fn start(which: Controllers, plane: &TestCluster, reached: &ClusterUnderTest) -> Result<Usher> {
    crds::install(plane).await?;
    let manager = manager(which, plane).await?;
    let migration = match which {
        Controllers::All => Some(migration::real(plane.client(ADMIN)?, reached).await?),
        _ => None,
    };
    beside::on_loopback(which, manager, migration, reached).await
}

/// Starts Usher without the program that moves virtual machines, and counts its calls.
///
/// # Errors
/// As for [`start`].
pub async fn start_counted(
    which: Controllers,
    plane: &TestCluster,
    reached: &ClusterUnderTest,
) -> Result<(Usher, Arc<Calls>)> {
    crds::install(plane).await?;
    let (client, calls) = counted(manager(which, plane).await?);
    Ok((beside::on_loopback(which, client, None, reached).await?, calls))
}

/// A client of the service account that `deploy/` creates for the manager.
async fn manager(which: Controllers, plane: &TestCluster) -> Result<kube::Client> {
    let kubectl = Kubectl::new(plane).await?;
    let of_interceptors = manifests::of_workloads(&["-role.yaml", "-limits.yaml"])?;
    let of_evict_policy: &[&str] = match which.evict_timeout() {
        Some(_) => &["evict-policy/role.yaml", "evict-policy/policies.yaml"],
        None => &[],
    };
    let base = [
        "base/namespace.yaml",
        "base/service-account.yaml",
        "base/cluster-role.yaml",
        "base/role.yaml",
        "descheduler/role.yaml",
    ];
    let files = base.into_iter().chain(of_interceptors.iter().map(String::as_str));
    for file in files.chain(of_evict_policy.iter().copied()) {
        let text = std::fs::read_to_string(manifests::folder().join(file))?;
        kubectl.ok_with("apply --server-side -f -", &text).await?;
    }
    let token = kubectl.ok(&format!("create token usher-manager -n {NAMESPACE}")).await?;
    plane.client_with(token.trim()).await
}
