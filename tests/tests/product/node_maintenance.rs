//! Node maintenances on the living embedded cluster, in virtual time: what scenarios cannot see, as who broke a budget, many restarts
//! and expectations over hours.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use usher_tests::living::{BUDGETS, NODES, PODS, bare_pod};
use usher_tests::maintenances::{MAINTENANCES, Scene, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;

const SETTLED: Duration = Duration::from_secs(60);

async fn drained(scene: &Scene, name: &str) -> Value {
    scene.until(&format!("{MAINTENANCES}/{name}"), is_drained).await.unwrap()
}

async fn requests(scene: &Scene) -> Vec<Value> {
    scene.get(REQUESTS).await.unwrap()["items"].as_array().unwrap().clone()
}

async fn is_gone(scene: &Scene, path: &str) -> bool {
    scene.get(path).await.is_err()
}

fn breaches(scene: &Scene) -> Vec<String> {
    scene.witness.seen().lock().breaches.clone()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_drained_within_the_budget_and_given_back() {
    let scene = Scene::new(7).await.unwrap();
    scene.deployment("web", 10, 9).await.unwrap();
    let (meter, start) = (scene.meter("web"), scene.cluster.now());
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3"])).await.unwrap();
    let drained = drained(&scene, "m").await;
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
    assert_eq!(breaches(&scene), [""; 0]);
    sleep(SETTLED).await;
    assert!(requests(&scene).await.is_empty());

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
async fn overlapping_maintenances_share_nodes_and_the_last_one_gives_them_back() {
    let scene = Scene::new(6).await.unwrap();
    scene.deployment("web", 6, 5).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("a", "Drain", &["n1", "n2"])).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("b", "Drain", &["n2", "n3"])).await.unwrap();
    drained(&scene, "a").await;
    drained(&scene, "b").await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("a,b".into())));
    scene.set_stage("a", "Complete").await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    assert_eq!(scene.cordon("n2").await.unwrap(), (true, Some("b".into())));
    scene.delete(&format!("{MAINTENANCES}/b")).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n2").await.unwrap(), (false, None));
    assert!(is_gone(&scene, &format!("{MAINTENANCES}/b")).await);
    assert_eq!(breaches(&scene), [""; 0]);
}

/// Pods that cannot leave: their budget allows nothing.
async fn stuck(scene: &Scene) {
    for (name, node) in [("p1", "n1"), ("p2", "n2")] {
        scene.create(PODS, &bare_pod(name, node)).await.unwrap();
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
async fn a_manager_that_is_killed_again_and_again_still_drains_in_order() {
    let mut scene = Scene::new(7).await.unwrap();
    scene.deployment("web", 10, 9).await.unwrap();
    let (meter, start) = (scene.meter("web"), scene.cluster.now());
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1", "n2", "n3"])).await.unwrap();
    let mut position = 0;
    for number in 0..200_u64 {
        sleep(Duration::from_millis(137 + 61 * (number % 13))).await;
        scene.restart_manager();
        let now = scene.maintenance("m").await.unwrap()["status"]["drainStatus"]["planPosition"].as_i64();
        assert!(now.unwrap_or(0) >= position, "the plan goes forward");
        position = now.unwrap_or(0);
    }
    drained(&scene, "m").await;
    scene.rolled_out("web").await.unwrap();
    assert!(meter.minimum_since(start).unwrap() >= 9);
    assert_eq!(breaches(&scene), [""; 0]);
    scene.delete(&format!("{MAINTENANCES}/m")).await.unwrap();
    for _ in 0..20 {
        sleep(Duration::from_millis(20)).await;
        scene.restart_manager();
    }
    sleep(SETTLED).await;
    assert!(is_gone(&scene, &format!("{MAINTENANCES}/m")).await && requests(&scene).await.is_empty());
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
}

fn expected_finish(maintenance: &Value) -> Option<jiff::Timestamp> {
    maintenance["status"]["drainStatus"]["expectedFinishTime"].as_str().map(|time| time.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_when_it_will_be_done_once_pods_have_left() {
    let scene = Scene::new(10).await.unwrap();
    // One at a time.
    scene.deployment("web", 20, 19).await.unwrap();
    let start = scene.cluster.now();
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
    let (said_at, said) = (scene.cluster.now(), expected_finish(&half).unwrap());
    let drained = drained(&scene, "m").await;
    assert_eq!(expected_finish(&drained), None, "it is done");
    let (took, end) = (scene.cluster.now().duration_since(start), scene.cluster.now());
    let off = end.duration_since(said).abs();
    assert!(said > said_at, "{said} was expected at {said_at}");
    assert!(off < took / 4 + jiff::SignedDuration::from_secs(20), "{off:#} off in a drain of {took:#}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_stuck_is_expected_later_and_later_and_hardly_ever_written() {
    let scene = Scene::new(3).await.unwrap();
    stuck(&scene).await;
    let mut free = bare_pod("free", "n1");
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
        let late = scene.cluster.now().duration_since(expected);
        assert!(late < jiff::SignedDuration::from_secs(60), "{expected} has passed {late:#} ago");
        said.push(expected);
    }
    assert!(said.is_sorted() && said.last() > said.first(), "{said:?}");
    assert!(versions.len() < 12, "{} writes in six hours", versions.len());
}

/// Targets never go back: not even while the mark of the maintenance is missing from its node.
#[tokio::test(start_paused = true)]
async fn a_mark_that_somebody_takes_away_comes_back_and_no_request_is_withdrawn() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 3).await.unwrap();
    scene.create(MAINTENANCES, &of_nodes("m", "Drain", &["n1"])).await.unwrap();
    sleep(SETTLED).await;
    let before = scene.get(REQUESTS).await.unwrap();
    assert_eq!(before["items"].as_array().unwrap().len(), 1, "the budget lets nobody go: {before}");
    let targets = |maintenance: &Value| maintenance["status"]["nodeStatuses"][0]["drainTargets"].clone();
    let targeted = targets(&scene.maintenance("m").await.unwrap());
    assert!(!targeted.as_array().unwrap().is_empty());

    let held_by = "nodemaintenance.k8s.io/held-by";
    let bare = json!({"metadata": {"annotations": {held_by: null}}, "spec": {"unschedulable": null}});
    scene.patch(&format!("{NODES}/n1"), &bare).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(scene.cordon("n1").await.unwrap(), (true, Some("m".to_owned())));
    assert_eq!(targets(&scene.maintenance("m").await.unwrap()), targeted);
    let after = scene.get(REQUESTS).await.unwrap();
    let asked = |list: &Value| {
        let metadata = &list["items"][0]["metadata"];
        [metadata["uid"].clone(), metadata["finalizers"].clone(), metadata["generation"].clone()]
    };
    assert_eq!(asked(&after), asked(&before), "the request was left alone");
}

/// A plan of entries for applications of which the last is there, with selectors that are padded.
fn plan_of(key: &str, entries: usize, padding: usize) -> Value {
    let entry = |number: usize| {
        let pad = (0..padding).map(|pad| format!("{number:03}-{pad:056}"));
        let apps: Vec<String> = pad.chain([format!("app-{number}")]).collect();
        let selector = json!({"matchExpressions": [{"key": key, "operator": "In", "values": apps}]});
        json!({"podPriority": 0, "podType": "Default", "podSelector": selector})
    };
    (0..entries).map(entry).collect()
}

/// Their targets would be nine hundred for each node, and more than etcd takes.
#[tokio::test(start_paused = true)]
async fn overlapping_plans_with_many_selectors_are_worked_off() {
    let mut scene = Scene::new(11).await.unwrap();
    let names: Vec<String> = (1..=10).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // One pod of the first entries of both plans, and one of the last on each node.
    for (number, name) in [(0, &"n1")].into_iter().chain(names.iter().map(|name| (29, name))) {
        let app = format!("app-{number}");
        let mut pod = bare_pod(&format!("{app}-on-{name}"), name);
        pod["metadata"]["labels"] = json!({"a": app, "b": app});
        scene.create(PODS, &pod).await.unwrap();
    }
    for app in ["app-0", "app-29"] {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"a": app}}},
        });
        scene.create(BUDGETS, &budget).await.unwrap();
    }
    sleep(SETTLED).await;
    for key in ["a", "b"] {
        let mut maintenance = of_nodes(key, "Drain", &names);
        maintenance["spec"]["drainPlan"] = plan_of(key, 30, 0);
        scene.create(MAINTENANCES, &maintenance).await.unwrap();
    }
    sleep(SETTLED).await;
    assert_eq!(requests(&scene).await.len(), 1, "both are at their first entries");
    scene.delete(&format!("{BUDGETS}/app-0")).await.unwrap();
    sleep(SETTLED).await;
    for key in ["a", "b"] {
        let maintenance = scene.maintenance(key).await.unwrap();
        let status = &maintenance["status"];
        // What the first one had reached alone, and what both have reached.
        let bytes = maintenance.to_string().len();
        assert!(bytes < 64 << 10, "{bytes} bytes");
        assert_eq!(
            status["drainTargetSets"][0]["anyOf"][1]["allOf"],
            json!([1, 2]),
            "{}",
            status["drainTargetSets"]
        );
        assert_eq!(status["nodeStatuses"][9]["drainTargetSet"], 0);
    }
    assert_eq!(requests(&scene).await.len(), 10, "all are asked to leave");
    // A manager that starts again knows.
    let before = scene.maintenance("a").await.unwrap();
    scene.restart_manager();
    sleep(SETTLED).await;
    assert_eq!(scene.maintenance("a").await.unwrap()["status"], before["status"]);
    assert_eq!(requests(&scene).await.len(), 10);
    scene.delete(&format!("{BUDGETS}/app-29")).await.unwrap();
    drained(&scene, "a").await;
    drained(&scene, "b").await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_told_and_hardly_ever_tried() {
    let scene = Scene::new(3).await.unwrap();
    scene.create(PODS, &bare_pod("p1", "n1")).await.unwrap();
    let mut maintenance = of_nodes("m", "Drain", &["n1", "n2"]);
    // Its selectors are in its plan, and once more in its targets.
    maintenance["spec"]["drainPlan"] = plan_of("app", 20, 700);
    scene.create(MAINTENANCES, &maintenance).await.unwrap();
    let told = |maintenance: &Value| {
        let conditions = maintenance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "StatusComplete")
    };
    let path = format!("{MAINTENANCES}/m");
    let shown = scene.until(&path, |maintenance| told(maintenance).is_some()).await.unwrap();
    let condition = told(&shown).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("StatusTooLarge")));
    sleep(SETTLED).await;
    let events = scene.told("StatusTooLarge").await.unwrap();
    assert!(events[0].contains("request is too large"), "{events:?}");
    assert!(requests(&scene).await.is_empty(), "nobody is asked to leave by what is not written");
    let writes = scene.witness.seen().lock().writes;
    sleep(Duration::from_secs(1200)).await;
    let tried = scene.witness.seen().lock().writes - writes;
    assert!((1..30).contains(&tried), "{tried} writes in twenty minutes");
    scene.set_stage("m", "Complete").await.unwrap();
    sleep(SETTLED).await;
    let done = scene.maintenance("m").await.unwrap();
    assert!(done["metadata"]["finalizers"].is_null() && told(&done).is_none(), "{:#}", done["status"]);
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
}
