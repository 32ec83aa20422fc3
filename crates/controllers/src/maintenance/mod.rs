//! The node maintenance controller: [`usher_decide::maintenance::index`] holds what it knows and decides, and
//! [`usher_apply::Maintenances`] carries it out. Everything needed to go on is in the API objects: the position in the plan and the
//! targets in the status of the maintenance, who holds a node and what it was before on the node, and who requests an eviction on
//! the request.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tracing::Instrument as _;
use usher_apply::{Events, Failure, Maintenances, spans};
use usher_decide::decision::Decision;
use usher_decide::maintenance::decision::NodeEffect;
use usher_decide::maintenance::index::{Index, Item, PodWithRequest};
use usher_decide::snapshot::{Key, Maintenance, Node, NodeOnWire, Pod, Request};

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::listed::Listed;
use crate::metrics::{MaintenanceMetrics, QueueMetrics};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{WatchEvent, watch};

/// Subscribes to the feeds and returns the future that runs the controller until it should stop. Calls under way get some time to finish.
pub(crate) fn run_until(feeds: &mut Feeds, context: Context, on_synced: OnSynced) -> BoxFuture<'static, ()> {
    let Context { client, clock, metrics, stop } = context;
    let events = futures::stream::select_all([
        feeds.maintenances().map(Event::Maintenance).boxed(),
        watch::<NodeOnWire, Node>(client.clone()).map(|event| Event::Node(Box::new(event))).boxed(),
        feeds.pods().map(Event::Pod).boxed(),
        feeds.requests().map(Event::Request).boxed(),
    ]);
    let controller = Controller {
        apply: Maintenances::new(client.clone(), Events::start(client, clock.clone())),
        metrics: metrics.maintenances(),
        index: Index::default(),
        has_changed: true,
        listed: Listed::out_of(events.len()),
    };
    reconcile::run(controller, events, clock, on_synced, stop).boxed()
}

/// What the watches tell.
enum Event {
    Maintenance(WatchEvent<Arc<Maintenance>, Arc<str>>),
    Node(Box<WatchEvent<Node, Arc<str>>>),
    Pod(WatchEvent<Arc<Pod>, Key>),
    Request(WatchEvent<Arc<Request>, Key>),
}

impl Event {
    /// Of which kind it is, and whether it ends a list of that.
    fn listed(&self) -> (&'static str, bool) {
        match self {
            Self::Maintenance(event) => ("maintenances", event.is_listed()),
            Self::Node(event) => ("nodes", event.is_listed()),
            Self::Pod(event) => ("pods", event.is_listed()),
            Self::Request(event) => ("requests", event.is_listed()),
        }
    }
}

#[derive(Default)]
struct Done {
    /// The object as it was written.
    fresh: Option<Fresh>,
    failure: Option<Failure>,
    /// A conflict over the node was told.
    told_conflict: bool,
    /// The status of the maintenance was written.
    status_taken: bool,
}

enum Fresh {
    Maintenance(Box<Maintenance>),
    Node(Box<Node>),
}

struct Controller {
    apply: Maintenances,
    metrics: MaintenanceMetrics,
    index: Index,
    /// Something was learned that plans may depend on.
    has_changed: bool,
    listed: Listed<&'static str>,
}

impl Reconciler for Controller {
    type Event = Event;
    type Item = Item;
    type Done = Done;

    fn observe(&mut self, event: Event, now: Timestamp) {
        self.has_changed = true;
        let (kind, is_listed) = event.listed();
        self.listed.observe(kind, is_listed);
        match event {
            Event::Maintenance(event) => match event {
                WatchEvent::Applied(maintenance) => self.maintenance_seen(maintenance, now),
                WatchEvent::Deleted(name) => self.maintenance_gone(&name, now),
                WatchEvent::Listed(there) => {
                    for name in self.index.maintenance_names().iter().filter(|name| !there.contains(*name)) {
                        self.maintenance_gone(name, now);
                    }
                }
            },
            Event::Node(event) => match *event {
                WatchEvent::Applied(node) => self.index.node_seen(node, now),
                WatchEvent::Deleted(name) => self.index.node_gone(&name),
                WatchEvent::Listed(there) => {
                    for name in self.index.node_names().iter().filter(|name| !there.contains(*name)) {
                        self.index.node_gone(name);
                    }
                }
            },
            Event::Pod(event) => match event {
                WatchEvent::Applied(pod) => self.index.pod_seen(pod),
                WatchEvent::Deleted(key) => self.index.pod_gone(&key),
                WatchEvent::Listed(there) => {
                    for key in self.index.pod_keys().iter().filter(|key| !there.contains(key)) {
                        self.index.pod_gone(key);
                    }
                }
            },
            Event::Request(event) => match event {
                WatchEvent::Applied(request) => {
                    self.index.pod_asked(&request, now);
                    self.index.request_seen(request);
                }
                WatchEvent::Deleted(key) => self.index.request_gone(&key),
                WatchEvent::Listed(there) => {
                    for key in self.index.request_keys().iter().filter(|key| !there.contains(key)) {
                        self.index.request_gone(key);
                    }
                }
            },
        }
    }

    fn has_synced(&self) -> bool {
        self.listed.is_complete()
    }

    fn pending(&mut self, now: Timestamp) -> Pending<Item> {
        if !std::mem::take(&mut self.has_changed) {
            return Pending::default();
        }
        self.index.resolve(now);
        let (soon, at) = self.index.concerned();
        Pending { now: soon.into_iter().collect(), at, gone: Vec::new() }
    }

    fn reconcile(&mut self, item: &Item, now: Timestamp) -> Reconciled<Done> {
        match item {
            Item::Maintenance(name) => self.reconcile_maintenance(name, now),
            Item::Node(name) => self.reconcile_node(name, now),
            Item::Pod(key) => self.reconcile_pod(key, now),
        }
    }

    fn finish(&mut self, item: &Item, done: Done, now: Timestamp) -> Result<(), Failure> {
        self.has_changed = true;
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
        if let (Item::Node(name), true) = (item, done.told_conflict) {
            self.index.conflict_told(name);
        }
        if let (Item::Maintenance(name), Some(Failure::Refused { reason, message })) = (item, &done.failure) {
            self.index.status_refused(name, reason.as_str(), message.clone(), now);
        }
        done.failure.map_or(Ok(()), Err)
    }

    fn metrics(&self) -> &QueueMetrics {
        &self.metrics.queue
    }
}

impl Controller {
    fn reconcile_maintenance(&mut self, name: &Arc<str>, now: Timestamp) -> Reconciled<Done> {
        let Some((maintenance, decision)) = self.index.decide_maintenance(name, now) else {
            return Reconciled::waits(None);
        };
        self.metrics.waits(name, decision.waiting_on.as_ref(), now);
        let (again, effects) = (decision.recheck_at, decision.effects);
        if effects.is_empty() {
            return Reconciled::waits(again);
        }
        let apply = self.apply.clone();
        let span = spans::work("reconcile NodeMaintenance", "", name);
        let work = async move {
            let outcome = apply.maintenance(&maintenance, &effects).await;
            let status_taken = outcome.status_taken;
            let fresh = outcome.fresh.map(|fresh| Fresh::Maintenance(Box::new(fresh)));
            Done { fresh, failure: outcome.failure, status_taken, ..Done::default() }
        };
        Reconciled { again, work: Some(work.instrument(span).boxed()) }
    }

    fn reconcile_node(&mut self, name: &Arc<str>, now: Timestamp) -> Reconciled<Done> {
        let Some((node, decision)) = self.index.decide_node(name, now) else {
            return Reconciled::waits(None);
        };
        let Decision { effects, waiting_on, recheck_at: again } = decision;
        tracing::debug!(node = %name, ?effects, ?waiting_on, "node under maintenance");
        if effects.is_empty() {
            return Reconciled::waits(again);
        }
        let told_conflict = effects.iter().any(|effect| matches!(effect, NodeEffect::RecordConflict(_)));
        let (apply, holders) = (self.apply.clone(), self.index.holders(name));
        let span = spans::work("reconcile Node", "", name);
        let work = async move {
            let outcome = apply.node(&node, &effects, &holders, now).await;
            let fresh = outcome.fresh.map(|node| Fresh::Node(Box::new(node)));
            Done { fresh, failure: outcome.failure, told_conflict, ..Done::default() }
        };
        Reconciled { again, work: Some(work.instrument(span).boxed()) }
    }

    fn reconcile_pod(&mut self, key: &Key, now: Timestamp) -> Reconciled<Done> {
        let Some((PodWithRequest { pod, request }, decision)) = self.index.decide_pod(key, now) else {
            return Reconciled::waits(None);
        };
        let Decision { effects, waiting_on, recheck_at: again } = decision;
        tracing::debug!(pod = %key, ?effects, ?waiting_on, "eviction request");
        let (apply, holders) = (self.apply.clone(), self.index.holders(&pod.node));
        let span = spans::work("reconcile Pod", &key.namespace, &key.name);
        let work = async move {
            let failure = apply.pod(&pod, request.as_deref(), &effects, &holders).await.err();
            Done { failure, ..Done::default() }
        };
        Reconciled { again, work: Some(work.instrument(span).boxed()) }
    }

    fn maintenance_seen(&mut self, maintenance: impl Into<Arc<Maintenance>>, now: Timestamp) {
        let maintenance = maintenance.into();
        let name = maintenance.name.clone();
        let before = self.index.maintenance(&name).cloned();
        self.index.maintenance_seen(maintenance);
        let after = self.index.maintenance(&name).cloned();
        self.metrics.maintenance_changed(before.as_deref(), after.as_deref(), now);
    }

    fn maintenance_gone(&mut self, name: &Arc<str>, now: Timestamp) {
        let before = self.index.maintenance(name).cloned();
        self.metrics.waits(name, None, now);
        self.metrics.maintenance_changed(before.as_deref(), None, now);
        self.index.maintenance_gone(name);
    }
}
