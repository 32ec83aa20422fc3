//! What the agent of a node writes on it, for people and for the agents of other nodes.

use serde::{Deserialize, Serialize};

/// The value of the annotation [`crate::names::NODE_AGENT_ANNOTATION`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAgentMark {
    pub version: String,
    /// The folder of static pod manifests that it looks after.
    pub static_pods: String,
    /// The manifests that it has taken from there, or is about to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<String>,
    /// It delays shutdowns of the node until its pods have ended.
    pub delays_shutdown: bool,
    /// What people should know, such as why it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl NodeAgentMark {
    pub fn read(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
