//! The example interceptor as a process of its own, on the real control plane with the eviction request controller: killed,
//! started again, told to stop.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use usher_api::EvictionRequestCancellationPolicy::Allow;
use usher_api::{EvictionRequest, EvictionRequestStatus};
use usher_apply::Clock;
use usher_controllers::eviction_request;
use usher_interceptors::{InterceptorClass, Outcome, Requester, Update};
use usher_tests::cluster::ADMIN;
use usher_tests::sdk::{CLASS, DRAIN, NEXT, pod, request};
use usher_tests::{TestCluster, crds};
use usher_tests_real::{RealCluster as _, binaries};

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: usize = 6;
const MAINTENANCE: &str = "requester.evictionrequest.coordination.k8s.io/name_maintenance.example.com";
const KEEP: &str = "test.example.com/keep";

/// The example while it runs; it ends when dropped.
struct Database {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Database {
    async fn start(example: &Path, kubeconfig: &Path) -> Result<Self> {
        let mut child = Command::new(example)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", "default", "--class", CLASS, "--step-time", "300ms"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut database = Self { child, lines };
        database.says("answering as db.example.com").await?;
        Ok(database)
    }

    /// Reads on to the line that has these words.
    async fn says(&mut self, words: &str) -> Result<String> {
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                if line.contains(words) {
                    return Ok(line);
                }
            }
            bail!("it ended without saying {words:?}")
        };
        timeout(PATIENCE, reading).await.with_context(|| format!("it does not say {words:?}"))?
    }
}

struct Scene {
    client: Client,
    pods: Api<Pod>,
    maps: Api<ConfigMap>,
    requests: Api<EvictionRequest>,
}

impl Scene {
    fn new(client: Client) -> Self {
        Self {
            pods: Api::default_namespaced(client.clone()),
            maps: Api::default_namespaced(client.clone()),
            requests: Api::default_namespaced(client.clone()),
            client,
        }
    }

    /// A database with data, registered, whose eviction is asked for.
    async fn database(&self, name: &str, keys: usize) -> Result<Pod> {
        let made = self.pods.create(&PostParams::default(), &pod(name)).await?;
        let class = InterceptorClass::new(CLASS)?;
        let made = class.register(&self.client, &made, 12_000, Some("handover")).await?;
        if keys > 0 {
            let map = json!({"metadata": {"name": format!("{name}-data")}, "data": data(keys)});
            self.maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
        }
        self.requests.create(&PostParams::default(), &request(&made)).await?;
        Ok(made)
    }

    /// Waits until a request is as wanted.
    async fn until(
        &self,
        pod: &Pod,
        wanted: impl Fn(&EvictionRequestStatus) -> bool,
    ) -> Result<EvictionRequestStatus> {
        let name = pod.uid().context("no UID")?;
        let reading = async {
            loop {
                let status = self.requests.get(&name).await?.status.unwrap_or_default();
                if wanted(&status) {
                    return anyhow::Ok(status);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, reading).await.with_context(|| format!("{} does not get there", pod.name_any()))?
    }

    async fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        Ok(self.maps.get_opt(name).await?.map(|map| map.data.unwrap_or_default()))
    }
}

fn data(keys: usize) -> BTreeMap<String, String> {
    (0..keys).map(|number| (format!("key-{number}"), format!("value {number}"))).collect()
}

/// Killed in the middle of the copy and started again: nothing is lost, nothing begins anew, the pod goes.
async fn survives_a_crash(scene: &Scene, cluster: &TestCluster, example: &Path) -> Result<Database> {
    let mut database = Database::start(example, cluster.kubeconfig()).await?;
    let db = scene.database("db-1", KEYS).await?;
    let requester = Requester::new(scene.client.clone(), "maintenance.example.com")?;
    let handle = requester.request(&db).await?;
    // Somebody else's finalizer, so that the request can be looked at when all is over.
    let kept = Patch::Merge(json!({"metadata": {"finalizers": [DRAIN, MAINTENANCE, KEEP]}}));
    scene.requests.patch(&db.uid().context("no UID")?, &PatchParams::default(), &kept).await?;
    database.says("db-1: 2 of 6 keys copied").await?;
    database.child.kill().await?;
    let copied = scene.map("db-1-data-copy").await?.context("no copy")?.len();
    assert!((2..KEYS).contains(&copied), "in the middle: {copied}");
    assert_eq!(scene.map("db-1-data").await?, Some(data(KEYS)));

    let mut seen = Vec::new();
    let mut updates = Box::pin(handle.updates());
    let mut database = Database::start(example, cluster.kubeconfig()).await?;
    let resumed = database.says("db-1: our turn").await?;
    assert!(resumed.contains("of 6 keys copied"), "what was reported is there: {resumed}");
    let next = database.says("of 6 keys copied").await?;
    assert!(next.contains(&format!("{} of 6", copied + 1)), "it goes on where it was: {next}");
    let outcome = timeout(PATIENCE, async {
        loop {
            match futures::StreamExt::next(&mut updates).await {
                Some(Update::Progress(progress)) => seen.push(progress),
                Some(Update::Ended(outcome)) => return Some(outcome),
                None => return None,
            }
        }
    });
    assert_eq!(outcome.await?, Some(Outcome::PodGone));
    assert_eq!(scene.map("db-1-data-copy").await?, Some(data(KEYS)));
    assert_eq!(scene.map("db-1-data").await?, None, "the original is gone");
    assert!(
        seen.iter().any(|progress| progress.cancellable && progress.expected_finish.is_some()),
        "{seen:#?}"
    );
    assert!(seen.iter().any(|progress| !progress.cancellable), "forbidden from the take-over on: {seen:#?}");
    // The controller cleans up: nothing is forbidden any more, and only the foreign finalizer is left.
    let status = scene.until(&db, |status| status.eviction_request_cancellation_policy == Allow).await?;
    assert!(
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "HandedOver" && condition.status == "True")
    );
    Ok(database)
}

/// All requesters withdraw while the copy is made: it is thrown away and the database goes on.
async fn gives_way_to_a_cancellation(scene: &Scene, database: &mut Database) -> Result<()> {
    let db = scene.database("db-2", KEYS).await?;
    database.says("db-2: 1 of 6 keys copied").await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene.requests.patch(&db.uid().context("no UID")?, &PatchParams::default(), &none).await?;
    database.says("db-2: cancelled").await?;
    assert_eq!(scene.map("db-2-data-copy").await?, None);
    assert_eq!(scene.map("db-2-data").await?, Some(data(KEYS)));
    assert!(scene.pods.get("db-2").await?.metadata.deletion_timestamp.is_none());
    Ok(())
}

/// A budget that refuses the eviction leaves the rest to the controller.
async fn leaves_a_blocked_pod_to_the_controller(scene: &Scene, database: &mut Database) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(scene.client.clone());
    let budget = json!({
        "metadata": {"name": "db"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db-3"}}},
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
    let db = scene.database("db-3", 1).await?;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    scene.pods.patch_status("db-3", &PatchParams::default(), &Patch::Merge(ready)).await?;
    let completed = database.says("db-3: completed, ").await?;
    assert!(completed.contains("disruption budget"), "{completed}");
    scene.until(&db, |status| status.active_interceptor_class.as_deref() == Some(NEXT)).await?;
    assert!(scene.pods.get("db-3").await?.metadata.deletion_timestamp.is_none());
    Ok(())
}

/// Not its pod: it says so at once.
async fn declines_what_has_no_data(scene: &Scene, database: &mut Database) -> Result<()> {
    let db = scene.database("db-4", 0).await?;
    database.says("db-4: declined").await?;
    let status = scene.until(&db, |status| status.active_interceptor_class.as_deref() == Some(NEXT)).await?;
    assert_eq!(status.eviction_request_cancellation_policy, Allow);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_hands_over_survives_a_crash_and_stops_when_told() {
    let example = binaries::example("database").unwrap();
    let cluster = TestCluster::real().await.unwrap();
    crds::install(&cluster).await.unwrap();
    let client = cluster.client(ADMIN).unwrap();
    let scene = Scene::new(client.clone());
    let controller = tokio::spawn(eviction_request::run(client, Clock::system()));

    let mut database = survives_a_crash(&scene, &cluster, &example).await.unwrap();
    gives_way_to_a_cancellation(&scene, &mut database).await.unwrap();
    leaves_a_blocked_pod_to_the_controller(&scene, &mut database).await.unwrap();
    declines_what_has_no_data(&scene, &mut database).await.unwrap();

    let pid = database.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    database.says("stopped").await.unwrap();
    assert!(timeout(PATIENCE, database.child.wait()).await.unwrap().unwrap().success());
    controller.abort();
}
