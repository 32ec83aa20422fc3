//! The real control plane as a test cluster.

use std::collections::BTreeMap;

use anyhow::Result;
use tokio::sync::SemaphorePermit;
use usher_testbed::{ControlPlane, Options, User};
use usher_tests::TestCluster;
use usher_tests::cluster::{ADMIN, Access, TESTERS};

use crate::planes;

/// Starts real control planes as test clusters.
#[allow(async_fn_in_trait, reason = "tests await these where they start, and move them to no other thread")]
pub trait RealCluster: Sized {
    /// Starts a real API server on which nothing else acts.
    async fn real() -> Result<Self>;

    /// Starts a whole control plane: controllers, a scheduler, and kwok for nodes that tests create.
    async fn real_living() -> Result<Self>;

    /// Starts a whole control plane with these users, while no other control plane of this process runs.
    async fn real_living_with(users: Vec<User>) -> Result<Self>;
}

impl RealCluster for TestCluster {
    async fn real() -> Result<Self> {
        // A controller aggregates the roles `view` and `edit`, and no controller runs here. These two roles hold the rules.
        let options = Options {
            users: vec![
                User::new("viewer").with_group(TESTERS).with_cluster_role("system:aggregate-to-view"),
                User::new("editor").with_group(TESTERS).with_cluster_role("system:aggregate-to-edit"),
                User::new("nobody").with_group(TESTERS),
            ],
            ..Options::default()
        };
        reach(options, planes::one().await?).await
    }

    async fn real_living() -> Result<Self> {
        let turn = planes::one().await?;
        reach(Options { controllers: true, ..Options::default() }, turn).await
    }

    async fn real_living_with(users: Vec<User>) -> Result<Self> {
        let alone = planes::alone().await?;
        let options = Options {
            controllers: true,
            users,
            api_server_flags: usher_testbed::network::api_server_flags(),
            ..Options::default()
        };
        reach(options, alone).await
    }
}

async fn reach(options: Options, turn: SemaphorePermit<'static>) -> Result<TestCluster> {
    let users: Vec<String> = options.users.iter().map(|user| user.name.clone()).collect();
    let plane = ControlPlane::start(options).await?;
    let mut tokens = BTreeMap::from([(ADMIN.to_owned(), plane.admin_token().to_owned())]);
    for user in users {
        let token = plane.token_of(&user)?.to_owned();
        tokens.insert(user, token);
    }
    let access = Access {
        name: "real",
        url: plane.url().to_owned(),
        ca_pem: plane.ca_pem().to_owned(),
        tokens,
        kubeconfig: plane.kubeconfig().to_path_buf(),
    };
    // The plane ends before its turn does.
    TestCluster::reach(access, (plane, turn)).await
}
