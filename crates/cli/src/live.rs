//! A world that is kept up to date by watches.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use futures::stream::SelectAll;
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use usher_decide::snapshot::{Budget, Key, Pod, PodOnWire, Request, RequestOnWire};

use crate::Error;
use crate::world::{World, key_of, scoped};

enum News {
    Pod(Event<PodOnWire>),
    Request(Event<RequestOnWire>),
    Budget(Event<PodDisruptionBudget>),
    /// A watch failed; it starts anew by itself.
    Failed {
        budgets: bool,
        why: watcher::Error,
    },
}

type NewsStream = Pin<Box<dyn Stream<Item = News> + Send>>;

/// What is watched.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    pub request_labels: Option<String>,
    pub pod_labels: Option<String>,
    /// Only the pod of this name.
    pub pod_name: Option<String>,
    /// Only the pods of this node.
    pub node: Option<String>,
}

/// Names that are being listed anew, per kind; the others are gone at the end of the list.
#[derive(Debug, Default)]
pub struct Listed {
    names: BTreeSet<Key>,
    pub is_done: bool,
}

pub struct Live {
    pub world: World,
    news: SelectAll<NewsStream>,
    pods: Listed,
    requests: Listed,
    budgets: Listed,
}

impl Live {
    /// Returns once everything that is there has been told.
    pub async fn start(client: &Client, scope: &Scope) -> Result<Self, Error> {
        let namespace = scope.namespace.as_deref();
        let mut pods = watcher::Config { label_selector: scope.pod_labels.clone(), ..Default::default() };
        if let Some(name) = &scope.pod_name {
            pods = pods.fields(&format!("metadata.name={name}"));
        }
        if let Some(node) = &scope.node {
            pods = pods.fields(&format!("spec.nodeName={node}"));
        }
        let requests = watcher::Config { label_selector: scope.request_labels.clone(), ..Default::default() };
        let news = futures::stream::select_all([
            follow(scoped(client, namespace), pods, false, News::Pod),
            follow(scoped(client, namespace), requests, false, News::Request),
            follow(scoped(client, namespace), watcher::Config::default(), true, News::Budget),
        ]);
        let mut live = Self {
            world: World::default(),
            news,
            pods: Listed::default(),
            requests: Listed::default(),
            budgets: Listed::default(),
        };
        while !(live.pods.is_done && live.requests.is_done && live.budgets.is_done) {
            live.changed().await?;
        }
        Ok(live)
    }

    /// Waits for news and takes in all that have come.
    pub async fn changed(&mut self) -> Result<(), Error> {
        if let Some(news) = self.news.next().await {
            self.learn(news)?;
        }
        while let Some(Some(news)) = self.news.next().now_or_never() {
            self.learn(news)?;
        }
        Ok(())
    }

    fn learn(&mut self, news: News) -> Result<(), Error> {
        match news {
            News::Pod(event) => learn(&mut self.world.pods, &mut self.pods, event, Pod::from),
            News::Request(event) => {
                learn(&mut self.world.requests, &mut self.requests, event, Request::from);
            }
            News::Budget(event) => {
                learn(&mut self.world.budgets, &mut self.budgets, event, |budget| Budget::from(&budget));
            }
            News::Failed { budgets, why } => return self.failed(budgets, why),
        }
        Ok(())
    }

    /// Before everything was told once, a failure is the person's to know; later the watch only has to go on.
    fn failed(&mut self, budgets: bool, why: watcher::Error) -> Result<(), Error> {
        let (watcher::Error::InitialListFailed(why) | watcher::Error::WatchStartFailed(why)) = why else {
            return Ok(());
        };
        if budgets && crate::error::is_code(&why, 403) {
            self.world.budgets_are_hidden = true;
            self.budgets.is_done = true;
            return Ok(());
        }
        let is_first = !(self.pods.is_done && self.requests.is_done && self.budgets.is_done);
        if is_first { Err(why.into()) } else { Ok(()) }
    }
}

pub fn learn<K: Resource<DynamicType = ()>, V>(
    known: &mut BTreeMap<Key, V>,
    listed: &mut Listed,
    event: Event<K>,
    read: impl Fn(K) -> V,
) {
    match event {
        Event::Init => listed.names.clear(),
        Event::InitApply(object) => {
            let key = key_of(&object);
            listed.names.insert(key.clone());
            known.insert(key, read(object));
        }
        Event::InitDone => {
            known.retain(|key, _| listed.names.contains(key));
            listed.names.clear();
            listed.is_done = true;
        }
        Event::Apply(object) => {
            known.insert(key_of(&object), read(object));
        }
        Event::Delete(object) => {
            known.remove(&key_of(&object));
        }
    }
}

fn follow<K>(api: Api<K>, config: watcher::Config, budgets: bool, into: fn(Event<K>) -> News) -> NewsStream
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    Box::pin(events.map(move |event| match event {
        Ok(event) => into(event),
        Err(why) => News::Failed { budgets, why },
    }))
}
