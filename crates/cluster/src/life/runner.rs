//! Drives the components: news into the view, tasks into decisions, decisions into requests, times into timers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::{self, Outcome};
use super::heartbeat::Heartbeats;
use super::plan::Action;
use super::scheduler::is_waiting;
use super::tasks::{Component, Queue, Task, concerned, decide, waiting};
use super::view::{Change, Resource, Source, View};
use super::{Options, api::describe};
use crate::cluster::Cluster;
use crate::response::ServerBody;

/// After a list or watch that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Only delays of this many are taken at once, so that timers always fit.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// So many tasks in a row, then the others of the runtime have their turn.
const OTHERS_AFTER: u64 = 32;

/// News of one resource.
enum News {
    Listed(Bytes),
    /// Whole lines of a watch.
    Changed(Bytes),
}

type Follower = Pin<Box<dyn Stream<Item = News> + Send>>;

pub async fn run(cluster: Cluster, options: Options, heartbeats: Arc<Heartbeats>) {
    let followers =
        Resource::FOLLOWED.iter().map(|resource| (*resource, follow(cluster.clone(), *resource))).collect();
    let mut runner = Runner {
        cluster,
        options,
        view: View::default(),
        queue: Queue::default(),
        followers,
        under_way: FuturesUnordered::new(),
        heartbeats,
    };
    runner.begin().await;
    let mut in_a_row: u64 = 0;
    loop {
        runner.take_in_news();
        runner.queue.wake(runner.now());
        match runner.queue.take() {
            Some(task) => runner.look_at(task),
            None => runner.wait().await,
        }
        in_a_row += 1;
        if in_a_row.is_multiple_of(OTHERS_AFTER) {
            tokio::task::yield_now().await;
        }
    }
}

struct Runner {
    cluster: Cluster,
    options: Options,
    view: View,
    queue: Queue,
    followers: Vec<(Resource, Follower)>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    heartbeats: Arc<Heartbeats>,
}

/// A task whose actions were carried out, up to the first that failed.
struct Done {
    task: Task,
    results: Vec<(Action, Outcome)>,
}

impl Runner {
    fn now(&self) -> Timestamp {
        self.cluster.server().now()
    }

    /// Nobody decides before all is known.
    async fn begin(&mut self) {
        for index in 0..self.followers.len() {
            let (resource, follower) = &mut self.followers[index];
            let resource = *resource;
            if let Some(news) = follower.next().await {
                self.learn(resource, news);
            }
        }
    }

    /// Everything that has happened already.
    fn take_in_news(&mut self) {
        while let Some((resource, news)) = poll_fn(|context| self.poll_news(context)).now_or_never() {
            self.learn(resource, news);
        }
    }

    fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<(Resource, News)> {
        for (resource, follower) in &mut self.followers {
            if let Poll::Ready(Some(news)) = follower.poll_next_unpin(context) {
                return Poll::Ready((*resource, news));
            }
        }
        Poll::Pending
    }

    fn learn(&mut self, resource: Resource, news: News) {
        let changes = match &news {
            News::Listed(list) => listed(&mut self.view, resource, list),
            News::Changed(lines) => changed(&mut self.view, resource, lines),
        };
        match changes {
            Ok(changes) => changes.iter().for_each(|change| self.concern(change)),
            Err(why) => tracing::warn!(?resource, %why, "news cannot be read, and are ignored"),
        }
    }

    fn concern(&mut self, change: &Change) {
        match change {
            Change::Pod { before: Some(pod), after: None } => self.queue.not_refused(&pod.key()),
            Change::Node { after: Some(node), .. } => self.heartbeats.seen(node, self.now()),
            Change::Node { before: Some(node), after: None } => self.heartbeats.gone(&node.metadata.name),
            _ => {}
        }
        for task in concerned(&self.view, change) {
            self.queue.add(task);
        }
    }

    fn look_at(&mut self, task: Task) {
        let plan = decide(&self.view, &task, &self.options.times, self.now());
        if let Some(at) = plan.recheck_at {
            self.queue.add_at(task.clone(), at);
        }
        for task in waiting(&self.view, &task) {
            self.queue.add(task);
        }
        if task.0 == Component::Scheduler {
            let binds = plan.actions.iter().any(|action| matches!(action, Action::Bind { .. }));
            let waits = self.view.pods.get(&task.1).is_some_and(|pod| is_waiting(pod));
            if waits && !binds {
                self.queue.refused(task.1.clone());
            } else {
                self.queue.not_refused(&task.1);
            }
        }
        if plan.actions.is_empty() {
            self.queue.done(task, true);
            return;
        }
        let cluster = self.cluster.clone();
        self.under_way.push(carry_out(cluster, task, plan.actions).boxed());
        // Without webhooks the server answers at once; the order of events then depends on nothing else.
        if let Some(Some(done)) = self.under_way.next().now_or_never() {
            self.finish(done);
        }
    }

    fn finish(&mut self, done: Done) {
        let mut failed = false;
        for (action, outcome) in done.results {
            self.note(done.task.0, &action, &outcome);
            if let Some((resource, object)) = &outcome.object {
                match self.view.written(*resource, object, Source::Answer) {
                    Ok(change) => change.iter().for_each(|change| self.concern(change)),
                    Err(why) => tracing::warn!(?resource, %why, "an answer cannot be read, and is ignored"),
                }
            }
            failed |= !outcome.succeeded() && !outcome.is_moot();
        }
        if failed {
            self.queue.retry(done.task.clone(), self.now());
        }
        self.queue.done(done.task, !failed);
    }

    fn note(&self, who: Component, action: &Action, outcome: &Outcome) {
        if !outcome.succeeded() {
            tracing::debug!(?who, action = describe(action), code = outcome.code, outcome.message, "refused");
        }
        if let Some(trace) = &self.options.trace {
            let line = format!("{} {who:?} {} -> {}", self.now(), describe(action), outcome.code);
            if trace.send(line).is_err() {
                tracing::debug!("nobody reads the trace any more");
            }
        }
    }

    /// Until there are news, an answer, or something is due.
    async fn wait(&mut self) {
        let due = self.queue.next_time().map(|at| {
            let left = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
            // Timers of tokio count in milliseconds, rounded up so that it is not too early.
            (left + Duration::from_millis(1)).min(LONGEST_SLEEP)
        });
        let sleep = async {
            match due {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(sleep);
        let next = poll_fn(|context| {
            if let Poll::Ready((resource, news)) = self.poll_news(context) {
                return Poll::Ready(Some(Next::News(resource, news)));
            }
            if let Poll::Ready(Some(done)) = self.under_way.poll_next_unpin(context) {
                return Poll::Ready(Some(Next::Done(done)));
            }
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await;
        match next {
            Some(Next::News(resource, news)) => self.learn(resource, news),
            Some(Next::Done(done)) => self.finish(done),
            None => {}
        }
    }
}

enum Next {
    News(Resource, News),
    Done(Done),
}

async fn carry_out(cluster: Cluster, task: Task, actions: Vec<Action>) -> Done {
    let mut results = Vec::with_capacity(actions.len());
    for action in actions {
        let outcome = api::carry_out(&cluster, task.0, &action).await;
        let goes_on = outcome.succeeded() || outcome.is_moot();
        results.push((action, outcome));
        if !goes_on {
            break;
        }
    }
    Done { task, results }
}

enum Following {
    Listing,
    Watching { from: u64 },
    Reading { body: ServerBody, reached: u64 },
}

/// A list, then all changes; a watch that ends goes on where it was, one that has missed something starts again.
fn follow(cluster: Cluster, resource: Resource) -> Follower {
    let start = (cluster, Following::Listing);
    Box::pin(futures::stream::unfold(start, move |(cluster, mut state)| async move {
        loop {
            match state {
                Following::Listing => {
                    let (code, list) = api::list(&cluster, resource).await;
                    if code == 200
                        && let Ok(revision) = revision_of(&list)
                    {
                        return Some((News::Listed(list), (cluster, Following::Watching { from: revision })));
                    }
                    tracing::warn!(?resource, code, "cannot be listed");
                    tokio::time::sleep(PAUSE).await;
                    state = Following::Listing;
                }
                Following::Watching { from } => {
                    let (code, body) = api::watch(&cluster, resource, from).await;
                    state = if code == 200 {
                        Following::Reading { body, reached: from }
                    } else {
                        Following::Listing
                    };
                }
                Following::Reading { mut body, reached } => {
                    // In this process, a frame of the body is what the server wrote in one go: whole lines.
                    match body.frame().await.and_then(|frame| frame.ok()?.into_data().ok()) {
                        Some(lines) if !lines.starts_with(b"{\"type\":\"ERROR\"") => {
                            let state =
                                Following::Reading { reached: reached_by(&lines).unwrap_or(reached), body };
                            return Some((News::Changed(lines), (cluster, state)));
                        }
                        Some(_) => state = Following::Listing,
                        None => state = Following::Watching { from: reached },
                    }
                }
            }
        }
    }))
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

fn revision_of(list: &[u8]) -> Result<u64, serde_json::Error> {
    let list: List<'_> = serde_json::from_slice(list)?;
    list.metadata.resource_version.parse().map_err(serde::de::Error::custom)
}

fn listed(view: &mut View, resource: Resource, list: &[u8]) -> Result<Vec<Change>, serde_json::Error> {
    let revision = revision_of(list)?;
    let list: List<'_> = serde_json::from_slice(list)?;
    view.listed(resource, &list.items, revision)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The revision of the last of these events.
fn reached_by(lines: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Told {
        object: Dated,
    }
    #[derive(Deserialize)]
    struct Dated {
        metadata: ListMeta,
    }
    let last = lines.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
    let told: Told = serde_json::from_slice(last).ok()?;
    told.object.metadata.resource_version.parse().ok()
}

fn changed(view: &mut View, resource: Resource, lines: &[u8]) -> Result<Vec<Change>, serde_json::Error> {
    let mut changes = Vec::new();
    for event in serde_json::Deserializer::from_slice(lines).into_iter::<Event<'_>>() {
        let event = event?;
        let json = event.object.get().as_bytes();
        let change = match event.kind {
            "ADDED" | "MODIFIED" => view.written(resource, json, Source::Watch),
            "DELETED" => view.deleted(resource, json),
            _ => Ok(None),
        };
        match change {
            Ok(change) => changes.extend(change),
            // One bad object is nobody else's problem.
            Err(why) => tracing::warn!(?resource, %why, "an object cannot be read, and is ignored"),
        }
    }
    Ok(changes)
}
