//! Follows the requests of a cluster or a namespace and calls the handler for those whose turn is ours.
//!
//! Nothing is kept of requests that are not ours: there is no cache, so that a large cluster costs a watch and no memory.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use usher_api::EvictionRequest;
use usher_api::lenient::Lenient;

use crate::class::InterceptorClass;
use crate::turn::Turn;
use crate::turn_state::{Lost, PodState, TurnState, judge};
use usher_client::Clock;

/// The wait before a handler that failed is called again: from, to.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What an interceptor does with its turn. Any `Fn(Turn) -> impl Future<Output = Result<(), E>>` is a handler.
///
/// - `Ok` after [`Turn::complete`] or [`Turn::decline`]: the usual end.
/// - `Ok` without: the pod is on its way, because it was evicted, deleted or told to end. Nothing more is reported. If the pod does
///   not go after all, the deadline passes and the next one has its turn.
/// - `Err`, or a panic: called again after a while, for as long as the turn is ours. Nothing is reported in between, so that a
///   handler that keeps failing loses its turn by the deadline.
///
/// A handler may be called again for a turn that it has begun: after an error, and after a restart of the process. It has to
/// look at what is done already; [`Turn::status`] has what was reported.
///
/// A handler is not stopped when the turn is lost, so that it can undo things or tell its users. It finds out by
/// [`Turn::lost`], by [`Turn::keep_alive_while`], or by the next report that fails.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, turn: Turn) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Whatever went wrong in a handler.
pub type HandlerError = Box<dyn Error + Send + Sync>;

impl<F, Fut, E> Handler for F
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<HandlerError>,
{
    fn handle(&self, turn: Turn) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let answer = self(turn);
        async { answer.await.map_err(Into::into) }
    }
}

/// Calls a handler for every turn of one interceptor class, one at a time per pod, different pods side by side.
pub struct InterceptorRunner {
    client: Client,
    class: InterceptorClass,
    clock: Clock,
    namespace: Option<String>,
    config: watcher::Config,
}

impl InterceptorRunner {
    /// For requests of all namespaces.
    #[must_use]
    pub fn new(client: Client, class: InterceptorClass) -> Self {
        let config = watcher::Config::default();
        Self { client, class, clock: Clock::system(), namespace: None, config }
    }

    /// Only requests of this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only requests with these labels; a request has those of its pod.
    #[must_use]
    pub fn with_labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Another clock for what is written. Timers are tokio's.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Runs until dropped. Handlers end with it, where they stand; the next process goes on.
    pub async fn run(self, handler: impl Handler) -> Infallible {
        let requests: Api<Lenient<EvictionRequest>> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let events = watcher(requests, self.config.clone()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut turns = Turns {
            runner: self,
            handler: Arc::new(handler),
            entries: HashMap::new(),
            tasks: JoinSet::new(),
        };
        let mut listed = HashSet::new();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Init)) => listed.clear(),
                    Some(Ok(watcher::Event::InitApply(request))) => {
                        // Only what is followed already can be missed in a list.
                        let key = Key::of(&request);
                        turns.saw_one(request);
                        if turns.entries.contains_key(&key) {
                            listed.insert(key);
                        }
                    }
                    Some(Ok(watcher::Event::InitDone)) => turns.only(&std::mem::take(&mut listed)),
                    Some(Ok(watcher::Event::Apply(request))) => turns.saw_one(request),
                    Some(Ok(watcher::Event::Delete(request))) => turns.gone(&Key::of(&request)),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "eviction requests cannot be watched, trying again");
                    }
                    // A watcher has no end.
                    None => std::future::pending().await,
                },
                Some(ended) = turns.tasks.join_next() => match ended {
                    Ok(key) => turns.ended(&key),
                    Err(error) => tracing::error!(%error, "a turn ended without a word"),
                },
            }
        }
    }
}

/// A request by name, which is the UID of its pod. One made anew for the same pod has the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    name: String,
}

impl Key {
    fn of(request: &impl kube::Resource) -> Self {
        Self { namespace: request.namespace().unwrap_or_default(), name: request.name_any() }
    }
}

/// What is known of a request that is or was ours.
#[derive(Default)]
struct Entry {
    request: Option<Arc<EvictionRequest>>,
    /// The UID of the request that a handler works on, and the way to tell its turn what is seen.
    running: Option<(String, watch::Sender<Option<Arc<EvictionRequest>>>)>,
    /// The UID of the request whose handler has returned.
    answered: Option<String>,
}

struct Turns<H> {
    runner: InterceptorRunner,
    handler: Arc<H>,
    entries: HashMap<Key, Entry>,
    tasks: JoinSet<Key>,
}

impl<H: Handler> Turns<H> {
    /// Whatever somebody wrote into a request of his keeps nobody from answering the others.
    fn saw_one(&mut self, request: Lenient<EvictionRequest>) {
        match request.read() {
            Ok(request) => self.saw(request),
            Err(request) => tracing::warn!("eviction request {request}"),
        }
    }

    fn saw(&mut self, request: EvictionRequest) {
        let key = Key::of(&request);
        let request = Arc::new(request);
        let ours = self.is_ours(&request);
        if !ours && !self.entries.contains_key(&key) {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        entry.request = Some(request.clone());
        if let Some((_, seen)) = &entry.running {
            seen.send_replace(Some(request));
            return;
        }
        self.start_or_forget(&key);
    }

    fn gone(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.request = None;
        if let Some((_, seen)) = &entry.running {
            seen.send_replace(None);
            return;
        }
        self.start_or_forget(key);
    }

    /// A list is complete: what is not in it is gone.
    fn only(&mut self, listed: &HashSet<Key>) {
        let missed: Vec<Key> = self.entries.keys().filter(|key| !listed.contains(key)).cloned().collect();
        missed.iter().for_each(|key| self.gone(key));
    }

    fn ended(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.answered = entry.running.take().map(|(uid, _)| uid);
        }
        self.start_or_forget(key);
    }

    /// For a request that no handler works on.
    fn start_or_forget(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else { return };
        let Some(request) = entry.request.clone().filter(|request| self.is_ours(request)) else {
            self.entries.remove(key);
            return;
        };
        if entry.answered.is_some() && entry.answered == request.uid() {
            return;
        }
        let runner = &self.runner;
        let turn =
            Turn::new(runner.client.clone(), runner.class.clone(), runner.clock.clone(), request.clone());
        let (sender, seen) = watch::channel(Some(request.clone()));
        self.tasks.spawn(play(turn, self.handler.clone(), seen, key.clone()));
        if let Some(entry) = self.entries.get_mut(key) {
            entry.running = Some((request.uid().unwrap_or_default(), sender));
        }
    }

    fn is_ours(&self, request: &EvictionRequest) -> bool {
        judge(&self.runner.class, None, Some(request), PodState::NotLooked) == TurnState::Ours
    }
}

/// One turn, from the first call of the handler to its return.
async fn play<H: Handler>(
    turn: Turn,
    handler: Arc<H>,
    seen: watch::Receiver<Option<Arc<EvictionRequest>>>,
    key: Key,
) -> Key {
    let _end = EndOfTurn(turn.clone());
    tokio::select! {
        () = answer(&turn, &*handler) => {}
        never = follow(&turn, seen) => match never {},
    }
    key
}

/// Clones of the turn that outlive the handler learn that nobody follows it any more.
struct EndOfTurn(Turn);

impl Drop for EndOfTurn {
    fn drop(&mut self) {
        self.0.lose(Lost::Stopped);
    }
}

/// Calls the handler until it has answered or the turn is over.
async fn answer<H: Handler>(turn: &Turn, handler: &H) {
    let mut wait = RETRY.0;
    loop {
        let called = AssertUnwindSafe(async { handler.handle(turn.clone()).await });
        let failure = match called.catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        if turn.is_lost().is_some() {
            return;
        }
        tracing::warn!(
            pod = %turn.pod_ref().name, namespace = turn.namespace(), error = failure, seconds = wait.as_secs(),
            "the handler failed, calling it again"
        );
        tokio::select! {
            _ = turn.lost() => return,
            () = sleep(wait) => {}
        }
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Tells the turn what is seen of its request.
async fn follow(turn: &Turn, mut seen: watch::Receiver<Option<Arc<EvictionRequest>>>) -> Infallible {
    let mut wait = RETRY.0;
    while seen.changed().await.is_ok() {
        let request = seen.borrow_and_update().clone();
        let mut unclear = request.is_none_or(|request| turn.saw(request));
        while unclear {
            match turn.look_closer().await {
                Ok(()) => unclear = false,
                Err(error) => {
                    tracing::warn!(%error, "cannot find out how a request has ended, trying again");
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY.1);
                }
            }
        }
        wait = RETRY.0;
    }
    std::future::pending().await
}
