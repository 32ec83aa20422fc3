//! Who has to look at what, after a change.

use jiff::Timestamp;
use serde_json::Value;

use super::controllers::{
    adoption, autoscaler, claims, daemon_set, deployment, disruption, job, node_lifecycle, pod_gc,
    replica_set, stateful_set, taint_eviction,
};
use super::plan::Plan;
use super::scheduler::QueueingHint;
use super::view::{Change, Owner, Pod, Resource, View, condition};
use super::{Times, heartbeat, kubelet, scheduler, static_pods};
use embedded_apiserver::Key;

/// A component and the object it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    Node,
    Heartbeat,
    Kubelet,
    /// The mirror of a static pod.
    StaticPod,
    Scheduler,
    /// Pods that wait, after a change that may help them: the key is the node that has room, or none for company.
    Waiting,
    ReplicaSet,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    Budget,
    StaleDisruption,
    PodGc,
    NodeLifecycle,
    TaintEviction,
    Claim,
    Autoscaler,
}

pub(crate) type Task = (Component, Key);

impl Component {
    /// The user that it acts as, and what it says it is.
    pub(crate) fn identity(self) -> (&'static str, &'static str) {
        match self {
            Self::Node | Self::Heartbeat | Self::Kubelet | Self::StaticPod => ("system:node", "kubelet"),
            Self::Scheduler | Self::Waiting => ("system:kube-scheduler", "kube-scheduler"),
            Self::ReplicaSet => ("system:serviceaccount:kube-system:replicaset-controller", CONTROLLERS),
            Self::Deployment => ("system:serviceaccount:kube-system:deployment-controller", CONTROLLERS),
            Self::StatefulSet => ("system:serviceaccount:kube-system:statefulset-controller", CONTROLLERS),
            Self::DaemonSet => ("system:serviceaccount:kube-system:daemon-set-controller", CONTROLLERS),
            Self::Job => ("system:serviceaccount:kube-system:job-controller", CONTROLLERS),
            Self::PodGc => ("system:serviceaccount:kube-system:pod-garbage-collector", CONTROLLERS),
            Self::NodeLifecycle => ("system:serviceaccount:kube-system:node-controller", CONTROLLERS),
            Self::TaintEviction => ("system:serviceaccount:kube-system:node-controller", CONTROLLERS),
            Self::Claim => ("system:serviceaccount:kube-system:persistent-volume-binder", CONTROLLERS),
            Self::Autoscaler => ("system:serviceaccount:kube-system:horizontal-pod-autoscaler", CONTROLLERS),
            Self::Budget | Self::StaleDisruption => {
                ("system:serviceaccount:kube-system:disruption-controller", CONTROLLERS)
            }
        }
    }
}

impl Component {
    /// Those that crash by themselves.
    pub const ALL: [Self; 15] = [
        Self::Node,
        Self::Kubelet,
        Self::Scheduler,
        Self::ReplicaSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::Budget,
        Self::StaleDisruption,
        Self::PodGc,
        Self::NodeLifecycle,
        Self::TaintEviction,
        Self::Claim,
        Self::Autoscaler,
    ];

    /// Who crashes with it.
    pub(crate) fn process(self) -> Self {
        match self {
            Self::Heartbeat | Self::StaticPod => Self::Kubelet,
            Self::Waiting => Self::Scheduler,
            itself => itself,
        }
    }

    /// The name of its client, for fault rules. What all of them read is asked for by [`INFORMERS`].
    pub fn client(self) -> &'static str {
        let (user, agent) = self.identity();
        if agent == CONTROLLERS { user.rsplit(':').next().unwrap_or(user) } else { agent }
    }
}

/// The client of the lists and watches that the components share.
pub(crate) const INFORMERS: &str = "informers";

const CONTROLLERS: &str = "kube-controller-manager";

pub(crate) fn decide(view: &View, (component, key): &Task, times: &Times, now: Timestamp) -> Plan {
    match component {
        Component::Node => kubelet::decide_node(view, key, now),
        Component::Heartbeat => heartbeat::decide(view, key, now),
        Component::Kubelet => kubelet::decide(view, key, times, now),
        Component::StaticPod => static_pods::decide(view, key, now),
        Component::Scheduler => scheduler::decide(view, key, now),
        Component::Waiting => Plan::nothing(),
        Component::ReplicaSet => replica_set::decide(view, key, now),
        Component::Deployment => deployment::decide(view, key, now),
        Component::StatefulSet => stateful_set::decide(view, key, now),
        Component::DaemonSet => daemon_set::decide(view, key, now),
        Component::Job => job::decide(view, key, now),
        Component::Budget => disruption::decide(view, key, now),
        Component::PodGc => pod_gc::decide(view, key, now),
        Component::StaleDisruption => disruption::decide_stale(view, key, now),
        Component::NodeLifecycle => node_lifecycle::decide(view, key, now),
        Component::TaintEviction => taint_eviction::decide(view, key, now),
        Component::Claim => claims::decide(view, key),
        Component::Autoscaler => autoscaler::decide(view, key),
    }
}

/// Everybody whom it concerns that the kubelet of a node has fallen silent or is back.
pub(crate) fn concerned_by_kubelet(view: &View, node: &str) -> Vec<Task> {
    let of_node =
        [Component::Node, Component::NodeLifecycle].map(|component| (component, Key::new("", node)));
    let of_pods = view.pods_on(node).map(|pod| (Component::Kubelet, pod.key()));
    let of_itself = mirrors_of(view, node);
    of_node.into_iter().chain(of_pods).chain(of_itself).collect()
}

fn mirrors_of<'a>(view: &'a View, node: &'a str) -> impl Iterator<Item = Task> {
    view.static_pods.on(node).map(|key| (Component::StaticPod, key.clone()))
}

/// Everybody whom a change concerns.
pub(crate) fn concerned(view: &View, change: &Change) -> Vec<Task> {
    let mut tasks = Vec::new();
    match change {
        Change::Pod { before, after } => {
            for pod in before.iter().chain(after) {
                if let Some(owner) = pod.metadata.controller() {
                    owner_of_pod(view, pod, owner, after.is_none(), &mut tasks);
                } else if after.is_some() {
                    who_wants(view, pod, &mut tasks);
                }
                tasks.extend(view.budgets_for(pod).map(|key| (Component::Budget, key.clone())));
            }
            if let Some(pod) = after {
                let key = pod.key();
                if !pod.spec.node_name.is_empty() {
                    tasks.push((Component::Kubelet, key.clone()));
                }
                if condition(&pod.status.conditions, "DisruptionTarget").is_some() {
                    tasks.push((Component::StaleDisruption, key.clone()));
                }
                if pod_gc::may_concern(view, pod) {
                    tasks.push((Component::PodGc, key.clone()));
                }
                if view.driving_since(&pod.spec.node_name).is_some() {
                    tasks.push((Component::TaintEviction, key.clone()));
                }
                if scheduler::is_worth_a_look(before.as_deref(), pod) {
                    tasks.push((Component::Scheduler, key));
                }
            }
            if let Some(pod) = before.as_ref().or(after.as_ref())
                && view.static_pods.get(&pod.key()).is_some()
            {
                tasks.push((Component::StaticPod, pod.key()));
            }
            match scheduler::help_by_pod(before.as_deref(), after.as_deref()) {
                QueueingHint::No => {}
                QueueingHint::Room => {
                    let node = before.as_ref().map_or("", |pod| pod.spec.node_name.as_str());
                    tasks.push((Component::Waiting, Key::new("", node)));
                    let kept_away = before.as_ref().is_some_and(|pod| !pod.affinity_terms().apart.is_empty());
                    tasks.extend(kept_away.then(|| (Component::Waiting, Key::new("", ANYWHERE))));
                }
                QueueingHint::Company => tasks.push((Component::Waiting, Key::new("", ""))),
            }
        }
        Change::Node { before, after } => {
            let helped = scheduler::helped_by_node(before.as_deref(), after.as_deref());
            if helped {
                tasks.push((Component::Waiting, Key::new("", ANYWHERE)));
            }
            if helped || after.is_none() {
                tasks.extend(view.daemon_sets.iter().map(|(key, _)| (Component::DaemonSet, key.clone())));
            }
            if let (Some(node), None) = (before, after) {
                let pods = view.pods_on(&node.metadata.name);
                tasks.extend(pods.map(|pod| (Component::PodGc, pod.key())));
            }
            if let Some(node) = after {
                tasks.push((Component::Node, node.key()));
                tasks.push((Component::NodeLifecycle, node.key()));
                let pods = || view.pods_on(&node.metadata.name);
                let new = before.as_ref().is_none_or(|before| before.metadata.uid != node.metadata.uid);
                tasks.extend(new.then(|| (Component::Heartbeat, node.key())));
                tasks.extend(mirrors_of(view, &node.metadata.name).filter(|_| new));
                if before.as_ref().is_none_or(|before| before.is_ready() != node.is_ready()) {
                    tasks.extend(pods().map(|pod| (Component::Kubelet, pod.key())));
                    // Whether pods are driven off a lost node depends on how many others are lost.
                    let lost =
                        view.unready_nodes().map(|name| (Component::NodeLifecycle, Key::new("", name)));
                    tasks.extend(lost);
                }
                if before.as_ref().is_none_or(|before| before.spec.taints != node.spec.taints) {
                    let driving = view.driving_since(&node.metadata.name).is_some();
                    tasks.extend(pods().filter(|_| driving).map(|pod| (Component::TaintEviction, pod.key())));
                    let leaving = pods().filter(|pod| pod.is_deleting());
                    tasks.extend(leaving.map(|pod| (Component::PodGc, pod.key())));
                }
            }
        }
        Change::ReplicaSet { before, after } => {
            for set in before.iter().chain(after) {
                if let Some(owner) = set.metadata.controller().filter(|owner| owner.kind == "Deployment") {
                    tasks.push((Component::Deployment, Key::new(&set.metadata.namespace, &owner.name)));
                }
            }
            tasks.extend(after.iter().map(|set| (Component::ReplicaSet, set.key())));
        }
        Change::Revision { revision } => {
            if let Some(owner) = revision.metadata.controller() {
                let key = Key::new(&revision.metadata.namespace, &owner.name);
                match owner.kind.as_str() {
                    "StatefulSet" => tasks.push((Component::StatefulSet, key)),
                    "DaemonSet" => tasks.push((Component::DaemonSet, key)),
                    _ => {}
                }
            }
        }
        Change::Other { resource, key } => {
            let component = match resource {
                Resource::Deployments => Component::Deployment,
                Resource::StatefulSets => Component::StatefulSet,
                Resource::DaemonSets => Component::DaemonSet,
                Resource::Jobs => Component::Job,
                Resource::Budgets => Component::Budget,
                Resource::Claims => Component::Claim,
                Resource::Autoscalers => Component::Autoscaler,
                _ => return tasks,
            };
            if *resource == Resource::Deployments {
                let over = view.autoscalers.in_namespace(&key.namespace);
                let over = over.filter(|(_, it)| *it.spec.scale_target_ref.name == *key.name);
                tasks.extend(over.map(|(over, _)| (Component::Autoscaler, over.clone())));
            }
            tasks.push((component, key.clone()));
        }
    }
    tasks
}

/// Room may be on any node; no node has this name.
const ANYWHERE: &str = "*";

/// The pods that were refused and may find a node now.
pub(crate) fn waiting(view: &View, (component, place): &Task) -> Vec<Task> {
    if *component != Component::Waiting {
        return Vec::new();
    }
    let helped =
        view.refused().filter(|pod| &*place.name == ANYWHERE || scheduler::is_helped(view, pod, &place.name));
    helped.map(|pod| (Component::Scheduler, pod.key())).collect()
}

fn owner_of_pod(view: &View, pod: &Pod, owner: &Owner, gone: bool, tasks: &mut Vec<Task>) {
    let key = Key::new(&pod.metadata.namespace, &owner.name);
    let component = match owner.kind.as_str() {
        "ReplicaSet" => {
            // A deployment that recreates waits for the last old pod.
            let set = view.replica_sets.get(&key).filter(|_| gone || pod.is_terminal());
            if let Some(deployment) = set.and_then(|set| set.metadata.controller()) {
                tasks.push((Component::Deployment, Key::new(&key.namespace, &deployment.name)));
            }
            Component::ReplicaSet
        }
        "StatefulSet" => Component::StatefulSet,
        "DaemonSet" => Component::DaemonSet,
        "Job" => Component::Job,
        _ => return,
    };
    tasks.push((component, key));
}

/// The sets that may take in a pod that nothing controls.
fn who_wants(view: &View, orphan: &Pod, tasks: &mut Vec<Task>) {
    let namespace = &orphan.metadata.namespace;
    let mut add = |component, key: &Key, selector: &Value| {
        if adoption::is_wanted(selector, orphan) {
            tasks.push((component, key.clone()));
        }
    };
    for (key, set) in view.replica_sets.in_namespace(namespace) {
        add(Component::ReplicaSet, key, &set.spec.selector);
    }
    for (key, set) in view.stateful_sets.in_namespace(namespace) {
        add(Component::StatefulSet, key, &set.spec.selector);
    }
    for (key, set) in view.daemon_sets.in_namespace(namespace) {
        add(Component::DaemonSet, key, &set.spec.selector);
    }
    for (key, job) in view.jobs.in_namespace(namespace) {
        add(Component::Job, key, &job.spec.selector);
    }
}
