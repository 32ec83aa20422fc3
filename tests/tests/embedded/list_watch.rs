//! Whoever lists and watches ends with exactly what the server holds, whatever happens in between: writes by others,
//! lost connections, bookmarks, compaction. Generated cases, the same ones on each run, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use embedded_apiserver::{Cluster, Options};
use futures::StreamExt;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tower::ServiceExt;
use usher_tests::follower::{Follower, State, Subscribed};

const CASES: u32 = 160;
const NAMES: usize = 8;
const COLOURS: [&str; 3] = ["red", "blue", "green"];
const FOLLOWERS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Create(usize, usize),
    Touch(usize),
    Paint(usize, usize),
    Delete(usize),
    /// A follower takes a page, a connection, or this many events.
    Step(usize, usize),
    Disconnect(usize),
    Compact,
    /// Long enough for bookmarks, and now and then for the end of a watch.
    Wait,
}

fn op() -> impl Strategy<Value = Op> {
    let (name, colour, follower) = (0..NAMES, 0..COLOURS.len(), 0..FOLLOWERS);
    prop_oneof![
        5 => (name.clone(), colour.clone()).prop_map(|(name, colour)| Op::Create(name, colour)),
        3 => name.clone().prop_map(Op::Touch),
        5 => (name.clone(), colour).prop_map(|(name, colour)| Op::Paint(name, colour)),
        3 => name.prop_map(Op::Delete),
        14 => (follower.clone(), 1..6_usize).prop_map(|(follower, events)| Op::Step(follower, events)),
        2 => follower.prop_map(Op::Disconnect),
        1 => Just(Op::Compact),
        1 => Just(Op::Wait),
    ]
}

fn colour(object: &Value) -> &str {
    object["metadata"]["labels"]["colour"].as_str().unwrap_or_default()
}

/// Everybody follows something else, and in another way.
fn subscriptions() -> [Subscribed; FOLLOWERS] {
    let all = "/api/v1/configmaps";
    let subscribed = |path: &str, query: &str, selects, limit, streaming| Subscribed {
        path: path.to_owned(),
        query: query.to_owned(),
        selects,
        limit,
        streaming,
    };
    let red = "labelSelector=colour%3Dred";
    [
        subscribed(all, "", |_| true, Some(2), false),
        subscribed(all, "", |_| true, None, true),
        subscribed(all, red, |object| colour(object) == "red", Some(1), false),
        subscribed(all, red, |object| colour(object) == "red", None, true),
        subscribed(
            "/api/v1/namespaces/left/configmaps",
            "labelSelector=colour+notin+%28red%29",
            |object| object["metadata"]["namespace"] == "left" && colour(object) != "red",
            Some(3),
            false,
        ),
        subscribed(
            all,
            "fieldSelector=metadata.name%3Dm3",
            |object| object["metadata"]["name"] == "m3",
            None,
            false,
        ),
    ]
}

/// Writes through the API, and remembers what must be there.
struct Writer {
    cluster: Cluster,
    objects: BTreeMap<String, Value>,
    writes: usize,
}

/// Namespace and name of a number.
fn place(number: usize) -> (&'static str, String) {
    (["left", "right"][number % 2], format!("m{}", number / 2))
}

impl Writer {
    async fn new() -> Self {
        let options = Options { seed: Some(1), housekeeping: false, ..Options::default() };
        let writer = Self { cluster: Cluster::new(options), objects: BTreeMap::new(), writes: 0 };
        for name in ["left", "right"] {
            let namespace = json!({"metadata": {"name": name}});
            assert_eq!(writer.send(Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
        }
        writer
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let response = self.cluster.service().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// The answer must agree with what is known to be there.
    async fn write(&mut self, method: Method, number: usize, body: Value) {
        self.writes += 1;
        let (namespace, name) = place(number);
        let key = format!("{namespace}/{name}");
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let object = format!("{collection}/{name}");
        let exists = self.objects.contains_key(&key);
        let path = if method == Method::POST { &collection } else { &object };
        let (status, stored) = self.send(method.clone(), path, &body).await;
        let wanted = match (&method, exists) {
            (&Method::POST, false) => 201,
            (&Method::POST, true) => 409,
            (_, true) => 200,
            (_, false) => 404,
        };
        assert_eq!(status, wanted, "{method} {key}: {stored}");
        if method == Method::DELETE {
            self.objects.remove(&key);
        } else if status < 300 {
            self.objects.insert(key, stored);
        }
    }

    async fn perform(&mut self, op: &Op) {
        match *op {
            Op::Create(number, paint) => {
                let metadata = json!({"name": place(number).1, "labels": {"colour": COLOURS[paint]}});
                self.write(Method::POST, number, json!({"metadata": metadata})).await;
            }
            Op::Touch(number) => {
                let data = json!({"data": {"writes": self.writes.to_string()}});
                self.write(Method::PATCH, number, data).await;
            }
            Op::Paint(number, paint) => {
                let labels = json!({"metadata": {"labels": {"colour": COLOURS[paint]}}});
                self.write(Method::PATCH, number, labels).await;
            }
            Op::Delete(number) => self.write(Method::DELETE, number, json!({})).await,
            Op::Compact => self.cluster.store().compact(),
            Op::Wait => tokio::time::sleep(Duration::from_secs(130)).await,
            Op::Step(..) | Op::Disconnect(_) => {}
        }
    }

    fn truth(&self, subscribed: &Subscribed) -> State {
        let selected = self.objects.iter().filter(|(_, object)| (subscribed.selects)(object));
        let version =
            |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        selected.map(|(key, object)| (key.clone(), version(object))).collect()
    }
}

/// What happened in one case, so that a test that sees nothing is noticed.
#[derive(Debug, Default)]
struct Tally {
    writes: usize,
    restarts: usize,
    bookmarks: usize,
}

async fn followers_agree_with_the_server(ops: &[Op]) -> Tally {
    let mut writer = Writer::new().await;
    let mut followers = subscriptions().map(|subscribed| Follower::new(writer.cluster.service(), subscribed));
    for op in ops {
        match *op {
            Op::Step(number, events) => drop(followers[number].step(events).await.unwrap()),
            Op::Disconnect(number) => followers[number].disconnect(),
            _ => writer.perform(op).await,
        }
    }
    let mut tally = Tally { writes: writer.writes, ..Tally::default() };
    for (follower, subscribed) in followers.iter_mut().zip(subscriptions()) {
        while follower.step(1000).await.unwrap() {}
        assert_eq!(follower.state(), &writer.truth(&subscribed), "{subscribed:?}");
        tally.restarts += follower.starts - 1;
        tally.bookmarks += follower.bookmarks;
    }
    tally
}

fn virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn followers_end_with_the_servers_state() {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let total = std::cell::RefCell::new(Tally::default());
    runner
        .run(&prop::collection::vec(op(), 30..150), |ops| {
            let tally = virtual_time().block_on(followers_agree_with_the_server(&ops));
            let mut total = total.borrow_mut();
            total.writes += tally.writes;
            total.restarts += tally.restarts;
            total.bookmarks += tally.bookmarks;
            Ok(())
        })
        .unwrap();
    let total = total.into_inner();
    assert!(total.writes > 1000 && total.restarts > 50 && total.bookmarks > 50, "{total:?}");
}

/// kube-rs's own watchers in the same weather. They follow as they like; at the end they agree with the server.
#[test]
fn kube_watchers_end_with_the_servers_state() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ops = prop::collection::vec(op(), 600).new_tree(&mut runner).unwrap().current();
    virtual_time().block_on(async {
        let mut writer = Writer::new().await;
        let client = kube::Client::new(writer.cluster.service(), "default");
        let red: fn(&Value) -> bool = |object| colour(object) == "red";
        let all: fn(&Value) -> bool = |_| true;
        let listing = || watcher::Config::default().page_size(2);
        let streaming = || watcher::Config::default().streaming_lists();
        let configs = [
            (listing(), all),
            (streaming(), all),
            (listing().labels("colour=red"), red),
            (streaming().labels("colour=red"), red),
        ];
        let mut stores = Vec::new();
        for (config, selects) in configs {
            let (reader, store) = reflector::store::<ConfigMap>();
            let api: Api<ConfigMap> = Api::all(client.clone());
            let stream = watcher(api, config).default_backoff().reflect(store);
            tokio::spawn(stream.for_each(|_| std::future::ready(())));
            stores.push((reader, selects));
        }
        for op in &ops {
            match op {
                Op::Step(..) => tokio::task::yield_now().await,
                Op::Disconnect(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                _ => writer.perform(op).await,
            }
        }
        // Longer than any back-off.
        tokio::time::sleep(Duration::from_secs(120)).await;
        for (number, (reader, selects)) in stores.iter().enumerate() {
            let found: State = reader
                .state()
                .iter()
                .map(|object| {
                    let key = format!("{}/{}", object.namespace().unwrap(), object.name_any());
                    (key, object.resource_version().unwrap().parse().unwrap())
                })
                .collect();
            let subscribed = Subscribed { selects: *selects, ..subscriptions()[0].clone() };
            assert_eq!(found, writer.truth(&subscribed), "watcher {number}");
        }
        assert!(writer.writes > 150, "{}", writer.writes);
    });
}
