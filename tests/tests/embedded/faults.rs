//! What goes wrong on demand, and a cluster that lives through it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by failing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use cluster_simulator::{self as life, Component};
use embedded_apiserver::Cluster;
use embedded_apiserver::Options;
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::faults::{Fault, Matcher, Outage, Refusal, Rule, When};
use embedded_apiserver::in_process;
use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use usher_tests::chaos::Process;
use usher_tests::living::{DEPLOYMENTS, Living, PODS, names, workload};
use usher_tests::seeds::{self, Named};
use usher_tests::upheaval::an_hour_of_faults;

const SETTLED: Duration = Duration::from_secs(60);

#[test]
fn a_cluster_finds_its_way_back_after_an_hour_of_faults() {
    let named =
        Named { module: module_path!(), test: "a_cluster_finds_its_way_back_after_an_hour_of_faults" };
    if let Err(failure) = seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), an_hour_of_faults) {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_gives_the_same_hour_and_another_seed_another() {
    let [first, again, other] = std::thread::scope(|scope| {
        [11, 11, 13].map(|seed| scope.spawn(move || seeds::traced(seed, an_hour_of_faults))).map(|thread| {
            let (outcome, trace) = thread.join().unwrap();
            outcome.unwrap();
            trace
        })
    });
    let difference = first.iter().zip(&again).position(|(a, b)| a != b);
    assert_eq!(difference.map(|at| (&first[at], &again[at])), None);
    assert_eq!(first.len(), again.len());
    assert_ne!(first, other);
    for fault in
        ["409", "429", "500", "503", "504", "broken connection", "late", "ends", "silent", "revisions ago"]
    {
        let happened =
            first.iter().chain(&other).any(|line| line.contains(" fault ") && line.contains(fault));
        assert!(happened, "{fault} never happened");
    }
    for command in ["Down(", "Up(", "KubeletDown(", "KubeletUp(", "Skew("] {
        assert!(first.iter().any(|line| line.contains(command)), "{command} never happened");
    }
}

#[test]
fn a_seed_that_fails_is_told_with_its_trace_and_how_to_run_it_again() {
    let scenario = async |seed: u64, trace: seeds::Trace| {
        sleep(Duration::from_secs(seed)).await;
        if let Some(trace) = trace {
            trace.send(format!("at {seed}")).unwrap();
        }
        ensure!(seed < 3, "{seed} is more than anybody expects");
        Ok(())
    };
    let named = Named { module: module_path!(), test: "some_test" };
    let failure = seeds::run(named, 1..=10, scenario).unwrap_err();
    assert_eq!(failure.seed, 3);
    let told = failure.to_string();
    for part in [
        "seed 3 failed: 3 is more than anybody expects",
        "  at 3",
        "USHER_SEED=3 cargo test --test embedded faults::some_test -- --exact --nocapture",
    ] {
        assert!(told.contains(part), "{part} is not in:\n{told}");
    }
    assert!(seeds::run(named, 1..=2, scenario).is_ok());
    let panics = async |_: u64, _: seeds::Trace| -> anyhow::Result<()> { panic!("too much") };
    assert_eq!(seeds::run(named, 5..=5, panics).unwrap_err().why, "too much");
}

/// A cluster without life, in virtual time.
fn cluster() -> Cluster {
    let clock = Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap()));
    Cluster::new(Options { clock, seed: Some(1), ..Options::default() })
}

fn maps(cluster: &Cluster, client: &str) -> Api<ConfigMap> {
    Api::default_namespaced(Client::new(cluster.client(client), "default"))
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn only(cluster: &Cluster, on: Matcher, when: When, fault: Fault) {
    cluster.faults().set(vec![Rule { on, when, fault }]);
}

fn code<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_client_is_refused_and_others_are_not() {
    let cluster = cluster();
    let (ours, others) = (maps(&cluster, "ours"), maps(&cluster, "others"));
    let created = others.create(&PostParams::default(), &map("a")).await.unwrap();
    let cases = [
        (Refusal::Conflict, 409),
        (Refusal::TooManyRequests { retry_after: 7 }, 429),
        (Refusal::Internal, 500),
        (Refusal::Unavailable, 503),
    ];
    for (refusal, wanted) in cases {
        only(&cluster, Matcher::any().client("ours"), When::always(), Fault::Refuse(refusal));
        let answer = ours.replace("a", &PostParams::default(), &created).await;
        if let Err(kube::Error::Api(status)) = &answer {
            let details = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            assert_eq!(details, if wanted == 429 { 7 } else { 0 });
        }
        assert_eq!(code(answer), wanted);
        assert!(others.get("a").await.is_ok(), "the others see nothing of it");
    }
    let unchanged = others.get("a").await.unwrap();
    assert_eq!(unchanged.resource_version(), created.resource_version());
    cluster.faults().stop();
    assert!(ours.get("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_was_done_or_not_and_takes_its_time() {
    let cluster = cluster();
    let ours = maps(&cluster, "ours");
    for (name, applied, answered) in
        [("a", true, true), ("b", true, false), ("c", false, true), ("d", false, false)]
    {
        let fault = Fault::Timeout { applied, answered, after: Duration::from_secs(30) };
        only(&cluster, Matcher::any().verb("create"), When::nth(1), fault);
        let before = Instant::now();
        let answer = ours.create(&PostParams::default(), &map(name)).await;
        assert_eq!(before.elapsed().as_secs(), 30, "{name}");
        match answer {
            Err(kube::Error::Api(status)) => assert_eq!((status.code, answered), (504, true), "{name}"),
            Err(_) => assert!(!answered, "{name}"),
            Ok(_) => panic!("{name} was answered"),
        }
        assert_eq!(ours.get_opt(name).await.unwrap().is_some(), applied, "{name}");
        // The first one only: the second goes through.
        assert_eq!(ours.create(&PostParams::default(), &map(name)).await.is_ok(), !applied, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_keep_to_their_windows_and_latency_is_that_of_the_cluster_clock() {
    let cluster = cluster();
    let ours = maps(&cluster, "ours");
    let from = cluster.now() + SignedDuration::from_secs(10);
    let window = When::always().during(from, from + SignedDuration::from_secs(10));
    only(&cluster, Matcher::any(), window, Fault::Latency(Duration::from_secs(3)));
    let took = async || {
        let before = Instant::now();
        ours.list(&ListParams::default()).await.unwrap();
        before.elapsed().as_secs()
    };
    assert_eq!(took().await, 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(took().await, 3);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(took().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_or_falls_silent_even_when_it_is_open_already() {
    let cluster = cluster();
    let ours = maps(&cluster, "ours");
    let from = cluster.now() + SignedDuration::from_secs(10);
    let window = || When::always().during(from, from + SignedDuration::from_secs(1));
    let secs = Duration::from_secs;

    only(&cluster, Matcher::any(), window(), Fault::DropWatch { after: secs(5) });
    let started = Instant::now();
    let events = ours.watch(&WatchParams::default().timeout(200), "0").await.unwrap();
    let seen: Vec<_> = events.try_collect().await.unwrap();
    assert_eq!((seen.len(), started.elapsed().as_secs()), (0, 15), "it ends long before its time");

    let from = cluster.now() + SignedDuration::from_secs(10);
    let window = When::always().during(from, from + SignedDuration::from_secs(1));
    only(&cluster, Matcher::any(), window, Fault::StallWatch { time: Some(secs(30)) });
    let started = Instant::now();
    let mut events = Box::pin(ours.watch(&WatchParams::default().timeout(200), "0").await.unwrap());
    ours.create(&PostParams::default(), &map("before")).await.unwrap();
    assert!(events.try_next().await.unwrap().is_some());
    assert_eq!(started.elapsed().as_secs(), 0);
    assert!(timeout(secs(20), events.try_next()).await.is_err(), "nothing happens");
    ours.create(&PostParams::default(), &map("during")).await.unwrap();
    assert!(events.try_next().await.unwrap().is_some(), "it comes, but late");
    assert_eq!(started.elapsed().as_secs(), 40);

    only(&cluster, Matcher::any().verb("watch"), When::always(), Fault::StallWatch { time: None });
    let started = Instant::now();
    let events = ours.watch(&WatchParams::default().timeout(200), "0").await.unwrap();
    let seen: Vec<_> = events.try_collect().await.unwrap();
    assert_eq!((seen.len(), started.elapsed().as_secs()), (0, 200), "not a word until it ends");
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_tells_everything_in_its_order_so_much_later_and_then_ends() {
    let cluster = cluster();
    let ours = maps(&cluster, "ours");
    let secs = Duration::from_secs;
    only(&cluster, Matcher::any().verb("watch"), When::always(), Fault::LateWatch { by: secs(5) });
    let started = Instant::now();
    let mut events = Box::pin(ours.watch(&WatchParams::default().timeout(20), "0").await.unwrap());
    ours.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(timeout(secs(3), events.try_next()).await.is_err(), "it is not told yet");
    ours.create(&PostParams::default(), &map("b")).await.unwrap();
    for (name, second) in [("a", 5), ("b", 8)] {
        let Some(WatchEvent::Added(seen)) = events.try_next().await.unwrap() else { panic!("{name}") };
        assert_eq!((seen.name_any().as_str(), started.elapsed().as_secs()), (name, second));
    }
    sleep(secs(8)).await;
    ours.create(&PostParams::default(), &map("c")).await.unwrap();
    assert!(events.try_next().await.unwrap().is_some(), "what came before its end is told");
    assert_eq!(started.elapsed().as_secs(), 21);
    let rest: Vec<_> = events.try_collect().await.unwrap();
    assert!(rest.iter().all(|event| matches!(event, WatchEvent::Bookmark(_))), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn stale_reads_show_the_past_but_never_before_what_was_asked_for() {
    let cluster = cluster();
    let ours = maps(&cluster, "ours");
    let first = ours.create(&PostParams::default(), &map("a")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "new"}}));
    let second = ours.patch("a", &PatchParams::default(), &patch).await.unwrap();
    ours.create(&PostParams::default(), &map("b")).await.unwrap();

    only(&cluster, Matcher::any(), When::always(), Fault::Stale { revisions: 2 });
    let from_cache = GetParams::any();
    assert_eq!(ours.get_with("a", &from_cache).await.unwrap(), first);
    assert_eq!(code(ours.get_with("b", &from_cache).await), 404, "it was not there then");
    let list = ours.list(&ListParams::default().match_any()).await.unwrap();
    assert_eq!(list.metadata.resource_version, first.resource_version());
    assert_eq!(list.items.len(), 1);
    let selected = ours.list(&ListParams::default().match_any().fields("metadata.name=b")).await.unwrap();
    assert_eq!(selected.items.len(), 0);
    assert_eq!(ours.get("a").await.unwrap(), second, "who allows nothing older gets nothing older");
    assert_eq!(ours.list(&ListParams::default()).await.unwrap().items.len(), 2);

    let version = second.resource_version().unwrap();
    let not_older = ListParams::default().at(&version).matching(kube::api::VersionMatch::NotOlderThan);
    let list = ours.list(&not_older).await.unwrap();
    assert_eq!(list.metadata.resource_version.as_deref(), Some(version.as_str()));
    let from = list.metadata.resource_version.unwrap();
    let events = ours.watch(&WatchParams::default().timeout(1).disable_bookmarks(), &from).await.unwrap();
    let seen: Vec<_> = events.try_collect().await.unwrap();
    assert_eq!(seen.len(), 1, "a watch from there tells of all that came after");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_out_fails_as_its_policy_says() {
    let cluster = cluster();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let allow = move |review: Value| {
        counted.fetch_add(1, Ordering::AcqRel);
        async move {
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
        }
    };
    cluster.endpoints().register_service("default", "hook", in_process(allow));
    let client = Client::new(cluster.client("ours"), "default");
    let configure = async |policy: &str| {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hook"},
            "webhooks": [{
                "name": "hook.usher.dev", "failurePolicy": policy, "sideEffects": "None", "timeoutSeconds": 5,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
                }],
            }],
        });
        let kind = kube::api::ApiResource::erase::<
            k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
        >(&());
        let api: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &kind);
        let params = PatchParams::apply("test").force();
        api.patch("hook", &params, &Patch::Apply(configuration)).await.unwrap();
    };
    let ours = maps(&cluster, "ours");
    configure("Fail").await;
    ours.create(&PostParams::default(), &map("before")).await.unwrap();
    assert_eq!(calls.load(Ordering::Acquire), 1);

    let outage = |outage| {
        only(&cluster, Matcher::webhook("hook.usher.dev"), When::always(), Fault::Webhook(outage));
    };
    outage(Outage::Refused);
    let refused = ours.create(&PostParams::default(), &map("refused")).await;
    assert!(format!("{refused:?}").contains("connection refused"), "{refused:?}");
    assert_eq!(code(refused), 500);
    outage(Outage::Silent);
    let started = Instant::now();
    let silent = ours.create(&PostParams::default(), &map("silent")).await;
    assert!(format!("{silent:?}").contains("context deadline exceeded"), "{silent:?}");
    assert_eq!((code(silent), started.elapsed().as_secs()), (500, 5));
    configure("Ignore").await;
    assert!(ours.create(&PostParams::default(), &map("ignored")).await.is_ok());
    assert_eq!(calls.load(Ordering::Acquire), 1, "nobody was reached");
}

#[tokio::test(start_paused = true)]
async fn a_component_that_is_down_does_nothing_and_catches_up_when_it_is_back() {
    let living = Living::start(1, 3).await.unwrap();
    let web = workload("Deployment", "web", json!({"replicas": 4}));
    living.life.crash(Component::Scheduler);
    living.create(DEPLOYMENTS, &web).await.unwrap();
    sleep(SETTLED).await;
    let pods = living.pods("web").await.unwrap();
    assert!(pods.len() == 4 && pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()), "{pods:?}");
    living.life.restart(Component::Scheduler);
    living.rolled_out("web").await.unwrap();

    living.life.crash(Component::ReplicaSet);
    let gone = names(&pods)[0].to_string();
    living.delete(&format!("{PODS}/{gone}")).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(living.pods("web").await.unwrap().len(), 3, "nobody makes a new one");
    living.life.restart(Component::ReplicaSet);
    sleep(SETTLED).await;
    living.rolled_out("web").await.unwrap();
    assert_eq!(living.pods("web").await.unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_without_kubelet_stay_as_they_are() {
    let living = Living::start(1, 2).await.unwrap();
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 4}))).await.unwrap();
    living.rolled_out("web").await.unwrap();
    living.life.kubelet_down("n1");
    let pods = living.pods("web").await.unwrap();
    let (lost, kept): (Vec<&Value>, Vec<&Value>) =
        pods.iter().partition(|pod| pod["spec"]["nodeName"] == "n1");
    assert!(!lost.is_empty() && !kept.is_empty());
    for pod in &pods {
        living.delete(&format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap())).await.unwrap();
    }
    sleep(Duration::from_secs(30)).await;
    let left = living.pods("web").await.unwrap();
    let old = |pod: &&&Value| left.iter().any(|now| now["metadata"]["uid"] == pod["metadata"]["uid"]);
    assert_eq!(lost.iter().filter(old).count(), lost.len(), "nobody ends them");
    assert_eq!(kept.iter().filter(old).count(), 0);
    living.life.kubelet_up("n1");
    sleep(SETTLED).await;
    assert_eq!(living.pods("web").await.unwrap().len(), 4);
    living.rolled_out("web").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_skewed_component_stamps_its_own_time() {
    let living = Living::start(1, 1).await.unwrap();
    living.life.skew(Component::Kubelet, SignedDuration::from_hours(-1));
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 1}))).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let pods = living.pods("web").await.unwrap();
    let time = |value: &Value| -> Timestamp { value.as_str().unwrap().parse().unwrap() };
    let (created, started) =
        (time(&pods[0]["metadata"]["creationTimestamp"]), time(&pods[0]["status"]["startTime"]));
    assert_eq!(created.duration_since(started).as_hours(), 1);
    let ready = pods[0]["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready");
    let took = time(&ready.unwrap()["lastTransitionTime"]).duration_since(started);
    assert_eq!(took.as_secs(), 2, "it still takes its time to start");
}

#[tokio::test(start_paused = true)]
async fn two_leaders_for_a_moment_do_no_lasting_harm() {
    let living = Living::start(1, 3).await.unwrap();
    let second = life::start(&living.cluster, life::Options::default());
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 6}))).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let new = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    living.patch(&format!("{DEPLOYMENTS}/web"), &new).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    drop(second);
    living.rolled_out("web").await.unwrap();
    sleep(SETTLED).await;
    let pods = living.pods("web").await.unwrap();
    assert_eq!(pods.len(), 6);
    assert!(pods.iter().all(|pod| pod["metadata"]["annotations"]["version"] == "2"));
}

/// A program that counts pods into a config map under its own name, once a second, and notes what time it has.
async fn count(run: usher_tests::chaos::Run) {
    let pods: Api<Pod> = Api::default_namespaced(run.client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(run.client);
    loop {
        if let Ok(list) = pods.list(&ListParams::default()).await {
            let data = json!({"pods": list.items.len().to_string(), "at": run.clock.now().to_string()});
            let counted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": run.name}, "data": data});
            // It may not work this time; there is a next.
            maps.patch(&run.name, &PatchParams::apply("count").force(), &Patch::Apply(counted)).await.ok();
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_is_killed_started_again_and_run_twice_with_names_and_clocks_of_its_own() {
    let cluster = cluster();
    let judge = maps(&cluster, "judge");
    let mut process = Process::new(&cluster, "counter", count);
    let value = async |name: &str, field: &str| {
        judge.get(name).await.unwrap().data.unwrap_or_default().remove(field).unwrap_or_default()
    };
    process.start(1);
    process.skew(2, SignedDuration::from_secs(90));
    process.start(2);
    sleep(Duration::from_millis(1500)).await;
    let at = async |name: &str| value(name, "at").await.parse::<Timestamp>().unwrap();
    assert_eq!(at("counter-2").await.duration_since(at("counter-1").await).as_secs(), 90);

    process.kill(2);
    let killed = at("counter-2").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(at("counter-2").await, killed, "it is dead");
    let refuse = Fault::Refuse(Refusal::Unavailable);
    only(&cluster, Matcher::any().client("counter-1").verb("patch"), When::always(), refuse);
    let refused = at("counter-1").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(at("counter-1").await, refused);
    cluster.faults().stop();

    let until = Instant::now() + Duration::from_secs(600);
    process.upheaval(until, Duration::from_secs(20)).await;
    judge.delete("counter-1", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let now = cluster.now();
    assert!(now.duration_since(at("counter-1").await).as_secs() <= 1, "one is left, with the right time");
}
