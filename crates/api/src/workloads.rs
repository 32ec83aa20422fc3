//! The bundled interceptors, which answer for the pods of Kubernetes' own workloads, and how workloads opt in and out of them.

use std::collections::BTreeMap;

use crate::eviction_request::Interceptor;
use crate::interceptor_rules::{CONTROLLER_PRIORITY, CONTROLLER_ROLE};
use crate::names::{DAEMON_SET_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION, STATEFUL_SET_CLASS};

/// An interceptor that comes with Usher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundledInterceptor {
    DaemonSet,
    StatefulSet,
}

impl BundledInterceptor {
    pub const ALL: [Self; 2] = [Self::DaemonSet, Self::StatefulSet];

    /// The kind of the workload whose pods it answers for. All are of the group `apps`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::DaemonSet => "DaemonSet",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// As it is written in the flag `--interceptors`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonset",
            Self::StatefulSet => "statefulset",
        }
    }

    pub fn class(self) -> &'static str {
        match self {
            Self::DaemonSet => DAEMON_SET_CLASS,
            Self::StatefulSet => STATEFUL_SET_CLASS,
        }
    }

    /// As it stands on a pod: all of them are the controller of the pods that they answer for.
    pub fn interceptor(self) -> Interceptor {
        Interceptor {
            interceptor_class: self.class().to_owned(),
            priority: CONTROLLER_PRIORITY,
            role: Some(CONTROLLER_ROLE.to_owned()),
        }
    }

    /// The one that answers for the pods of a controller.
    pub fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let is_apps = api_version.starts_with("apps/");
        Self::ALL.into_iter().find(|it| is_apps && it.kind() == kind)
    }
}

/// What a workload wants to be done when its pods are asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// What is usual for its kind: a DaemonSet takes its pods off a node under maintenance, a StatefulSet leaves them to the eviction
    /// API.
    #[default]
    Default,
    /// The bundled interceptor does nothing: the pods of a DaemonSet stay, those of others are left to the eviction API.
    Off,
    /// At most `maxUnavailable` of its pods are not available at a time.
    MaxUnavailable,
}

/// An annotation that says nothing known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {EVICTION_REQUEST_STRATEGY_ANNOTATION} is {value:?}, which means nothing for a {kind}: use {allowed}"
)]
pub struct UnknownStrategy {
    pub value: String,
    pub kind: &'static str,
    pub allowed: &'static str,
    /// What counts until then: what the namespace says.
    pub instead: Strategy,
}

impl Strategy {
    /// What the annotation of a workload says, else that of its namespace. What cannot be read counts as if it were not there.
    ///
    /// # Errors
    /// The annotation of the workload says nothing known. One of a namespace means several kinds, and is passed over by those for whom
    /// it says nothing.
    pub fn of(
        interceptor: BundledInterceptor,
        workload: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Self, UnknownStrategy> {
        let inherited = namespace.and_then(|value| Self::parse(interceptor, value));
        let Some(value) = workload else { return Ok(inherited.unwrap_or_default()) };
        Self::parse(interceptor, value).ok_or_else(|| UnknownStrategy {
            value: value.chars().take(64).collect(),
            kind: interceptor.kind(),
            instead: inherited.unwrap_or_default(),
            allowed: match interceptor {
                BundledInterceptor::DaemonSet => "Off, or remove it",
                BundledInterceptor::StatefulSet => "MaxUnavailable or Off, or remove it",
            },
        })
    }

    fn parse(interceptor: BundledInterceptor, value: &str) -> Option<Self> {
        match (value, interceptor) {
            ("Off", _) => Some(Self::Off),
            ("MaxUnavailable", BundledInterceptor::StatefulSet) => Some(Self::MaxUnavailable),
            _ => None,
        }
    }
}

/// The annotation that [`Strategy::of`] reads.
pub fn strategy_annotation(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?.get(EVICTION_REQUEST_STRATEGY_ANNOTATION).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use BundledInterceptor::{DaemonSet, StatefulSet};

    #[test]
    fn the_owner_of_a_pod_has_the_interceptor_of_its_kind_and_group() {
        assert_eq!(BundledInterceptor::of_owner("apps/v1", "DaemonSet"), Some(DaemonSet));
        assert_eq!(BundledInterceptor::of_owner("apps/v1", "StatefulSet"), Some(StatefulSet));
        for (group, kind) in
            [("apps.kruise.io/v1", "StatefulSet"), ("apps/v1", "ReplicaSet"), ("v1", "DaemonSet")]
        {
            assert_eq!(BundledInterceptor::of_owner(group, kind), None, "{group} {kind}");
        }
        let registered = DaemonSet.interceptor();
        assert_eq!(
            crate::annotation_of(&registered),
            (
                "interceptor.evictionrequest.coordination.k8s.io/priority_daemonset.apps.k8s.io".to_owned(),
                "10000/controller".to_owned()
            )
        );
    }

    #[test]
    fn a_workload_comes_before_its_namespace() {
        let of = |interceptor, workload, namespace| Strategy::of(interceptor, workload, namespace).ok();
        for (interceptor, workload, namespace, wanted) in [
            (DaemonSet, None, None, Some(Strategy::Default)),
            (DaemonSet, Some("Off"), None, Some(Strategy::Off)),
            (DaemonSet, None, Some("Off"), Some(Strategy::Off)),
            (DaemonSet, None, Some("MaxUnavailable"), Some(Strategy::Default)),
            (DaemonSet, Some("MaxUnavailable"), None, None),
            (StatefulSet, None, Some("MaxUnavailable"), Some(Strategy::MaxUnavailable)),
            (StatefulSet, Some("Off"), Some("MaxUnavailable"), Some(Strategy::Off)),
            (StatefulSet, Some("MaxUnavailable"), Some("Off"), Some(Strategy::MaxUnavailable)),
            (StatefulSet, Some("maxUnavailable"), None, None),
            (StatefulSet, None, Some("whatever"), Some(Strategy::Default)),
        ] {
            assert_eq!(
                of(interceptor, workload, namespace),
                wanted,
                "{interceptor:?} {workload:?} {namespace:?}"
            );
        }
        let instead = |namespace| Strategy::of(DaemonSet, Some("off"), namespace).unwrap_err().instead;
        assert_eq!((instead(Some("Off")), instead(None)), (Strategy::Off, Strategy::Default));
        let unknown = Strategy::of(StatefulSet, Some("none"), None).unwrap_err().to_string();
        assert!(unknown.ends_with(
            "is \"none\", which means nothing for a StatefulSet: use MaxUnavailable or Off, or remove it"
        ));
    }
}
