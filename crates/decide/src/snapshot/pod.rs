//! A pod, as far as an eviction is concerned.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use super::Key;

/// The kubelet shows a static pod in the API by a mirror pod with this annotation.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub fn parse(text: &str) -> Self {
        match text {
            // A pod that was only just created has no phase yet.
            "" | "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The controller that manages an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub key: Key,
    pub uid: Arc<str>,
    /// Empty until it is scheduled.
    pub node: Arc<str>,
    pub labels: Arc<BTreeMap<String, String>>,
    pub phase: Phase,
    pub ready: bool,
    /// Set while it terminates: when its grace ends.
    pub deletion: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub owner: Option<Arc<Owner>>,
    pub is_mirror: bool,
}

impl Pod {
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    pub fn is_daemon(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet")
    }
}

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let meta = &pod.metadata;
        let text = |text: &Option<String>| Arc::<str>::from(text.as_deref().unwrap_or_default());
        let status = pod.status.as_ref();
        let owners = meta.owner_references.iter().flatten();
        let owner = owners.clone().find(|owner| owner.controller == Some(true)).map(|owner| {
            Arc::new(Owner {
                api_version: owner.api_version.as_str().into(),
                kind: owner.kind.as_str().into(),
                name: owner.name.as_str().into(),
                uid: owner.uid.as_str().into(),
            })
        });
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        Self {
            key: Key { namespace: text(&meta.namespace), name: text(&meta.name) },
            uid: text(&meta.uid),
            node: pod.spec.as_ref().map_or_else(|| "".into(), |spec| text(&spec.node_name)),
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            phase: Phase::parse(status.and_then(|status| status.phase.as_deref()).unwrap_or_default()),
            ready: conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            deletion: meta.deletion_timestamp.as_ref().map(|time| time.0),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            owner,
            is_mirror: meta.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR_ANNOTATION)),
        }
    }
}
