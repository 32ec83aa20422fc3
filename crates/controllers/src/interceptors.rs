//! The bundled interceptors, each a controller of its own on the shared watches: [`usher_decide::interceptors`] holds what they know and
//! decides, and [`usher_apply::Interceptions`] carries it out.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::Client;
use tracing::Instrument as _;
use usher_api::workloads::BundledInterceptor;
use usher_apply::{AvailableCounts, Events, Failure, Interceptions, spans};
use usher_decide::interceptors::carry_out::CarryOut;
use usher_decide::interceptors::daemon_set::DaemonSets;
pub use usher_decide::interceptors::deployment::HandOver;
use usher_decide::interceptors::{Effect, EffectOutcome, Event, Item, Wait, Watch, WorkloadInterceptor};
use usher_decide::snapshot::{AutoscalerOnWire, DeploymentOnWire, ReplicaSetOnWire, StatefulSetOnWire};

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::listed::Listed;
use crate::metrics::{InterceptorMetrics, QueueMetrics};
use crate::reconcile::{self, Pending, Reconciled, Reconciler};
use crate::watch::{EventStream, watch_if_allowed};

/// A bundled interceptor, and how it is to go about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    pub which: BundledInterceptor,
    /// Where Deployments hand over.
    pub hand_over: HandOver,
}

/// Subscribes to the feeds and returns the future that runs the interceptor until it should stop. Calls under way get some time to
/// finish. The namespace is the manager's.
pub(crate) fn run_until(
    Chosen { which, hand_over }: Chosen,
    feeds: &mut Feeds,
    context: Context,
    namespace: &str,
    on_synced: OnSynced,
) -> BoxFuture<'static, ()> {
    let interceptor = usher_decide::interceptors::of(which, hand_over);
    run(which, interceptor, feeds, context, namespace, on_synced)
}

/// The same for a manager without the interceptor of DaemonSets. An earlier manager may have had it, so this one removes the holds on
/// nodes and lets gated pods through.
pub(crate) fn release_held_until(
    feeds: &mut Feeds,
    context: Context,
    namespace: &str,
    on_synced: OnSynced,
) -> BoxFuture<'static, ()> {
    let interceptor = Box::new(DaemonSets::switched_off());
    run(BundledInterceptor::DaemonSet, interceptor, feeds, context, namespace, on_synced)
}

fn run(
    which: BundledInterceptor,
    interceptor: Box<dyn WorkloadInterceptor>,
    feeds: &mut Feeds,
    context: Context,
    namespace: &str,
    on_synced: OnSynced,
) -> BoxFuture<'static, ()> {
    let Context { client, clock, metrics, stop } = context;
    let streams = interceptor.watches().iter().map(|watch| stream(*watch, feeds, &client));
    let events = futures::stream::select_all(streams);
    let events_of = Events::start(client.clone(), clock.clone());
    let controller = Controller {
        apply: Interceptions::new(client, events_of, clock.clone(), namespace.to_owned()),
        metrics: metrics.interceptor(which),
        which,
        listed: Listed::out_of(interceptor.watches().len()),
        interceptor,
    };
    reconcile::run(controller, events, clock, on_synced, stop).boxed()
}

/// What others look at too is watched once; the rest only where the interceptor's role allows it.
fn stream(watch: Watch, feeds: &mut Feeds, client: &Client) -> EventStream<Event> {
    let client = client.clone();
    match watch {
        Watch::Pods => feeds.pods().map(Event::Pod).boxed(),
        Watch::Requests => feeds.requests().map(Event::Request).boxed(),
        Watch::Namespaces => feeds.namespaces().map(Event::Namespace).boxed(),
        Watch::Maintenances => feeds.maintenances().map(Event::Maintenance).boxed(),
        Watch::DaemonSets => feeds.daemon_sets().map(Event::DaemonSet).boxed(),
        Watch::StatefulSets => {
            if_allowed(watch, watch_if_allowed::<StatefulSetOnWire, _>(client), Event::StatefulSet)
        }
        Watch::Deployments => {
            if_allowed(watch, watch_if_allowed::<DeploymentOnWire, _>(client), Event::Deployment)
        }
        Watch::ReplicaSets => {
            if_allowed(watch, watch_if_allowed::<ReplicaSetOnWire, _>(client), Event::ReplicaSet)
        }
        Watch::Autoscalers => {
            if_allowed(watch, watch_if_allowed::<AutoscalerOnWire, _>(client), Event::Autoscaler)
        }
    }
}

/// What a watch tells, also that there is nothing to be told.
fn if_allowed<T: 'static>(
    watch: Watch,
    told: EventStream<Option<T>>,
    event: impl Fn(T) -> Event + Send + 'static,
) -> EventStream<Event> {
    told.map(move |told| told.map_or(Event::NotAllowed(watch), &event)).boxed()
}

struct Controller {
    apply: Interceptions,
    metrics: InterceptorMetrics,
    which: BundledInterceptor,
    interceptor: Box<dyn WorkloadInterceptor>,
    listed: Listed<Watch>,
}

/// What came of the effects.
struct Done {
    outcomes: Vec<(Effect, EffectOutcome)>,
    failure: Option<Failure>,
}

impl Reconciler for Controller {
    type Event = Event;
    type Item = Item;
    type Done = Done;

    fn observe(&mut self, event: Event, now: Timestamp) {
        // Of what must not be read there is nothing to wait for.
        let is_listed = event.is_listed() || matches!(event, Event::NotAllowed(_));
        self.listed.observe(event.watch(), is_listed);
        self.interceptor.observe(event, now);
    }

    fn has_synced(&self) -> bool {
        self.listed.is_complete()
    }

    fn pending(&mut self, _: Timestamp) -> Pending<Item> {
        let pending = self.interceptor.pending();
        Pending {
            now: pending.now.into_iter().collect(),
            at: pending.at.into_iter().collect(),
            ..Pending::default()
        }
    }

    fn reconcile(&mut self, item: &Item, now: Timestamp) -> Reconciled<Done> {
        let decision = self.interceptor.decide(item, now);
        self.metrics.waits(item, decision.waiting_on.as_ref().map(Wait::reason));
        let again = decision.recheck_at;
        if decision.effects.is_empty() {
            return Reconciled::waits(again);
        }
        tracing::debug!(
            interceptor = self.which.name(),
            ?item,
            effects = decision.effects.len(),
            "interceptor"
        );
        let apply = self.apply.clone();
        let (namespace, name) = match item {
            Item::Request(key) | Item::Workload(key) | Item::ReplicaSet(key) | Item::GatedPod(key) => {
                (&*key.namespace, &*key.name)
            }
            Item::HeldNodes => ("", ""),
        };
        let span = spans::work("intercept", namespace, name);
        let work = async move {
            let mut done = Done { outcomes: Vec::new(), failure: None };
            let mut carry_out = CarryOut::default();
            let mut counted = AvailableCounts::default();
            for effect in decision.effects {
                let depends = effect.depends();
                if !carry_out.may_try(&depends) {
                    continue;
                }
                let failure = apply.carry_out_with(&effect, &mut counted).await.err();
                carry_out.tried(depends, failure.is_none());
                let outcome = match &failure {
                    None => Some(EffectOutcome::Done),
                    Some(Failure::Refused { message, .. }) => Some(EffectOutcome::Refused(message.clone())),
                    Some(Failure::NameTaken) => Some(EffectOutcome::NameTaken),
                    Some(Failure::Outdated | Failure::Later(_) | Failure::Panicked) => None,
                };
                done.outcomes.extend(outcome.map(|outcome| (effect, outcome)));
                done.failure = done.failure.or(failure);
            }
            done
        };
        Reconciled { again, work: Some(work.instrument(span).boxed()) }
    }

    fn finish(&mut self, _: &Item, done: Done, now: Timestamp) -> Result<(), Failure> {
        for (effect, outcome) in &done.outcomes {
            self.interceptor.carried_out(effect, outcome, now);
        }
        done.failure.map_or(Ok(()), Err)
    }

    fn metrics(&self) -> &QueueMetrics {
        &self.metrics.queue
    }
}
