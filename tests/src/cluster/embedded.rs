//! The embedded cluster as a test cluster.

use super::{ADMIN, Access, TESTERS, TestCluster};
use anyhow::Result;
use embedded_apiserver::{Cluster, Options, Serving, User};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The users of the real one, and the roles they are bound to there.
const USERS: [(&str, Option<&str>); 3] =
    [("viewer", Some("view")), ("editor", Some("edit")), ("nobody", None)];

/// Keeps the server running and removes the kubeconfig at the end.
struct Running {
    _serving: Serving,
    kubeconfig: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(why) = std::fs::remove_file(&self.kubeconfig) {
            eprintln!("{} stays behind: {why}", self.kubeconfig.display());
        }
    }
}

impl TestCluster {
    /// Starts an embedded API server on which nothing else acts.
    ///
    /// # Errors
    /// No free port, or no place for the kubeconfig.
    pub async fn embedded() -> Result<Self> {
        Ok(Self::embedded_with(false).await?.0)
    }

    /// The same with or without housekeeping, and with the cluster itself, for what no request can do.
    ///
    /// # Errors
    /// As for [`TestCluster::embedded`].
    pub async fn embedded_with(housekeeping: bool) -> Result<(Self, Cluster)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let user = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            uid: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
        };
        let mut users: HashMap<String, User> =
            USERS.iter().map(|(name, _)| (token(name), user(name, &[TESTERS]))).collect();
        users.insert(token(ADMIN), user(ADMIN, &["system:masters"]));
        let tokens: BTreeMap<String, String> =
            users.iter().map(|(token, user)| (user.name.clone(), token.clone())).collect();
        let cluster = Cluster::new(Options { tokens: users, housekeeping, ..Options::default() });
        let serving = cluster.serve_https().await?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let kubeconfig =
            std::env::temp_dir().join(format!("usher-embedded-{}-{count}.kubeconfig", std::process::id()));
        std::fs::write(&kubeconfig, serving.kubeconfig_for(&token(ADMIN)))?;
        let access = Access {
            name: "embedded",
            url: serving.url(),
            ca_pem: serving.ca_pem().to_owned(),
            tokens,
            kubeconfig: kubeconfig.clone(),
        };
        let test_cluster = Self::reach(access, Running { _serving: serving, kubeconfig }).await?;
        for (name, role) in USERS {
            if let Some(role) = role {
                test_cluster.bind(name, role).await?;
            }
        }
        Ok((test_cluster, cluster))
    }

    async fn bind(&self, user: &str, role: &str) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("testbed:{user}")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        let request = http::Request::post(format!("/apis/{group}/v1/clusterrolebindings"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(binding.to_string().into_bytes())?;
        self.client(ADMIN)?.request::<serde_json::Value>(request).await?;
        Ok(())
    }
}

fn token(user: &str) -> String {
    format!("token-of-{user}")
}
