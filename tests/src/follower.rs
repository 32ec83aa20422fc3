//! A client that follows a collection by listing and watching, one step at a time, and objects to every answer that
//! breaks what Kubernetes promises such clients.

use anyhow::{Context, Result, bail, ensure};
use embedded_apiserver::ClusterService;
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tower::ServiceExt;

/// What a follower wants to see.
#[derive(Clone, Debug)]
pub struct Subscribed {
    pub path: String,
    /// Selectors, as they stand in the query.
    pub query: String,
    /// The same selectors as a function.
    pub selects: fn(&Value) -> bool,
    /// Objects on a page; none for all at once.
    pub limit: Option<usize>,
    /// Start by a watch that sends the present state, instead of by a list.
    pub streaming: bool,
}

/// Objects by namespace and name, with their resourceVersions.
pub type State = BTreeMap<String, u64>;

pub struct Follower {
    subscribed: Subscribed,
    service: ClusterService,
    known: State,
    /// From where a watch goes on.
    version: u64,
    phase: Phase,
    /// How often it had to start from nothing.
    pub starts: usize,
    pub bookmarks: usize,
}

enum Phase {
    Start,
    /// Between two pages.
    Listing {
        token: String,
        version: u64,
        items: State,
    },
    /// The present state comes in as events.
    Streaming {
        events: Events,
        items: State,
    },
    Disconnected,
    Watching(Events),
}

impl Follower {
    #[must_use]
    pub fn new(service: ClusterService, subscribed: Subscribed) -> Self {
        let (known, version, phase) = (State::new(), 0, Phase::Start);
        Self { subscribed, service, known, version, phase, starts: 0, bookmarks: 0 }
    }

    /// What it believes the server holds.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.known
    }

    /// Loses the connection. Pages already read are kept, as they belong to no connection.
    pub fn disconnect(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Start) {
            Phase::Watching(_) => Phase::Disconnected,
            Phase::Streaming { .. } => Phase::Start,
            other => other,
        };
    }

    /// One page, one connection, or at most `most` events. True if there may be more to do.
    ///
    /// # Errors
    /// The server broke a promise.
    pub async fn step(&mut self, most: usize) -> Result<bool> {
        match std::mem::replace(&mut self.phase, Phase::Start) {
            Phase::Start => {
                self.starts += 1;
                if self.subscribed.streaming {
                    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                    let events = self.open(query).await?;
                    self.phase = Phase::Streaming { events, items: State::new() };
                } else {
                    self.page(None, State::new()).await?;
                }
                Ok(true)
            }
            Phase::Listing { token, version, items } => {
                self.page(Some((token, version)), items).await?;
                Ok(true)
            }
            Phase::Streaming { events, items } => self.stream(events, items, most).await,
            Phase::Disconnected => {
                let query = format!("resourceVersion={}", self.version);
                self.phase = Phase::Watching(self.open(&query).await?);
                Ok(true)
            }
            Phase::Watching(events) => self.watch(events, most).await,
        }
    }

    async fn get(&self, query: &str) -> Result<http::Response<BoxStream<'static, Bytes>>> {
        let uri = format!("{}?{}&{query}", self.subscribed.path, self.subscribed.query);
        let request = http::Request::get(uri).body(Full::<Bytes>::default())?;
        let response = match self.service.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        Ok(response.map(|body| body.into_data_stream().filter_map(|data| async { data.ok() }).boxed()))
    }

    async fn open(&self, query: &str) -> Result<Events> {
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds=400&{query}");
        let response = self.get(&query).await?;
        ensure!(response.status() == 200, "a watch was refused: {}", response.status());
        Ok(Events { body: response.into_body(), buffer: Vec::new() })
    }

    async fn page(&mut self, after: Option<(String, u64)>, mut items: State) -> Result<()> {
        let mut query = self.subscribed.limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
        if let Some((token, _)) = &after {
            query += &format!("&continue={token}");
        }
        let response = self.get(&query).await?;
        let status = response.status();
        let body: Vec<u8> = response.into_body().collect::<Vec<Bytes>>().await.concat();
        let list: Value = serde_json::from_slice(&body)?;
        if status == 410 && after.is_some() {
            // The pages to come were compacted away.
            return Ok(());
        }
        ensure!(status == 200, "{list}");
        let version = number(&list["metadata"]["resourceVersion"])?;
        if let Some((_, first)) = after {
            ensure!(version == first, "a page is of {version}, the first was of {first}");
        }
        let page = list["items"].as_array().context("no items")?;
        ensure!(
            self.subscribed.limit.is_none_or(|limit| page.len() <= limit),
            "{} items on a page",
            page.len()
        );
        for item in page {
            ensure!((self.subscribed.selects)(item), "listed, not selected: {item}");
            ensure!(number(&item["metadata"]["resourceVersion"])? <= version, "newer than its list: {item}");
            let twice = items.insert(key(item), number(&item["metadata"]["resourceVersion"])?);
            ensure!(twice.is_none(), "on two pages: {item}");
        }
        match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(token) => self.phase = Phase::Listing { token: token.to_owned(), version, items },
            None => {
                self.replace(items, version)?;
                self.phase = Phase::Disconnected;
            }
        }
        Ok(())
    }

    /// A state that was read anew; nothing in it may be older than what was seen before.
    fn replace(&mut self, items: State, version: u64) -> Result<()> {
        ensure!(version >= self.version, "a state of {version} after one of {}", self.version);
        for (key, version) in &items {
            let known = self.known.get(key).copied().unwrap_or_default();
            ensure!(*version >= known, "{key} went back from {known} to {version}");
        }
        self.known = items;
        self.version = version;
        Ok(())
    }

    async fn stream(&mut self, mut events: Events, mut items: State, most: usize) -> Result<bool> {
        for _ in 0..most {
            let event = match events.next().await? {
                Next::Event(event) => event,
                Next::Nothing => {
                    self.phase = Phase::Streaming { events, items };
                    return Ok(false);
                }
                Next::End => return Ok(true),
            };
            let object = &event["object"];
            let version = number(&object["metadata"]["resourceVersion"]);
            match event["type"].as_str() {
                Some("ADDED") => {
                    ensure!((self.subscribed.selects)(object), "sent, not selected: {object}");
                    items.insert(key(object), version?);
                }
                Some("BOOKMARK") if ends_initial_events(object) => {
                    self.replace(items, version?)?;
                    self.phase = Phase::Watching(events);
                    return Ok(true);
                }
                Some("ERROR") if object["code"] == 410 => return Ok(true),
                _ => bail!("before the end of the present state: {event}"),
            }
        }
        self.phase = Phase::Streaming { events, items };
        Ok(true)
    }

    async fn watch(&mut self, mut events: Events, most: usize) -> Result<bool> {
        for _ in 0..most {
            match events.next().await? {
                Next::Event(event) if event["type"] == "ERROR" => {
                    ensure!(event["object"]["code"] == 410, "{event}");
                    return Ok(true);
                }
                Next::Event(event) => self.observe(&event)?,
                Next::Nothing => {
                    self.phase = Phase::Watching(events);
                    return Ok(false);
                }
                Next::End => {
                    self.phase = Phase::Disconnected;
                    return Ok(true);
                }
            }
        }
        self.phase = Phase::Watching(events);
        Ok(true)
    }

    fn observe(&mut self, event: &Value) -> Result<()> {
        let object = &event["object"];
        let version = number(&object["metadata"]["resourceVersion"])?;
        if event["type"] == "BOOKMARK" {
            ensure!(version >= self.version, "a bookmark of {version} after {}", self.version);
            self.version = version;
            self.bookmarks += 1;
            return Ok(());
        }
        ensure!(version > self.version, "{version} after {}: {event}", self.version);
        self.version = version;
        let key = key(object);
        let known = self.known.contains_key(&key);
        match event["type"].as_str() {
            Some("ADDED") => ensure!(!known, "already there: {event}"),
            Some("MODIFIED") => ensure!(known, "was not there: {event}"),
            Some("DELETED") => {
                ensure!(known, "was not there: {event}");
                // Also of an object that only left the selection: the last state in it is shown.
                ensure!((self.subscribed.selects)(object), "deleted, never selected: {event}");
                self.known.remove(&key);
                return Ok(());
            }
            _ => bail!("{event}"),
        }
        ensure!((self.subscribed.selects)(object), "sent, not selected: {event}");
        self.known.insert(key, version);
        Ok(())
    }
}

fn ends_initial_events(bookmark: &Value) -> bool {
    bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

fn number(version: &Value) -> Result<u64> {
    version.as_str().unwrap_or_default().parse().with_context(|| format!("no resourceVersion: {version}"))
}

fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// The events of one watch.
struct Events {
    body: BoxStream<'static, Bytes>,
    buffer: Vec<u8>,
}

enum Next {
    Event(Value),
    /// Nothing more for now.
    Nothing,
    End,
}

impl Events {
    async fn next(&mut self) -> Result<Next> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Next::Event(serde_json::from_slice(&line)?));
            }
            // In virtual time this passes as soon as nobody has anything left to do.
            match tokio::time::timeout(Duration::from_millis(1), self.body.next()).await {
                Ok(Some(data)) => self.buffer.extend_from_slice(&data),
                Ok(None) => return Ok(Next::End),
                Err(_) => return Ok(Next::Nothing),
            }
        }
    }
}
