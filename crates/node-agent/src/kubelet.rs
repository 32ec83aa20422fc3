//! What the kubelet's configuration says that concerns the agent.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A KubeletConfiguration, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfig {
    pub static_pod_path: String,
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: String,
    pub shutdown_grace_period: Option<String>,
    pub shutdown_grace_period_by_pod_priority: Vec<GracePeriod>,
}

/// How long pods from a priority on have to end when the node shuts down.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GracePeriod {
    pub priority: i32,
    #[serde(default)]
    pub shutdown_grace_period_seconds: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the kubelet's configuration {file}: {why}; name it with --kubelet-config")]
    Unreadable { file: String, why: String },
    #[error("{file} is no KubeletConfiguration: {why}")]
    Invalid { file: String, why: String },
}

impl KubeletConfig {
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let named = || file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|why| ConfigError::Unreadable { file: named(), why: why.to_string() })?;
        Self::parse(&text).map_err(|why| ConfigError::Invalid { file: named(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|why| why.to_string().lines().next().unwrap_or_default().into())
    }

    /// Where manifests of static pods are, if they come from a folder.
    pub fn static_pod_folder(&self) -> Option<PathBuf> {
        (!self.static_pod_path.is_empty()).then(|| PathBuf::from(&self.static_pod_path))
    }

    /// Why there may be static pods whose manifests the agent cannot move.
    pub fn unmovable(&self) -> Option<String> {
        let url = &self.static_pod_url;
        (!url.is_empty()).then(|| {
            format!(
                "static pods that the kubelet reads from staticPodURL ({url}) cannot be moved by the agent: take them out there, or move \
                 them to staticPodPath"
            )
        })
    }

    /// The kubelet ends pods by itself when the node shuts down.
    pub fn shuts_down_gracefully(&self) -> bool {
        let is_some = |text: &str| text.chars().any(|it| matches!(it, '1'..='9'));
        self.shutdown_grace_period.as_deref().is_some_and(is_some)
            || self
                .shutdown_grace_period_by_pod_priority
                .iter()
                .any(|it| it.shutdown_grace_period_seconds > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_url_of_static_pods_are_the_kubelets() {
        let config = KubeletConfig::parse(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n\
             cgroupDriver: systemd\n",
        )
        .unwrap();
        assert_eq!(config.static_pod_folder(), Some(PathBuf::from("/etc/kubernetes/manifests")));
        assert_eq!((config.unmovable(), config.shuts_down_gracefully()), (None, false));
        let by_url = KubeletConfig::parse("staticPodURL: https://example.com/pods").unwrap();
        assert_eq!(by_url.static_pod_folder(), None);
        assert!(
            by_url.unmovable().unwrap().contains("staticPodURL (https://example.com/pods) cannot be moved")
        );
        assert!(KubeletConfig::parse("staticPodPath: [1]").is_err());
    }

    #[test]
    fn the_kubelets_own_graceful_shutdown_is_known() {
        for (text, wanted) in [
            ("shutdownGracePeriod: 30s", true),
            ("shutdownGracePeriod: 0s", false),
            ("shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}]", true),
            ("shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 0}]", false),
            ("failSwapOn: false", false),
        ] {
            assert_eq!(KubeletConfig::parse(text).unwrap().shuts_down_gracefully(), wanted, "{text}");
        }
    }
}
