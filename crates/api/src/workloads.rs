//! The bundled interceptors, which answer for the pods of Kubernetes' own workloads, and how workloads opt in and out of them.

use std::collections::BTreeMap;

use crate::eviction_request::Interceptor;
use crate::interceptor_rules::{CONTROLLER_PRIORITY, CONTROLLER_ROLE, RESERVED_PRIORITIES};
use crate::names::{
    DAEMON_SET_CLASS, DEPLOYMENT_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION,
    HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS, STATEFUL_SET_CLASS,
};

/// The label that the Deployment controller writes on its ReplicaSets and their pods.
pub const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";
/// The role of the interceptor of Deployments, which has its turn just before that of the ReplicaSet.
pub const DEPLOYMENT_ROLE: &str = "deployment-controller";
pub const DEPLOYMENT_PRIORITY: i32 = CONTROLLER_PRIORITY + 1;

/// What is particular to each.
struct Row {
    /// Of the workload that it answers for. All are of the group `apps`.
    kind: &'static str,
    /// Of what controls its pods.
    controller_kind: &'static str,
    controller_class: &'static str,
    /// As it is written in the flag `--interceptors`.
    name: &'static str,
    /// The class that stands for it.
    class: &'static str,
    /// It answers to maintenances, and to no other requester.
    is_of_maintenances: bool,
    /// What its workloads may write in the annotation.
    strategies: &'static [Strategy],
}

/// One row makes an interceptor known: there is no other list of them in the code.
macro_rules! bundled_interceptors {
    ($($(#[$about:meta])* $one:ident: $row:expr,)*) => {
        /// An interceptor that comes with Usher.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BundledInterceptor {
            $($(#[$about])* $one,)*
        }

        impl BundledInterceptor {
            pub const ALL: [Self; [$(Self::$one),*].len()] = [$(Self::$one),*];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$one => &$row,)*
                }
            }
        }
    };
}

bundled_interceptors! {
    DaemonSet: Row {
        kind: "DaemonSet",
        controller_kind: "DaemonSet",
        controller_class: DAEMON_SET_CLASS,
        name: "daemonset",
        class: DAEMON_SET_CLASS,
        is_of_maintenances: true,
        strategies: &[Strategy::Off],
    },
    StatefulSet: Row {
        kind: "StatefulSet",
        controller_kind: "StatefulSet",
        controller_class: STATEFUL_SET_CLASS,
        name: "statefulset",
        class: STATEFUL_SET_CLASS,
        is_of_maintenances: false,
        strategies: &[Strategy::MaxUnavailable, Strategy::Off],
    },
    /// Of Deployments, and of the ReplicaSets that they or others have.
    Deployment: Row {
        kind: "Deployment",
        controller_kind: "ReplicaSet",
        controller_class: REPLICA_SET_CLASS,
        name: "deployment",
        class: DEPLOYMENT_CLASS,
        is_of_maintenances: false,
        strategies: &[Strategy::Surge, Strategy::HandOver, Strategy::MaxUnavailable, Strategy::Off],
    },
}

impl BundledInterceptor {
    /// The kind of the workload that it answers for. All are of the group `apps`.
    pub fn kind(self) -> &'static str {
        self.row().kind
    }

    /// The kind of what controls its pods.
    pub fn controller_kind(self) -> &'static str {
        self.row().controller_kind
    }

    /// As it is written in the flag `--interceptors`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The class that stands for it.
    pub fn class(self) -> &'static str {
        self.row().class
    }

    /// It answers to maintenances, and to no other requester.
    pub fn is_of_maintenances(self) -> bool {
        self.row().is_of_maintenances
    }

    /// As it stands on a pod: the controller of the pods that it answers for.
    pub fn controller(self) -> Interceptor {
        Interceptor {
            interceptor_class: self.row().controller_class.to_owned(),
            priority: CONTROLLER_PRIORITY,
            role: Some(CONTROLLER_ROLE.to_owned()),
        }
    }

    /// All that it is on a pod with these labels: a ReplicaSet's may be a Deployment's too.
    pub fn interceptors(self, labels: &BTreeMap<String, String>) -> Vec<Interceptor> {
        let of_deployment = self == Self::Deployment && labels.contains_key(POD_TEMPLATE_HASH_LABEL);
        let deployment = of_deployment.then(|| Interceptor {
            interceptor_class: DEPLOYMENT_CLASS.to_owned(),
            priority: DEPLOYMENT_PRIORITY,
            role: Some(DEPLOYMENT_ROLE.to_owned()),
        });
        deployment.into_iter().chain([self.controller()]).collect()
    }

    /// One of them has this class.
    pub fn has_class(class: &str) -> bool {
        let has = |it: Self| [it.row().class, it.row().controller_class].contains(&class);
        class == HORIZONTAL_POD_AUTOSCALER_CLASS || Self::ALL.into_iter().any(has)
    }

    /// What its workloads may do with the annotation.
    fn allowed(self) -> String {
        let names: Vec<&str> = self.row().strategies.iter().map(|it| it.name()).collect();
        match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}, or remove it", others.join(", "))
            }
            _ => format!("{}, or remove it", names.join(", ")),
        }
    }

    /// The one that answers for the pods of a controller.
    pub fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let is_apps = api_version.starts_with("apps/");
        Self::ALL.into_iter().find(|it| is_apps && it.controller_kind() == kind)
    }
}

/// The priority of an autoscaler whose owner says nothing: the workload itself comes first.
const AUTOSCALER_PRIORITY: i32 = 9_000;

/// What the annotation on a HorizontalPodAutoscaler says, if that is a priority that it may have.
pub fn autoscaler_priority(text: &str) -> Option<i32> {
    let given = text.parse().ok();
    given.filter(|it| (0..=100_000).contains(it) && !RESERVED_PRIORITIES.contains(it))
}

/// The interceptor of a HorizontalPodAutoscaler, with the priority that the annotation on it says. One that is no priority, or is
/// reserved for the controllers of pods, counts as if it were not there.
pub fn autoscaler_interceptor(priority: Option<&str>) -> Interceptor {
    Interceptor {
        interceptor_class: HORIZONTAL_POD_AUTOSCALER_CLASS.to_owned(),
        priority: priority.and_then(autoscaler_priority).unwrap_or(AUTOSCALER_PRIORITY),
        role: Some("autoscaler".to_owned()),
    }
}

/// The Deployment of a pod, by the name of the ReplicaSet that controls it.
pub fn deployment_of<'a>(replica_set: &'a str, labels: &BTreeMap<String, String>) -> Option<&'a str> {
    let hash = labels.get(POD_TEMPLATE_HASH_LABEL)?;
    replica_set.strip_suffix(hash.as_str())?.strip_suffix('-').filter(|name| !name.is_empty())
}

/// What a workload wants to be done when its pods are asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// What is usual for its kind: a DaemonSet takes its pods off a node under maintenance, a Deployment surges, a StatefulSet leaves
    /// them to the eviction API.
    #[default]
    Default,
    /// The bundled interceptor does nothing: the pods of a DaemonSet stay, those of others are left to the eviction API.
    Off,
    /// At most `maxUnavailable` of its pods are not available at a time.
    MaxUnavailable,
    /// A Deployment surges by its replicas, and in no other way.
    Surge,
    /// A Deployment gets new pods beside its replicas, which its ReplicaSet adopts.
    HandOver,
}

/// An annotation that says nothing known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {EVICTION_REQUEST_STRATEGY_ANNOTATION} is {value:?}, which means nothing for a {kind}: use {allowed}"
)]
pub struct UnknownStrategy {
    pub value: String,
    pub kind: &'static str,
    pub allowed: String,
    /// What counts until then: what the namespace says.
    pub instead: Strategy,
}

impl UnknownStrategy {
    /// With what counts until it is mended.
    pub fn describe(&self) -> String {
        format!("{self}; until then it counts as if it were not there")
    }
}

impl Strategy {
    /// What the annotation of a workload says, else that of its namespace. What cannot be read counts as if it were not there.
    ///
    /// # Errors
    /// The annotation of the workload says nothing known. One of a namespace means several kinds: it is passed over by those for whom it
    /// says nothing, unless it says nothing for any.
    pub fn of(
        interceptor: BundledInterceptor,
        workload: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Self, UnknownStrategy> {
        let inherited = namespace.and_then(|value| Self::parse(interceptor, value));
        let is_known =
            |value: &&str| BundledInterceptor::ALL.iter().any(|it| Self::parse(*it, value).is_some());
        let Some(value) = workload else {
            let Some(value) = namespace.filter(|value| !is_known(value)) else {
                return Ok(inherited.unwrap_or_default());
            };
            return Err(UnknownStrategy {
                value: value.chars().take(64).collect(),
                kind: "Namespace, which has it for its workloads",
                instead: Self::Default,
                allowed: BundledInterceptor::Deployment.allowed(),
            });
        };
        Self::parse(interceptor, value).ok_or_else(|| UnknownStrategy {
            value: value.chars().take(64).collect(),
            kind: interceptor.kind(),
            instead: inherited.unwrap_or_default(),
            allowed: interceptor.allowed(),
        })
    }

    fn parse(interceptor: BundledInterceptor, value: &str) -> Option<Self> {
        interceptor.row().strategies.iter().copied().find(|it| it.name() == value)
    }

    /// As it is written in the annotation.
    fn name(self) -> &'static str {
        match self {
            // Who wants that writes nothing.
            Self::Default => "",
            Self::Off => "Off",
            Self::MaxUnavailable => "MaxUnavailable",
            Self::Surge => "Surge",
            Self::HandOver => "HandOver",
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
    use BundledInterceptor::{DaemonSet, Deployment, StatefulSet};

    #[test]
    fn the_owner_of_a_pod_has_the_interceptor_of_its_kind_and_group() {
        assert_eq!(BundledInterceptor::of_owner("apps/v1", "DaemonSet"), Some(DaemonSet));
        assert_eq!(BundledInterceptor::of_owner("apps/v1", "StatefulSet"), Some(StatefulSet));
        assert_eq!(BundledInterceptor::of_owner("apps/v1", "ReplicaSet"), Some(Deployment));
        for (group, kind) in
            [("apps.kruise.io/v1", "StatefulSet"), ("apps/v1", "Deployment"), ("v1", "DaemonSet")]
        {
            assert_eq!(BundledInterceptor::of_owner(group, kind), None, "{group} {kind}");
        }
        let annotations = |which: BundledInterceptor, labels: &[&str]| -> Vec<(String, String)> {
            let labels = labels.iter().map(|label| ((*label).to_owned(), "x".to_owned())).collect();
            which.interceptors(&labels).iter().map(crate::annotation_of).collect()
        };
        let key = |class: &str| {
            format!("interceptor.evictionrequest.coordination.k8s.io/priority_{class}.apps.k8s.io")
        };
        let controller = |class: &str| (key(class), "10000/controller".to_owned());
        assert_eq!(annotations(DaemonSet, &["app"]), [controller("daemonset")]);
        assert_eq!(annotations(Deployment, &["app"]), [controller("replicaset")], "a bare ReplicaSet");
        let deployment = (key("deployment"), "10001/deployment-controller".to_owned());
        assert_eq!(
            annotations(Deployment, &["app", POD_TEMPLATE_HASH_LABEL]),
            [deployment, controller("replicaset")]
        );
    }

    #[test]
    fn an_autoscaler_comes_after_the_controller_unless_its_owner_says_otherwise() {
        for (given, priority) in [
            (None, 9_000),
            (Some("11000"), 11_000),
            (Some("10000"), 9_000),
            (Some("soon"), 9_000),
            (Some("-1"), 9_000),
        ] {
            assert_eq!(autoscaler_interceptor(given).priority, priority, "{given:?}");
        }
    }

    #[test]
    fn a_pod_tells_its_deployment_by_the_name_of_its_replica_set() {
        let labels = |hash: &str| BTreeMap::from([(POD_TEMPLATE_HASH_LABEL.to_owned(), hash.to_owned())]);
        assert_eq!(deployment_of("web-5f7c", &labels("5f7c")), Some("web"));
        for (set, hash) in [("web", "5f7c"), ("web5f7c", "5f7c"), ("-5f7c", "5f7c")] {
            assert_eq!(deployment_of(set, &labels(hash)), None, "{set}");
        }
        assert_eq!(deployment_of("web-5f7c", &BTreeMap::new()), None);
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
            (Deployment, None, None, Some(Strategy::Default)),
            (Deployment, Some("MaxUnavailable"), None, Some(Strategy::MaxUnavailable)),
            (StatefulSet, None, Some("HandOver"), Some(Strategy::Default)),
            (StatefulSet, None, Some("whatever"), None),
            (DaemonSet, Some("Off"), Some("whatever"), Some(Strategy::Off)),
        ] {
            assert_eq!(
                of(interceptor, workload, namespace),
                wanted,
                "{interceptor:?} {workload:?} {namespace:?}"
            );
        }
        let instead = |namespace| Strategy::of(DaemonSet, Some("off"), namespace).unwrap_err().instead;
        assert_eq!((instead(Some("Off")), instead(None)), (Strategy::Off, Strategy::Default));
        let of_namespace = Strategy::of(DaemonSet, None, Some("off")).unwrap_err();
        assert!(of_namespace.to_string().contains("is \"off\", which means nothing for a Namespace"));
        let unknown = Strategy::of(StatefulSet, Some("none"), None).unwrap_err().to_string();
        assert!(unknown.ends_with(
            "is \"none\", which means nothing for a StatefulSet: use MaxUnavailable or Off, or remove it"
        ));
    }
}
