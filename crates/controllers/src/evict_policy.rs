//! The Pod Evict Policy: [`usher_decide::evict_policy`] holds what is known of pods that Kubernetes wants to evict and decides, and
//! [`usher_apply::EvictPolicies`] carries it out. What is needed to go on is on the pods and their requests.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tracing::Instrument as _;
use usher_api::workloads::BundledInterceptor;
use usher_apply::{Events, EvictPolicies, Failure, spans};
use usher_decide::evict_policy::Effect;
use usher_decide::evict_policy::index::Index;
pub use usher_decide::evict_policy::{Options, TIMEOUT};
use usher_decide::snapshot::{Key, Namespace, Pod, Request, TaintedNode, TaintedNodeOnWire};

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::listed::Listed;
use crate::metrics::{EvictPolicyMetrics, QueueMetrics};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{WatchEvent, watch};

/// Subscribes to the feeds and returns the future that runs the controller until it should stop. Calls under way get some time to finish.
pub(crate) fn run_until(
    feeds: &mut Feeds,
    context: Context,
    options: Options,
    interceptors: Vec<BundledInterceptor>,
    on_synced: OnSynced,
) -> BoxFuture<'static, ()> {
    let Context { client, clock, metrics, stop } = context;
    let events = futures::stream::select_all([
        feeds.pods().map(Event::Pod).boxed(),
        feeds.requests().map(Event::Request).boxed(),
        feeds.namespaces().map(Event::Namespace).boxed(),
        watch::<TaintedNodeOnWire, TaintedNode>(client.clone()).map(Event::Node).boxed(),
    ]);
    let events_of = Events::start(client.clone(), clock.clone());
    let controller = Controller {
        apply: EvictPolicies::new(client, events_of),
        metrics: metrics.evict_policy(),
        index: Index::new(options, interceptors),
        listed: Listed::out_of(events.len()),
    };
    reconcile::run(controller, events, clock, on_synced, stop).boxed()
}

/// What the watches tell.
enum Event {
    Pod(WatchEvent<Arc<Pod>, Key>),
    Request(WatchEvent<Arc<Request>, Key>),
    Namespace(WatchEvent<Arc<Namespace>, Arc<str>>),
    Node(WatchEvent<TaintedNode, Arc<str>>),
}

impl Event {
    /// Of which kind it is, and whether it ends a list of that.
    fn listed(&self) -> (&'static str, bool) {
        match self {
            Self::Pod(event) => ("pods", event.is_listed()),
            Self::Request(event) => ("requests", event.is_listed()),
            Self::Namespace(event) => ("namespaces", event.is_listed()),
            Self::Node(event) => ("nodes", event.is_listed()),
        }
    }
}

struct Controller {
    apply: EvictPolicies,
    metrics: EvictPolicyMetrics,
    index: Index,
    listed: Listed<&'static str>,
}

impl Reconciler for Controller {
    type Event = Event;
    type Item = Key;
    /// What was done, and what was not and why.
    type Done = (Vec<Effect>, Option<(Effect, Failure)>);

    fn observe(&mut self, event: Event, _: Timestamp) {
        let (kind, is_listed) = event.listed();
        self.listed.observe(kind, is_listed);
        match event {
            Event::Pod(event) => self.index.pods_changed(event),
            Event::Request(event) => self.index.requests_changed(event),
            Event::Namespace(event) => self.index.namespaces_changed(event),
            Event::Node(event) => self.index.nodes_changed(event),
        }
    }

    fn has_synced(&self) -> bool {
        self.listed.is_complete()
    }

    fn pending(&mut self, _: Timestamp) -> Pending<Key> {
        let (now, gone) = self.index.pending().into_iter().partition(|key| self.index.knows(key));
        let pending = Pending { now, gone, ..Pending::default() };
        for key in &pending.gone {
            self.metrics.waits(key, None);
        }
        pending
    }

    fn reconcile(&mut self, key: &Key, now: Timestamp) -> Reconciled<Self::Done> {
        let decision = self.index.decide(key, now);
        self.metrics.waits(key, decision.waiting_on);
        if decision.effects.is_empty() {
            return Reconciled::waits(decision.recheck_at);
        }
        let apply = self.apply.clone();
        let span = spans::work("reconcile Pod", &key.namespace, &key.name);
        let work = async move {
            let mut done = Vec::new();
            for effect in decision.effects {
                if let Err(failure) = apply.carry_out(&effect).await {
                    return (done, Some((effect, failure)));
                }
                done.push(effect);
            }
            (done, None)
        };
        Reconciled { again: decision.recheck_at, work: Some(work.instrument(span).boxed()) }
    }

    fn finish(&mut self, key: &Key, (done, failed): Self::Done, now: Timestamp) -> Result<(), Failure> {
        let is_ask = |effect: &Effect| matches!(effect, Effect::Ask { .. });
        if done.iter().any(is_ask) {
            self.index.asked(key, true, now);
        } else if failed.as_ref().is_some_and(|(effect, _)| is_ask(effect)) {
            self.index.asked(key, false, now);
        }
        if done.iter().any(|effect| matches!(effect, Effect::Delete { .. })) {
            tracing::info!(pod = %key, "the workload of a pod that is wanted gone had its time: the pod is deleted");
            self.metrics.fell_back();
        }
        failed.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    fn metrics(&self) -> &QueueMetrics {
        &self.metrics.queue
    }
}
