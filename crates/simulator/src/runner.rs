//! Drives the components: events into the view, tasks into decisions, decisions into requests, times into timers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedReceiver;

use super::api::{self, ActionResult};
use super::events::{self, Recorder};
use super::follow::{Follower, PendingEvent, follow};
use super::heartbeat::Heartbeats;
use super::plan::{Action, Note, Plan};
use super::presence::{Command, Incarnation, Presence};
use super::queue::Queue;
use super::scheduler::is_waiting;
use super::tasks::{Component, Task, concerned, decide, waiting};
use super::view::{Change, Resource, Source, View};
use super::{Options, api::describe};
use embedded_apiserver::Cluster;

/// Only delays of this many are taken at once, so that timers always fit.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// So many tasks in a row, then the others of the runtime have their turn.
const OTHERS_AFTER: u64 = 32;

pub(crate) async fn run(
    cluster: Cluster,
    options: Options,
    heartbeats: Arc<Heartbeats>,
    commands: UnboundedReceiver<Command>,
) {
    let followers = Resource::FOLLOWED.map(|resource| (resource, follow(cluster.clone(), resource)));
    let mut runner = Runner {
        cluster,
        options,
        view: View::default(),
        queue: Queue::default(),
        followers,
        under_way: FuturesUnordered::new(),
        recorder: Recorder::default(),
        commands,
        presence: Presence::default(),
        heartbeats,
    };
    runner.begin().await;
    let mut in_a_row: u64 = 0;
    loop {
        runner.take_events();
        runner.queue.wake(runner.now());
        match runner.queue.take() {
            Some(task) => runner.reconcile(task),
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
    followers: [(Resource, Follower); Resource::FOLLOWED.len()],
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    recorder: Recorder,
    commands: UnboundedReceiver<Command>,
    presence: Presence,
    heartbeats: Arc<Heartbeats>,
}

/// A task whose actions were carried out, up to the first that failed.
struct Done {
    of: For,
    results: Vec<(Action, ActionResult)>,
}

/// What actions are carried out for.
enum For {
    /// A task, and what is noted if all of them succeed.
    Task(Task, Vec<Note>),
    /// An event, by whom.
    Event(Component),
}

impl For {
    fn component(&self) -> Component {
        match self {
            Self::Task(task, _) => task.0,
            Self::Event(who) => *who,
        }
    }
}

impl Runner {
    fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    /// Nobody decides before all is known.
    async fn begin(&mut self) {
        for index in 0..self.followers.len() {
            let (resource, follower) = &mut self.followers[index];
            let resource = *resource;
            if let Some(event) = follower.next().await {
                self.observe(resource, event);
            }
        }
    }

    /// Everything that has happened already.
    fn take_events(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(&command);
        }
        while let Some((resource, event)) = poll_fn(|context| self.poll_event(context)).now_or_never() {
            self.observe(resource, event);
        }
    }

    fn obey(&mut self, command: &Command) {
        self.trace(|| format!("life {command:?}"));
        let now = self.now();
        let tasks = self.presence.obey(command, &mut self.view, now);
        match command {
            Command::KubeletDown(node) | Command::KubeletUp(node) => self.set_heartbeats(node),
            Command::Down(of) | Command::Up(of) if of.process() == Component::Kubelet => {
                self.view.nodes.iter().for_each(|(key, _)| self.set_heartbeats(&key.name));
            }
            _ => {}
        }
        if matches!(command, Command::Down(_) | Command::KubeletDown(_)) {
            let (presence, view) = (&self.presence, &self.view);
            self.queue.forget(|task| !presence.takes(view, task));
        }
        tasks.into_iter().for_each(|task| self.queue.add(task));
    }

    /// A kubelet that is down makes no beats.
    fn set_heartbeats(&self, node: &str) {
        match self.view.silent_since(node) {
            Some(since) => self.heartbeats.silence(node, since),
            None => self.heartbeats.resume(node, self.now()),
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<(Resource, PendingEvent)> {
        for (resource, follower) in &mut self.followers {
            if let Poll::Ready(Some(event)) = follower.poll_next_unpin(context) {
                return Poll::Ready((*resource, event));
            }
        }
        Poll::Pending
    }

    fn observe(&mut self, resource: Resource, event: PendingEvent) {
        match event.take_in(&mut self.view, resource) {
            Ok(changes) => changes.iter().for_each(|change| self.concern(change)),
            Err(why) => tracing::warn!(?resource, %why, "an event cannot be read, and is ignored"),
        }
    }

    fn concern(&mut self, change: &Change) {
        self.view.remember(change, self.now());
        if !self.options.without_events
            && let Some((who, notes)) = events::of_change(&self.view, change)
        {
            self.record(who, notes);
        }
        match change {
            Change::Pod { before: Some(pod), after: None } => self.queue.not_refused(&pod.key()),
            Change::Node { after: Some(node), .. } => {
                self.heartbeats.seen(node, self.now());
                self.set_heartbeats(&node.metadata.name);
            }
            Change::Node { before: Some(node), after: None } => self.heartbeats.gone(&node.metadata.name),
            _ => {}
        }
        for task in concerned(&self.view, change) {
            self.queue.add(task);
        }
    }

    fn reconcile(&mut self, task: Task) {
        if !self.presence.takes(&self.view, &task) {
            self.queue.done(task, true);
            return;
        }
        let now = self.presence.as_seen_by(task.0, self.now());
        let plan = decide(&self.view, &task, &self.options.times, now);
        if let Some(at) = plan.recheck_at {
            self.queue.add_at(task.clone(), self.presence.really(task.0, at));
        }
        self.serve_waiting(&task, &plan);
        if plan.actions.is_empty() {
            self.record(task.0, plan.notes);
            self.queue.done(task, true);
            return;
        }
        self.begin_to(For::Task(task, plan.notes), plan.actions);
    }

    /// Who waits for a node is asked again when there is something new, but not too often.
    fn serve_waiting(&mut self, task: &Task, plan: &Plan) {
        for task in waiting(&self.view, task) {
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
    }

    fn begin_to(&mut self, of: For, actions: Vec<Action>) {
        let cluster = self.cluster.clone();
        let run = self.presence.incarnation(of.component());
        self.under_way.push(carry_out(cluster, run, of, actions).boxed());
        // Without webhooks the server answers at once; the order of events then depends on nothing else.
        if let Some(Some(done)) = self.under_way.next().now_or_never() {
            self.finish(done);
        }
    }

    fn record(&mut self, who: Component, notes: Vec<Note>) {
        if self.options.without_events {
            return;
        }
        for note in notes {
            if let Some(action) = self.recorder.record(who, note, self.now()) {
                self.begin_to(For::Event(who), vec![action]);
            }
        }
    }

    fn finish(&mut self, done: Done) {
        let For::Task(task, mut notes) = done.of else {
            for (action, outcome) in &done.results {
                self.note(done.of.component(), action, outcome);
                self.recorder.written(action, outcome);
            }
            return;
        };
        let mut failed = false;
        let mut said = Vec::new();
        for (action, outcome) in done.results {
            self.note(task.0, &action, &outcome);
            if !self.options.without_events {
                said.extend(events::of_outcome(&self.view, &task, &action, &outcome));
            }
            if let Some((resource, object)) = &outcome.object {
                let json = std::str::from_utf8(object).map_err(serde::de::Error::custom);
                match json.and_then(|json| self.view.written(*resource, json, Source::Answer)) {
                    Ok(change) => change.iter().for_each(|change| self.concern(change)),
                    Err(why) => tracing::warn!(?resource, %why, "an answer cannot be read, and is ignored"),
                }
            }
            failed |= !outcome.succeeded() && !outcome.is_moot();
            if let (Action::AskScale { namespace, owner }, Some(scale)) = (action, outcome.scale) {
                self.view.observe_scale(&namespace, &owner, scale, self.now());
                self.queue.add(task.clone());
            }
        }
        if failed {
            notes.clear();
            if self.presence.takes(&self.view, &task) {
                self.queue.retry(task.clone(), self.now());
            }
        }
        said.append(&mut notes);
        self.record(task.0, said);
        self.queue.done(task, !failed);
    }

    fn note(&self, who: Component, action: &Action, outcome: &ActionResult) {
        if !outcome.succeeded() {
            tracing::debug!(?who, action = describe(action), code = outcome.code, outcome.message, "refused");
        }
        self.trace(|| format!("{who:?} {} -> {}", describe(action), outcome.code));
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.options.trace
            && trace.send(format!("{} {}", self.now(), line())).is_err()
        {
            tracing::debug!("nobody reads the trace any more");
        }
    }

    /// Until there is an event, an answer, or something is due.
    async fn wait(&mut self) {
        let due = self.queue.next_time().map(|at| {
            let left = self.cluster.time_until(at);
            // Timers of tokio count in milliseconds, rounded up so that it is not too early.
            left.saturating_add(Duration::from_millis(1)).min(LONGEST_SLEEP)
        });
        let sleep = async {
            match due {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(sleep);
        let next = poll_fn(|context| {
            if let Poll::Ready((resource, event)) = self.poll_event(context) {
                return Poll::Ready(Some(Next::PendingEvent(resource, event)));
            }
            if let Poll::Ready(Some(done)) = self.under_way.poll_next_unpin(context) {
                return Poll::Ready(Some(Next::Done(done)));
            }
            if let Poll::Ready(Some(command)) = self.commands.poll_recv(context) {
                return Poll::Ready(Some(Next::Command(command)));
            }
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await;
        match next {
            Some(Next::PendingEvent(resource, event)) => self.observe(resource, event),
            Some(Next::Done(done)) => self.finish(done),
            Some(Next::Command(command)) => self.obey(&command),
            None => {}
        }
    }
}

enum Next {
    PendingEvent(Resource, PendingEvent),
    Done(Done),
    Command(Command),
}

async fn carry_out(cluster: Cluster, run: Incarnation, of: For, actions: Vec<Action>) -> Done {
    let mut results = Vec::with_capacity(actions.len());
    for action in actions {
        if !run.is_alive() {
            break;
        }
        let outcome = api::carry_out(&cluster, of.component(), &action).await;
        let goes_on = outcome.succeeded() || outcome.is_moot();
        results.push((action, outcome));
        if !goes_on {
            break;
        }
    }
    Done { of, results }
}
