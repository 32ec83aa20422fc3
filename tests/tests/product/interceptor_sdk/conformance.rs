//! The same judge for interceptors that are made with the SDK and for the bundled ones.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use usher_api::names::{DAEMON_SET_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION, STATEFUL_SET_CLASS};
use usher_api::workloads::BundledInterceptor;
use usher_interceptors::conformance::{Judge, watch_with};
use usher_tests::living::{DAEMON_SETS, STATEFUL_SETS, workload};
use usher_tests::maintenances::{MAINTENANCES, Scene, is_drained, of_label};
use usher_tests::scenario::beside::answer_inside;

use super::world::{CLASS, HOUR, MINUTE, World};

/// A judge that watches until it is dropped.
struct Watching {
    judge: Arc<tokio::sync::Mutex<Judge>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watching {
    fn start(
        client: kube::Client,
        class: &str,
        now: impl Fn() -> jiff::Timestamp + Send + Sync + 'static,
    ) -> Self {
        let judge = Arc::new(tokio::sync::Mutex::new(Judge::new(class)));
        let held = judge.clone().try_lock_owned().unwrap();
        let task = tokio::spawn(async move {
            let mut held = held;
            watch_with(client, &mut held, &now.into()).await;
        });
        Self { judge, task }
    }

    async fn end(self) -> Judge {
        self.task.abort();
        let _ = self.task.await;
        Arc::try_unwrap(self.judge).unwrap().into_inner()
    }
}

#[tokio::test(start_paused = true)]
async fn interceptors_of_the_sdk_keep_the_contract() {
    let world = World::new().await;
    let clock = world.clock;
    let watching = Watching::start(world.client.clone(), CLASS, move || {
        use embedded_apiserver::clock::Clock as _;
        clock.now()
    });
    let _running = world.intercept(|turn| {
        Box::pin(async move {
            turn.progress("copying").await?;
            turn.keep_alive_while(sleep(2 * HOUR)).await?;
            Ok(turn.complete("copied").await?)
        })
    });
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    sleep(2 * HOUR + MINUTE).await;
    let judge = watching.end().await;
    assert_eq!(judge.breaches(world.now()), []);
    assert!(judge.reports() > 40, "{}", judge.reports());
}

#[tokio::test(start_paused = true)]
async fn the_bundled_interceptors_keep_the_contract() {
    let scene = Scene::new(4).await.unwrap();
    let webhook = kube::Client::new(scene.cluster.service(), "default");
    for (path, configuration) in answer_inside(&scene.cluster, webhook.clone(), &BundledInterceptor::ALL) {
        scene.create(&path, &configuration).await.unwrap();
    }
    scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    let mut db = workload("StatefulSet", "db", json!({"replicas": 4}));
    db["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: "MaxUnavailable"});
    scene.create(STATEFUL_SETS, &db).await.unwrap();
    scene.until(&format!("{STATEFUL_SETS}/db"), |db| db["status"]["availableReplicas"] == 4).await.unwrap();
    let judges = [DAEMON_SET_CLASS, STATEFUL_SET_CLASS].map(|class| {
        let cluster = scene.cluster.clone();
        Watching::start(webhook.clone(), class, move || cluster.now())
    });
    for round in ["a", "b"] {
        let nodes: &[&str] = if round == "a" { &["n1", "n2"] } else { &["n3", "n4"] };
        scene.create(MAINTENANCES, &of_label(round, "Drain", "kubernetes.io/hostname", nodes)).await.unwrap();
        scene.until(&format!("{MAINTENANCES}/{round}"), is_drained).await.unwrap();
        scene.set_stage(round, "Complete").await.unwrap();
        let is_back = |agent: &Value| agent["status"]["numberReady"] == 4;
        scene.until(&format!("{DAEMON_SETS}/agent"), is_back).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    for watching in judges {
        let judge = watching.end().await;
        assert_eq!(judge.breaches(scene.cluster.now()), []);
        assert!(judge.reports() >= 4, "{}", judge.reports());
    }
}
