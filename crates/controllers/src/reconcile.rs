//! The loop of every controller: watch events into what it knows, decisions out of it, effects to the server.
//!
//! One task owns everything; only the API calls run beside it, a bounded number at a time, and never two for the same item.
//! Nothing is decided before all watches have told what there is. A panic costs the item that it shows with, and no other.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use usher_apply::{Clock, Failure};

use crate::context::{OnSynced, Stop};
use crate::guard::{Panicked, guarded, guarded_async};
use crate::metrics::QueueMetrics;
use crate::queue::{Queue, not_at_once};
use crate::watch::{EventStream, sleep_until};

/// So many items are worked on at a time.
const AT_A_TIME: usize = 64;
/// Calls under way may take so long when the controller is asked to stop.
const LONGEST_EXIT: Duration = Duration::from_secs(10);

/// What a controller is, but for its loop.
pub trait Reconciler: Send {
    /// What its watches deliver.
    type Event: Send + 'static;
    /// What is reconciled, one at a time.
    type Item: Clone + Ord + Hash + Debug + Send + 'static;
    /// What came of the effects.
    type Done: Send + 'static;

    fn observe(&mut self, event: Self::Event, now: Timestamp);

    /// All watches have told what there is.
    fn has_synced(&self) -> bool;

    /// What has become worth a look since the last call: by events, by what came of effects, or by decisions on others.
    fn pending(&mut self, now: Timestamp) -> Pending<Self::Item>;

    /// Decides on an item. The effects are carried out beside.
    fn reconcile(&mut self, item: &Self::Item, now: Timestamp) -> Reconciled<Self::Done>;

    /// # Errors
    /// Something was not carried out: the item is looked at again, later and later.
    fn finish(&mut self, item: &Self::Item, done: Self::Done, now: Timestamp) -> Result<(), Failure>;

    /// A failure that is worth a line in the log.
    fn log_failure(&mut self, item: &Self::Item, failure: &Failure) {
        match failure {
            Failure::Later(why) => tracing::warn!(?item, why, "the server could not be written to"),
            // Its words are where people look, in an event or a condition; they may repeat what logs must not hold.
            Failure::Refused { reason, .. } => {
                tracing::error!(?item, reason = reason.as_str(), "the server refuses what is written");
            }
            Failure::Outdated | Failure::Panicked | Failure::NameTaken => {}
        }
    }

    fn metrics(&self) -> &QueueMetrics;

    /// The last thing to do when the controller is asked to stop, after all calls have finished.
    fn before_exit(&mut self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// What is to be looked at.
#[derive(Debug)]
pub struct Pending<I> {
    pub now: Vec<I>,
    pub at: BTreeMap<I, Timestamp>,
    /// Items that do not exist any more.
    pub gone: Vec<I>,
}

impl<I> Default for Pending<I> {
    fn default() -> Self {
        Self { now: Vec::new(), at: BTreeMap::new(), gone: Vec::new() }
    }
}

/// A decision.
pub struct Reconciled<D> {
    /// When to look again even if nothing changes.
    pub again: Option<Timestamp>,
    /// What is carried out, if there is anything to do.
    pub work: Option<BoxFuture<'static, D>>,
}

impl<D> Reconciled<D> {
    /// There is nothing to do, until then or until something changes.
    pub fn waits(again: Option<Timestamp>) -> Self {
        Self { again, work: None }
    }
}

/// Runs a controller until it is asked to stop; the calls under way are given a while to finish.
pub async fn run<R: Reconciler>(
    reconciler: R,
    mut events: SelectAll<EventStream<R::Event>>,
    clock: Clock,
    on_synced: OnSynced,
    mut stop: Stop,
) {
    let mut work = Loop {
        reconciler,
        queue: Queue::default(),
        under_way: FuturesUnordered::new(),
        clock: clock.clone(),
        on_synced,
        has_synced: false,
    };
    loop {
        // What has happened already comes first, so that decisions are made on what is, not on what was.
        while let Some(Some(event)) = events.next().now_or_never() {
            work.observe(event);
        }
        work.start(clock.now());
        let sleep = sleep_until(&clock, work.queue.next_time());
        tokio::select! {
            biased;
            () = &mut stop => break,
            event = events.next() => match event {
                Some(event) => work.observe(event),
                None => return,
            },
            Some((item, done)) = work.under_way.next() => work.finish(&item, done),
            () = sleep => {}
        }
    }
    let finished = async {
        while let Some((item, done)) = work.under_way.next().await {
            work.finish(&item, done);
        }
        if let Some(before_exit) = work.reconciler.before_exit() {
            before_exit.await;
        }
    };
    if tokio::time::timeout(LONGEST_EXIT, finished).await.is_err() {
        tracing::warn!("calls were still under way at the end; the next leader goes on");
    }
}

/// An item, and what came of its effects.
type Work<R> = BoxFuture<'static, (<R as Reconciler>::Item, Result<<R as Reconciler>::Done, Panicked>)>;

struct Loop<R: Reconciler> {
    reconciler: R,
    queue: Queue<R::Item>,
    under_way: FuturesUnordered<Work<R>>,
    clock: Clock,
    on_synced: OnSynced,
    has_synced: bool,
}

impl<R: Reconciler> Loop<R> {
    fn observe(&mut self, event: R::Event) {
        let (now, reconciler) = (self.clock.now(), &mut self.reconciler);
        if guarded(|| reconciler.observe(event, now)) == Err(Panicked) {
            tracing::error!("an event could not be taken in: a defect of Usher");
            reconciler.metrics().failed(&Failure::Panicked);
        }
        if !self.has_synced && reconciler.has_synced() {
            self.has_synced = true;
            (self.on_synced)();
        }
    }

    /// Starts as much work as there may be at a time.
    fn start(&mut self, now: Timestamp) {
        if !self.has_synced {
            return;
        }
        loop {
            self.enqueue(now);
            self.queue.wake(now);
            if self.under_way.len() >= AT_A_TIME {
                break;
            }
            let Some((item, waited)) = self.queue.take(now) else { break };
            self.reconciler.metrics().taken(waited);
            self.reconcile(item, now);
        }
        let (waiting, _) = self.queue.depth();
        self.reconciler.metrics().depth(waiting);
    }

    fn enqueue(&mut self, now: Timestamp) {
        let reconciler = &mut self.reconciler;
        let Ok(pending) = guarded(|| reconciler.pending(now)) else {
            tracing::error!("planning failed: a defect of Usher; what was planned before holds");
            return reconciler.metrics().failed(&Failure::Panicked);
        };
        for item in pending.gone {
            self.queue.set_time(&item, None);
            self.queue.succeeded(&item);
        }
        for item in pending.now {
            if self.queue.add(item, now) {
                self.reconciler.metrics().added();
            }
        }
        for (item, at) in pending.at {
            self.queue.set_time(&item, Some(at));
        }
    }

    fn reconcile(&mut self, item: R::Item, now: Timestamp) {
        let reconciler = &mut self.reconciler;
        let Ok(Reconciled { again, work }) = guarded(|| reconciler.reconcile(&item, now)) else {
            self.failed(&item, &Failure::Panicked, now);
            return self.done_with(&item, now);
        };
        self.queue.set_time(&item, not_at_once(again, now));
        match work {
            Some(work) => {
                self.under_way.push(async move { (item, guarded_async(work).await) }.boxed());
            }
            None => self.done_with(&item, now),
        }
    }

    fn finish(&mut self, item: &R::Item, done: Result<R::Done, Panicked>) {
        let (now, reconciler) = (self.clock.now(), &mut self.reconciler);
        let finished = match done {
            Ok(done) => guarded(|| reconciler.finish(item, done, now)).unwrap_or(Err(Failure::Panicked)),
            Err(Panicked) => Err(Failure::Panicked),
        };
        match finished {
            Ok(()) => self.queue.succeeded(item),
            Err(failure) => self.failed(item, &failure, now),
        }
        self.done_with(item, now);
    }

    fn failed(&mut self, item: &R::Item, failure: &Failure, now: Timestamp) {
        tracing::debug!(?item, ?failure, "not carried out");
        match failure {
            Failure::Panicked => {
                tracing::error!(?item, "it could not be reconciled: a defect of Usher; others go on");
            }
            failure => self.reconciler.log_failure(item, failure),
        }
        self.reconciler.metrics().failed(failure);
        self.reconciler.metrics().retried();
        // Events of what is newer are on their way, but a watch may be late: it is looked at again anyway.
        self.queue.retry(item, now);
    }

    fn done_with(&mut self, item: &R::Item, now: Timestamp) {
        let worked = self.queue.done(item, now);
        self.reconciler.metrics().done(worked);
    }
}
