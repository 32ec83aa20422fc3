//! The Pod Evict Policy: who ends a pod that Kubernetes wants to evict, Kubernetes itself or the workload that the pod belongs to
//! ([`EvictPolicy`]), how a pod shows that it is wanted gone ([`EvictWanted`]), and how many of a workload go at a time ([`MaxUnavailable`]).

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::gateway::Ask;
use crate::names::{
    EVICT_MAX_UNAVAILABLE_ANNOTATION, EVICT_POLICY_ANNOTATION, EVICT_WANTED_ANNOTATION,
    POD_EVICT_WANTED_ANNOTATION,
};

/// The user as whom the taint eviction controller deletes pods.
pub const TAINT_EVICTION_USER: &str = "system:serviceaccount:kube-system:node-controller";

/// Who ends a pod that Kubernetes wants to evict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EvictPolicy {
    /// Kubernetes does, at once.
    #[default]
    Default,
    /// The workload does, when it can; Kubernetes does after a time.
    ControllerTakeOver,
}

impl EvictPolicy {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Default, Self::ControllerTakeOver];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::ControllerTakeOver => "ControllerTakeOver",
        }
    }

    /// What counts for a pod: what it says, else what its namespace says. What means nothing counts as if it were not there.
    pub fn of(pod: Option<&str>, namespace: Option<&str>) -> Self {
        let said = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        said(pod).or_else(|| said(namespace)).unwrap_or_default()
    }
}

/// No policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no evict policy {0:?}: use Default or ControllerTakeOver")]
pub struct NoPolicy(pub String);

impl FromStr for EvictPolicy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text).ok_or_else(|| NoPolicy(text.to_owned()))
    }
}

/// The annotation that [`EvictPolicy::of`] reads.
pub fn policy_annotation(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?.get(EVICT_POLICY_ANNOTATION).map(String::as_str)
}

/// A pod is wanted gone, and its workload takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictWanted {
    /// The pod that was marked: a copy of it is another one, and not wanted.
    pub uid: String,
    /// Since when. After a while the policy falls back to [`EvictPolicy::Default`].
    pub since: Time,
    /// The last eviction by the eviction API, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Ask>,
}

impl EvictWanted {
    /// The annotations of a pod that is wanted gone.
    pub fn annotations(&self) -> [(&'static str, String); 2] {
        let text = serde_json::to_string(self).unwrap_or_default();
        [(POD_EVICT_WANTED_ANNOTATION, "true".to_owned()), (EVICT_WANTED_ANNOTATION, text)]
    }

    /// What the annotations of this pod say. Only what was written together, and for this pod, counts.
    pub fn of(annotations: &BTreeMap<String, String>, uid: &str) -> Option<Self> {
        if annotations.get(POD_EVICT_WANTED_ANNOTATION).map(String::as_str) != Some("true") {
            return None;
        }
        let wanted: Self = serde_json::from_str(annotations.get(EVICT_WANTED_ANNOTATION)?).ok()?;
        (wanted.uid == uid).then_some(wanted)
    }

    /// Whether any of both annotations is there, whatever it says.
    pub fn is_shown(annotations: &BTreeMap<String, String>) -> bool {
        [POD_EVICT_WANTED_ANNOTATION, EVICT_WANTED_ANNOTATION]
            .iter()
            .any(|key| annotations.contains_key(*key))
    }
}

/// How many pods of a workload are evicted at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// So many.
    Count(u32),
    /// Of a hundred replicas so many.
    Percent(u32),
}

impl MaxUnavailable {
    /// What the annotation of a workload says. What means nothing counts as if it were not there.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        annotations?.get(EVICT_MAX_UNAVAILABLE_ANNOTATION)?.parse().ok()
    }

    /// For this many replicas, rounded down, and one at least: none at all would only wait for the fall-back.
    pub fn of_replicas(self, replicas: u32) -> u32 {
        let count = match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                u32::try_from(u64::from(replicas) * u64::from(percent) / 100).unwrap_or(u32::MAX)
            }
        };
        count.max(1)
    }
}

/// No such number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of pods: use a number such as 1, or a percentage such as 25%")]
pub struct NoMaxUnavailable(pub String);

impl FromStr for MaxUnavailable {
    type Err = NoMaxUnavailable;

    fn from_str(text: &str) -> Result<Self, NoMaxUnavailable> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse().ok().filter(|number: &u32| is_number && *number > 0)
        };
        let read = match text.strip_suffix('%') {
            Some(digits) => number(digits).map(Self::Percent),
            None => number(text).map(Self::Count),
        };
        read.ok_or_else(|| NoMaxUnavailable(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_comes_before_its_namespace_and_what_means_nothing_does_not_count() {
        use EvictPolicy::{ControllerTakeOver, Default};
        for (pod, namespace, wanted) in [
            (None, None, Default),
            (Some("ControllerTakeOver"), None, ControllerTakeOver),
            (None, Some("ControllerTakeOver"), ControllerTakeOver),
            (Some("Default"), Some("ControllerTakeOver"), Default),
            (Some("ControllerTakeOver"), Some("Default"), ControllerTakeOver),
            (Some("controllertakeover"), None, Default),
            (Some("whatever"), Some("ControllerTakeOver"), ControllerTakeOver),
            (None, Some("whatever"), Default),
        ] {
            assert_eq!(EvictPolicy::of(pod, namespace), wanted, "{pod:?} {namespace:?}");
        }
        let refused = "Never".parse::<EvictPolicy>().unwrap_err().to_string();
        assert_eq!(refused, "there is no evict policy \"Never\": use Default or ControllerTakeOver");
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_and_only_on_the_pod_that_it_was_written_for() {
        let since: Time = serde_json::from_str("\"2026-01-01T12:00:00Z\"").unwrap();
        let asked = Some(Ask::new("alice", since.clone(), None));
        let wanted = EvictWanted { uid: "u".to_owned(), since, asked };
        let annotations: BTreeMap<String, String> =
            wanted.annotations().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(annotations["kubernetes.io/pod-evict-wanted"], "true");
        assert_eq!(EvictWanted::of(&annotations, "u"), Some(wanted));
        assert_eq!(EvictWanted::of(&annotations, "copy"), None);
        assert!(EvictWanted::is_shown(&annotations) && !EvictWanted::is_shown(&BTreeMap::new()));
        for key in [POD_EVICT_WANTED_ANNOTATION, EVICT_WANTED_ANNOTATION] {
            let mut half = annotations.clone();
            half.insert(key.to_owned(), "no".to_owned());
            assert_eq!(EvictWanted::of(&half, "u"), None, "{key}");
            half.remove(key);
            assert_eq!(EvictWanted::of(&half, "u"), None, "{key}");
        }
    }

    #[test]
    fn one_pod_may_always_go_and_percentages_are_rounded_down() {
        for (text, replicas, wanted) in
            [("1", 3, 1), ("2", 3, 2), ("50%", 3, 1), ("100%", 3, 3), ("10%", 3, 1), ("200%", 3, 6)]
        {
            let read: MaxUnavailable = text.parse().unwrap();
            assert_eq!(read.of_replicas(replicas), wanted, "{text} of {replicas}");
        }
        for text in ["", "0", "0%", "-1", "+1", "one", "1.5", "%", "99999999999"] {
            assert!(text.parse::<MaxUnavailable>().is_err(), "{text}");
        }
    }
}
