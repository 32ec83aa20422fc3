//! The real control plane as a test cluster.

use super::{ADMIN, Access, TESTERS, TestCluster};
use crate::planes;
use anyhow::Result;
use std::collections::BTreeMap;
use tokio::sync::SemaphorePermit;
use usher_testbed::{ControlPlane, Options, User};

impl TestCluster {
    /// Starts a real API server on which nothing else acts.
    ///
    /// # Errors
    /// See [`ControlPlane::start`].
    pub async fn real() -> Result<Self> {
        // The roles `view` and `edit` are put together by a controller, which does not run here. These two hold the
        // rules.
        let options = Options {
            users: vec![
                User::new("viewer").with_group(TESTERS).with_cluster_role("system:aggregate-to-view"),
                User::new("editor").with_group(TESTERS).with_cluster_role("system:aggregate-to-edit"),
                User::new("nobody").with_group(TESTERS),
            ],
            ..Options::default()
        };
        Self::of_plane(options, planes::one().await?).await
    }

    /// Starts a whole control plane: controllers and a scheduler, and kwok for nodes that are yet to be made.
    ///
    /// # Errors
    /// See [`ControlPlane::start`].
    pub async fn real_living() -> Result<Self> {
        let turn = planes::one().await?;
        Self::of_plane(Options { controllers: true, ..Options::default() }, turn).await
    }

    /// The same with these users.
    ///
    /// # Errors
    /// See [`ControlPlane::start`].
    pub async fn real_living_with(users: Vec<User>) -> Result<Self> {
        let alone = planes::alone().await?;
        let options = Options {
            controllers: true,
            users,
            api_server_flags: usher_testbed::network::api_server_flags(),
            ..Options::default()
        };
        Self::of_plane(options, alone).await
    }

    async fn of_plane(options: Options, turn: SemaphorePermit<'static>) -> Result<Self> {
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
        Self::reach(access, (plane, turn)).await
    }
}
