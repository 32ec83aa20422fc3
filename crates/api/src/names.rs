//! Well-known strings of the specification: groups, annotations, finalizers, conditions, interceptor classes.

use crate::domain::is_subdomain;

/// API group of EvictionRequest.
pub const EVICTION_REQUEST_GROUP: &str = "evictionrequest.coordination.k8s.io";
/// API group of NodeMaintenance, and the name under which node maintenance requests evictions.
pub const NODE_MAINTENANCE_GROUP: &str = "nodemaintenance.k8s.io";
/// API version of both groups.
pub const VERSION: &str = "v1alpha1";

/// Pod annotation that registers an interceptor; the interceptor class follows, the value is `PRIORITY/ROLE`.
pub const INTERCEPTOR_ANNOTATION_PREFIX: &str = "interceptor.evictionrequest.coordination.k8s.io/priority_";
/// An administrator has the interceptors of an eviction request skipped, and says why in its value. Who may set it is asked for by
/// the verb `skip` on `evictionrequests/interceptors`.
pub const SKIP_INTERCEPTORS_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/skip-interceptors";

/// EvictionRequest annotation, set to `true` by admission: the pod named no interceptor when the request was created. A request
/// without interceptors and without it was created past admission, and waits if its pod names some.
pub const INTERCEPTORS_RESOLVED_ANNOTATION: &str =
    "evictionrequest.coordination.k8s.io/interceptors-resolved";
/// Finalizer of a requester on an EvictionRequest; the requester's subdomain follows.
pub const REQUESTER_FINALIZER_PREFIX: &str = "requester.evictionrequest.coordination.k8s.io/name_";
/// Finalizers below these prefixes belong to somebody: a requester touches only its own.
pub const FOREIGN_FINALIZER_PREFIXES: [&str; 2] =
    ["requester.evictionrequest.coordination.k8s.io/", "evictionrequest.coordination.k8s.io/"];
/// Namespace label that says what becomes of plain evictions there, whatever the cluster says: see [`crate::gateway::GatewayMode`].
pub const GATEWAY_MODE_LABEL: &str = "evictionrequest.coordination.k8s.io/gateway";
/// Eviction annotation, on the object that is sent to `pods/eviction`: the interceptor class that evicts the pod in its own turn, so that the
/// gateway lets it pass.
pub const EVICTING_INTERCEPTOR_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/interceptor";
/// EvictionRequest annotation by which the gateway remembers a plain eviction; the requester follows, the value is a
/// [`crate::gateway::Ask`].
pub const ASK_ANNOTATION_PREFIX: &str = "gateway.evictionrequest.coordination.k8s.io/";
/// Keeps a started NodeMaintenance until its nodes are uncordoned and its eviction requests withdrawn.
pub const MAINTENANCE_COMPLETION_FINALIZER: &str = "nodemaintenance.k8s.io/maintenance-completion";
/// NodeMaintenance annotation: set to `true`, a node that was selected once stays in the maintenance until this ends, whatever
/// becomes of its labels.
pub const KEEP_NODES_ANNOTATION: &str = "nodemaintenance.k8s.io/keep-nodes";
/// NodeMaintenance annotation: with `true`, static pods of the control plane leave too, where others of their kind go on.
pub const MOVE_CONTROL_PLANE_ANNOTATION: &str = "nodemaintenance.k8s.io/move-control-plane";
/// The annotations of a maintenance that change what becomes of nodes: who sets them has to have the right to.
pub const DECIDING_ANNOTATIONS: [&str; 2] = [KEEP_NODES_ANNOTATION, MOVE_CONTROL_PLANE_ANNOTATION];
/// Node annotation, written by the agent of the node: what it looks after, and which manifests it has taken.
pub const NODE_AGENT_ANNOTATION: &str = "nodemaintenance.k8s.io/node-agent";
/// Node annotation: the maintenances that keep the node cordoned, separated by commas.
pub const NODE_HELD_BY_ANNOTATION: &str = "nodemaintenance.k8s.io/held-by";
/// Node annotation: whether the node was cordoned before the first maintenance came, and so stays cordoned after the last.
pub const NODE_WAS_UNSCHEDULABLE_ANNOTATION: &str = "nodemaintenance.k8s.io/was-unschedulable";
/// Node annotation: the phase of the maintenance that the node is in.
pub const NODE_PHASE_ANNOTATION: &str = "nodemaintenance.k8s.io/phase";
/// NodeMaintenance annotations, on one that the agent of a node made: in which start of the node, by which cause, and when the node is
/// gone at the latest, for whoever can use that.
pub const NODE_AGENT_BOOT_ANNOTATION: &str = "nodemaintenance.k8s.io/boot-id";
pub const NODE_AGENT_CAUSE_ANNOTATION: &str = "nodemaintenance.k8s.io/cause";
pub const NODE_AGENT_DEADLINE_ANNOTATION: &str = "nodemaintenance.k8s.io/deadline";

/// Annotation of a workload, or of a namespace for all workloads in it, that stands for the specification's
/// `.spec.evictionRequestStrategy`: see [`crate::workloads::Strategy`].
pub const EVICTION_REQUEST_STRATEGY_ANNOTATION: &str =
    "evictionrequest.coordination.k8s.io/eviction-request-strategy";
/// Annotation of a pod, and so of the template of a workload, or of a namespace for all pods in it that say nothing: see
/// [`crate::evict_policy::EvictPolicy`]. It stands for `.spec.evictPolicy` of the Pod Evict Policy.
pub const EVICT_POLICY_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/evict-policy";

/// Pod annotation of the Pod Evict Policy, set to `true`: Kubernetes wants to evict the pod, and its workload takes over.
pub const POD_EVICT_WANTED_ANNOTATION: &str = "kubernetes.io/pod-evict-wanted";

/// Pod annotation beside it: since when, and who asked. See [`crate::evict_policy::EvictWanted`].
pub const EVICT_WANTED_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/evict-wanted";

/// Annotation of a ReplicaSet, Deployment or StatefulSet that stands for `.spec.evictStrategy.maxUnavailable` of the Pod Evict Policy: so
/// many of its pods are evicted at a time, as a number or a percentage.
pub const EVICT_MAX_UNAVAILABLE_ANNOTATION: &str =
    "evictionrequest.coordination.k8s.io/evict-max-unavailable";

/// Scheduling gate of a pod that its DaemonSet makes for a node whose maintenance has taken the one before off.
pub const MAINTENANCE_SCHEDULING_GATE: &str = "nodemaintenance.k8s.io/held";
/// The namespace that the manager runs in, unless it is installed elsewhere.
pub const MANAGER_NAMESPACE: &str = "usher-system";
/// The ConfigMap, in the manager's namespace, that tells admission which DaemonSet pods are kept off which nodes.
pub const HELD_NODES_CONFIG_MAP: &str = "usher-held-nodes";

/// The lease of the descheduler, and by it its name.
pub const DESCHEDULER_LEASE: &str = "usher-descheduler";
/// What the name of a descheduler is followed by in that of the ConfigMap, in its namespace, in which it remembers pods that it does not
/// ask again for a while.
pub const DESCHEDULER_CONFIG_MAP_SUFFIX: &str = "-cool-downs";
/// Its keys: pods that are not asked for a while, pods that are moved in the background, and pods that were moved, whose replacements are
/// left alone.
pub const DESCHEDULER_COOL_DOWNS_KEY: &str = "coolDowns";
pub const DESCHEDULER_IN_BACKGROUND_KEY: &str = "inBackground";
pub const DESCHEDULER_MOVED_KEY: &str = "moved";
pub const DESCHEDULER_ASKED_KEY: &str = "asked";
/// The ConfigMap, in the manager's namespace, with the descheduler's policy, and under which key.
pub const DESCHEDULER_POLICY_CONFIG_MAP: &str = "usher-descheduler-policy";
pub const DESCHEDULER_POLICY_KEY: &str = "policy.yaml";
/// EvictionRequest annotation: which descheduler asks, by the namespace and name of its lease.
pub const DESCHEDULER_INSTANCE_ANNOTATION: &str = "descheduler.evictionrequest.coordination.k8s.io/instance";
/// EvictionRequest annotation: why the descheduler asks, for people to read.
pub const DESCHEDULER_REASON_ANNOTATION: &str = "descheduler.evictionrequest.coordination.k8s.io/reason";

/// EvictionRequest condition: new pods of its Deployment were to come for the pod, and did not. Absent otherwise.
pub const SURGE_FAILED_CONDITION: &str = "SurgeFailed";
/// NodeMaintenance condition: all targeted pods have terminated on all selected nodes.
pub const DRAINED_CONDITION: &str = "Drained";
/// Condition of a NodeMaintenance whose status could not be written, or does not name all nodes. Absent if all is well.
pub const STATUS_COMPLETE_CONDITION: &str = "StatusComplete";
/// Node condition that advertises the current phase of the maintenance.
pub const NODE_MAINTENANCE_CONDITION: &str = "NodeMaintenance";
/// Deployment condition: at least one of its pods is being evicted by an interceptor.
pub const EVICTION_REQUEST_IN_PROGRESS_CONDITION: &str = "EvictionRequestInProgress";

/// Requester name of the descheduler.
pub const DESCHEDULER_REQUESTER: &str = "descheduler.sigs.k8s.io";
/// Requester name of node maintenance.
pub const NODE_MAINTENANCE_REQUESTER: &str = NODE_MAINTENANCE_GROUP;
/// Their finalizers, as [`requester_finalizer`] makes them.
pub const DESCHEDULER_FINALIZER: &str =
    "requester.evictionrequest.coordination.k8s.io/name_descheduler.sigs.k8s.io";
pub const NODE_MAINTENANCE_FINALIZER: &str =
    "requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io";

/// On a Deployment or HorizontalPodAutoscaler: by how much it is larger than its owner wants it, for pods that are about to leave.
pub const SURGE_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/surge";
/// The same on a Deployment, as short as a label has to be, and what counts there: annotations are copied to its ReplicaSets and back by
/// `kubectl rollout undo`, which also removes others. Where it is missing, an annotation that the manager wrote itself counts.
pub const SURGE_LABEL: &str = SURGE_ANNOTATION;

/// The name under which the manager's writes appear in `managedFields`.
pub const FIELD_MANAGER: &str = "usher";

/// The same of what it writes as an interceptor: who gives the turns is somebody else.
pub const INTERCEPTOR_FIELD_MANAGER: &str = "usher-interceptor";
/// On a pod that is to take the place of another one: the ReplicaSet that adopts it. It goes when the ReplicaSet has it.
pub const HAND_OVER_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/hand-over";
/// On a pod that a ReplicaSet is to delete before others: the deletion cost that it had before, which may be none.
pub const DELETION_COST_BEFORE_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/deletion-cost-before";
/// By this ReplicaSets choose the pods that go when they are scaled down.
pub const POD_DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The kubelet shows a static pod in the API as a mirror pod with this annotation.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// On a HorizontalPodAutoscaler: the priority of its interceptor.
pub const INTERCEPTOR_PRIORITY_ANNOTATION: &str = "evictionrequest.coordination.k8s.io/interceptor-priority";

/// Interceptor class of the ReplicaSet controller.
pub const REPLICA_SET_CLASS: &str = "replicaset.apps.k8s.io";
/// Interceptor class of the Deployment controller.
pub const DEPLOYMENT_CLASS: &str = "deployment.apps.k8s.io";
/// Interceptor class of the StatefulSet controller.
pub const STATEFUL_SET_CLASS: &str = "statefulset.apps.k8s.io";
/// Interceptor class of the DaemonSet controller.
pub const DAEMON_SET_CLASS: &str = "daemonset.apps.k8s.io";
/// Interceptor class of the HorizontalPodAutoscaler.
pub const HORIZONTAL_POD_AUTOSCALER_CLASS: &str = "horizontalpodautoscaler.autoscaling.k8s.io";
/// Interceptor class of the kubelet, which answers for static pods.
pub const KUBELET_CLASS: &str = "kubelet.k8s.io";

/// The interceptor classes of the Kubernetes project. Nobody else may use a class in [`PROJECT_DOMAINS`].
pub const PROJECT_CLASSES: [&str; 6] = [
    REPLICA_SET_CLASS,
    DEPLOYMENT_CLASS,
    STATEFUL_SET_CLASS,
    DAEMON_SET_CLASS,
    HORIZONTAL_POD_AUTOSCALER_CLASS,
    KUBELET_CLASS,
];
/// Domains that belong to the Kubernetes project. The specification names the short one; the long one is the same project's, and
/// leaving it open would only move the misuse there.
pub const PROJECT_DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// The longest name part (behind the `/`) of an annotation key or finalizer.
pub const QUALIFIED_NAME_MAX_LENGTH: usize = 63;

/// Why a requester cannot have a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequesterNameError {
    /// The name is no DNS subdomain.
    #[error(
        "requester name {name:?} is not a DNS subdomain: use lower-case letters, digits, '-' and '.', \
         for example nodemaintenance.k8s.io"
    )]
    NotASubdomain {
        /// The name as given.
        name: String,
    },
    /// The name does not fit into the name part of a finalizer.
    #[error("requester name {name:?} is longer than {max} characters: use a unique shorter subdomain")]
    TooLong {
        /// The name as given.
        name: String,
        /// How long it may be.
        max: usize,
    },
}

/// The finalizer by which a requester marks its EvictionRequests.
pub fn requester_finalizer(subdomain: &str) -> Result<String, RequesterNameError> {
    RequesterName::new(subdomain).map(|name| name.finalizer())
}

/// The name of a requester that a finalizer can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequesterName(pub(crate) String);

impl RequesterName {
    /// # Errors
    /// It is no DNS subdomain, or too long.
    pub fn new(subdomain: &str) -> Result<Self, RequesterNameError> {
        if !is_subdomain(subdomain) {
            return Err(RequesterNameError::NotASubdomain { name: subdomain.to_owned() });
        }
        let max = room_behind(REQUESTER_FINALIZER_PREFIX);
        if subdomain.len() > max {
            return Err(RequesterNameError::TooLong { name: subdomain.to_owned(), max });
        }
        Ok(Self(subdomain.to_owned()))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The finalizer by which it marks its EvictionRequests.
    pub fn finalizer(&self) -> String {
        format!("{REQUESTER_FINALIZER_PREFIX}{}", self.0)
    }
}

/// The requester behind a finalizer, or nothing if the finalizer is not a requester's. The name is not checked: whatever has the
/// prefix counts as a requester and is removed with the others once the pod is gone.
pub fn requester_of(finalizer: &str) -> Option<&str> {
    finalizer.strip_prefix(REQUESTER_FINALIZER_PREFIX)
}

/// How many characters may follow the prefix `DOMAIN/start_` before the name part is full.
pub(crate) fn room_behind(prefix: &str) -> usize {
    let used = prefix.split_once('/').map_or(0, |(_, start)| start.len());
    QUALIFIED_NAME_MAX_LENGTH.saturating_sub(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_of_node_maintenance_is_the_one_of_the_specification() {
        let finalizer = requester_finalizer(NODE_MAINTENANCE_REQUESTER).unwrap();
        assert_eq!(finalizer, "requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io");
        assert_eq!(requester_of(&finalizer), Some("nodemaintenance.k8s.io"));
        assert_eq!(finalizer, NODE_MAINTENANCE_FINALIZER);
        assert_eq!(requester_finalizer(DESCHEDULER_REQUESTER).as_deref(), Ok(DESCHEDULER_FINALIZER));
    }

    #[test]
    fn other_finalizers_are_no_requesters() {
        for other in [
            "nodemaintenance.k8s.io/maintenance-completion",
            "requester.evictionrequest.coordination.k8s.io/other_descheduling.avalanche.io",
            "evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io",
            "foregroundDeletion",
        ] {
            assert_eq!(requester_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_requester_name_is_a_subdomain_of_58_characters_at_most() {
        assert!(requester_finalizer(&"a".repeat(58)).is_ok());
        assert_eq!(
            requester_finalizer(&"a".repeat(59)),
            Err(RequesterNameError::TooLong { name: "a".repeat(59), max: 58 })
        );
        for name in ["", "Upper.case", "under_score", "two..dots"] {
            assert_eq!(
                requester_finalizer(name),
                Err(RequesterNameError::NotASubdomain { name: name.to_owned() }),
                "{name:?}"
            );
        }
    }

    #[test]
    fn an_interceptor_class_has_54_characters_at_most() {
        assert_eq!(room_behind(INTERCEPTOR_ANNOTATION_PREFIX), 54);
    }
}
