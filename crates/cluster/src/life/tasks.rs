//! Who has to look at what, after a change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use super::controllers::{
    claims, daemon_set, deployment, disruption, job, node_lifecycle, pod_gc, replica_set, stateful_set,
    taint_eviction,
};
use super::plan::Plan;
use super::view::{Change, Owner, Pod, Resource, View};
use super::{Times, kubelet, scheduler};
use crate::store::Key;

/// A component and the object it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    Node,
    Kubelet,
    Scheduler,
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
}

pub type Task = (Component, Key);

impl Component {
    /// The user that it acts as, and what it says it is.
    pub fn identity(self) -> (&'static str, &'static str) {
        match self {
            Self::Node | Self::Kubelet => ("system:node", "kubelet"),
            Self::Scheduler => ("system:kube-scheduler", "kube-scheduler"),
            Self::ReplicaSet => ("system:serviceaccount:kube-system:replicaset-controller", CONTROLLERS),
            Self::Deployment => ("system:serviceaccount:kube-system:deployment-controller", CONTROLLERS),
            Self::StatefulSet => ("system:serviceaccount:kube-system:statefulset-controller", CONTROLLERS),
            Self::DaemonSet => ("system:serviceaccount:kube-system:daemon-set-controller", CONTROLLERS),
            Self::Job => ("system:serviceaccount:kube-system:job-controller", CONTROLLERS),
            Self::PodGc => ("system:serviceaccount:kube-system:pod-garbage-collector", CONTROLLERS),
            Self::NodeLifecycle => ("system:serviceaccount:kube-system:node-controller", CONTROLLERS),
            Self::TaintEviction => {
                ("system:serviceaccount:kube-system:taint-eviction-controller", CONTROLLERS)
            }
            Self::Claim => ("system:serviceaccount:kube-system:persistent-volume-binder", CONTROLLERS),
            Self::Budget | Self::StaleDisruption => {
                ("system:serviceaccount:kube-system:disruption-controller", CONTROLLERS)
            }
        }
    }
}

impl Component {
    pub const ALL: [Self; 14] = [
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
    ];

    /// The name of its client, for fault rules. What all of them read is asked for by [`INFORMERS`].
    pub fn client(self) -> &'static str {
        let (user, agent) = self.identity();
        if agent == CONTROLLERS { user.rsplit(':').next().unwrap_or(user) } else { agent }
    }
}

/// The client of the lists and watches that the components share.
pub const INFORMERS: &str = "informers";

const CONTROLLERS: &str = "kube-controller-manager";

pub fn decide(view: &View, (component, key): &Task, times: &Times, now: Timestamp) -> Plan {
    match component {
        Component::Node => kubelet::decide_node(view, key, now),
        Component::Kubelet => kubelet::decide(view, key, times, now),
        Component::Scheduler => scheduler::decide(view, key, now),
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
    }
}

/// Everybody whom it concerns that the kubelet of a node has fallen silent or is back.
pub fn concerned_by_kubelet(view: &View, node: &str) -> Vec<Task> {
    let of_node =
        [Component::Node, Component::NodeLifecycle].map(|component| (component, Key::new("", node)));
    let of_pods = view.pods_on(node).map(|pod| (Component::Kubelet, pod.key()));
    of_node.into_iter().chain(of_pods).collect()
}

/// Everybody whom a change concerns.
pub fn concerned(view: &View, change: &Change) -> Vec<Task> {
    let mut tasks = Vec::new();
    match change {
        Change::Pod { before, after } => {
            for pod in before.iter().chain(after) {
                if let Some(owner) = pod.metadata.controller() {
                    owner_of_pod(view, pod, owner, after.is_none(), &mut tasks);
                }
                tasks.extend(view.budgets_for(pod).map(|key| (Component::Budget, key.clone())));
            }
            if let Some(pod) = after {
                let key = pod.key();
                tasks.push((Component::Kubelet, key.clone()));
                tasks.push((Component::StaleDisruption, key.clone()));
                if pod_gc::may_concern(view, pod) {
                    tasks.push((Component::PodGc, key.clone()));
                }
                if view.driving_since(&pod.spec.node_name).is_some() {
                    tasks.push((Component::TaintEviction, key.clone()));
                }
                tasks.push((Component::Scheduler, key));
            }
            let was_there = before.as_ref().is_some_and(|pod| takes_room(pod));
            let is_there = after.as_ref().is_some_and(|pod| takes_room(pod));
            if was_there && !is_there {
                reschedule(view, &mut tasks);
            } else if is_there && !was_there {
                // It may be the company that others wait for.
                let key = |key: &&Key| {
                    view.pods.get(key).is_some_and(|pod| !pod.spec.affinity.pod_affinity.required.is_empty())
                };
                tasks.extend(view.unscheduled().filter(key).map(|key| (Component::Scheduler, key.clone())));
            }
        }
        Change::Node { before, after } => {
            reschedule(view, &mut tasks);
            tasks.extend(view.daemon_sets.iter().map(|(key, _)| (Component::DaemonSet, key.clone())));
            if let (Some(node), None) = (before, after) {
                let pods = view.pods_on(&node.metadata.name);
                tasks.extend(pods.map(|pod| (Component::PodGc, pod.key())));
            }
            if let Some(node) = after {
                tasks.push((Component::Node, node.key()));
                tasks.push((Component::NodeLifecycle, node.key()));
                let pods = || view.pods_on(&node.metadata.name);
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
                _ => return tasks,
            };
            tasks.push((component, key.clone()));
        }
    }
    tasks
}

fn takes_room(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_terminal()
}

/// Room may have appeared.
fn reschedule(view: &View, tasks: &mut Vec<Task>) {
    tasks.extend(view.unscheduled().map(|key| (Component::Scheduler, key.clone())));
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

/// What is to be looked at: now in order of arrival, or at a time. A task is in it once.
#[derive(Debug, Default)]
pub struct Queue {
    order: VecDeque<Task>,
    queued: BTreeSet<Task>,
    /// Tasks whose actions are under way, and whether they are to be looked at again afterwards.
    busy: BTreeMap<Task, bool>,
    /// Pods that wait until the scheduler is done with another one, so that no room is given away twice.
    waiting: VecDeque<Task>,
    times: BTreeSet<(Timestamp, Task)>,
    time_of: BTreeMap<Task, Timestamp>,
    failures: BTreeMap<Task, u32>,
}

impl Queue {
    pub fn add(&mut self, task: Task) {
        if let Some(again) = self.busy.get_mut(&task) {
            *again = true;
        } else if self.queued.insert(task.clone()) {
            self.order.push_back(task);
        }
    }

    /// Look at it at that time, unless an earlier one is set already.
    pub fn add_at(&mut self, task: Task, at: Timestamp) {
        if let Some(known) = self.time_of.get(&task) {
            if *known <= at {
                return;
            }
            self.times.remove(&(*known, task.clone()));
        }
        self.time_of.insert(task.clone(), at);
        self.times.insert((at, task));
    }

    /// After a failure: later and later, up to a quarter of an hour.
    pub fn retry(&mut self, task: Task, now: Timestamp) {
        let failures = self.failures.entry(task.clone()).or_default();
        let millis = 10_i64.saturating_mul(1 << (*failures).min(17)).min(900_000);
        *failures += 1;
        self.add_at(task, now + jiff::SignedDuration::from_millis(millis));
    }

    pub fn next_time(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Moves what is due into the order.
    pub fn wake(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.times.first()
            && *at <= now
            && let Some((_, task)) = self.times.pop_first()
        {
            self.time_of.remove(&task);
            self.add(task);
        }
    }

    /// The next task; it is busy until [`Queue::done`].
    pub fn take(&mut self) -> Option<Task> {
        while let Some(task) = self.order.pop_front() {
            let scheduling = |task: &Task| task.0 == Component::Scheduler;
            if scheduling(&task) && self.busy.keys().any(scheduling) {
                self.waiting.push_back(task);
                continue;
            }
            self.queued.remove(&task);
            self.busy.insert(task.clone(), false);
            return Some(task);
        }
        None
    }

    /// Forgets all that is waiting or set for a time, and earlier failures; what is under way comes back by
    /// [`Queue::done`].
    pub fn forget(&mut self, mine: impl Fn(&Task) -> bool) {
        self.order.retain(|task| !mine(task));
        self.waiting.retain(|task| !mine(task));
        self.queued.retain(|task| !mine(task));
        self.times.retain(|(_, task)| !mine(task));
        self.time_of.retain(|task, _| !mine(task));
        self.failures.retain(|task, _| !mine(task));
        self.busy.iter_mut().filter(|(task, _)| mine(task)).for_each(|(_, again)| *again = false);
    }

    pub fn done(&mut self, task: Task, succeeded: bool) {
        let again = self.busy.remove(&task).unwrap_or_default();
        if succeeded {
            self.failures.remove(&task);
        }
        if task.0 == Component::Scheduler {
            self.order.extend(self.waiting.drain(..));
        }
        if again {
            self.add(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn task(component: Component, name: &str) -> Task {
        (component, Key::new("default", name))
    }

    #[test]
    fn a_task_waits_once_and_is_looked_at_again_if_it_changed_while_busy() {
        let mut queue = Queue::default();
        let web = task(Component::ReplicaSet, "web");
        queue.add(web.clone());
        queue.add(web.clone());
        assert_eq!((queue.take(), queue.take()), (Some(web.clone()), None));
        queue.add(web.clone());
        assert_eq!(queue.take(), None, "it is busy");
        queue.done(web.clone(), true);
        assert_eq!(queue.take(), Some(web));
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut queue = Queue::default();
        let [web, busy, late] = ["web", "busy", "late"].map(|name| task(Component::ReplicaSet, name));
        let other = task(Component::Job, "other");
        queue.add(busy.clone());
        assert_eq!(queue.take(), Some(busy.clone()));
        for task in [&busy, &web, &other] {
            queue.add(task.clone());
        }
        queue.add_at(late.clone(), at(10));
        queue.retry(web.clone(), at(0));
        queue.forget(|task| task.0 == Component::ReplicaSet);
        assert_eq!((queue.next_time(), queue.take(), queue.take()), (None, Some(other), None));
        queue.done(busy, false);
        assert_eq!(queue.take(), None, "nobody looks at it again");
        queue.add(web.clone());
        assert_eq!(queue.take(), Some(web.clone()));
        queue.retry(web, at(0));
        assert_eq!(queue.next_time().unwrap().as_millisecond(), 10, "earlier failures are forgotten");
    }

    #[test]
    fn pods_are_scheduled_one_after_another() {
        let mut queue = Queue::default();
        let [a, b] = ["a", "b"].map(|name| task(Component::Scheduler, name));
        queue.add(a.clone());
        queue.add(b.clone());
        assert_eq!((queue.take(), queue.take()), (Some(a.clone()), None));
        queue.done(a, true);
        assert_eq!(queue.take(), Some(b));
    }

    #[test]
    fn the_earliest_time_counts_and_failures_back_off() {
        let mut queue = Queue::default();
        let web = task(Component::ReplicaSet, "web");
        queue.add_at(web.clone(), at(20));
        queue.add_at(web.clone(), at(10));
        queue.add_at(web.clone(), at(30));
        assert_eq!(queue.next_time(), Some(at(10)));
        queue.wake(at(10));
        assert_eq!((queue.take(), queue.next_time()), (Some(web.clone()), None));
        queue.done(web.clone(), false);
        let mut waits = Vec::new();
        for _ in 0..20 {
            queue.retry(web.clone(), at(0));
            let next = queue.next_time().unwrap();
            waits.push(next.as_millisecond());
            queue.wake(next);
            queue.take();
            queue.done(web.clone(), false);
        }
        assert_eq!((waits[0], waits[1], waits[2], waits[19]), (10, 20, 40, 900_000));
    }
}
