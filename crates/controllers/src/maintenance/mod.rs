//! The node maintenance controller: watches into the index, decisions out of it, effects to the server.
//!
//! One task owns everything; only the API calls run beside it, a bounded number at a time, and never two for the same
//! maintenance, node or pod. Nothing is decided before all watches have told what there is. Everything needed to go on
//! is in the API objects: the position in the plan and the targets in the status of the maintenance, who holds a node
//! and what it was before on the node, and who requests an eviction on the request.

mod observer;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::Client;
use tokio::task::JoinSet;
use tracing::Instrument as _;
use usher_api::NodeMaintenance;
use usher_apply::{Clock, Events, Failure, Maintenances, spans};
use usher_decide::maintenance::decision::{Effect, NodeEffect};
use usher_decide::maintenance::index::{Index, Item, PodDecision};
use usher_decide::snapshot::{Key, Maintenance, Node, NodeOnWire, Pod, Request};

pub use crate::observer::Nobody;
pub use observer::Observer;

use crate::feeds::Ear;
use crate::guard::{Panicked, guarded, guarded_async};
use crate::queue::{Queue, not_at_once};
use crate::watch::{NewsStream, Told, follow, sleep_until};

/// So many objects are worked on at a time.
const AT_A_TIME: usize = 64;

/// What the watches tell.
enum News {
    Maintenance(Box<Told<Maintenance, Arc<str>>>),
    Node(Box<Told<Node, Arc<str>>>),
    Pod(Told<Arc<Pod>, Key>),
    Request(Told<Arc<Request>, Key>),
}

/// What there is of these has been told.
#[derive(Default)]
struct Known {
    maintenances: bool,
    nodes: bool,
    pods: bool,
    requests: bool,
}

/// Runs the controller until the future is dropped.
pub async fn run(ear: Ear, client: Client, clock: Clock, observer: Box<dyn Observer>) {
    let events = Events::start(client.clone(), clock.clone());
    let news = futures::stream::select_all([
        follow::<NodeMaintenance, Maintenance>(client.clone())
            .map(|told| News::Maintenance(Box::new(told)))
            .boxed(),
        follow::<NodeOnWire, Node>(client.clone()).map(|told| News::Node(Box::new(told))).boxed(),
        ear.pods.map(News::Pod).boxed(),
        ear.requests.map(News::Request).boxed(),
    ]);
    let controller = Controller {
        apply: Maintenances::new(client, events),
        clock,
        observer,
        index: Index::default(),
        queue: Queue::default(),
        under_way: FuturesUnordered::new(),
        known: Known::default(),
        is_synced: false,
        _watches: ear.watches,
    };
    controller.run(news).await;
}

struct Done {
    item: Item,
    /// The object as it was written.
    fresh: Option<Fresh>,
    failure: Option<Failure>,
    /// A fight over the node was told.
    told_fight: bool,
    /// The status of the maintenance was written.
    status_taken: bool,
}

impl Done {
    fn failed(item: Item, failure: Failure) -> Self {
        Self { item, fresh: None, failure: Some(failure), told_fight: false, status_taken: false }
    }
}

enum Fresh {
    Maintenance(Box<Maintenance>),
    Node(Box<Node>),
}

struct Controller {
    apply: Maintenances,
    clock: Clock,
    observer: Box<dyn Observer>,
    index: Index,
    queue: Queue<Item>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    known: Known,
    /// All watches have told what there is.
    is_synced: bool,
    _watches: Arc<JoinSet<()>>,
}

impl Controller {
    async fn run(mut self, mut news: SelectAll<NewsStream<News>>) {
        loop {
            // What has happened already comes first, so that decisions are made on what is, not on what was.
            while let Some(Some(told)) = news.next().now_or_never() {
                self.learn(told);
            }
            let now = self.clock.now();
            if self.is_synced {
                self.work(now);
            }
            let clock = self.clock.clone();
            let sleep = sleep_until(&clock, self.queue.next_time());
            tokio::select! {
                biased;
                told = news.next() => match told {
                    Some(told) => self.learn(told),
                    None => return,
                },
                Some(done) = self.under_way.next() => self.finish(done),
                () = sleep => {}
            }
        }
    }

    /// Starts as much work as there may be at a time.
    fn work(&mut self, now: Timestamp) {
        let index = &mut self.index;
        if guarded(|| index.resolve(now)) == Err(Panicked) {
            tracing::error!("planning failed: a defect of Usher; what was planned before holds");
            self.observer.failed(&Failure::Panicked);
        }
        let (soon, later) = self.index.concerned();
        for item in soon {
            if self.queue.add(item, now) {
                self.observer.queue_added();
            }
        }
        for (item, at) in later {
            self.queue.set_time(&item, Some(at));
        }
        self.queue.wake(now);
        while self.under_way.len() < AT_A_TIME {
            let Some((item, waited)) = self.queue.take(now) else { break };
            self.observer.queue_taken(waited);
            self.queue.set_time(&item, None);
            match guarded(|| self.look_at(&item, now)) {
                Ok(Some(work)) => {
                    let item = item.clone();
                    self.under_way.push(
                        async move {
                            let done = guarded_async(work).await;
                            done.unwrap_or_else(|Panicked| Done::failed(item, Failure::Panicked))
                        }
                        .boxed(),
                    );
                }
                Ok(None) => self.done_with(&item, now),
                Err(Panicked) => {
                    tracing::error!(?item, "deciding on it failed: a defect of Usher; others go on");
                    self.observer.failed(&Failure::Panicked);
                    self.queue.retry(&item, now);
                    self.done_with(&item, now);
                }
            }
        }
        let (waiting, busy) = self.queue.depth();
        self.observer.queue_depth(waiting, busy);
    }

    fn look_at(&mut self, item: &Item, now: Timestamp) -> Option<BoxFuture<'static, Done>> {
        let apply = self.apply.clone();
        match item {
            Item::Maintenance(name) => {
                let (maintenance, decision, cause) = self.index.decide_maintenance(name, now)?;
                self.observer.waits(name, cause, now);
                self.queue.set_time(item, not_at_once(decision.recheck_at, now));
                let effects = Some(decision.effects).filter(|effects| !effects.is_empty())?;
                let span = spans::work("reconcile NodeMaintenance", "", name);
                Some(carry_out(apply, item.clone(), maintenance, effects).instrument(span).boxed())
            }
            Item::Node(name) => {
                let (node, decision) = self.index.decide_node(name, now)?;
                self.queue.set_time(item, not_at_once(decision.recheck_at, now));
                let effects = Some(decision.effects).filter(|effects| !effects.is_empty())?;
                let told_fight =
                    effects.iter().any(|effect| matches!(effect, NodeEffect::Tell(it) if it.is_warning));
                let span = spans::work("reconcile Node", "", name);
                let item = item.clone();
                Some(
                    async move {
                        let outcome = apply.node(&node, &effects, now).await;
                        let fresh = outcome.fresh.map(|node| Fresh::Node(Box::new(node)));
                        Done { item, fresh, failure: outcome.failure, told_fight, status_taken: false }
                    }
                    .instrument(span)
                    .boxed(),
                )
            }
            Item::Pod(key) => {
                let PodDecision { pod, request, effect } = self.index.decide_pod(key)?;
                tracing::debug!(pod = %key, ?effect, "eviction request");
                let span = spans::work("reconcile Pod", &key.namespace, &key.name);
                let item = item.clone();
                Some(
                    async move {
                        let failure = apply.pod(&pod, request.as_deref(), effect).await.err();
                        Done { item, fresh: None, failure, told_fight: false, status_taken: false }
                    }
                    .instrument(span)
                    .boxed(),
                )
            }
        }
    }

    fn done_with(&mut self, item: &Item, now: Timestamp) {
        let worked = self.queue.done(item, now);
        self.observer.queue_done(worked);
    }

    fn finish(&mut self, done: Done) {
        let now = self.clock.now();
        match done.fresh {
            // What its watch has seen go must not come back.
            Some(Fresh::Maintenance(fresh)) => {
                self.index.maintenance_written(&fresh.name, now);
                if done.status_taken {
                    self.index.status_taken(&fresh.name);
                }
                if self.index.maintenance(&fresh.name).is_some_and(|known| known.uid == fresh.uid) {
                    self.maintenance_seen(*fresh, now);
                }
            }
            Some(Fresh::Node(fresh))
                if self.index.node(&fresh.name).is_some_and(|known| known.uid == fresh.uid) =>
            {
                self.index.node_seen(*fresh, now);
            }
            Some(Fresh::Node(_)) | None => {}
        }
        if let (Item::Node(name), true) = (&done.item, done.told_fight) {
            self.index.fight_told(name);
        }
        match done.failure {
            None => self.queue.succeeded(&done.item),
            Some(failure) => {
                tracing::debug!(item = ?done.item, ?failure, "not carried out");
                self.observer.failed(&failure);
                self.observer.queue_retried();
                // News of what is newer are on their way, but a watch may be late: it is looked at again anyway.
                self.queue.retry(&done.item, now);
                match (failure, &done.item) {
                    (Failure::Later(why), item) => {
                        tracing::warn!(?item, why, "the server could not be written to");
                    }
                    (Failure::Panicked, item) => {
                        tracing::error!(?item, "carrying it out failed: a defect of Usher; others go on");
                    }
                    // Its words are in a condition and an event.
                    (Failure::Refused { reason, message }, Item::Maintenance(name)) => {
                        tracing::error!(maintenance = &**name, reason, "its status was refused");
                        self.index.status_refused(name, reason, message, now);
                    }
                    _ => {}
                }
            }
        }
        self.done_with(&done.item, now);
    }

    fn learn(&mut self, news: News) {
        let now = self.clock.now();
        match news {
            News::Maintenance(told) => match *told {
                Told::Seen(maintenance) => self.maintenance_seen(maintenance, now),
                Told::Gone(name) => self.maintenance_gone(&name, now),
                Told::Only(there) => {
                    self.known.maintenances = true;
                    for name in self.index.maintenance_names().iter().filter(|name| !there.contains(*name)) {
                        self.maintenance_gone(name, now);
                    }
                }
            },
            News::Node(told) => match *told {
                Told::Seen(node) => self.index.node_seen(node, now),
                Told::Gone(name) => self.index.node_gone(&name),
                Told::Only(there) => {
                    self.known.nodes = true;
                    for name in self.index.node_names().iter().filter(|name| !there.contains(*name)) {
                        self.index.node_gone(name);
                    }
                }
            },
            News::Pod(told) => match told {
                Told::Seen(pod) => self.index.pod_seen(pod),
                Told::Gone(key) => self.index.pod_gone(&key),
                Told::Only(there) => {
                    self.known.pods = true;
                    for key in self.index.pod_keys().iter().filter(|key| !there.contains(key)) {
                        self.index.pod_gone(key);
                    }
                }
            },
            News::Request(told) => match told {
                Told::Seen(request) => self.index.request_seen(request),
                Told::Gone(key) => self.index.request_gone(&key),
                Told::Only(there) => {
                    self.known.requests = true;
                    for key in self.index.request_keys().iter().filter(|key| !there.contains(key)) {
                        self.index.request_gone(key);
                    }
                }
            },
        }
        let known = &self.known;
        if !self.is_synced && known.maintenances && known.nodes && known.pods && known.requests {
            self.is_synced = true;
            tracing::info!(maintenances = self.index.maintenance_names().len(), "all that there is is known");
            self.observer.synced();
        }
    }

    fn maintenance_seen(&mut self, maintenance: Maintenance, now: Timestamp) {
        let name = maintenance.name.clone();
        let before = self.index.maintenance(&name).cloned();
        self.index.maintenance_seen(maintenance);
        let after = self.index.maintenance(&name).cloned();
        self.observer.maintenance_changed(before.as_deref(), after.as_deref(), now);
    }

    fn maintenance_gone(&mut self, name: &Arc<str>, now: Timestamp) {
        let before = self.index.maintenance(name).cloned();
        self.observer.waits(name, None, now);
        self.observer.maintenance_changed(before.as_deref(), None, now);
        self.index.maintenance_gone(name);
    }
}

async fn carry_out(
    apply: Maintenances,
    item: Item,
    maintenance: Arc<Maintenance>,
    effects: Vec<Effect>,
) -> Done {
    let outcome = apply.maintenance(&maintenance, &effects).await;
    // The status comes first.
    let status_taken = matches!(effects.first(), Some(Effect::WriteStatus(_))) && outcome.fresh.is_some();
    let fresh = outcome.fresh.map(|fresh| Fresh::Maintenance(Box::new(fresh)));
    Done { item, fresh, failure: outcome.failure, told_fight: false, status_taken }
}
