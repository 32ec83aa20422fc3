//! A world that is kept up to date by watches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;

use futures::stream::SelectAll;
use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use usher_api::NodeMaintenance;
use usher_decide::snapshot::{Budget, BudgetOnWire, Key, Pod, PodOnWire, Request, RequestOnWire};

use crate::Error;
use crate::maintenance::selection::only_name;
use crate::reading::Read;
use crate::sketch::RequestSketch;
use crate::world::{World, key_of, scoped};

enum LiveEvent {
    Pod(Event<Read<PodOnWire>>),
    Request(Event<Read<RequestOnWire>>),
    Sketch(Event<Read<RequestSketch>>),
    Budget(Event<Read<BudgetOnWire>>),
    /// A watch failed; it starts anew by itself.
    Failed {
        kind: Kind,
        why: watcher::Error,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pods,
    Requests,
    Budgets,
}

type LiveEvents = Pin<Box<dyn Stream<Item = LiveEvent> + Send>>;

/// What is watched.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    pub request_labels: Option<String>,
    pub pod_labels: Option<String>,
    /// Only the pod of this name.
    pub pod_name: Option<String>,
    /// Only pods that are on nodes and have not ended.
    pub on_nodes: Option<OnNodes>,
    /// Pods are of use without their requests, if these may not be read.
    pub may_hide_requests: bool,
    /// Pods are not watched before [`Live::watch_pods`] is called, and until then requests are only read that could be blocked or
    /// are of a pod that is known.
    pub pods_later: bool,
}

/// Which nodes.
#[derive(Debug, Clone)]
pub enum OnNodes {
    Any,
    One(String),
}

impl OnNodes {
    /// Of a maintenance: a server can be asked for the pods of one node, or of all.
    pub fn of(maintenance: &NodeMaintenance) -> Self {
        only_name(&maintenance.spec.node_selector).map_or(Self::Any, |node| Self::One(node.to_string()))
    }

    fn fields(&self) -> String {
        let node = match self {
            Self::Any => "!=",
            Self::One(node) => &format!("={node}"),
        };
        format!("spec.nodeName{node},status.phase!=Succeeded,status.phase!=Failed")
    }
}

/// What has changed, so that only this need be looked at.
#[derive(Debug, Default)]
pub struct Changed {
    /// Pods that have changed, or whose requests have.
    pub pods: BTreeSet<Key>,
    /// Budgets that count otherwise.
    pub budgets: BTreeSet<Key>,
    /// Namespaces where budgets came, went, or select other pods.
    pub reselected: BTreeSet<Arc<str>>,
}

impl Changed {
    pub fn pod(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        // Most of what happens to a pod matters to nobody here.
        if before != after {
            self.pods.extend(before.or(after).map(|pod| pod.key.clone()));
        }
    }

    pub fn request(&mut self, before: Option<&Request>, after: Option<&Request>) {
        self.pods.extend(before.or(after).map(Request::pod_key));
    }

    pub fn budget(&mut self, before: Option<&Budget>, after: Option<&Budget>) {
        match (before, after) {
            (Some(before), Some(after)) if before.selector == after.selector => {
                if before != after {
                    self.budgets.insert(after.key.clone());
                }
            }
            _ => self.reselected.extend(before.or(after).map(|budget| budget.key.namespace.clone())),
        }
    }
}

/// Names that are being listed anew, per kind; the others are gone at the end of the list.
#[derive(Debug, Default)]
pub struct Listed {
    names: BTreeSet<Key>,
    pub is_done: bool,
}

pub struct Live {
    pub world: World,
    events: SelectAll<LiveEvents>,
    /// The watch of pods that was not started yet.
    later: Option<LiveEvents>,
    pods: Listed,
    requests: Listed,
    /// Requests that nothing is to be said of yet. `None`: all are read.
    unread: Option<HashMap<Key, Read<RequestSketch>>>,
    budgets: Listed,
    may_hide_requests: bool,
    /// Everything that was watched from the start has been told once.
    has_started: bool,
}

impl Live {
    /// Returns once everything that is there has been told.
    pub async fn start(client: &Client, scope: &Scope) -> Result<Self, Error> {
        let namespace = scope.namespace.as_deref();
        let mut pods = watcher::Config { label_selector: scope.pod_labels.clone(), ..Default::default() };
        if let Some(name) = &scope.pod_name {
            pods = pods.fields(&format!("metadata.name={name}"));
        }
        if let Some(nodes) = &scope.on_nodes {
            pods = pods.fields(&nodes.fields());
        }
        let requests = watcher::Config { label_selector: scope.request_labels.clone(), ..Default::default() };
        let pods = follow(scoped(client, namespace), pods, Kind::Pods, LiveEvent::Pod);
        let requests = match scope.pods_later {
            true => follow(scoped(client, namespace), requests, Kind::Requests, LiveEvent::Sketch),
            false => follow(scoped(client, namespace), requests, Kind::Requests, LiveEvent::Request),
        };
        let mut events = futures::stream::select_all([
            requests,
            follow(scoped(client, namespace), watcher::Config::default(), Kind::Budgets, LiveEvent::Budget),
        ]);
        let later = if scope.pods_later {
            Some(pods)
        } else {
            events.push(pods);
            None
        };
        let mut live = Self {
            world: World::default(),
            events,
            later,
            pods: Listed::default(),
            requests: Listed::default(),
            unread: scope.pods_later.then(HashMap::new),
            budgets: Listed::default(),
            may_hide_requests: scope.may_hide_requests,
            has_started: false,
        };
        while !((live.pods.is_done || live.later.is_some()) && live.requests.is_done && live.budgets.is_done)
        {
            live.changed().await?;
        }
        live.has_started = true;
        Ok(live)
    }

    /// Watches pods too, and reads all requests, from now on.
    pub fn watch_pods(&mut self) {
        self.events.extend(self.later.take());
        for (key, sketch) in self.unread.take().into_iter().flatten() {
            self.read(key, sketch);
        }
    }

    /// Reads the requests of pods that are to be known.
    pub fn read_requests_of(&mut self, pods: &[Pod]) {
        for key in pods.iter().map(Pod::request_key) {
            if let Some(sketch) = self.unread.as_mut().and_then(|unread| unread.remove(&key)) {
                self.read(key, sketch);
            }
        }
    }

    fn read(&mut self, key: Key, sketch: Read<RequestSketch>) {
        if let Some(request) = sketch.again::<RequestOnWire>().object() {
            self.world.requests.insert(key, request.into());
        }
    }

    /// What has to be read, of what was told in sketches.
    fn sift(&mut self, event: Event<Read<RequestSketch>>) -> Option<Event<Read<RequestOnWire>>> {
        match event {
            Event::Init => Some(Event::Init),
            Event::InitApply(sketch) => {
                self.requests.names.insert(key_of(&sketch));
                self.put_aside(sketch).map(|sketch| Event::InitApply(sketch.again()))
            }
            Event::Apply(sketch) => self.put_aside(sketch).map(|sketch| Event::Apply(sketch.again())),
            Event::InitDone => {
                if let Some(unread) = &mut self.unread {
                    unread.retain(|key, _| self.requests.names.contains(key));
                }
                Some(Event::InitDone)
            }
            Event::Delete(sketch) => {
                let key = key_of(&sketch);
                if let Some(unread) = &mut self.unread {
                    unread.remove(&key);
                }
                self.world.requests.contains_key(&key).then(|| Event::Delete(sketch.again()))
            }
        }
    }

    /// Gives it back if it has to be read.
    fn put_aside(&mut self, sketch: Read<RequestSketch>) -> Option<Read<RequestSketch>> {
        let Some(unread) = &mut self.unread else { return Some(sketch) };
        let key = key_of(&sketch);
        let World { pods, requests, .. } = &self.world;
        let is_needed = requests.contains_key(&key)
            || sketch.as_object().is_none_or(|request| {
                let is_known = || !pods.is_empty() && pods.contains_key(&request.pod_key());
                request.could_be_blocked() || is_known()
            });
        if is_needed {
            unread.remove(&key);
            return Some(sketch);
        }
        unread.insert(key, sketch);
        None
    }

    /// All pods have been told.
    pub fn has_pods(&self) -> bool {
        self.pods.is_done
    }

    /// Waits for an event and takes in all that have come.
    pub async fn changed(&mut self) -> Result<Changed, Error> {
        let mut changed = Changed::default();
        if let Some(event) = self.events.next().await {
            self.observe(event, &mut changed)?;
        }
        while let Some(Some(event)) = self.events.next().now_or_never() {
            self.observe(event, &mut changed)?;
        }
        Ok(changed)
    }

    fn observe(&mut self, event: LiveEvent, changed: &mut Changed) -> Result<(), Error> {
        let event = match event {
            LiveEvent::Sketch(event) => match self.sift(event) {
                Some(event) => LiveEvent::Request(event),
                None => return Ok(()),
            },
            other => other,
        };
        let world = &mut self.world;
        match event {
            LiveEvent::Pod(event) => {
                observe(&mut world.pods, &mut self.pods, event, Pod::from, |a, b| changed.pod(a, b));
            }
            LiveEvent::Request(event) => {
                let tell = |a: Option<&_>, b: Option<&_>| changed.request(a, b);
                observe(&mut world.requests, &mut self.requests, event, Request::from, tell);
            }
            LiveEvent::Budget(event) => {
                let tell = |a: Option<&_>, b: Option<&_>| changed.budget(a, b);
                observe(&mut world.budgets, &mut self.budgets, event, Budget::from, tell);
            }
            // It was sifted above.
            LiveEvent::Sketch(_) => {}
            LiveEvent::Failed { kind, why } => return self.failed(kind, why),
        }
        Ok(())
    }

    /// Before everything was told once, a failure is the person's to know; later the watch only has to go on.
    fn failed(&mut self, kind: Kind, why: watcher::Error) -> Result<(), Error> {
        let (watcher::Error::InitialListFailed(why) | watcher::Error::WatchStartFailed(why)) = why else {
            return Ok(());
        };
        let is_forbidden = crate::error::is_code(&why, 403);
        if is_forbidden && kind == Kind::Budgets {
            self.world.budgets_are_hidden = true;
            self.budgets.is_done = true;
            return Ok(());
        }
        if is_forbidden && kind == Kind::Requests && self.may_hide_requests {
            self.world.requests_are_hidden = true;
            self.requests.is_done = true;
            return Ok(());
        }
        if self.has_started { Ok(()) } else { Err(why.into()) }
    }
}

/// `tell` is given what was known before, and what is after.
pub fn observe<K: Resource<DynamicType = ()>, V>(
    known: &mut BTreeMap<Key, V>,
    listed: &mut Listed,
    event: Event<Read<K>>,
    read: impl Fn(K) -> V,
    mut tell: impl FnMut(Option<&V>, Option<&V>),
) {
    let is_listed = matches!(event, Event::InitApply(_));
    match event {
        Event::Init => listed.names.clear(),
        Event::InitApply(object) | Event::Apply(object) => {
            let key = key_of(&object);
            if is_listed {
                listed.names.insert(key.clone());
            }
            match object.object().map(&read) {
                Some(after) => {
                    tell(known.get(&key), Some(&after));
                    known.insert(key, after);
                }
                // It is there, but nothing can be said of it any more.
                None => {
                    if let Some(before) = known.remove(&key) {
                        tell(Some(&before), None);
                    }
                }
            }
        }
        Event::InitDone => {
            known.retain(|key, before| {
                let is_there = listed.names.contains(key);
                if !is_there {
                    tell(Some(before), None);
                }
                is_there
            });
            listed.names.clear();
            listed.is_done = true;
        }
        Event::Delete(object) => {
            let before = known.remove(&key_of(&object));
            tell(before.as_ref(), None);
        }
    }
}

fn follow<K>(
    api: Api<Read<K>>,
    config: watcher::Config,
    kind: Kind,
    into: fn(Event<Read<K>>) -> LiveEvent,
) -> LiveEvents
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    Box::pin(events.map(move |event| match event {
        Ok(event) => into(event),
        Err(why) => LiveEvent::Failed { kind, why },
    }))
}
