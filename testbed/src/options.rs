//! What a caller may choose about a control plane.

use std::time::Duration;

/// How a control plane is to be. The default is a bare API server: quick to start, nothing acts on its objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the instance; a name of its own is made up where this is not set.
    pub name: Option<String>,
    /// Fake nodes `node-0001`, `node-0002`, ... Without controllers they are objects that nobody keeps alive.
    pub nodes: usize,
    /// Zones the nodes are spread over in turn: `zone-1`, `zone-2`, ...
    pub zones: usize,
    /// Start kube-controller-manager, kube-scheduler and kwok as well. Without them there are no service accounts,
    /// so the admission that asks for them is off.
    pub controllers: bool,
    /// Users besides `admin`. The default has `viewer`, `editor` and `nobody`.
    pub users: Vec<User>,
    /// Further flags of kube-apiserver, such as another `--feature-gates`.
    pub api_server_flags: Vec<String>,
    /// How long any one part may take to become ready; many nodes are given more.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            nodes: 0,
            zones: 3,
            controllers: false,
            users: vec![
                User::new("viewer").with_cluster_role("view"),
                User::new("editor").with_cluster_role("edit"),
                User::new("nobody"),
            ],
            api_server_flags: Vec::new(),
            patience: Duration::from_secs(180),
        }
    }
}

impl Options {
    /// A whole control plane with `nodes` fake nodes.
    #[must_use]
    pub fn with_nodes(nodes: usize) -> Self {
        Self { nodes, controllers: true, ..Self::default() }
    }
}

/// Somebody who may call the API server, by bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// Made up where not set.
    pub token: Option<String>,
    /// A ClusterRole that is bound to the user cluster-wide at start.
    pub cluster_role: Option<String>,
}

impl User {
    /// A user in no group, with a random token and no rights but those of every authenticated user.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), groups: Vec::new(), token: None, cluster_role: None }
    }

    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    #[must_use]
    pub fn with_cluster_role(mut self, role: &str) -> Self {
        self.cluster_role = Some(role.to_owned());
        self
    }
}
