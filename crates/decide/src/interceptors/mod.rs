//! The bundled interceptors: what each does when it has the turn on a request.
//!
//! Each is a file of its own that holds what it knows and decides by it: [`daemon_set`], [`stateful_set`], [`deployment`]. They keep the contract that
//! authors of other interceptors keep: they act in their turn only, report progress that there is, and complete or end the pod.

mod at_a_time;
pub mod availability;
pub mod carry_out;
pub mod daemon_set;
pub mod deployment;
mod records;
mod replica_set;
#[cfg(test)]
mod samples;
pub mod stateful_set;
pub mod surge;
mod waiting_report;

pub use surge::NewHandOver;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use usher_api::EvictionRequestCancellationPolicy as Policy;
use usher_api::report::{Report, beat_interval};
use usher_api::workloads::{BundledInterceptor, Strategy, UnknownStrategy};

use self::carry_out::Depends;
use self::daemon_set::DaemonSets;
use self::deployment::{Deployments, HandOver};
use self::stateful_set::StatefulSets;
use crate::decision;
use crate::eviction_request::message::said_in_turn;
use crate::eviction_request::overdue_at;
use crate::snapshot::{
    Autoscaler, DaemonSet, Deployment, Key, Maintenance, Namespace, Owner, Pod, RaisedLimits, ReplicaSet,
    Request, StatefulSet, Surge, WatchEvent,
};

/// What is decided.
pub type Decision = decision::Decision<Effect, Wait>;

/// What watches tell to interceptors. Each hears of what it asked for.
#[derive(Debug)]
pub enum Event {
    Pod(WatchEvent<Arc<Pod>, Key>),
    Request(WatchEvent<Arc<Request>, Key>),
    DaemonSet(WatchEvent<Arc<DaemonSet>, Key>),
    StatefulSet(WatchEvent<StatefulSet, Key>),
    Deployment(WatchEvent<Deployment, Key>),
    ReplicaSet(WatchEvent<ReplicaSet, Key>),
    Autoscaler(WatchEvent<Autoscaler, Key>),
    Namespace(WatchEvent<Arc<Namespace>, Arc<str>>),
    Maintenance(WatchEvent<Arc<Maintenance>, Arc<str>>),
    /// The manager must not read what there is to watch.
    NotAllowed(Watch),
}

impl Event {
    /// What it is told by.
    pub fn watch(&self) -> Watch {
        match self {
            Self::Pod(_) => Watch::Pods,
            Self::Request(_) => Watch::Requests,
            Self::DaemonSet(_) => Watch::DaemonSets,
            Self::StatefulSet(_) => Watch::StatefulSets,
            Self::Deployment(_) => Watch::Deployments,
            Self::ReplicaSet(_) => Watch::ReplicaSets,
            Self::Autoscaler(_) => Watch::Autoscalers,
            Self::Namespace(_) => Watch::Namespaces,
            Self::Maintenance(_) => Watch::Maintenances,
            Self::NotAllowed(watch) => *watch,
        }
    }

    /// A list is complete.
    pub fn is_listed(&self) -> bool {
        match self {
            Self::Pod(event) => event.is_listed(),
            Self::Request(event) => event.is_listed(),
            Self::DaemonSet(event) => event.is_listed(),
            Self::StatefulSet(event) => event.is_listed(),
            Self::Deployment(event) => event.is_listed(),
            Self::ReplicaSet(event) => event.is_listed(),
            Self::Autoscaler(event) => event.is_listed(),
            Self::Namespace(event) => event.is_listed(),
            Self::Maintenance(event) => event.is_listed(),
            Self::NotAllowed(_) => false,
        }
    }
}

/// What there are watches of for interceptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    Pods,
    Requests,
    Namespaces,
    Maintenances,
    DaemonSets,
    StatefulSets,
    Deployments,
    ReplicaSets,
    Autoscalers,
}

impl Watch {
    /// The kind, as roles name it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Requests => "evictionrequests",
            Self::Namespaces => "namespaces",
            Self::Maintenances => "nodemaintenances",
            Self::DaemonSets => "daemonsets",
            Self::StatefulSets => "statefulsets",
            Self::Deployments => "deployments",
            Self::ReplicaSets => "replicasets",
            Self::Autoscalers => "horizontalpodautoscalers",
        }
    }
}

/// What is decided on, one at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// Which pods of DaemonSets are kept off which nodes.
    HeldNodes,
    /// A request by itself.
    Request(Key),
    /// A workload, with all requests for its pods.
    Workload(Key),
    /// A ReplicaSet that says how many of its pods go at a time.
    ReplicaSet(Key),
    /// A pod that waits behind the gate of node maintenance.
    GatedPod(Key),
}

/// What is worth a look.
#[derive(Debug, Default)]
pub struct Pending {
    pub now: BTreeSet<Item>,
    /// A look at these costs so much that it is taken for several events at once.
    pub at: BTreeMap<Item, Timestamp>,
}

impl From<BTreeSet<Item>> for Pending {
    fn from(now: BTreeSet<Item>) -> Self {
        Self { now, at: BTreeMap::new() }
    }
}

/// A bundled interceptor that knows nothing yet.
pub fn of(which: BundledInterceptor, hand_over: HandOver) -> Box<dyn WorkloadInterceptor> {
    match which {
        BundledInterceptor::DaemonSet => Box::<DaemonSets>::default(),
        BundledInterceptor::StatefulSet => Box::<StatefulSets>::default(),
        BundledInterceptor::Deployment => Box::new(Deployments::new(hand_over)),
    }
}

/// A bundled interceptor: what it knows, and what it decides by it.
pub trait WorkloadInterceptor: Send {
    /// What it has to be told of.
    fn watches(&self) -> &'static [Watch];

    fn observe(&mut self, event: Event, now: Timestamp);

    /// What has become worth a look since the last call.
    fn pending(&mut self) -> Pending;

    fn decide(&mut self, item: &Item, now: Timestamp) -> Decision;

    /// An effect was carried out, or refused for good.
    fn carried_out(&mut self, effect: &Effect, outcome: &EffectOutcome, now: Timestamp) {
        let _ = (effect, outcome, now);
    }
}

/// What came of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectOutcome {
    Done,
    /// The server does not take it, and will not the next time: why, in its own words.
    Refused(String),
    /// What was to be made has the name of something else.
    NameTaken,
}

/// One write, for the request or pod that was looked at and no other.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Reports on a request. Refused if the request has changed since.
    Report { request: Arc<Request>, report: Box<Report> },
    /// The same, if so many pods are available as the server has them: a watch may be late, and by then the pod cannot be called back.
    ReportIfAvailable {
        request: Arc<Request>,
        report: Box<Report>,
        pods: Arc<AvailablePods>,
        at_least: usize,
    },
    /// Deletes the pod of that UID. With a version it is one that waits behind the gate, and goes only if it has not changed since.
    DeletePod { pod: Arc<Pod>, version: Option<String> },
    /// Tells admission which pods are kept off which nodes: all of it.
    HoldNodes(Arc<BTreeMap<String, String>>),
    /// The ReplicaSet is to delete the pod of that UID before others, or not any more: the cost of its deletion, and the one that its
    /// owner gave it, kept beside a mark of ours. What is `None` is taken off.
    Prefer { pod: Arc<Pod>, cost: Option<String>, before: Option<String> },
    /// Scales the Deployment, and remembers by how much that is more than its owner wants, in one write. Refused if it has changed since.
    Resize { deployment: Box<Deployment>, replicas: u32, surge: Option<Surge> },
    /// The same with the limits of an autoscaler.
    Limit { autoscaler: Box<Autoscaler>, min_replicas: u32, max_replicas: u32, raised: Option<RaisedLimits> },
    /// Makes a pod that is to take the place of another one.
    MakeHandOver(Box<NewHandOver>),
    /// Has the ReplicaSet adopt a pod that was made for that. Refused if the pod has changed since.
    HandOver { pod: Arc<Pod>, hash: Arc<str> },
    /// Deletes such a pod, which is not needed any more. Refused if the pod has changed since.
    DropHandOver { pod: Arc<Pod> },
    /// Records an event on the workload.
    RecordEvent {
        namespace: Arc<str>,
        workload: Owner,
        is_warning: bool,
        reason: &'static str,
        message: String,
    },
}

/// The pods of a workload that are available.
#[derive(Debug, Clone, PartialEq)]
pub struct AvailablePods {
    pub owner_uid: Arc<str>,
    pub selector: Arc<Selector>,
    pub min_ready_seconds: u32,
}

impl AvailablePods {
    /// How many there are among these.
    pub fn count(&self, pods: &[Pod], now: Timestamp) -> usize {
        let is_one = |pod: &&Pod| {
            let is_its = pod.owner.as_ref().is_some_and(|owner| owner.uid == self.owner_uid);
            is_its && availability::why_unavailable(pod, self.min_ready_seconds, now).is_none()
        };
        pods.iter().filter(is_one).count()
    }
}

impl Effect {
    /// On what it depends: what was not reported on a pod is not done to it either, and others go on. What is about no pod goes together.
    pub fn depends(&self) -> Depends<Option<Arc<str>>> {
        match self {
            Self::Report { request, .. } | Self::ReportIfAvailable { request, .. } => {
                Depends::On(Some(request.pod_uid.clone()))
            }
            Self::DeletePod { pod, .. } | Self::HandOver { pod, .. } | Self::DropHandOver { pod } => {
                Depends::On(Some(pod.uid.clone()))
            }
            // A mark says whom a ReplicaSet gives up first, and nothing about the turn.
            Self::Prefer { pod, .. } => Depends::Beside(Some(pod.uid.clone())),
            Self::HoldNodes(_)
            | Self::Resize { .. }
            | Self::Limit { .. }
            | Self::MakeHandOver(_)
            | Self::RecordEvent { .. } => Depends::On(None),
        }
    }
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// No maintenance of the node reaches the pod.
    NotReached,
    /// Admission is about to be told to keep the next pod off the node.
    HeldNodes,
    /// Pods like it came back: the next one is taken off later.
    CameBack { until: Timestamp },
    /// The pod is on its way out.
    Terminating,
    /// Others of the workload come first.
    Others,
    /// Other pods of the workload have to be available, and why they are not.
    Unavailable { reason: &'static str },
}

impl Wait {
    /// One word, for labels of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotReached => "NotReached",
            Self::HeldNodes => "HeldNodes",
            Self::CameBack { .. } => "CameBack",
            Self::Terminating => "Terminating",
            Self::Others => "Others",
            Self::Unavailable { reason } => reason,
        }
    }
}

/// Somebody still wants the pod gone.
pub fn is_wanted(request: &Request) -> bool {
    request.requesters().next().is_some()
        || request.status.eviction_request_cancellation_policy == Policy::Forbid
}

/// The request is this class's, and somebody still wants the pod gone.
pub fn has_turn(request: &Request, class: &str) -> bool {
    request.status.active_interceptor_class.as_deref() == Some(class)
        && !request.status.active_interceptor_completed
        && request.skips_interceptors().is_none()
        && is_wanted(request)
}

/// The manager has the interceptor, and not its role: nothing can be done, and the deadline passes the turn on.
fn unread_report(
    request: Option<&Arc<Request>>,
    unread: &BTreeSet<Watch>,
    which: BundledInterceptor,
) -> Decision {
    let Some(request) = request else { return Decision::default() };
    let mut kinds: Vec<&str> = unread.iter().map(|watch| watch.plural()).collect();
    kinds.sort_unstable();
    let name = which.name();
    let message = format!(
        "Usher's account may not list {}, so that nothing is done before the pod leaves: give it the role in \
         deploy/workloads/{name}-role.yaml, or leave {name} out of the manager's flag --interceptors",
        kinds.join(" and ")
    );
    say(request, message).into_iter().fold(Decision::default(), Decision::act)
}

/// What a request waits for, unless that is said already. It is no progress.
fn say(request: &Arc<Request>, message: String) -> Option<Effect> {
    let is_said = request.status.message == message;
    let report = Report { message: Some(message), ..Report::default() };
    (!is_said).then(|| Effect::Report { request: request.clone(), report: Box::new(report) })
}

/// The interceptor of this class has had its turn on the request.
fn was_given_over(request: &Request, class: &str) -> bool {
    let place = |class: &str| request.interceptors.iter().position(|it| it.interceptor_class == class);
    let Some(ours) = place(class) else { return false };
    if request.skips_interceptors().is_some() {
        return true;
    }
    match request.status.active_interceptor_class.as_deref() {
        Some(active) if active == class => request.status.active_interceptor_completed,
        Some(active) => place(active).is_some_and(|active| active > ours),
        None => false,
    }
}

/// Nothing has been reported in this turn yet, so that the first report is progress; not in a turn that is over for its silence.
fn is_first_report(request: &Request, now: Timestamp) -> bool {
    let has_reported = request.is_progress_reported && said_in_turn(request).is_some();
    !has_reported && now < overdue_at(request)
}

/// A sign of life is due at this time.
pub fn next_beat(request: &Request) -> Timestamp {
    let interval = beat_interval(request.deadline.try_into().unwrap_or_default());
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::ZERO);
    let Some(Time(last)) = &request.status.progress_timestamp else { return Timestamp::MIN };
    last.saturating_add(interval).unwrap_or(Timestamp::MAX)
}

/// The turn is over: nothing more is to be done for this pod.
fn complete(request: &Arc<Request>, message: String) -> Effect {
    Effect::Report { request: request.clone(), report: completion(message) }
}

fn completion(message: String) -> Box<Report> {
    Box::new(Report { completed: true, message: Some(message), ..Report::default() })
}

/// There is progress.
fn progress(request: &Arc<Request>, finish: Option<Timestamp>, message: String) -> Effect {
    let report = Report { progress: true, finish, message: Some(message), ..Report::default() };
    Effect::Report { request: request.clone(), report: Box::new(report) }
}

/// A workload whose annotation means nothing: an event says so, once for each value.
fn unknown_strategy_event(
    told: &mut HashMap<Key, String>,
    key: &Key,
    workload: Owner,
    unknown: &UnknownStrategy,
) -> Decision {
    let effect = warn_once(told, key, workload, "UnknownEvictionRequestStrategy", unknown.describe());
    effect.into_iter().fold(Decision::default(), Decision::act)
}

/// A warning on a workload, once for each message.
fn warn_once(
    told: &mut HashMap<Key, String>,
    key: &Key,
    workload: Owner,
    reason: &'static str,
    message: String,
) -> Option<Effect> {
    if told.insert(key.clone(), message.clone()).as_ref() == Some(&message) {
        return None;
    }
    Some(Effect::RecordEvent {
        namespace: key.namespace.clone(),
        workload,
        is_warning: true,
        reason,
        message,
    })
}

fn owner_of(which: BundledInterceptor, key: &Key, uid: &Arc<str>) -> Owner {
    Owner {
        api_version: "apps/v1".into(),
        kind: which.kind().into(),
        name: key.name.clone(),
        uid: uid.clone(),
    }
}

/// What namespaces say for the workloads in them; those that say nothing are not kept.
#[derive(Debug, Default)]
struct Namespaces(HashMap<Arc<str>, Arc<Namespace>>);

impl Namespaces {
    /// The namespaces that say something else than before.
    fn changed(&mut self, event: WatchEvent<Arc<Namespace>, Arc<str>>) -> Vec<Arc<str>> {
        let told = event.store(&mut self.0, |namespace| namespace.name.clone());
        let mut changed = Vec::new();
        for (name, before) in told {
            let before = before.and_then(|before| before.strategy.clone());
            let after = self.0.get(&name).and_then(|after| after.strategy.clone());
            if after.is_none() {
                self.0.remove(&name);
            }
            if before != after {
                changed.push(name);
            }
        }
        changed
    }

    /// What counts for a workload with this annotation.
    fn strategy(
        &self,
        which: BundledInterceptor,
        key: &Key,
        own: Option<&str>,
    ) -> Result<Strategy, UnknownStrategy> {
        let namespace = self.0.get(&key.namespace).and_then(|namespace| namespace.strategy.as_deref());
        Strategy::of(which, own, namespace)
    }
}
