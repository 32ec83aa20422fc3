//! The eviction request controller: [`usher_decide::eviction_request::index`] holds what it knows and decides, and
//! [`usher_apply::Requests`] carries it out. Everything needed to go on is in the API objects, so it can be ended at any point.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tracing::Instrument as _;
use usher_apply::{Clock, Events, Failure, RequestApplied, Requests, spans};
use usher_decide::decision::{Effect, Ending};
use usher_decide::eviction_request::index::{Decided, Index};
use usher_decide::snapshot::{Budget, BudgetOnWire, DaemonSet, Key, Namespace, Pod, Request};

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::listed::Listed;
use crate::metrics::{QueueMetrics, RequestMetrics};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{WatchEvent, watch};

/// Longer than any drainer that is known waits between two tries: kubectl 5 seconds, Karpenter and the cluster autoscaler 10, Cluster API 20.
pub const WITHDRAW_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// What an administrator sets for the whole cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How long all interceptors of a pod may take together, from the creation of its request.
    pub interceptors_limit: Option<SignedDuration>,
    /// Who asks by plain evictions, through the gateway, and has not done so for this long, has withdrawn.
    pub withdraw_after: Option<SignedDuration>,
}

/// Runs the controller with watches of its own until the future is dropped.
pub async fn run(client: Client, clock: Clock) {
    let mut feeds = Feeds::default();
    let context = Context::new(client.clone(), clock);
    let running = run_until(&mut feeds, context, Options::default(), Box::new(|| ()));
    let _watches = feeds.start(&client);
    running.await;
}

/// Subscribes to the feeds and returns the future that runs the controller until it should stop. Calls under way get some time to finish.
pub(crate) fn run_until(
    feeds: &mut Feeds,
    context: Context,
    options: Options,
    on_synced: OnSynced,
) -> BoxFuture<'static, ()> {
    let Context { client, clock, metrics, stop } = context;
    let events = futures::stream::select_all([
        feeds.pods().map(Event::Pod).boxed(),
        feeds.requests().map(Event::Request).boxed(),
        watch::<BudgetOnWire, Budget>(client.clone()).map(Event::Budget).boxed(),
        feeds.daemon_sets().map(Event::DaemonSet).boxed(),
        feeds.namespaces().map(Event::Namespace).boxed(),
    ]);
    let controller = Controller {
        apply: Requests::new(client.clone(), Events::start(client, clock.clone())),
        metrics: metrics.requests(),
        index: Index::new(options.interceptors_limit).withdrawing_after(options.withdraw_after),
        pending: Pending::default(),
        listed: Listed::out_of(events.len()),
    };
    reconcile::run(controller, events, clock, on_synced, stop).boxed()
}

/// What the watches tell.
enum Event {
    Pod(WatchEvent<Arc<Pod>, Key>),
    Request(WatchEvent<Arc<Request>, Key>),
    Budget(WatchEvent<Budget, Key>),
    DaemonSet(WatchEvent<Arc<DaemonSet>, Key>),
    Namespace(WatchEvent<Arc<Namespace>, Arc<str>>),
}

impl Event {
    /// Of which kind it is, and whether it ends a list of that.
    fn listed(&self) -> (&'static str, bool) {
        match self {
            Self::Pod(event) => ("pods", event.is_listed()),
            Self::Request(event) => ("requests", event.is_listed()),
            Self::Budget(event) => ("budgets", event.is_listed()),
            Self::DaemonSet(event) => ("daemon sets", event.is_listed()),
            Self::Namespace(event) => ("namespaces", event.is_listed()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Item {
    Request(Key),
    /// A budget that is to be asked for room.
    Budget(Key),
}

struct Done {
    decided: Decided,
    outcome: RequestApplied,
}

struct Controller {
    apply: Requests,
    metrics: RequestMetrics,
    index: Index,
    pending: Pending<Item>,
    listed: Listed<&'static str>,
}

impl Reconciler for Controller {
    type Event = Event;
    type Item = Item;
    type Done = Done;

    fn observe(&mut self, event: Event, now: Timestamp) {
        let (kind, is_listed) = event.listed();
        self.listed.observe(kind, is_listed);
        let concerned = match event {
            Event::Pod(WatchEvent::Applied(pod)) => self.index.pod_seen(pod),
            Event::Pod(WatchEvent::Deleted(key)) => self.index.pod_gone(&key).into_iter().collect(),
            Event::Pod(WatchEvent::Listed(there)) => self.index.only_pods(&there),
            Event::Request(WatchEvent::Applied(request)) => return self.request_seen(request, now),
            Event::Request(WatchEvent::Deleted(key)) => return self.request_gone(&key, now),
            Event::Request(WatchEvent::Listed(there)) => {
                for key in self.index.request_keys().into_iter().filter(|key| !there.contains(key)) {
                    self.request_gone(&key, now);
                }
                return;
            }
            Event::Budget(WatchEvent::Applied(budget)) => self.index.budget_seen(budget, now),
            Event::Budget(WatchEvent::Deleted(key)) => self.index.budget_gone(&key),
            Event::Budget(WatchEvent::Listed(there)) => self.index.only_budgets(&there),
            Event::DaemonSet(event) => self.index.daemon_sets_changed(event),
            Event::Namespace(event) => self.index.namespaces_changed(event),
        };
        self.pending.now.extend(concerned.into_iter().map(Item::Request));
    }

    fn has_synced(&self) -> bool {
        self.listed.is_complete()
    }

    fn pending(&mut self, _: Timestamp) -> Pending<Item> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.now.extend(self.index.budgets_to_ask().into_iter().map(Item::Budget));
        pending
    }

    fn reconcile(&mut self, item: &Item, now: Timestamp) -> Reconciled<Done> {
        let key = match item {
            Item::Request(key) => key,
            Item::Budget(budget) => {
                let (turn, again) = self.index.grant(budget, now);
                self.pending.now.extend(turn.map(Item::Request));
                return Reconciled::waits(again);
            }
        };
        let Some(decided) = self.index.decide(key, now) else { return Reconciled::waits(None) };
        self.pending.now.extend(decided.turn.clone().map(Item::Request));
        self.metrics.waits(&decided.request, decided.decision.waiting_on.as_ref(), now);
        let again = decided.decision.recheck_at;
        if decided.decision.effects.is_empty() {
            return Reconciled::waits(again);
        }
        let apply = self.apply.clone();
        let span = spans::work("reconcile EvictionRequest", &key.namespace, &key.name);
        let work = async move {
            let effects = &decided.decision.effects;
            let outcome = apply.carry_out(&decided.request, decided.pod.as_deref(), effects).await;
            Done { decided, outcome }
        };
        Reconciled { again, work: Some(work.instrument(span).boxed()) }
    }

    fn finish(&mut self, item: &Item, done: Done, now: Timestamp) -> Result<(), Failure> {
        let Item::Request(key) = item else { return Ok(()) };
        let Done { decided, outcome } = done;
        if let Some(answer) = outcome.answer {
            self.metrics.evicted(&answer);
            tracing::info!(request = %key, pod = %decided.request.pod_name, answer = answer.reason(), "eviction");
            tracing::debug!(request = %key, ?answer, "eviction");
            self.index.answered(key, answer, decided.budgets.clone(), now);
            self.pending.now.push(item.clone());
        }
        if let Some(pod) = outcome.pod_found
            && !outcome.pod_is_gone
        {
            let concerned = self.index.pod_seen(*pod);
            self.pending.now.extend(concerned.into_iter().map(Item::Request));
        }
        if outcome.pod_is_gone {
            self.index.pod_is_gone(key);
            self.pending.now.push(item.clone());
        }
        if let Some(fresh) = outcome.fresh {
            self.request_seen(*fresh, now);
            return Ok(());
        }
        if let Some(failure) = outcome.failure {
            self.index.not_carried_out(key);
            return Err(failure);
        }
        if outcome.is_complete {
            let is_withdrawal = |it: &Effect| matches!(it, Effect::RecordWithdrawal(_));
            if decided.decision.effects.iter().any(is_withdrawal) {
                self.metrics.withdrawn();
            }
            self.index.carried_out(&decided);
        }
        if decided.ending() == Some(Ending::PodLeft) {
            self.metrics.pod_left(&decided.request, now);
        }
        Ok(())
    }

    fn metrics(&self) -> &QueueMetrics {
        &self.metrics.queue
    }
}

impl Controller {
    fn request_seen(&mut self, request: impl Into<Arc<Request>>, now: Timestamp) {
        let request = request.into();
        let before = self.index.request(&request.key).cloned();
        let key = self.index.request_seen(request, now);
        let after = self.index.request(&key).cloned();
        self.metrics.request_changed(before.as_deref(), after.as_deref());
        self.pending.now.push(Item::Request(key));
    }

    fn request_gone(&mut self, key: &Key, now: Timestamp) {
        let before = self.index.request(key).cloned();
        if let Some(before) = &before {
            self.metrics.waits(before, None, now);
        }
        self.metrics.request_changed(before.as_deref(), None);
        self.index.request_gone(key);
        self.pending.gone.push(Item::Request(key.clone()));
    }
}
