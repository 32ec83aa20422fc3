//! The dry run of a drain and the explanation of a node, on the living embedded cluster in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use serde_json::{Value, json};
use usher_api::workloads::BundledInterceptor;
use usher_cli::Ending;
use usher_tests::living::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, NODES, PODS, bare_pod, template, workload};
use usher_tests::maintenances::{MAINTENANCES, Scene, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::answer_inside;
use usher_tests::typed;

/// What a dry run prints, and how it ends.
async fn dry_run(scene: &Scene, line: &str) -> (Ending, String) {
    let printed = typed::usher(&format!("drain {line} --dry-run"), &scene.environment()).await.unwrap();
    assert_eq!(printed.err, "");
    (printed.ending.unwrap(), printed.out)
}

/// What `explain node/NAME` prints.
async fn explain(scene: &Scene, node: &str) -> Result<String, String> {
    let printed = typed::usher(&format!("explain node/{node}"), &scene.environment()).await.unwrap();
    printed.ending.map(|_| printed.out).map_err(|why| why.to_string())
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
    let recreate = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    scene.patch(&format!("{DEPLOYMENTS}/db"), &recreate).await.unwrap();
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
    let (ending, text) = dry_run(&scene, "n1 n2 --max-nodes 1 --force").await;
    assert_eq!(ending, Ending::Incomplete, "{text}");
    for part in [
        "Dry run: 2 nodes with ",
        " would be drained in 2 waves. ",
        "cannot be evicted: budget default/db has minAvailable 3 and 3 pods\n",
        "4 pods will not fit: 0/1 nodes are available: 1 too little cpu\n",
        "2 pods of DaemonSet default/agent leave last, and come back when the maintenance completes\n",
        "1 pod has no controller and will not be recreated\n    default/solo\n",
        "fit on the 1 remaining schedulable node.\n",
        "Nothing was changed. To do it, run the same command without --dry-run.\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("which surges"), "no surge is promised where there is no room for it: {text}");
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
    let (ending, text) = dry_run(&scene, "n1 n2 n3 --max-nodes 1 --force").await;
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
        before.starts_with("Node n1 is in no maintenance, and has 2 pods; 2 could not be evicted now.\n"),
        "{before}"
    );
    assert!(before.contains("Would block   2 pods: disruption budget db"), "{before}");

    scene.restart_manager();
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1"])).await.unwrap();
    let is_blocked = |requests: &Value| {
        let items = requests["items"].as_array().unwrap();
        items.len() == 2 && items.iter().all(|request| request["status"]["conditions"].is_array())
    };
    scene.until(REQUESTS, is_blocked).await.unwrap();
    let during = explain(&scene, "n1").await.unwrap();
    for part in [
        "Node n1 is being drained: 2 pods have not been evicted yet, 2 blocked.\n",
        "Maintenance   m: Drain since ",
        "\n                Evicting\n",
        "evicts: Default pods up to priority 1000000000\n",
        "Cordoned      by maintenance m\n",
        "Blocked       2 pods: disruption budget db does not allow the pod to be evicted\n",
        "  What to do  budget db has minAvailable 6 and 6 pods: scale up to 7 pods or more, or lower minAvailable\n",
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

/// Of a budget that cannot be satisfied it is known what helps, before and after a change that does not.
#[tokio::test(start_paused = true)]
async fn more_replicas_are_not_advised_where_they_do_not_help() {
    let scene = Scene::without_manager(3).await.unwrap();
    scene.deployment("web", 6, 6).await.unwrap();
    scene
        .patch(&format!("{BUDGETS}/web"), &json!({"spec": {"minAvailable": null, "maxUnavailable": 0}}))
        .await
        .unwrap();
    for replicas in [6, 8] {
        scene.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": replicas}})).await.unwrap();
        let is_counted = |budget: &Value| budget["status"]["currentHealthy"] == replicas;
        scene.until(&format!("{BUDGETS}/web"), is_counted).await.unwrap();
        let pod = scene.pods_on("n1").await.unwrap()[0].clone();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let explained = typed::usher(&format!("explain {name}"), &scene.environment()).await.unwrap().out;
        let advice = format!(
            "budget web has maxUnavailable 0 and {replicas} pods: raise maxUnavailable to 1 or more; more replicas do not help\n"
        );
        assert!(explained.contains(&advice), "{explained}");
    }
}

/// No object in the cluster tells which interceptors the manager runs with: admission does, of a request that is not stored.
#[tokio::test(start_paused = true)]
async fn a_dry_run_knows_whether_the_interceptor_of_daemon_sets_is_switched_off() {
    for (chosen, wanted, ending) in [
        (
            &BundledInterceptor::ALL[..],
            "leaves last, and comes back when the maintenance completes",
            Ending::Done,
        ),
        (
            &[BundledInterceptor::StatefulSet],
            "stays: the manager runs without the interceptor of DaemonSets",
            Ending::Incomplete,
        ),
    ] {
        let scene = Scene::without_manager(2).await.unwrap();
        let webhook = kube::Client::new(scene.cluster.service(), "default");
        for (path, configuration) in answer_inside(&scene.cluster, webhook, chosen) {
            scene.create(&path, &configuration).await.unwrap();
        }
        scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
        let all_run = |pods: &Value| pods["items"].as_array().unwrap().len() == 2 && is_running(pods);
        scene.until(PODS, all_run).await.unwrap();
        let (ended, text) = dry_run(&scene, "n1").await;
        assert!(text.contains(&format!("1 pod of DaemonSet default/agent {wanted}\n")), "{text}");
        assert_eq!(ended, ending, "{text}");
        assert_eq!(dry_run(&scene, "n1 --ignore-daemonsets").await.0, Ending::Done);
        let requests = scene.get(REQUESTS).await.unwrap();
        assert_eq!(requests["items"], json!([]), "nothing is stored");
    }
}
