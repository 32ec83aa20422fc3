//! Node maintenances on the living embedded cluster, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, NODES, PODS, node, template, workload};
use usher_tests::maintenances::{
    MAINTENANCES, Manager, REQUESTER, is_drained, of_label, of_nodes, start_manager,
};
use usher_tests::requests::{DRAIN, REQUESTS};
use usher_tests::witness::Witness;

const SETTLED: Duration = Duration::from_secs(60);

struct Scene {
    living: Living,
    witness: Witness,
    manager: Option<Manager>,
}

impl std::ops::Deref for Scene {
    type Target = Living;

    fn deref(&self) -> &Living {
        &self.living
    }
}

impl Scene {
    async fn new(nodes: usize) -> Self {
        let living = Living::start(1, nodes).await.unwrap();
        living.install_crds().await.unwrap();
        let witness = Witness::of(&living.cluster);
        let mut scene = Self { living, witness, manager: None };
        scene.restart();
        scene
    }

    fn restart(&mut self) {
        self.manager = None;
        self.manager = Some(start_manager(&self.living.cluster, &self.witness));
    }

    async fn deployment(&self, name: &str, replicas: usize, budget: usize) {
        self.create(DEPLOYMENTS, &workload("Deployment", name, json!({"replicas": replicas}))).await.unwrap();
        self.create(
            BUDGETS,
            &json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"minAvailable": budget, "selector": {"matchLabels": {"app": name}}},
            }),
        )
        .await
        .unwrap();
        self.rolled_out(name).await.unwrap();
    }

    async fn drained(&self, name: &str) -> Value {
        self.until(&format!("{MAINTENANCES}/{name}"), is_drained).await.unwrap()
    }

    async fn requests(&self) -> Vec<Value> {
        self.get(REQUESTS).await.unwrap()["items"].as_array().unwrap().clone()
    }

    async fn is_gone(&self, path: &str) -> bool {
        self.get(path).await.is_err()
    }

    fn breaches(&self) -> Vec<String> {
        self.witness.seen().lock().breaches.clone()
    }
}

/// A pod on a node that stays until somebody asks it to leave through an interceptor that never answers.
fn pod_on(name: &str, node: &str, priority: i32) -> Value {
    let mut pod = template("solo", "100m");
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = node.into();
    if priority > 0 {
        pod["spec"]["priority"] = priority.into();
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn nodes_are_drained_within_the_budget_and_given_back() {
    let scene = Scene::new(7).await;
    scene.deployment("web", 10, 9).await;
    let (meter, start) = (scene.meter("web"), scene.cluster.server().now());
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3"])).await.unwrap();
    let drained = scene.drained("m").await;
    for node in ["n1", "n2", "n3"] {
        assert!(scene.pods_on(node).await.unwrap().is_empty(), "{node}");
        assert_eq!(scene.cordon(node).await.unwrap(), (true, Some("m".into())));
        let shown = scene.get(&format!("{NODES}/{node}")).await.unwrap();
        assert_eq!(shown["metadata"]["annotations"]["nodemaintenance.k8s.io/phase"], "Drained");
        let conditions = shown["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|c| c["type"] == "NodeMaintenance" && c["reason"] == "Drained"));
        assert!(conditions.iter().any(|c| c["type"] == "Ready"), "those of others stay");
    }
    assert_eq!(drained["status"]["nodes"], 3);
    assert_eq!(drained["status"]["drainStatus"]["nodesDrained"], 3);
    let stages: Vec<&Value> =
        drained["status"]["stageStatuses"].as_array().unwrap().iter().map(|s| &s["name"]).collect();
    assert_eq!(stages, ["Cordon", "Drain"]);
    scene.rolled_out("web").await.unwrap();
    assert!(meter.minimum_since(start).unwrap() >= 9);
    assert_eq!(scene.breaches(), [""; 0]);
    sleep(SETTLED).await;
    assert!(scene.requests().await.is_empty());

    scene.set_stage("m", "Complete").await.unwrap();
    sleep(SETTLED).await;
    for node in ["n1", "n2", "n3"] {
        assert_eq!(scene.cordon(node).await.unwrap(), (false, None), "{node}");
    }
    let done = scene.maintenance("m").await.unwrap();
    assert!(done["metadata"]["finalizers"].is_null() && is_drained(&done), "{done:#}");
    for reason in ["Cordon", "Drain", "Drained", "Complete", "MaintenanceReleased"] {
        assert!(!scene.told(reason).await.unwrap().is_empty(), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_touches_nothing_and_is_deleted_at_once() {
    let scene = Scene::new(2).await;
    scene.create(MAINTENANCES, &of_nodes("m", "Idle", &["n1"])).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    let idle = scene.maintenance("m").await.unwrap();
    assert!(idle["metadata"]["finalizers"].is_null());
    assert_eq!(idle["status"]["nodes"], 1);
    scene.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    assert!(scene.is_gone(&format!("{MAINTENANCES}/m")).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cordoned_before_stays_cordoned() {
    let scene = Scene::new(2).await;
    scene.patch(&format!("{NODES}/n1"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("m", "Cordon", &["n1", "n2"])).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("m".into())));
    scene.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    sleep(SETTLED).await;
    assert!(scene.is_gone(&format!("{MAINTENANCES}/m")).await);
    assert_eq!(scene.cordon("n1").await.unwrap(), (true, None));
    assert_eq!(scene.cordon("n2").await.unwrap(), (false, None));
}

#[tokio::test(start_paused = true)]
async fn whoever_uncordons_a_held_node_is_answered_and_told_of() {
    let scene = Scene::new(1).await;
    scene.create(MAINTENANCES, &of_nodes("m", "Cordon", &["n1"])).await.unwrap();
    sleep(SETTLED).await;
    for _ in 0..4 {
        scene.patch(&format!("{NODES}/n1"), &json!({"spec": {"unschedulable": null}})).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        assert!(scene.cordon("n1").await.unwrap().0);
    }
    let told = scene.told("CordonFight").await.unwrap();
    assert_eq!(told.len(), 2, "on the node and on the maintenance: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn overlapping_maintenances_share_nodes_and_the_last_one_gives_them_back() {
    let scene = Scene::new(6).await;
    scene.deployment("web", 6, 5).await;
    scene.create(MAINTENANCES, &of_nodes("a", "Drain", &["n1", "n2"])).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("b", "Drain", &["n2", "n3"])).await.unwrap();
    scene.drained("a").await;
    scene.drained("b").await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("a,b".into())));
    scene.set_stage("a", "Complete").await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("b".into())));
    scene.delete(&format!("{MAINTENANCES}/b")).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (false, None));
    assert!(scene.is_gone(&format!("{MAINTENANCES}/b")).await);
    assert_eq!(scene.breaches(), [""; 0]);
}

/// Pods that cannot leave: their budget allows nothing.
async fn stuck(scene: &Scene) {
    for (name, node) in [("p1", "n1"), ("p2", "n2")] {
        scene.create(PODS, &pod_on(name, node, 0)).await.unwrap();
        scene.until(&format!("{PODS}/{name}"), |pod| pod["status"]["phase"] == "Running").await.unwrap();
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "solo"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "solo"}}},
    });
    scene.create(BUDGETS, &budget).await.unwrap();
    sleep(SETTLED).await;
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_that_is_cancelled_withdraws_its_own_requests_only() {
    let scene = Scene::new(3).await;
    stuck(&scene).await;
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2"])).await.unwrap();
    sleep(SETTLED).await;
    let requests = scene.requests().await;
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request["metadata"]["finalizers"] == json!([REQUESTER])));
    let maintenance = scene.maintenance("m").await.unwrap();
    let drain = &maintenance["status"]["drainStatus"];
    assert_eq!((&drain["podsPendingEviction"], &drain["podsEvicting"]), (&json!(0), &json!(2)));
    // Somebody else asks for p1 too, and the interceptor of p2 cannot stop any more.
    let path =
        |number: usize| format!("{REQUESTS}/{}", requests[number]["metadata"]["name"].as_str().unwrap());
    scene.patch(&path(0), &json!({"metadata": {"finalizers": [REQUESTER, DRAIN]}})).await.unwrap();
    let forbid = json!({"status": {"evictionRequestCancellationPolicy": "Forbid"}});
    scene.patch(&format!("{}/status", path(1)), &forbid).await.unwrap();
    scene.set_stage("m", "Complete").await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.get(&path(0)).await.unwrap()["metadata"]["finalizers"], json!([DRAIN]));
    assert_eq!(scene.get(&path(1)).await.unwrap()["metadata"]["finalizers"], json!([REQUESTER]));
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    let done = scene.maintenance("m").await.unwrap();
    assert!(done["metadata"]["finalizers"].is_null());
    assert_eq!(done["status"]["drainStatus"]["drainMessage"], "Cancelled");
    assert!(!is_drained(&done));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lost_its_requester_gets_it_back_and_new_pods_get_theirs() {
    let scene = Scene::new(3).await;
    stuck(&scene).await;
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1"])).await.unwrap();
    sleep(SETTLED).await;
    let requests = scene.requests().await;
    assert_eq!(requests.len(), 1);
    let path = format!("{REQUESTS}/{}", requests[0]["metadata"]["name"].as_str().unwrap());
    scene.patch(&path, &json!({"metadata": {"finalizers": [DRAIN]}})).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.get(&path).await.unwrap()["metadata"]["finalizers"], json!([DRAIN, REQUESTER]));
    // Without any requester the request is withdrawn, and comes anew.
    scene.patch(&path, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.get(&path).await.unwrap()["metadata"]["finalizers"], json!([REQUESTER]));
    scene.create(PODS, &pod_on("p3", "n1", 0)).await.unwrap();
    sleep(SETTLED).await;
    assert!(scene.is_gone(&format!("{PODS}/p3")).await, "it was asked before it ran");
}

#[tokio::test(start_paused = true)]
async fn nodes_join_and_leave_a_maintenance() {
    let scene = Scene::new(3).await;
    stuck(&scene).await;
    let label = |node: &str, pool: Value| {
        (format!("{NODES}/{node}"), json!({"metadata": {"labels": {"pool": pool}}}))
    };
    let (n1, blue) = label("n1", json!("blue"));
    scene.patch(&n1, &blue).await.unwrap();
    scene.create(MAINTENANCES, &of_label("m", "Drain", "pool", &["blue"])).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!((scene.cordon("n2").await.unwrap().0, scene.requests().await.len()), (false, 1));
    let (n2, blue) = label("n2", json!("blue"));
    scene.patch(&n2, &blue).await.unwrap();
    let mut new = node("n9");
    new["metadata"]["labels"]["pool"] = "blue".into();
    scene.create(NODES, &new).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("m".into())));
    assert_eq!(scene.cordon("n9").await.unwrap(), (true, Some("m".into())));
    assert_eq!(scene.requests().await.len(), 2);
    let (n1, none) = label("n1", Value::Null);
    scene.patch(&n1, &none).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    assert_eq!(scene.requests().await.len(), 1, "the pod of n1 may stay");
    assert_eq!(scene.maintenance("m").await.unwrap()["status"]["nodes"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_killed_again_and_again_still_drains_in_order() {
    let mut scene = Scene::new(7).await;
    scene.deployment("web", 10, 9).await;
    let (meter, start) = (scene.meter("web"), scene.cluster.server().now());
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3"])).await.unwrap();
    let mut position = 0;
    for number in 0..200_u64 {
        sleep(Duration::from_millis(137 + 61 * (number % 13))).await;
        scene.restart();
        let now = scene.maintenance("m").await.unwrap()["status"]["drainStatus"]["planPosition"].as_i64();
        assert!(now.unwrap_or(0) >= position, "the plan goes forward");
        position = now.unwrap_or(0);
    }
    scene.drained("m").await;
    scene.rolled_out("web").await.unwrap();
    assert!(meter.minimum_since(start).unwrap() >= 9);
    assert_eq!(scene.breaches(), [""; 0]);
    scene.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    for _ in 0..20 {
        sleep(Duration::from_millis(20)).await;
        scene.restart();
    }
    sleep(SETTLED).await;
    assert!(scene.is_gone(&format!("{MAINTENANCES}/m")).await && scene.requests().await.is_empty());
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
}

#[tokio::test(start_paused = true)]
async fn few_nodes_at_a_time_where_the_maintenance_says_so() {
    let scene = Scene::new(8).await;
    scene.deployment("web", 12, 6).await;
    let mut maintenance = of_nodes("m", "Drain", &["n1", "n2", "n3", "n4"]);
    maintenance["spec"]["drainLimit"] = json!({"maxNodes": "50%"});
    scene.create(MAINTENANCES, &maintenance).await.unwrap();
    let path = format!("{MAINTENANCES}/m");
    let mut waves = 0;
    loop {
        let now = scene.get(&path).await.unwrap();
        let nodes = now["status"]["nodeStatuses"].as_array().cloned().unwrap_or_default();
        let busy = nodes.iter().filter(|node| node["podsEvicting"].as_i64().unwrap_or(0) > 0).count();
        assert!(busy <= 2, "{busy} nodes at once");
        waves = waves.max(nodes.iter().filter(|node| !node["drainTargets"].is_null()).count());
        if is_drained(&now) {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(waves, 4);
}

fn expected_finish(maintenance: &Value) -> Option<jiff::Timestamp> {
    maintenance["status"]["drainStatus"]["expectedFinishTime"].as_str().map(|time| time.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_when_it_will_be_done_once_pods_have_left() {
    let scene = Scene::new(10).await;
    // One at a time.
    scene.deployment("web", 20, 19).await;
    let start = scene.cluster.server().now();
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3", "n4"])).await.unwrap();
    let path = format!("{MAINTENANCES}/m");
    let left = |it: &Value| {
        let drain = &it["status"]["drainStatus"];
        drain["podsPendingEviction"].as_i64().unwrap_or(0) + drain["podsEvicting"].as_i64().unwrap_or(0)
    };
    let early = scene.until(&path, |it| left(it) > 0).await.unwrap();
    assert_eq!(expected_finish(&early), None, "nothing is known yet");
    let all = left(&early);
    let half = scene.until(&path, |it| left(it) <= all / 2).await.unwrap();
    let (said_at, said) = (scene.cluster.server().now(), expected_finish(&half).unwrap());
    let drained = scene.drained("m").await;
    assert_eq!(expected_finish(&drained), None, "it is done");
    let (took, end) = (scene.cluster.server().now().duration_since(start), scene.cluster.server().now());
    let off = end.duration_since(said).abs();
    assert!(said > said_at, "{said} was expected at {said_at}");
    assert!(off < took / 4 + jiff::SignedDuration::from_secs(20), "{off:#} off in a drain of {took:#}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_stuck_is_expected_later_and_later_and_hardly_ever_written() {
    let scene = Scene::new(3).await;
    stuck(&scene).await;
    let mut free = pod_on("free", "n1", 0);
    free["metadata"]["labels"] = json!({"app": "free"});
    scene.create(PODS, &free).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2"])).await.unwrap();
    let (mut said, mut versions) = (Vec::new(), std::collections::BTreeSet::new());
    sleep(SETTLED * 5).await;
    for _ in 0..36 {
        sleep(Duration::from_secs(600)).await;
        let maintenance = scene.maintenance("m").await.unwrap();
        versions.insert(maintenance["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        let expected = expected_finish(&maintenance).unwrap();
        let late = scene.cluster.server().now().duration_since(expected);
        assert!(late < jiff::SignedDuration::from_secs(60), "{expected} has passed {late:#} ago");
        said.push(expected);
    }
    assert!(said.is_sorted() && said.last() > said.first(), "{said:?}");
    assert!(versions.len() < 12, "{} writes in six hours", versions.len());
}

/// The specification lets Idle -> Complete make nodes schedulable. Here a maintenance restores only what it changed, and one that
/// was Idle changed nothing.
#[tokio::test(start_paused = true)]
async fn idle_to_complete_leaves_nodes_alone_that_somebody_else_cordoned() {
    let scene = Scene::new(2).await;
    scene.patch(&format!("{NODES}/n1"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("m", "Idle", &["n1", "n2"])).await.unwrap();
    sleep(SETTLED).await;
    scene.set_stage("m", "Complete").await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (true, None));
    assert_eq!(scene.cordon("n2").await.unwrap(), (false, None));
    let done = scene.maintenance("m").await.unwrap();
    assert!(done["metadata"]["finalizers"].is_null(), "there is nothing to let go of: {done:#}");
    let stages: Vec<&Value> =
        done["status"]["stageStatuses"].as_array().unwrap().iter().map(|stage| &stage["name"]).collect();
    assert_eq!(stages, ["Idle", "Complete"]);
    scene.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    assert!(scene.is_gone(&format!("{MAINTENANCES}/m")).await);
    assert_eq!(scene.cordon("n1").await.unwrap(), (true, None));
}
