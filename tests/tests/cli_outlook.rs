//! The dry run of a drain and the explanation of a node, on the living embedded cluster in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams, ResourceExt};
use kube::runtime::wait::{await_condition, conditions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_cli::{Ending, Streams, Surroundings, explain_node, outlook};
use usher_tests::TestCluster;
use usher_tests::living::{BUDGETS, DAEMON_SETS, NODES, PODS, bare_pod, node, template, workload};
use usher_tests::maintenances::{MAINTENANCES, Scene, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;

/// What the dry run of a maintenance prints, and how it ends.
async fn dry_run(scene: &Scene, maintenance: Value) -> (Ending, String) {
    let maintenance: NodeMaintenance = serde_json::from_value(maintenance).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    let client = scene.witness.client("admin");
    let ending = outlook::print(&client, &maintenance, &scene.surroundings(), streams).await.unwrap();
    assert_eq!(String::from_utf8(err).unwrap(), "");
    (ending, String::from_utf8(out).unwrap())
}

/// What `explain node/NAME` prints.
async fn explain(scene: &Scene, node: &str) -> Result<String, String> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    let client = scene.witness.client("admin");
    let ending = explain_node::run(&client, node, None, &scene.surroundings(), streams).await;
    ending.map(|_| String::from_utf8(out).unwrap()).map_err(|why| why.to_string())
}

fn is_running(pods: &Value) -> bool {
    pods["items"].as_array().unwrap().iter().all(|pod| pod["status"]["phase"] == "Running")
}

/// Whether the pods of a node have been asked to leave.
fn is_taken(maintenance: &Value, node: &str) -> bool {
    let nodes = maintenance["status"]["nodeStatuses"].as_array().into_iter().flatten();
    nodes.filter(|status| status["nodeRef"]["name"] == node).any(|status| status["drainTargets"].is_array())
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_order_obstacles_and_places_and_touches_nothing() {
    let scene = Scene::without_manager(3).await.unwrap();
    scene.deployment("web", 4, 3).await.unwrap();
    scene.deployment("db", 3, 3).await.unwrap();
    let mut agent = workload("DaemonSet", "agent", json!({}));
    agent["spec"]["template"] = template("agent", "100m");
    scene.create(DAEMON_SETS, &agent).await.unwrap();
    scene.create(PODS, &bare_pod("solo", "n1")).await.unwrap();
    scene
        .until(PODS, |pods| pods["items"].as_array().unwrap().len() == 11 && is_running(pods))
        .await
        .unwrap();
    scene.until(&format!("{BUDGETS}/db"), |budget| budget["status"]["currentHealthy"] == 3).await.unwrap();
    let before = scene.get(NODES).await.unwrap();
    let mut maintenance = of_nodes("new", "Drain", &["n1", "n2"]);
    maintenance["spec"]["drainLimit"] = json!({"maxNodes": 1});
    let (ending, text) = dry_run(&scene, maintenance).await;
    assert_eq!(ending, Ending::Incomplete, "{text}");
    for part in [
        "Dry run: 2 nodes with ",
        " would be drained in 2 waves. ",
        "cannot leave: budget default/db (minAvailable 3) wants 3 healthy and has no more than 3\n",
        "2 pods of DaemonSet default/agent, asked to leave last",
        "1 pod has no controller: once gone, nobody makes a new one\n    default/solo\n",
        "would fit on the 1 node that stays and takes pods.\n",
        "Nothing was changed. To do it, run the same command without --dry-run.\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let specs = |nodes: &Value| -> Vec<Value> {
        nodes["items"].as_array().unwrap().iter().map(|node| node["spec"].clone()).collect()
    };
    assert_eq!(specs(&scene.get(NODES).await.unwrap()), specs(&before));
    assert_eq!(scene.get(MAINTENANCES).await.unwrap()["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn what_a_dry_run_promises_is_what_the_drain_does() {
    let mut scene = Scene::without_manager(5).await.unwrap();
    scene.deployment("web", 8, 7).await.unwrap();
    for (number, node) in ["n1", "n1", "n3"].into_iter().enumerate() {
        scene.create(PODS, &bare_pod(&format!("solo-{number}"), node)).await.unwrap();
    }
    scene.until(PODS, is_running).await.unwrap();
    scene
        .until(&format!("{BUDGETS}/web"), |budget| budget["status"]["disruptionsAllowed"] == 1)
        .await
        .unwrap();
    let mut maintenance = of_nodes("m", "Drain", &["n1", "n2", "n3"]);
    maintenance["spec"]["drainLimit"] = json!({"maxNodes": 1});
    let (ending, text) = dry_run(&scene, maintenance.clone()).await;
    assert_eq!(ending, Ending::Done, "{text}");
    let rows = text.lines().skip_while(|line| !line.contains("WAVE")).skip(1).take(3);
    let order: Vec<String> = rows.map(|row| row.split_whitespace().nth(1).unwrap().to_string()).collect();

    scene.restart_manager();
    scene.create(MAINTENANCES, &maintenance).await.unwrap();
    for (at, node) in order.iter().enumerate() {
        let path = format!("{MAINTENANCES}/m");
        let shown = scene.until(&path, |maintenance| is_taken(maintenance, node)).await.unwrap();
        for later in &order[at + 1..] {
            assert!(!is_taken(&shown, later), "{later} comes after {node} in {text}");
        }
    }
    scene.until(&format!("{MAINTENANCES}/m"), is_drained).await.unwrap();
    scene.rolled_out("web").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_is_explained_before_during_and_after_a_drain() {
    let mut scene = Scene::without_manager(3).await.unwrap();
    scene.deployment("db", 6, 6).await.unwrap();
    scene.until(&format!("{BUDGETS}/db"), |budget| budget["status"]["currentHealthy"] == 6).await.unwrap();
    let before = explain(&scene, "n1").await.unwrap();
    assert!(
        before.starts_with("Node n1 is in no maintenance, and has 2 pods; 2 could not leave now.\n"),
        "{before}"
    );
    assert!(before.contains("Would stay    2 pods: disruption budget db"), "{before}");

    scene.restart_manager();
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1"])).await.unwrap();
    let is_blocked = |requests: &Value| {
        let items = requests["items"].as_array().unwrap();
        items.len() == 2 && items.iter().all(|request| request["status"]["conditions"].is_array())
    };
    scene.until(REQUESTS, is_blocked).await.unwrap();
    let during = explain(&scene, "n1").await.unwrap();
    for part in [
        "Node n1 is being drained: 2 pods have not left yet, 2 blocked.\n",
        "Maintenance   m: Drain since ",
        "\n                Evicting\n",
        "asks to leave: Default pods up to priority 1000000000\n",
        "Cordoned      by maintenance m\n",
        "Blocked       2 pods: disruption budget db does not allow the pod to be evicted\n",
        "  What to do  budget db wants 6 healthy and has no more than 6: add a replica, or allow a disruption in the budget\n",
    ] {
        assert!(during.contains(part), "{part:?} in {during}");
    }
    scene.patch(&format!("{BUDGETS}/db"), &json!({"spec": {"minAvailable": 5}})).await.unwrap();
    scene.until(&format!("{MAINTENANCES}/m"), is_drained).await.unwrap();
    let after = explain(&scene, "n1").await.unwrap();
    assert!(after.starts_with("Node n1 is drained.\n"), "{after}");
    let wrong = explain(&scene, "n4").await.unwrap_err();
    assert_eq!(wrong, "there is no node \"n4\": did you mean n1, n2, n3? kubectl get nodes lists all");
}

/// What a real API server sends is read as well: nodes, pods and budgets that no controller has looked at.
#[tokio::test]
async fn a_dry_run_and_an_explanation_on_a_real_api_server() {
    let cluster = TestCluster::real().await.unwrap();
    let client = cluster.client("admin").unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, definition) in usher_api::crd::crds() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let established = conditions::is_crd_established();
        await_condition(definitions.clone(), &definition.name_any(), established).await.unwrap();
    }
    for name in ["n1", "n2"] {
        create::<Node>(Api::all(client.clone()), node(name)).await;
    }
    let mut pod = bare_pod("solo", "n1");
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi".into();
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    create::<Pod>(Api::namespaced(client.clone(), "default"), pod).await;

    let maintenance: NodeMaintenance = serde_json::from_value(of_nodes("new", "Drain", &["n1"])).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    let ending = outlook::print(&client, &maintenance, &Surroundings::plain(), streams).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(ending, Ending::Done, "{text}");
    assert!(text.starts_with("Dry run: 1 node with 1 pod would be drained at once."), "{text}");
    assert!(text.contains("- 1 pod has no controller: once gone, nobody makes a new one\n"), "{text}");
    assert!(text.contains("- 1 pod has an emptyDir volume, whose data are lost\n"), "{text}");

    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    explain_node::run(&client, "n1", None, &Surroundings::plain(), streams).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("Node n1 is in no maintenance, and has 1 pod.\n"), "{text}");
    assert!(text.contains("Could leave   1 pod: it would be evicted at once"), "{text}");
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}
