//! kube-rs on the embedded cluster without a socket, under virtual time: a controller with owned objects and
//! finalizers, leader election, server-side apply, evictions and watches, for hours that take no time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use embedded_apiserver::clock::Clock;
use embedded_apiserver::{Cluster, Options};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, EvictParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The server's clock follows the runtime's, which the tests let run ahead.
struct VirtualClock {
    start: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let base = Timestamp::from_second(1_800_000_000).unwrap();
        base + SignedDuration::try_from(self.start.elapsed()).unwrap()
    }
}

struct World {
    cluster: Cluster,
    clock: Arc<VirtualClock>,
    client: Client,
}

fn world() -> World {
    let clock = Arc::new(VirtualClock { start: Instant::now() });
    let options = Options { clock: clock.clone(), seed: Some(7), ..Options::default() };
    let cluster = Cluster::new(options);
    let client = Client::new(cluster.service(), "default");
    World { cluster, clock, client }
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Waits in virtual time.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = Instant::now() + HOUR;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within an hour: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

const PARENTS: &str = "role=parent";
const FINALIZER: &str = "tests.example.com/goodbye";

struct Shop {
    client: Client,
    reconciled: AtomicU64,
    cleaned_up: AtomicU64,
}

/// Every parent has a child of the same name that repeats its data; a parent that goes is counted.
async fn reconcile(
    parent: Arc<ConfigMap>,
    shop: Arc<Shop>,
) -> Result<Action, kube::runtime::finalizer::Error<kube::Error>> {
    shop.reconciled.fetch_add(1, Ordering::Relaxed);
    let api: Api<ConfigMap> = Api::default_namespaced(shop.client.clone());
    finalizer(&api, FINALIZER, parent, async |event| match event {
        Event::Apply(parent) => {
            let name = format!("child-of-{}", parent.name_any());
            let child = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "ownerReferences": [parent.controller_owner_ref(&()).unwrap()]},
                "data": parent.data,
            });
            api.patch(&name, &PatchParams::apply("shop"), &Patch::Apply(child)).await?;
            Ok(Action::requeue(10 * MINUTE))
        }
        Event::Cleanup(_) => {
            shop.cleaned_up.fetch_add(1, Ordering::Relaxed);
            Ok(Action::await_change())
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_children_for_a_day_and_says_goodbye() {
    let world = world();
    let api: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let shop = Arc::new(Shop {
        client: world.client.clone(),
        reconciled: AtomicU64::new(0),
        cleaned_up: AtomicU64::new(0),
    });
    let controller = Controller::new(api.clone(), watcher::Config::default().labels(PARENTS))
        .owns(api.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(MINUTE), shop.clone())
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);

    for name in ["a", "b", "c"] {
        let mut parent = map(name);
        parent.labels_mut().insert("role".into(), "parent".into());
        parent.data = Some(BTreeMap::from([("of".into(), name.into())]));
        api.create(&PostParams::default(), &parent).await.unwrap();
    }
    let child = |name: &'static str| {
        let api = api.clone();
        async move { api.get_opt(&format!("child-of-{name}")).await.unwrap() }
    };
    for name in ["a", "b", "c"] {
        until("a child for each", || async { child(name).await.is_some() }).await;
    }
    let first = child("a").await.unwrap();
    api.delete("child-of-a", &DeleteParams::default()).await.unwrap();
    until("a deleted child comes back", || async {
        child("a").await.is_some_and(|new| new.uid() != first.uid())
    })
    .await;

    let change = Patch::Merge(json!({"data": {"of": "changed"}}));
    api.patch("b", &PatchParams::default(), &change).await.unwrap();
    until("the child follows", || async { child("b").await.unwrap().data.unwrap()["of"] == "changed" }).await;

    sleep(24 * HOUR).await;
    // Three parents, each at least every ten minutes.
    let reconciled = shop.reconciled.load(Ordering::Relaxed);
    assert!(reconciled >= 3 * 24 * 6, "{reconciled}");
    assert!(reconciled < 3 * 24 * 6 * 3, "no busy loop: {reconciled}");

    api.delete("c", &DeleteParams::default()).await.unwrap();
    until("the parent goes", || async { api.get_opt("c").await.unwrap().is_none() }).await;
    assert_eq!(shop.cleaned_up.load(Ordering::Relaxed), 1);
    until("and its child with it", || async { child("c").await.is_none() }).await;
    assert!(child("a").await.is_some() && child("b").await.is_some());
    controller.abort();
}

const LEASE: &str = "leader";
const LEASE_SECONDS: i32 = 15;

/// One attempt to take or renew the lease; true while this candidate leads.
async fn lead(api: &Api<Lease>, me: &str, now: Timestamp) -> bool {
    let written = match api.get_opt(LEASE).await.unwrap() {
        None => {
            let metadata = ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(held_by(me, now)) };
            api.create(&PostParams::default(), &lease).await
        }
        Some(mut lease) => {
            let spec = lease.spec.clone().unwrap_or_default();
            let renewed = spec.renew_time.map_or(Timestamp::MIN, |MicroTime(at)| at);
            let runs = now < renewed + SignedDuration::from_secs(LEASE_SECONDS.into());
            if runs && spec.holder_identity.as_deref() != Some(me) {
                return false;
            }
            lease.spec = Some(held_by(me, now));
            // The resourceVersion that was read decides between two who try at once.
            api.replace(LEASE, &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 409, "{status:?}");
            false
        }
        Err(other) => panic!("{other}"),
    }
}

fn held_by(me: &str, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_at_a_time_and_another_takes_over() {
    let world = world();
    let leading: Arc<[AtomicU64; 3]> = Arc::default();
    let candidates: Vec<_> = (0..3)
        .map(|number| {
            let api: Api<Lease> = Api::default_namespaced(world.client.clone());
            let (clock, leading) = (world.clock.clone(), leading.clone());
            tokio::spawn(async move {
                loop {
                    let leads = lead(&api, &format!("candidate-{number}"), clock.now()).await;
                    leading[number].store(leads.into(), Ordering::Relaxed);
                    sleep(Duration::from_secs(5)).await;
                }
            })
        })
        .collect();
    let leaders =
        || (0..3).filter(|number| leading[*number].load(Ordering::Relaxed) == 1).collect::<Vec<_>>();

    sleep(HOUR).await;
    let first = leaders();
    assert_eq!(first.len(), 1, "{first:?}");
    candidates[first[0]].abort();
    leading[first[0]].store(0, Ordering::Relaxed);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(leaders(), [0_usize; 0], "the lease of the dead one still runs");
    sleep(Duration::from_secs(15)).await;
    let second = leaders();
    assert_eq!(second.len(), 1);
    assert_ne!(second, first);
    candidates.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_shares_an_object_between_managers() {
    let world = world();
    let api: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let config = |data: serde_json::Value| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}),
        )
    };
    api.patch("m", &PatchParams::apply("one"), &config(json!({"a": "1", "b": "1"}))).await.unwrap();
    api.patch("m", &PatchParams::apply("two"), &config(json!({"c": "2"}))).await.unwrap();
    let refused =
        api.patch("m", &PatchParams::apply("two"), &config(json!({"b": "2", "c": "2"}))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(status.message.contains(r#"conflict with "one": .data.b"#), "{}", status.message);

    let forced = PatchParams::apply("two").force();
    api.patch("m", &forced, &config(json!({"b": "2", "c": "2"}))).await.unwrap();
    let shared = api.patch("m", &PatchParams::apply("one"), &config(json!({"a": "1"}))).await.unwrap();
    let data = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    assert_eq!(shared.data.unwrap(), data(&[("a", "1"), ("b", "2"), ("c", "2")]));
    let left = api.patch("m", &PatchParams::apply("two"), &config(json!({}))).await.unwrap();
    assert_eq!(left.data.unwrap(), data(&[("a", "1")]), "what nobody applies any more goes");
}

#[tokio::test(start_paused = true)]
async fn the_status_is_applied_apart_from_the_rest() {
    let world = world();
    let api: Api<Node> = Api::all(world.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    api.create(&PostParams::default(), &node).await.unwrap();
    let status = |reason: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"conditions": [{"type": "Maintenance", "status": "True", "reason": reason}]},
        }))
    };
    api.patch_status("n", &PatchParams::apply("usher"), &status("Draining")).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status("n", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    let node = api.patch_status("n", &PatchParams::apply("usher"), &status("Drained")).await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    let seen: BTreeMap<&str, Option<&str>> =
        conditions.iter().map(|c| (c.type_.as_str(), c.reason.as_deref())).collect();
    assert_eq!(seen, BTreeMap::from([("Maintenance", Some("Drained")), ("Ready", None)]));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_waits_for_the_budget() {
    let world = world();
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.client.clone());
    let labels = json!({"app": "web"});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web-1", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("web-1", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();

    let refused = pods.evict("web-1", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));

    let allowed = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    budgets.patch_status("web", &PatchParams::default(), &Patch::Merge(allowed)).await.unwrap();
    pods.evict("web-1", &EvictParams::default()).await.unwrap();
    let pod = pods.get("web-1").await.unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some(), "it has its grace period");
    let spent = budgets.get("web").await.unwrap().status.unwrap();
    assert_eq!(spent.disruptions_allowed, Some(0));
    assert!(spent.disrupted_pods.unwrap().contains_key("web-1"));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_lives_through_timeouts_bookmarks_and_compaction() {
    for (strategy, config) in [
        ("lists", watcher::Config::default().page_size(2)),
        ("streams", watcher::Config::default().streaming_lists()),
    ] {
        let world = world();
        let api: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
        for number in 0..5 {
            api.create(&PostParams::default(), &map(&format!("m{number}"))).await.unwrap();
        }
        let (reader, writer) = kube::runtime::reflector::store::<ConfigMap>();
        let stream = watcher(api.clone(), config).default_backoff().reflect(writer);
        // Errors are part of it: the watcher goes on after them.
        let following = tokio::spawn(stream.for_each(|_| std::future::ready(())));
        reader.wait_until_ready().await.unwrap();

        for round in 0..48 {
            let name = format!("m{}", round % 4);
            let change = Patch::Merge(json!({"data": {"round": round.to_string()}}));
            api.patch(&name, &PatchParams::default(), &change).await.unwrap();
            match round % 12 {
                3 => drop(api.delete("m4", &DeleteParams::default()).await.unwrap()),
                5 => drop(api.create(&PostParams::default(), &map("m4")).await.unwrap()),
                7 => world.cluster.store().compact(),
                _ => {}
            }
            sleep(HOUR / 2).await;
            let listed = api.list(&ListParams::default()).await.unwrap();
            let mut state = reader.state();
            state.sort_by_key(|object| object.name_any());
            let versions = |objects: &[&ConfigMap]| -> Vec<_> {
                objects.iter().map(|o| (o.name_any(), o.resource_version())).collect()
            };
            assert_eq!(
                versions(&state.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
                versions(&listed.items.iter().collect::<Vec<_>>()),
                "{strategy}, round {round}"
            );
        }
        following.abort();
    }
}

#[tokio::test]
async fn plain_http_on_loopback_serves_the_administrator() {
    let cluster = Cluster::new(Options::default());
    let serving = cluster.serve_http().await.unwrap();
    assert!(serving.address().ip().is_loopback());
    let client = Client::try_from(kube::Config::new(serving.url().parse().unwrap())).unwrap();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.37.1");
    let namespaces: Api<Namespace> = Api::all(client);
    let made: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces.create(&PostParams::default(), &made).await.unwrap();
    assert_eq!(namespaces.get("shop").await.unwrap().metadata.name.as_deref(), Some("shop"));
}
