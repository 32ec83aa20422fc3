//! The descheduler: [`usher_descheduler`] holds what it knows, plans and decides whom to ask, and [`usher_apply::Descheduling`] carries
//! it out. Everything happens in cycles, one after the other.

mod objects;
pub mod policy_file;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::stream::SelectAll;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch as signal;
use usher_apply::usage::{Read as UsageRead, Sources};
use usher_apply::{Clock, DeschedulerName, Descheduling, Events, Failure};
use usher_decide::snapshot::{Key, Request, WatchEvent};
use usher_descheduler::requester::{
    Asked, Effect, Memory, Options as RequesterOptions, PodId, PodMarks, Requester, Way,
};
use usher_descheduler::{Cluster, Place, Plan, Planner, Policy, Proposal, Took, without_place};

use crate::feeds::Feeds;
use crate::observer::{Nobody, QueueObserver};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{EventStream, Keyed, watch};
use objects::Whole;

/// So many pods are asked at a time.
const AT_A_TIME: usize = 16;
/// Changes of nodes that call for a cycle are gathered for so long.
const GATHERED_FOR: SignedDuration = SignedDuration::from_secs(5);

/// How the descheduler runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long after a cycle the next one begins. Nothing: there is one cycle.
    pub interval: Option<SignedDuration>,
    /// A cycle also begins soon after a taint of a node has changed.
    pub on_change: bool,
    /// It plans, tells, and asks nobody.
    pub dry_run: bool,
    /// The cluster knows eviction requests; otherwise there are none to count.
    pub knows_requests: bool,
    pub requester: RequesterOptions,
    pub name: DeschedulerName,
}

/// Hears of what the descheduler does.
pub trait Observer: QueueObserver {
    /// A cycle was planned, and so long each plugin took.
    fn planned(&mut self, plan: &Plan, plugins: &[Took]) {
        let _ = (plan, plugins);
    }

    /// A cycle has ended, which took so long with all that was read before and asked after it.
    fn cycled(&mut self, took: std::time::Duration) {
        let _ = took;
    }

    fn asked(&mut self, proposal: &Proposal, by: Way, asked: &Asked) {
        let _ = (proposal, by, asked);
    }

    /// So many pods are under way by the descheduler.
    fn under_way(&mut self, pods: usize) {
        let _ = pods;
    }

    /// A policy was read, or refused.
    fn policy(&mut self, is_good: bool) {
        let _ = is_good;
    }
}

impl Observer for Nobody {}

/// The policy, and each that takes its place, or why it is refused. It does not end.
pub type Policies = EventStream<Result<Policy, String>>;

/// Subscribes, and returns what runs the descheduler until it is asked to stop, or after its only cycle.
pub fn run_until<S: Future<Output = ()>>(
    feeds: &mut Feeds,
    client: Client,
    clock: Clock,
    options: Options,
    policies: Policies,
    observer: Box<dyn Observer>,
    stop: S,
) -> impl Future<Output = ()> + use<S> {
    let apply =
        Descheduling::new(client.clone(), Events::start(client.clone(), clock.clone()), options.name.clone());
    let mut streams: Vec<EventStream<Event>> = vec![
        watch::<Node, Whole<Node>>(client.clone()).map(Event::Node).boxed(),
        watch::<Pod, Whole<Pod>>(client.clone()).map(Event::Pod).boxed(),
        watch::<Namespace, Whole<Namespace>>(client.clone()).map(Event::Namespace).boxed(),
        watch::<PodDisruptionBudget, Whole<PodDisruptionBudget>>(client.clone()).map(Event::Budget).boxed(),
        watch::<PriorityClass, Whole<PriorityClass>>(client.clone()).map(Event::PriorityClass).boxed(),
        watch::<PersistentVolumeClaim, Whole<PersistentVolumeClaim>>(client.clone())
            .map(Event::Claim)
            .boxed(),
        policies.map(|policy| Event::Policy(Box::new(policy))).boxed(),
        remembered(apply.clone()),
    ];
    if options.knows_requests {
        streams.push(feeds.requests().map(Event::Request).boxed());
    }
    let (ended, mut end) = signal::channel(false);
    let controller = Controller {
        requester: Requester::new(RequesterOptions {
            instance: options.name.to_string(),
            // The next one may be hours away, and begins with nothing.
            unwanted_cycles: if options.interval.is_none() { 1 } else { options.requester.unwanted_cycles },
            // Cycles that changes call for come in between.
            interval: options.interval.unwrap_or_default(),
            ..options.requester.clone()
        }),
        options,
        client,
        apply,
        observer,
        cluster: Cluster::default(),
        planner: Planner::default(),
        policy: None,
        usage_at: None,
        known: Known::default(),
        kinds: streams.len(),
        told: BTreeSet::new(),
        last: None,
        is_wanted: None,
        begun: None,
        is_ending: false,
        ended,
    };
    let events: SelectAll<EventStream<Event>> = futures::stream::select_all(streams);
    reconcile::run(controller, events, clock, async move {
        tokio::select! {
            () = stop => {}
            _ = end.wait_for(|ended| *ended) => {}
        }
    })
}

/// What was remembered before this process began, once it can be read.
fn remembered(apply: Descheduling) -> EventStream<Event> {
    let read = async move {
        let mut pauses = crate::pauses::Pauses::default();
        loop {
            match apply.remembered().await {
                Ok(memory) => return Event::Remembered(memory),
                Err(why) => tracing::warn!(?why, "what the descheduler remembered cannot be read"),
            }
            if let Some(pause) = pauses.next() {
                tokio::time::sleep(pause).await;
            }
        }
    };
    // The stream must not end: that would end the controller.
    futures::stream::once(read).chain(futures::stream::pending()).boxed()
}

type OfKind<K> = WatchEvent<Whole<K>, Key>;
type OfClusterKind<K> = WatchEvent<Whole<K>, Arc<str>>;

enum Event {
    Node(OfClusterKind<Node>),
    Pod(OfKind<Pod>),
    Namespace(OfClusterKind<Namespace>),
    Budget(OfKind<PodDisruptionBudget>),
    PriorityClass(OfClusterKind<PriorityClass>),
    Claim(OfKind<PersistentVolumeClaim>),
    Request(WatchEvent<Arc<Request>, Key>),
    Policy(Box<Result<Policy, String>>),
    Remembered(Memory),
}

/// There is one thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Cycle;

/// What came of it.
enum Done {
    Usage(UsageRead),
    Asked {
        outcomes: Vec<(Proposal, Way, Asked)>,
        not_asked: Vec<Proposal>,
        not_withdrawn: Vec<Key>,
        is_saved: bool,
        failure: Option<Failure>,
    },
}

/// What there is of each kind: a new list tells what is gone by what it does not have.
#[derive(Default)]
struct Known {
    /// With a hash of their taints.
    nodes: HashMap<Arc<str>, (Arc<str>, u64)>,
    /// With their UIDs.
    pods: HashMap<Key, PodId>,
    namespaces: HashMap<Arc<str>, Arc<str>>,
    budgets: HashMap<Key, Key>,
    classes: HashMap<Arc<str>, Arc<str>>,
    claims: HashMap<Key, Key>,
    requests: HashMap<Key, Arc<Request>>,
}

struct Controller {
    options: Options,
    client: Client,
    apply: Descheduling,
    observer: Box<dyn Observer>,
    cluster: Cluster,
    planner: Planner,
    requester: Requester,
    policy: Option<Arc<Policy>>,
    /// When real usage was last read.
    usage_at: Option<Timestamp>,
    known: Known,
    /// So many kinds of events there are, and of these the first has come, or a list is complete.
    kinds: usize,
    told: BTreeSet<&'static str>,
    /// When the last cycle began.
    last: Option<Timestamp>,
    /// A cycle is wanted at this time, before the interval is over.
    is_wanted: Option<Timestamp>,
    /// When the cycle that is under way began: for the metric of that name, and decides nothing.
    begun: Option<std::time::Instant>,
    /// The only cycle is over.
    is_ending: bool,
    ended: signal::Sender<bool>,
}

impl Controller {
    fn learn_node(&mut self, event: OfClusterKind<Node>, now: Timestamp) {
        if let WatchEvent::Applied(Whole(node)) = &event {
            self.cluster.set_node(node);
        }
        let nodes = event.map(|node| (node.key(), hash_of_taints(&node.0)));
        for (name, before) in nodes.store(&mut self.known.nodes, |(name, _)| name.clone()) {
            let after = self.known.nodes.get(&name);
            if after.is_none() {
                self.cluster.remove_node(&name);
            }
            if self.options.on_change && before.is_some() && before.as_ref() != after {
                self.is_wanted.get_or_insert(later(now, GATHERED_FOR));
            }
        }
    }

    fn learn_pod(&mut self, event: OfKind<Pod>, now: Timestamp) {
        if let WatchEvent::Applied(Whole(pod)) = &event {
            self.cluster.set_pod(pod);
            self.requester.pod_changed(&id_of(pod), PodMarks::of(pod), now);
        }
        for (key, before) in event.map(|pod| id_of(&pod.0)).store(&mut self.known.pods, |pod| pod.key.clone())
        {
            let after = self.known.pods.get(&key);
            if after.is_none() {
                self.cluster.remove_pod(&key.namespace, &key.name);
            }
            if let Some(before) = before.filter(|before| after != Some(before)) {
                self.requester.pod_gone(&before, now);
            }
        }
    }

    fn learn_policy(&mut self, policy: Result<Policy, String>) {
        self.observer.policy(policy.is_ok());
        match policy {
            Ok(policy) => {
                tracing::info!(profiles = policy.profiles.len(), "a policy was read");
                let is_first = self.policy.is_none();
                self.policy = Some(Arc::new(policy));
                self.usage_at = None;
                if is_first {
                    self.is_wanted = Some(Timestamp::MIN);
                }
            }
            Err(why) if self.policy.is_some() => {
                tracing::error!("{why}; the policy before it holds");
            }
            Err(why) => tracing::error!("{why}; nothing is descheduled"),
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let by_interval = match (self.last, self.options.interval) {
            (None, _) => Some(Timestamp::MIN),
            (Some(last), Some(interval)) => Some(later(last, interval)),
            (Some(_), None) => None,
        };
        by_interval.into_iter().chain(self.is_wanted).min()
    }

    /// Plans a cycle, and says what is done about it.
    fn plan(&mut self, policy: &Policy, now: Timestamp) -> Vec<Effect> {
        let begun = std::time::Instant::now();
        let in_progress = self.requester.in_progress(now);
        let plan = self.planner.plan(&self.cluster, policy, &in_progress, now);
        self.observer.planned(&plan, self.planner.took());
        for problem in &plan.problems {
            tracing::warn!("{problem}");
        }
        for stopped in &plan.stops {
            tracing::info!(pods = stopped.pods, "{}", stopped.by);
        }
        tracing::info!(
            proposals = plan.proposals.len(),
            leaving = plan.still_wanted.len(),
            milliseconds = begun.elapsed().as_millis(),
            "a cycle was planned"
        );
        if self.options.dry_run {
            for proposal in &plan.proposals {
                let pod = &proposal.pod;
                tracing::info!(
                    namespace = pod.namespace, pod = pod.name, node = pod.node, plugin = %proposal.plugin,
                    profile = proposal.profile, reason = %proposal.reason, "would be asked to leave"
                );
            }
            return Vec::new();
        }
        self.requester.decide(&plan, now)
    }

    /// Where the pods count whose requests are withdrawn, by the request.
    fn places_of(&self, effects: &[Effect]) -> HashMap<Key, Place> {
        let place = |effect: &Effect| {
            let Effect::Withdraw { request, .. } = effect else { return None };
            let namespace = request.key.namespace.to_string();
            let node = self.cluster.node_of(&namespace, &request.pod_name).map(str::to_owned);
            Some((request.key.clone(), Place { namespace, node }))
        };
        effects.iter().filter_map(place).collect()
    }
}

impl Reconciler for Controller {
    type Event = Event;
    type Item = Cycle;
    type Done = Done;

    fn learn(&mut self, event: Event, now: Timestamp) {
        let (kind, is_told) = match &event {
            Event::Node(event) => ("nodes", event.is_listed()),
            Event::Pod(event) => ("pods", event.is_listed()),
            Event::Namespace(event) => ("namespaces", event.is_listed()),
            Event::Budget(event) => ("budgets", event.is_listed()),
            Event::PriorityClass(event) => ("priority classes", event.is_listed()),
            Event::Claim(event) => ("claims", event.is_listed()),
            Event::Request(event) => ("requests", event.is_listed()),
            Event::Policy(_) => ("policy", true),
            Event::Remembered(_) => ("cool-downs", true),
        };
        if is_told {
            self.told.insert(kind);
        }
        let cluster = &mut self.cluster;
        match event {
            Event::Node(event) => self.learn_node(event, now),
            Event::Pod(event) => self.learn_pod(event, now),
            Event::Namespace(event) => {
                if let WatchEvent::Applied(Whole(namespace)) = &event {
                    cluster.set_namespace(namespace);
                }
                for name in gone(event, &mut self.known.namespaces) {
                    cluster.remove_namespace(&name);
                }
            }
            Event::PriorityClass(event) => {
                if let WatchEvent::Applied(Whole(class)) = &event {
                    cluster.set_priority_class(class);
                }
                for name in gone(event, &mut self.known.classes) {
                    cluster.remove_priority_class(&name);
                }
            }
            Event::Budget(event) => {
                if let WatchEvent::Applied(Whole(budget)) = &event {
                    cluster.set_budget(budget);
                }
                for key in gone(event, &mut self.known.budgets) {
                    cluster.remove_budget(&key.namespace, &key.name);
                }
            }
            Event::Claim(event) => {
                if let WatchEvent::Applied(Whole(claim)) = &event {
                    cluster.set_claim(claim);
                }
                for key in gone(event, &mut self.known.claims) {
                    cluster.remove_claim(&key.namespace, &key.name);
                }
            }
            Event::Request(event) => {
                for (key, before) in event.store(&mut self.known.requests, |request| request.key.clone()) {
                    self.requester.request_changed(&key, self.known.requests.get(&key).cloned(), now);
                    let pod = |request: &Request| self.known.pods.get(&request.pod_key());
                    let is_there =
                        |request: &Arc<Request>| pod(request).is_some_and(|it| it.uid == request.pod_uid);
                    if let Some(before) = before.filter(is_there) {
                        self.requester.request_was(&before, now);
                    }
                }
                self.observer.under_way(self.requester.under_way());
            }
            Event::Policy(policy) => self.learn_policy(*policy),
            Event::Remembered(memory) => self.requester.remembered(memory),
        }
    }

    fn has_synced(&self) -> bool {
        self.told.len() == self.kinds
    }

    fn pending(&mut self, now: Timestamp) -> Pending<Cycle> {
        let Some(at) = self.is_wanted else { return Pending::default() };
        if at <= now {
            return Pending { now: vec![Cycle], ..Pending::default() };
        }
        Pending { at: [(Cycle, at)].into(), ..Pending::default() }
    }

    fn reconcile(&mut self, _: &Cycle, now: Timestamp) -> Reconciled<Done> {
        let Some(policy) = self.policy.clone() else { return Reconciled::waits(None) };
        if let Some(next) = self.next().filter(|next| *next > now) {
            return Reconciled::waits(Some(next));
        }
        self.begun.get_or_insert_with(std::time::Instant::now);
        let sources = Sources::of(&policy);
        let is_fresh = self.usage_at.is_some_and(|at| self.last.is_none_or(|last| at > last));
        if !sources.is_empty() && !is_fresh {
            let client = self.client.clone();
            let work = async move { Done::Usage(sources.read(client).await) };
            return Reconciled { again: None, work: Some(work.boxed()) };
        }
        (self.last, self.is_wanted) = (Some(now), None);
        let effects = match self.is_ending {
            true => self.requester.remember().into_iter().collect(),
            false => self.plan(&policy, now),
        };
        let places = self.places_of(&effects);
        let apply = self.apply.clone();
        let is_last = self.options.interval.is_none();
        let work = async move {
            let done = carry_out(&apply, effects, &policy, &places).await;
            if is_last {
                apply.told().await;
            }
            done
        };
        Reconciled { again: self.next(), work: Some(work.boxed()) }
    }

    fn finish(&mut self, _: &Cycle, done: Done, now: Timestamp) -> Result<(), Failure> {
        match done {
            Done::Usage(read) => {
                for why in read.tell(&mut self.cluster) {
                    tracing::warn!("{why}; plugins that go by it do nothing in this cycle");
                }
                (self.usage_at, self.is_wanted) = (Some(now), Some(now));
                Ok(())
            }
            Done::Asked { outcomes, not_asked, not_withdrawn, is_saved, failure } => {
                if is_saved {
                    self.requester.saved();
                }
                for proposal in &not_asked {
                    self.requester.not_asked(&proposal.pod);
                }
                for request in &not_withdrawn {
                    self.requester.not_withdrawn(request);
                }
                for (proposal, by, asked) in &outcomes {
                    self.requester.asked(&proposal.pod, asked, now);
                    self.observer.asked(proposal, *by, asked);
                }
                self.observer.under_way(self.requester.under_way());
                if let Some(begun) = self.begun.take() {
                    self.observer.cycled(begun.elapsed());
                }
                if self.options.interval.is_none() {
                    let is_done = std::mem::replace(&mut self.is_ending, true);
                    match is_done || self.options.dry_run || self.requester.remember().is_none() {
                        true => drop(self.ended.send_replace(true)),
                        // What came of it is for the next process to know.
                        false => self.is_wanted = Some(Timestamp::MIN),
                    }
                }
                // The next cycle looks again: nothing is tried in between.
                if let Some(failure) = failure {
                    tracing::warn!(?failure, "not all of a cycle could be carried out");
                    self.observer.failed(&failure);
                }
                Ok(())
            }
        }
    }

    fn tell_failure(&mut self, _: &Cycle, failure: &Failure) {
        tracing::warn!(?failure, "a cycle failed");
    }

    fn observer(&mut self) -> &mut dyn QueueObserver {
        &mut *self.observer
    }
}

/// Remembers, withdraws, and asks, in this order. What is not remembered is neither withdrawn nor asked, and what cannot be withdrawn leaves
/// no place for others.
async fn carry_out(
    apply: &Descheduling,
    effects: Vec<Effect>,
    policy: &Policy,
    places: &HashMap<Key, Place>,
) -> Done {
    let (mut asks, mut failure, mut is_saved) = (Vec::new(), None, None);
    let (mut lost, mut not_withdrawn) = (Vec::new(), Vec::new());
    for effect in effects {
        let done = match effect {
            Effect::Remember(memory) => {
                let done = apply.remember(&memory).await;
                is_saved = Some(done.is_ok());
                done
            }
            Effect::Withdraw { .. } if is_saved == Some(false) => Ok(()),
            Effect::Withdraw { request, why, gives_place } => {
                let done = apply.withdraw(&request, why).await;
                if let Err(failure) = &done {
                    tracing::warn!(request = %request.key, ?failure, "a request could not be withdrawn");
                    lost.extend(places.get(&request.key).filter(|_| gives_place).cloned());
                    not_withdrawn.push(request.key.clone());
                }
                done
            }
            Effect::Ask { proposal, by } => {
                asks.push((*proposal, by));
                Ok(())
            }
        };
        // Somebody else has changed the request: the next cycle looks again.
        failure = failure.or(done.err().filter(|failure| *failure != Failure::Outdated));
    }
    let proposals: Vec<&Proposal> = asks.iter().map(|(proposal, _)| proposal).collect();
    let waiting = match is_saved {
        Some(false) => proposals,
        _ => without_place(&proposals, &lost, policy.limits),
    };
    let waiting: HashSet<String> = waiting.into_iter().map(|proposal| proposal.pod.uid.clone()).collect();
    let (not_asked, asks): (Vec<_>, Vec<_>) =
        asks.into_iter().partition(|(proposal, _)| waiting.contains(&proposal.pod.uid));
    let not_asked = not_asked.into_iter().map(|(proposal, _)| proposal).collect();
    let asked = futures::stream::iter(asks).map(|(proposal, by)| async move {
        let asked = apply.ask(&proposal, by, policy).await;
        (proposal, by, asked)
    });
    let outcomes = asked.buffered(AT_A_TIME).collect().await;
    Done::Asked { outcomes, not_asked, not_withdrawn, is_saved: is_saved == Some(true), failure }
}

fn id_of(pod: &Pod) -> PodId {
    let uid = pod.uid().unwrap_or_default();
    PodId::new(&pod.namespace().unwrap_or_default(), &pod.name_any(), &uid)
}

fn hash_of_taints(node: &Node) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let taints: Vec<_> = taints.into_iter().flatten().map(|it| (&it.key, &it.value, &it.effect)).collect();
    BuildHasherDefault::<DefaultHasher>::default().hash_one(taints)
}

/// Makes it so in what is known, and tells what is gone.
fn gone<T: Keyed>(event: WatchEvent<T, T::Key>, known: &mut HashMap<T::Key, T::Key>) -> Vec<T::Key>
where
    T::Key: Ord,
{
    let changed = event.map(|object| object.key()).store(known, Clone::clone);
    changed.into_iter().map(|(key, _)| key).filter(|key| !known.contains_key(key)).collect()
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
