//! The eviction request controller: watches into the index, decisions out of it, effects to the server.
//!
//! One task owns everything; only the API calls run beside it, a bounded number at a time, and never two for the same
//! request. Nothing is decided before all watches have told what there is. Everything needed to go on is in the API
//! objects, so it can be ended at any point.

mod observer;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::task::JoinSet;
use tracing::Instrument as _;
use usher_apply::{Clock, Events, Failure, Outcome, Requests, spans};
use usher_decide::decision::Effect;
use usher_decide::eviction_request::index::{Decided, Index};
use usher_decide::snapshot::{Budget, BudgetOnWire, DaemonSet, DaemonSetOnWire, Key, Pod, Request};
use usher_decide::waiting_on::WaitingOn;

pub use crate::observer::Nobody;
pub use observer::Observer;

use crate::feeds::{self, Ear};
use crate::guard::{Panicked, guarded, guarded_async};
use crate::queue::{Queue, not_at_once};
use crate::watch::{NewsStream, Told, follow, sleep_until};

/// So many requests are worked on at a time.
const AT_A_TIME: usize = 64;
/// Calls under way may take so long when the controller is asked to stop.
const LONGEST_FAREWELL: Duration = Duration::from_secs(10);

/// What the watches tell.
enum News {
    Pod(Told<Arc<Pod>, Key>),
    Request(Told<Arc<Request>, Key>),
    Budget(Told<Budget, Key>),
    DaemonSet(Told<DaemonSet, Key>),
}

/// What an administrator sets for the whole cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How long all interceptors of a pod may take together, from the creation of its request.
    pub interceptors_limit: Option<SignedDuration>,
}

/// Runs the controller with watches of its own until the future is dropped.
pub async fn run(client: Client, clock: Clock, observer: Box<dyn Observer>) {
    let [ear] = feeds::listen(&client);
    run_until(ear, client, clock, Options::default(), observer, std::future::pending()).await;
}

/// Runs the controller until it is asked to stop; the calls under way are given a while to finish.
pub async fn run_until(
    ear: Ear,
    client: Client,
    clock: Clock,
    options: Options,
    observer: Box<dyn Observer>,
    stop: impl Future<Output = ()>,
) {
    let events = Events::start(client.clone(), clock.clone());
    let news = futures::stream::select_all([
        ear.pods.map(News::Pod).boxed(),
        ear.requests.map(News::Request).boxed(),
        follow::<BudgetOnWire, Budget>(client.clone()).map(News::Budget).boxed(),
        follow::<DaemonSetOnWire, DaemonSet>(client.clone()).map(News::DaemonSet).boxed(),
    ]);
    let controller = Controller {
        apply: Requests::new(client, events),
        clock,
        observer,
        index: Index::new(options.interceptors_limit),
        queue: Queue::default(),
        budgets: Queue::default(),
        under_way: FuturesUnordered::new(),
        known: Known::default(),
        is_synced: false,
        _watches: ear.watches,
    };
    controller.run(news, stop).await;
}

/// What there is of these has been told.
#[derive(Default)]
struct Known {
    pods: bool,
    requests: bool,
    budgets: bool,
    daemon_sets: bool,
}

struct Done {
    key: Key,
    decided: Decided,
    outcome: Outcome,
}

struct Controller {
    apply: Requests,
    clock: Clock,
    observer: Box<dyn Observer>,
    index: Index,
    queue: Queue<Key>,
    /// Budgets that are to be asked for room.
    budgets: Queue<Key>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    known: Known,
    /// All watches have told what there is.
    is_synced: bool,
    _watches: Arc<JoinSet<()>>,
}

impl Controller {
    async fn run(mut self, mut news: SelectAll<NewsStream<News>>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // What has happened already comes first, so that decisions are made on what is, not on what was.
            while let Some(Some(told)) = news.next().now_or_never() {
                self.learn(told);
            }
            let now = self.clock.now();
            if self.is_synced {
                self.work(now);
            }
            let due = self.queue.next_time().into_iter().chain(self.budgets.next_time()).min();
            let clock = self.clock.clone();
            let sleep = sleep_until(&clock, due);
            tokio::select! {
                biased;
                () = &mut stop => break,
                told = news.next() => match told {
                    Some(told) => self.learn(told),
                    None => return,
                },
                Some(done) = self.under_way.next() => self.finish(done),
                () = sleep => {}
            }
        }
        let finished = async {
            while let Some(done) = self.under_way.next().await {
                self.finish(done);
            }
        };
        if tokio::time::timeout(LONGEST_FAREWELL, finished).await.is_err() {
            tracing::warn!("calls were still under way at the end; the next leader goes on");
        }
    }

    /// Starts as much work as there may be at a time.
    fn work(&mut self, now: Timestamp) {
        loop {
            for budget in self.index.budgets_to_ask() {
                self.budgets.add(budget, now);
            }
            self.budgets.wake(now);
            while let Some((budget, _)) = self.budgets.take(now) {
                let (turn, again) = self.index.grant(&budget, now);
                if let Some(key) = turn {
                    self.look_at_soon(key, now);
                }
                self.budgets.done(&budget, now);
                self.budgets.set_time(&budget, not_at_once(again, now));
            }
            self.queue.wake(now);
            if self.under_way.len() >= AT_A_TIME {
                break;
            }
            let Some((key, waited)) = self.queue.take(now) else { break };
            self.observer.queue_taken(waited);
            self.look_at(key, now);
        }
        let (waiting, busy) = self.queue.depth();
        self.observer.queue_depth(waiting, busy);
    }

    fn look_at_soon(&mut self, key: Key, now: Timestamp) {
        if self.queue.add(key, now) {
            self.observer.queue_added();
        }
    }

    fn look_at(&mut self, key: Key, now: Timestamp) {
        let index = &mut self.index;
        let decided = match guarded(|| index.decide(&key, now)) {
            Ok(Some(decided)) => decided,
            Ok(None) => {
                self.queue.set_time(&key, None);
                self.done_with(&key, now);
                return;
            }
            Err(Panicked) => {
                tracing::error!(request = %key, "deciding on it failed: a defect of Usher; others go on");
                self.observer.failed(&Failure::Panicked);
                self.queue.retry(&key, now);
                self.done_with(&key, now);
                return;
            }
        };
        if let Some(other) = decided.turn.clone() {
            self.look_at_soon(other, now);
        }
        self.observer.waits(&decided.request, decided.decision.waiting_on.as_ref(), now);
        self.queue.set_time(&key, not_at_once(decided.decision.recheck_at, now));
        if decided.decision.effects.is_empty() {
            self.done_with(&key, now);
            return;
        }
        let apply = self.apply.clone();
        let span = spans::work("reconcile EvictionRequest", &key.namespace, &key.name);
        self.under_way.push(
            async move {
                let effects = &decided.decision.effects;
                let done = apply.carry_out(&decided.request, decided.pod.as_deref(), effects);
                let outcome = guarded_async(done).await.unwrap_or_else(|Panicked| Outcome {
                    failure: Some(Failure::Panicked),
                    ..Outcome::default()
                });
                Done { key, decided, outcome }
            }
            .instrument(span)
            .boxed(),
        );
    }

    fn done_with(&mut self, key: &Key, now: Timestamp) {
        let worked = self.queue.done(key, now);
        self.observer.queue_done(worked);
    }

    fn finish(&mut self, done: Done) {
        let now = self.clock.now();
        let Done { key, decided, outcome } = done;
        if let Some(answer) = outcome.answer {
            self.observer.evicted(&decided.request, &answer);
            tracing::info!(request = %key, pod = %decided.request.pod_name, answer = answer.reason(), "eviction");
            tracing::debug!(request = %key, ?answer, "eviction");
            self.index.answered(&key, answer, decided.budgets.clone(), now);
            self.look_at_soon(key.clone(), now);
        }
        if let Some(pod) = outcome.pod_found
            && !outcome.pod_is_gone
        {
            for concerned in self.index.pod_seen(*pod) {
                self.look_at_soon(concerned, now);
            }
        }
        if outcome.pod_is_gone {
            self.index.pod_is_gone(&key);
            self.look_at_soon(key.clone(), now);
        }
        if let Some(fresh) = outcome.fresh {
            self.request_seen(*fresh, now);
            self.done_with(&key, now);
            return;
        }
        match outcome.failure {
            None => {
                self.queue.succeeded(&key);
                if outcome.is_complete {
                    self.index.carried_out(&decided);
                }
                if decided.decision.effects.contains(&Effect::Delete) && is_over(&decided) {
                    self.observer.pod_left(&decided.request, now);
                }
            }
            Some(failure) => {
                tracing::debug!(request = %key, ?failure, "not carried out");
                self.observer.failed(&failure);
                self.observer.queue_retried();
                self.index.not_carried_out(&key);
                // News of what is newer are on their way, but a watch may be late: it is looked at again anyway.
                self.queue.retry(&key, now);
                match failure {
                    Failure::Outdated => {}
                    Failure::Panicked => {
                        tracing::error!(request = %key, "carrying it out failed: a defect of Usher; others go on");
                    }
                    Failure::Later(why) => {
                        tracing::warn!(request = %key, why, "the server could not be written to");
                    }
                    // Its words are in an event; they may repeat what logs must not hold.
                    Failure::Refused { reason, .. } => {
                        tracing::error!(request = %key, reason, "the server refuses what is written");
                    }
                }
            }
        }
        self.done_with(&key, now);
    }

    fn learn(&mut self, news: News) {
        let now = self.clock.now();
        match news {
            News::Pod(told) => self.learn_pod(told, now),
            News::Request(told) => self.learn_request(told, now),
            News::Budget(told) => self.learn_budget(told, now),
            News::DaemonSet(told) => self.learn_daemon_set(told, now),
        }
    }

    fn look_at_all(&mut self, keys: Vec<Key>, now: Timestamp) {
        for key in keys {
            self.look_at_soon(key, now);
        }
    }

    fn learn_pod(&mut self, told: Told<Arc<Pod>, Key>, now: Timestamp) {
        let concerned = match told {
            Told::Seen(pod) => self.index.pod_seen(pod),
            Told::Gone(key) => self.index.pod_gone(&key).into_iter().collect(),
            Told::Only(there) => {
                self.known.pods = true;
                self.index.only_pods(&there)
            }
        };
        self.look_at_all(concerned, now);
        self.listed();
    }

    fn learn_request(&mut self, told: Told<Arc<Request>, Key>, now: Timestamp) {
        match told {
            Told::Seen(request) => self.request_seen(request, now),
            Told::Gone(key) => self.request_gone(&key, now),
            Told::Only(there) => {
                self.known.requests = true;
                for key in self.index.request_keys().into_iter().filter(|key| !there.contains(key)) {
                    self.request_gone(&key, now);
                }
            }
        }
        self.listed();
    }

    fn request_seen(&mut self, request: impl Into<Arc<Request>>, now: Timestamp) {
        let request = request.into();
        let before = self.index.request(&request.key).cloned();
        let key = self.index.request_seen(request, now);
        let after = self.index.request(&key).cloned();
        self.observer.request_changed(before.as_deref(), after.as_deref());
        self.look_at_soon(key, now);
    }

    fn request_gone(&mut self, key: &Key, now: Timestamp) {
        let before = self.index.request(key).cloned();
        if let Some(before) = &before {
            self.observer.waits(before, None, now);
        }
        self.observer.request_changed(before.as_deref(), None);
        self.index.request_gone(key);
        self.queue.set_time(key, None);
        self.queue.succeeded(key);
    }

    fn learn_budget(&mut self, told: Told<Budget, Key>, now: Timestamp) {
        let concerned = match told {
            Told::Seen(budget) => self.index.budget_seen(budget, now),
            Told::Gone(key) => self.index.budget_gone(&key),
            Told::Only(there) => {
                self.known.budgets = true;
                self.index.only_budgets(&there)
            }
        };
        self.look_at_all(concerned, now);
        self.listed();
    }

    fn learn_daemon_set(&mut self, told: Told<DaemonSet, Key>, now: Timestamp) {
        let concerned = match told {
            Told::Seen(set) => self.index.daemon_set_seen(set),
            Told::Gone(key) => self.index.daemon_set_gone(&key),
            Told::Only(there) => {
                self.known.daemon_sets = true;
                self.index.only_daemon_sets(&there)
            }
        };
        self.look_at_all(concerned, now);
        self.listed();
    }

    fn listed(&mut self) {
        let known = &self.known;
        if !self.is_synced && known.pods && known.requests && known.budgets && known.daemon_sets {
            self.is_synced = true;
            tracing::info!(requests = self.index.request_keys().len(), "all that there is is known");
            self.observer.synced();
        }
    }
}

/// Whether the request was deleted because its pod has left, and not because it was withdrawn.
fn is_over(decided: &Decided) -> bool {
    let alive = |pod: &Arc<Pod>| pod.uid == decided.request.pod_uid && !pod.phase.is_terminal();
    !decided.pod.as_ref().is_some_and(alive)
        && !matches!(decided.decision.waiting_on, Some(WaitingOn::PodLookup))
}
