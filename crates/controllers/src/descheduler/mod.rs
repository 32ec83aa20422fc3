//! The descheduler: [`usher_descheduler`] holds what it knows, plans and decides whom to ask, and [`usher_apply::Descheduling`] carries
//! it out. Everything happens in cycles, one after the other.

mod objects;
pub mod policy_file;

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::SelectAll;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch as signal;
use usher_apply::descheduling::in_words;
use usher_apply::{DeschedulerName, Descheduling, DeschedulingApplied, Events, Failure};
use usher_decide::snapshot::{Key, Request, WatchEvent};
pub use usher_descheduler::CarriedOut;
use usher_descheduler::requester::{
    AskOutcome, Effect, Memory, MoveChange, Options as RequesterOptions, PodId, PodMarks, Requester, Way,
};
use usher_descheduler::schedule::{Schedule, Step, Taints};
use usher_descheduler::usage::{UsageReading, UsageSources};
use usher_descheduler::{Cluster, Place, Plan, Planner, Policy, Proposal};

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::listed::Listed;
use crate::metrics::{DeschedulerMetrics, QueueMetrics};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{EventStream, Keyed, watch};
use objects::Whole;

/// How the descheduler runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long after a cycle the next one begins. Nothing: there is one cycle.
    pub interval: Option<SignedDuration>,
    /// A cycle also begins soon after a taint of a node has changed, unless there is only one.
    pub on_change: bool,
    /// It plans, tells, and asks nobody.
    pub dry_run: bool,
    /// The cluster knows eviction requests; otherwise there are none to count.
    pub knows_requests: bool,
    pub requester: RequesterOptions,
    pub name: DeschedulerName,
}

/// Called with the plan of every cycle, before it is carried out.
pub type OnPlan = Box<dyn Fn(&Plan) + Send>;

/// Calls that tell the process around the descheduler what happens. There are none by default.
#[derive(Default)]
pub struct Hooks {
    pub on_synced: Option<OnSynced>,
    pub on_plan: Option<OnPlan>,
}

/// The policy, and each that takes its place, or why it is refused. It does not end.
pub type Policies = EventStream<Result<Policy, String>>;

/// Subscribes to the feeds and returns the future that runs the descheduler until it should stop, or for its only cycle.
pub fn run_until(
    feeds: &mut Feeds,
    context: Context,
    options: Options,
    policies: Policies,
    hooks: Hooks,
) -> BoxFuture<'static, CarriedOut> {
    let Context { client, clock, metrics, stop } = context;
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
    let (tally, carried_out) = signal::channel(CarriedOut::default());
    let schedule = Schedule::new(options.interval, options.on_change);
    let controller = Controller {
        requester: Requester::new(RequesterOptions {
            instance: options.name.to_string(),
            ..options.requester.clone().in_cycles(options.interval)
        }),
        options,
        client,
        apply,
        metrics: metrics.descheduler(),
        on_plan: hooks.on_plan,
        cluster: Cluster::default(),
        planner: Planner::default(),
        policy: None,
        known: ObservedObjects::default(),
        listed: Listed::out_of(streams.len()),
        schedule,
        is_under_way: false,
        begun: None,
        tally,
        ended,
    };
    let events: SelectAll<EventStream<Event>> = futures::stream::select_all(streams);
    let stop = async move {
        tokio::select! {
            () = stop => {}
            _ = end.wait_for(|ended| *ended) => {}
        }
    };
    let on_synced = hooks.on_synced.unwrap_or_else(|| Box::new(|| ()));
    let running = reconcile::run(controller, events, clock, on_synced, stop.boxed().shared());
    running.map(move |()| *carried_out.borrow()).boxed()
}

/// What was remembered before this process began, once it can be read.
fn remembered(apply: Descheduling) -> EventStream<Event> {
    let read = async move {
        let mut pauses = crate::pauses::Pauses::default();
        loop {
            match apply.remembered().await {
                Ok(memory) => return Event::Remembered(memory),
                Err(failure) => {
                    let (place, why) = (apply.place(), in_words(&failure));
                    tracing::warn!(
                        "what is remembered in {place} cannot be read, which is tried again: {why}"
                    );
                }
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
    /// The real usage that this policy goes by.
    Usage(Arc<Policy>, UsageReading),
    Asked(DeschedulingApplied),
    Saved(Option<Memory>, Result<(), Failure>),
}

/// What there is of each kind: a new list tells what is gone by what it does not have.
#[derive(Default)]
struct ObservedObjects {
    nodes: HashMap<Arc<str>, (Arc<str>, Taints)>,
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
    metrics: DeschedulerMetrics,
    on_plan: Option<OnPlan>,
    cluster: Cluster,
    planner: Planner,
    requester: Requester,
    policy: Option<Arc<Policy>>,
    known: ObservedObjects,
    /// A policy, and what is remembered, count as lists of one.
    listed: Listed<&'static str>,
    schedule: Schedule,
    /// A part of a cycle has begun, and has not ended: who comes back to it was thrown out by a panic.
    is_under_way: bool,
    /// When the cycle that is under way began: for the metric of that name, and decides nothing.
    begun: Option<std::time::Instant>,
    tally: signal::Sender<CarriedOut>,
    ended: signal::Sender<bool>,
}

impl Controller {
    fn observe_node(&mut self, event: OfClusterKind<Node>, now: Timestamp) {
        if let WatchEvent::Applied(Whole(node)) = &event {
            self.cluster.set_node(node);
        }
        let nodes = event.map(|node| (node.key(), Taints::of(&node.0)));
        for (name, before) in nodes.store(&mut self.known.nodes, |(name, _)| name.clone()) {
            let after = self.known.nodes.get(&name);
            if after.is_none() {
                self.cluster.remove_node(&name);
            }
            let taints = |node: Option<&(Arc<str>, Taints)>| node.map(|(_, taints)| *taints);
            self.schedule.node_changed(taints(before.as_ref()), taints(after), now);
        }
    }

    fn observe_pod(&mut self, event: OfKind<Pod>, now: Timestamp) {
        if let WatchEvent::Applied(Whole(pod)) = &event {
            self.cluster.set_pod(pod);
            let (id, marks) = (id_of(pod), PodMarks::of(pod));
            let change = self.requester.pod_changed(&id, marks, now);
            self.count_move(change);
        }
        for (key, before) in event.map(|pod| id_of(&pod.0)).store(&mut self.known.pods, |pod| pod.key.clone())
        {
            let after = self.known.pods.get(&key);
            if after.is_none() {
                self.cluster.remove_pod(&key.namespace, &key.name);
            }
            if let Some(before) = before.filter(|before| after != Some(before)) {
                self.pod_gone(&before, now);
            }
        }
    }

    fn pod_gone(&mut self, pod: &PodId, now: Timestamp) {
        let change = self.requester.pod_gone(pod, now);
        self.count_move(change);
    }

    fn count_move(&mut self, change: MoveChange) {
        match change {
            MoveChange::Unchanged => return,
            MoveChange::Began => {}
            MoveChange::Ended { kept } => kept.iter().for_each(|proposal| self.metrics.moved(proposal)),
        }
        self.metrics.under_way(self.requester.under_way());
    }

    fn observe_policy(&mut self, policy: Result<Policy, String>) {
        self.metrics.policy(policy.is_ok());
        match policy {
            Ok(policy) => {
                tracing::info!(profiles = policy.profiles.len(), "a policy was read");
                let is_first = self.policy.is_none();
                self.policy = Some(Arc::new(policy));
                self.schedule.policy_read(is_first);
            }
            Err(why) if self.policy.is_some() => {
                tracing::error!("{why}; the policy before it holds");
            }
            Err(why) => tracing::error!("{why}; nothing is descheduled"),
        }
    }

    /// Plans a cycle, and says what is done about it.
    fn plan(&mut self, policy: &Policy, now: Timestamp) -> Vec<Effect> {
        let begun = std::time::Instant::now();
        let in_progress = match self.schedule.round() {
            0 => self.requester.in_progress(now),
            _ => self.requester.still_in_progress(now),
        };
        let plan = self.planner.plan(&self.cluster, policy, &in_progress, now);
        if self.schedule.round() > 0 {
            tracing::info!(
                proposals = plan.proposals.len(),
                "the cycle goes on with others, as pods could not be asked"
            );
            return self.requester.decide_more(&plan, now);
        }
        self.metrics.planned(&plan, self.planner.took());
        if let Some(on_plan) = &self.on_plan {
            on_plan(&plan);
        }
        for problem in &plan.problems {
            tracing::warn!("{problem}");
        }
        for stopped in &plan.stops {
            // A plugin may look no further than the first that the limit keeps.
            tracing::info!(pods_at_least = stopped.pods, "{}", stopped.by);
        }
        tracing::info!(
            proposals = plan.proposals.len(),
            leaving = plan.still_wanted.len(),
            milliseconds = begun.elapsed().as_millis(),
            "a cycle was planned"
        );
        if self.options.dry_run {
            for proposal in &plan.proposals {
                let (pod, by) = (&proposal.pod, self.requester.way_of(&proposal.pod));
                tracing::info!(
                    namespace = pod.namespace, pod = pod.name, node = pod.node, plugin = %proposal.plugin,
                    profile = proposal.profile, reason = %proposal.reason,
                    would_fit_on = proposal.fits_on.as_deref().unwrap_or("no other node that stays"),
                    "would be asked to leave by {by}"
                );
            }
            return Vec::new();
        }
        self.requester.decide(&plan, now)
    }

    /// Saves what is to be remembered; who ends with it has told everything then.
    fn save(&mut self) -> BoxFuture<'static, Done> {
        let memory = self.requester.unsaved().filter(|_| !self.options.dry_run);
        let (apply, is_last) = (self.apply.clone(), self.options.interval.is_none());
        let work = async move {
            let saved = match &memory {
                Some(memory) => apply.remember(memory).await,
                None => Ok(()),
            };
            if is_last {
                apply.flush().await;
            }
            Done::Saved(memory, saved)
        };
        work.boxed()
    }

    /// What came of asking and withdrawing. Whether somebody could not be asked.
    fn carried_out(
        &mut self,
        outcomes: Vec<(Proposal, Way, AskOutcome)>,
        withdrawn: usize,
        not_withdrawn: &[Key],
        now: Timestamp,
    ) -> bool {
        for request in not_withdrawn {
            self.requester.not_withdrawn(request);
        }
        self.tally.send_modify(|tally| {
            outcomes.iter().for_each(|(_, _, asked)| tally.asked(asked));
            tally.withdrawn(withdrawn, not_withdrawn.len());
        });
        let mut is_refused = false;
        for (proposal, _, asked) in outcomes {
            self.requester.asked(&proposal, &asked, now);
            self.metrics.asked(&proposal, &asked);
            is_refused |= asked.gives_place();
            let pod = PodId::from(&proposal.pod);
            if self.known.pods.get(&pod.key) != Some(&pod) {
                // It has gone before the answer came, and nobody tells of that again.
                self.pod_gone(&pod, now);
            }
        }
        self.metrics.under_way(self.requester.under_way());
        is_refused
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

    fn observe(&mut self, event: Event, now: Timestamp) {
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
        self.listed.observe(kind, is_told);
        let cluster = &mut self.cluster;
        match event {
            Event::Node(event) => self.observe_node(event, now),
            Event::Pod(event) => self.observe_pod(event, now),
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
                self.metrics.under_way(self.requester.under_way());
            }
            Event::Policy(policy) => self.observe_policy(*policy),
            Event::Remembered(memory) => self.requester.remembered(memory),
        }
        if self.requester.is_unsaved() && !self.options.dry_run {
            self.schedule.has_unsaved(now);
        }
    }

    fn has_synced(&self) -> bool {
        self.listed.is_complete()
    }

    fn pending(&mut self, now: Timestamp) -> Pending<Cycle> {
        match self.schedule.due().filter(|_| self.policy.is_some()) {
            None => Pending::default(),
            Some(at) if at <= now => Pending { now: vec![Cycle], ..Pending::default() },
            Some(at) => Pending { at: [(Cycle, at)].into(), ..Pending::default() },
        }
    }

    fn reconcile(&mut self, _: &Cycle, now: Timestamp) -> Reconciled<Done> {
        let Some(policy) = self.policy.clone() else { return Reconciled::waits(None) };
        if self.is_under_way && self.options.interval.is_none() {
            // There is only one cycle, and another try would end in the same way.
            self.tally.send_modify(CarriedOut::dropped);
            self.ended.send_replace(true);
            return Reconciled::waits(None);
        }
        let sources = UsageSources::of(&policy);
        let step = self.schedule.step(!sources.is_empty(), now);
        match step {
            Step::Wait(again) => return Reconciled::waits(again),
            Step::Save { again } => return Reconciled { again, work: Some(self.save()) },
            Step::ReadUsage | Step::Plan { .. } => {}
        }
        self.is_under_way = true;
        self.begun.get_or_insert_with(std::time::Instant::now);
        if step == Step::ReadUsage {
            let client = self.client.clone();
            let work = async move { Done::Usage(policy, usher_apply::usage::read(sources, client).await) };
            return Reconciled { again: None, work: Some(work.boxed()) };
        }
        if step == (Step::Plan { is_first: true }) {
            let pods = &self.known.pods;
            self.requester.synced(|pod| pods.get(&pod.key) == Some(pod), now);
        }
        let effects = self.plan(&policy, now);
        let places = self.places_of(&effects);
        let apply = self.apply.clone();
        let work = async move { Done::Asked(apply.carry_out(effects, &policy, &places).await) };
        Reconciled { again: self.schedule.next(), work: Some(work.boxed()) }
    }

    fn finish(&mut self, _: &Cycle, done: Done, now: Timestamp) -> Result<(), Failure> {
        match done {
            Done::Usage(policy, read) => {
                // Another policy that has come meanwhile may go by other usage, which is read then.
                let is_its = |current: &Arc<Policy>| UsageSources::of(current) == UsageSources::of(&policy);
                let is_current = self.policy.as_ref().is_some_and(is_its);
                if is_current {
                    for why in read.set_in(&mut self.cluster) {
                        tracing::warn!("{why}; plugins that go by it do nothing in this cycle");
                    }
                }
                self.schedule.usage_read(is_current, now);
                self.is_under_way = false;
                Ok(())
            }
            Done::Asked(applied) => {
                let DeschedulingApplied {
                    outcomes,
                    not_asked,
                    withdrawn,
                    not_withdrawn,
                    saved,
                    is_dropped,
                    failure,
                } = applied;
                if let Some(memory) = &saved {
                    self.requester.saved(memory);
                }
                for proposal in &not_asked {
                    self.requester.not_asked(&proposal.pod);
                }
                let is_refused = self.carried_out(outcomes, withdrawn, &not_withdrawn, now);
                let has_ended = self.schedule.carried_out(is_refused, self.requester.is_unsaved(), now);
                if let Some(begun) = self.begun.take_if(|_| has_ended) {
                    self.metrics.cycled(begun.elapsed());
                }
                if is_dropped {
                    self.tally.send_modify(CarriedOut::dropped);
                }
                // The next cycle looks again: nothing is tried in between.
                if let Some(failure) = failure {
                    tracing::warn!("not all of a cycle could be carried out: {}", in_words(&failure));
                    self.metrics.queue.failed(&failure);
                }
                self.is_under_way = false;
                Ok(())
            }
            Done::Saved(memory, saved) => {
                match saved {
                    Ok(()) => memory.iter().for_each(|memory| self.requester.saved(memory)),
                    Err(failure) => {
                        tracing::warn!("{}", self.apply.not_saved(&failure));
                        self.metrics.queue.failed(&failure);
                        self.schedule.not_saved(now);
                    }
                }
                if self.options.interval.is_none() {
                    self.ended.send_replace(true);
                }
                Ok(())
            }
        }
    }

    fn log_failure(&mut self, _: &Cycle, failure: &Failure) {
        tracing::warn!("a cycle failed: {}", in_words(failure));
    }

    fn metrics(&self) -> &QueueMetrics {
        &self.metrics.queue
    }

    /// What was read before is part of it, so that nothing is saved before that.
    fn before_exit(&mut self) -> Option<BoxFuture<'static, ()>> {
        let memory = self.requester.unsaved().filter(|_| self.has_synced() && !self.options.dry_run)?;
        let apply = self.apply.clone();
        let save = async move {
            if let Err(failure) = apply.remember(&memory).await {
                tracing::warn!("{}", apply.not_saved(&failure));
            }
        };
        Some(save.boxed())
    }
}

fn id_of(pod: &Pod) -> PodId {
    let uid = pod.uid().unwrap_or_default();
    PodId::new(&pod.namespace().unwrap_or_default(), &pod.name_any(), &uid)
}

/// Makes it so in what is known, and tells what is gone.
fn gone<T: Keyed>(event: WatchEvent<T, T::Key>, known: &mut HashMap<T::Key, T::Key>) -> Vec<T::Key>
where
    T::Key: Ord,
{
    let changed = event.map(|object| object.key()).store(known, Clone::clone);
    changed.into_iter().map(|(key, _)| key).filter(|key| !known.contains_key(key)).collect()
}
