//! The agent of a node on the embedded cluster, in virtual time: its static pods leave for maintenances and come back.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::faults::{Fault, Matcher, Refusal, Rule, When};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use usher_api::names::NODE_AGENT_ANNOTATION;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_node_agent::agent::{self, Beside, Options};
use usher_node_agent::folder::Folder;
use usher_node_agent::shutdown::ShutdownState;
use usher_tests::living::{Living, NODES, PODS};
use usher_tests::scenario::beside::{answer_inside, manager};

pub(super) const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
pub(super) const MIRROR: &str = "/api/v1/namespaces/default/pods/proxy-n1";

pub(super) struct Scene {
    pub(super) living: Arc<Living>,
    client: kube::Client,
    pub(super) folder: PathBuf,
    _tasks: JoinSet<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn manifest(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy", "labels": {"app": "proxy"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

/// The kubelet of n1 looks into the folder every now and then.
async fn kubelet(living: Arc<Living>, folder: PathBuf) {
    let mut runs: Option<String> = None;
    loop {
        let there = fs::read_to_string(folder.join("proxy.yaml")).ok();
        if there != runs {
            match &there {
                Some(text) => living.life.run_static_pod("n1", serde_json::from_str(text).unwrap()),
                None => living.life.end_static_pod("n1", "default", "proxy"),
            }
            runs = there;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Scene {
    /// Two nodes, one with a static pod from a folder, and a manager.
    pub(super) async fn start(name: &str) -> Self {
        let living = Arc::new(Living::start(1, 2).await.unwrap());
        living.install_crds().await.unwrap();
        let client = kube::Client::new(living.cluster.service_as(manager()), "default");
        for (path, configuration) in answer_inside(&living.cluster, client.clone(), &BundledInterceptor::ALL)
        {
            living.create(&path, &configuration).await.unwrap();
        }
        let folder = std::env::temp_dir().join(format!("usher-node-agent-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("proxy.yaml"), manifest("proxy:1").to_string()).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(kubelet(living.clone(), folder.clone()));
        let (of_manager, clock) = (client.clone(), clock(&living));
        tasks.spawn(async move { run_all(of_manager, clock, &BundledInterceptor::ALL).await });
        let scene = Self { living, client, folder, _tasks: tasks };
        scene.mirror_runs().await;
        scene
    }

    fn agent(&self) -> JoinSet<()> {
        self.agent_with(self.client.clone(), Beside::nothing())
    }

    pub(super) fn agent_with(&self, client: kube::Client, beside: Beside) -> JoinSet<()> {
        let mut agent = JoinSet::new();
        let clock = clock(&self.living);
        agent.spawn(agent::run_until(client, clock, self.options(), beside, std::future::pending()));
        agent
    }

    fn options(&self) -> Options {
        Options {
            node: "n1".into(),
            folder: Some(Folder::new(&self.folder)),
            has_url: false,
            folder_name: "/etc/kubernetes/manifests".into(),
            version: "test".into(),
            warnings: Vec::new(),
        }
    }

    async fn mirror_runs(&self) -> Value {
        let path = format!("{PODS}?fieldSelector=metadata.name%3Dproxy-n1");
        let list = self.living.until(&path, |it| it["items"][0]["status"]["phase"] == "Running").await;
        list.unwrap()["items"][0].clone()
    }

    pub(super) async fn drain(&self, name: &str) {
        let maintenance = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
            "spec": {"stage": "Drain", "reason": "OS upgrade", "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            ]}},
        });
        self.living.create(MAINTENANCES, &maintenance).await.unwrap();
    }

    pub(super) async fn drained(&self, name: &str) {
        let is_drained = |it: &Value| {
            let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Drained" && it["status"] == "True")
        };
        self.living.until(&format!("{MAINTENANCES}/{name}"), is_drained).await.unwrap();
    }

    async fn mark(&self) -> Value {
        let node = self.living.get(&format!("{NODES}/n1")).await.unwrap();
        let text =
            node["metadata"]["annotations"]["nodemaintenance.k8s.io/node-agent"].as_str().unwrap_or("null");
        serde_json::from_str(text).unwrap()
    }

    fn files(&self) -> Vec<String> {
        files(&self.folder)
    }
}

fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter(|name| !name.contains("lock") && !name.contains("draft")).collect();
    names.sort();
    names
}

pub(super) fn clock(living: &Living) -> Clock {
    let (now, timers) = (living.cluster.clone(), living.cluster.clone());
    Clock::with_timers(move || now.now(), move |at| timers.time_until(at))
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_leaves_for_a_maintenance_as_in_the_example_and_comes_back_when_it_completes() {
    let scene = Scene::start("leaves").await;
    let _agent = scene.agent();
    let annotated = |it: &Value| {
        it["metadata"]["annotations"]["interceptor.evictionrequest.coordination.k8s.io/priority_kubelet.k8s.io"]
            == "10000/controller"
    };
    let mirror = scene.living.until(MIRROR, annotated).await.unwrap();
    assert_eq!(scene.mark().await["staticPods"], "/etc/kubernetes/manifests");
    scene.drain("m").await;
    let request = format!("{REQUESTS}/{}", mirror["metadata"]["uid"].as_str().unwrap());
    let path =
        format!("{REQUESTS}?fieldSelector=metadata.name%3D{}", mirror["metadata"]["uid"].as_str().unwrap());
    let told = |it: &Value| !it["items"][0]["status"]["expectedInterceptorFinishTime"].is_null();
    let told = scene.living.until(&path, told).await.unwrap();
    let status = &told["items"][0]["status"];
    assert_eq!(
        (&status["activeInterceptorClass"], &status["message"]),
        (
            &json!("kubelet.k8s.io"),
            &json!("proxy-n1 is terminating the pod due to node maintenance (OS upgrade).")
        ),
        "{request}"
    );
    scene.drained("m").await;
    assert_eq!(scene.files(), [".usher-record-proxy.yaml", ".usher-taken-proxy.yaml"]);
    assert_eq!(scene.mark().await["taken"], json!(["proxy.yaml"]));
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert_eq!(scene.files().len(), 2, "not before it completes");
    scene.living.patch(&format!("{MAINTENANCES}/m"), &json!({"spec": {"stage": "Complete"}})).await.unwrap();
    scene.mirror_runs().await;
    assert_eq!(scene.files(), ["proxy.yaml"]);
    assert_eq!(scene.mark().await["taken"], Value::Null);
    let events = scene.living.get("/api/v1/namespaces/default/events").await.unwrap();
    for reason in ["StaticPodTaken", "StaticPodReturned"] {
        assert!(events["items"].as_array().unwrap().iter().any(|it| it["reason"] == reason), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_killed_again_and_again_still_moves_each_manifest_once() {
    for seed in 1..=5_u64 {
        let scene = Scene::start(&format!("killed{seed}")).await;
        scene.drain("m").await;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut agent = scene.agent();
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_millis(random.u64(1..400))).await;
            agent.abort_all();
            while agent.join_next().await.is_some() {}
            agent = scene.agent();
        }
        scene.drained("m").await;
        assert_eq!(scene.files(), [".usher-record-proxy.yaml", ".usher-taken-proxy.yaml"], "seed {seed}");
        scene.living.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_millis(random.u64(1..400))).await;
            agent.abort_all();
            while agent.join_next().await.is_some() {}
            agent = scene.agent();
        }
        scene.mirror_runs().await;
        assert_eq!(scene.files(), ["proxy.yaml"], "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_the_administrator_put_in_place_meanwhile_survives() {
    let scene = Scene::start("edited").await;
    let _agent = scene.agent();
    scene.drain("m").await;
    scene.drained("m").await;
    let theirs = manifest("proxy:2").to_string();
    fs::write(scene.folder.join("proxy.yaml"), &theirs).unwrap();
    let mirror = scene.mirror_runs().await;
    assert_eq!(mirror["spec"]["containers"][0]["image"], "proxy:2");
    tokio::time::sleep(Duration::from_secs(600)).await;
    scene.mirror_runs().await;
    scene.living.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.files(), [".usher-kept-1-proxy.yaml", "proxy.yaml"]);
    assert_eq!(fs::read_to_string(scene.folder.join("proxy.yaml")).unwrap(), theirs);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_does_not_keep_the_agent_from_acting_alone() {
    let scene = Scene::start("hangs").await;
    let (progress, shutdown) = tokio::sync::watch::channel(ShutdownState::default());
    let client = kube::Client::new(scene.living.cluster.client("agent"), "default");
    let _agent = scene.agent_with(client, Beside { shutdown, ..Beside::nothing() });
    let hangs = Rule {
        on: Matcher::any().client("agent").resource("nodemaintenances"),
        when: When::always(),
        fault: Fault::Latency(Duration::from_secs(36_000)),
    };
    scene.living.cluster.faults().set(vec![hangs]);
    scene.drain("m").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(scene.files(), ["proxy.yaml"], "it waits for an answer");
    let alone_since = Some(scene.living.cluster.now());
    progress.send_replace(ShutdownState { is_under_way: true, alone_since });
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.files(), [".usher-record-proxy.yaml", ".usher-taken-proxy.yaml"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_alone_comes_back_when_the_shutdown_is_cancelled_and_by_an_agent_that_starts_anew() {
    let scene = Scene::start("cancelled").await;
    let client = || kube::Client::new(scene.living.cluster.client("agent"), "default");
    let (progress, shutdown) = tokio::sync::watch::channel(ShutdownState::default());
    let agent = scene.agent_with(client(), Beside { shutdown, ..Beside::nothing() });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let away = Rule {
        on: Matcher::any().client("agent"),
        when: When::always(),
        fault: Fault::Refuse(Refusal::Unavailable),
    };
    scene.living.cluster.faults().set(vec![away]);
    let alone_since = Some(scene.living.cluster.now());
    let shuts_down = ShutdownState { is_under_way: true, alone_since };
    progress.send_replace(shuts_down);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.files().len(), 2);
    progress.send_replace(ShutdownState::default());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.files(), ["proxy.yaml"], "without the API server");

    progress.send_replace(shuts_down);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.files().len(), 2);
    drop(agent);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _agent = scene.agent_with(client(), Beside::nothing());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.files(), ["proxy.yaml"], "the node has started, and nobody answers");
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_one_acts_and_the_node_is_not_written_without_end() {
    let scene = Scene::start("two").await;
    let version = async || {
        let node = scene.living.get(&format!("{NODES}/n1")).await.unwrap();
        node["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let _first = scene.agent();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = version().await;
    let _second = scene.agent();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(version().await, before, "the second one writes nothing");
    // Somebody who takes the mark off again and again is answered every five seconds.
    let without = json!({"metadata": {"annotations": {NODE_AGENT_ANNOTATION: null}}});
    let mut marks = 0;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if scene.mark().await != Value::Null {
            marks += 1;
            scene.living.patch(&format!("{NODES}/n1"), &without).await.unwrap();
        }
    }
    assert!((3..=8).contains(&marks), "{marks}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_asked_to_end_and_has_taken_nothing_leaves_no_trace() {
    let scene = Scene::start("ends").await;
    let (stop, mut stopping) = tokio::sync::watch::channel(false);
    let asked = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let ended = tokio::spawn(agent::run_until(
        scene.client.clone(),
        clock(&scene.living),
        scene.options(),
        Beside::nothing(),
        asked,
    ));
    let named = "interceptor.evictionrequest.coordination.k8s.io/priority_kubelet.k8s.io";
    scene.living.until(MIRROR, |it| !it["metadata"]["annotations"][named].is_null()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_ne!(scene.mark().await, Value::Null);
    stop.send_replace(true);
    ended.await.unwrap();
    assert_eq!(scene.mark().await, Value::Null);
    assert!(scene.living.get(MIRROR).await.unwrap()["metadata"]["annotations"][named].is_null());
    assert!(!scene.folder.join(".usher-lock").exists());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_makes_of_the_mark_on_the_node_is_set_right() {
    let scene = Scene::start("mark").await;
    let _agent = scene.agent();
    scene.drain("m").await;
    scene.drained("m").await;
    let node = format!("{NODES}/n1");
    let is_right = |it: &Value| {
        let mark = it["metadata"]["annotations"][NODE_AGENT_ANNOTATION].as_str();
        mark.is_some_and(|text| text.contains("proxy.yaml"))
    };
    for wrong in [Value::Null, "{}".into()] {
        scene.living.until(&node, is_right).await.unwrap();
        let patch = json!({"metadata": {"annotations": {NODE_AGENT_ANNOTATION: wrong}}});
        scene.living.patch(&node, &patch).await.unwrap();
    }
    scene.living.until(&node, is_right).await.unwrap();
}

#[test]
fn the_guide_names_tests_that_are_there() {
    let none = std::env::temp_dir().join(format!("usher-no-scenarios-{}", std::process::id()));
    fs::create_dir_all(&none).unwrap();
    let checked = usher_tests::guide::check("node-agent.md", &none);
    fs::remove_dir(&none).unwrap();
    checked.unwrap();
}
