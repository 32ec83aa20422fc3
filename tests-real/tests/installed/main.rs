//! Usher as people install it: its image on real nodes, by kustomize and by the chart, its webhooks reached through their Service. It drains the
//! node that it runs on, is upgraded while it drains another, and is taken out again with nothing left.
//!
//! The image is packed from the binary of this build, or is the archive that `USHER_IMAGE` names: `make image ARCHIVE=usher.tar`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

mod image;
mod left_behind;
mod scene;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use usher_testbed::{network, real_nodes};

use left_behind::Inventory;
use scene::{Scene, has_condition, is_ready};

const TEST: &str = "usher_is_installed_on_real_nodes_drains_them_is_upgraded_and_leaves_nothing_behind";

/// Maximum time of a run: twice what it takes on a busy machine.
const AT_MOST: Duration = Duration::from_secs(400);

/// In full: the API server has others of that name.
const REQUESTS: &str = "evictionrequests.evictionrequest.coordination.k8s.io";

/// How it comes into the cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Kustomize,
    Chart,
}

#[tokio::test(flavor = "multi_thread")]
async fn usher_is_installed_on_real_nodes_drains_them_is_upgraded_and_leaves_nothing_behind() {
    real_nodes::prepare().unwrap();
    if !network::is_own() {
        // Nothing can be downloaded inside the network of its own.
        usher_testbed::helm_path().await.unwrap();
        usher_testbed::toolbox(&usher_testbed::Binary::ALL).unwrap();
        real_nodes::build().await.unwrap();
        let ended = network::run_again(&[TEST, "--exact", "--nocapture"]).unwrap();
        let output = String::from_utf8_lossy(&ended.stdout);
        println!("{output}");
        assert!(ended.status.success() && output.contains("1 passed"), "see above");
        return;
    }
    tokio::time::timeout(AT_MOST, installs_drains_upgrades_and_uninstalls()).await.unwrap();
}

async fn installs_drains_upgrades_and_uninstalls() {
    let mut scene = Scene::start().await;
    for way in ways() {
        let begun = Instant::now();
        scene.workloads().await;
        let before = Inventory::of(&scene).await;
        install(&scene, way).await;
        scene.told(way, "installed", begun);
        webhooks_answer(&scene).await;
        notice_is_given(&scene).await;
        the_node_of_the_leader_is_drained(&scene).await;
        scene.told(way, "drained the node it ran on", begun);
        it_is_upgraded_while_it_drains(&scene, way).await;
        scene.told(way, "upgraded", begun);
        uninstall(&scene, way).await;
        before.is_all_that_is_left(&scene, way).await;
        scene.told(way, "uninstalled", begun);
        scene.without_workloads().await;
    }
}

/// `USHER_INSTALLED=all`, as in `make test-long`, installs by kustomize as well.
fn ways() -> Vec<Way> {
    let all = std::env::var_os("USHER_INSTALLED").is_some_and(|value| value == "all");
    if all { vec![Way::Kustomize, Way::Chart] } else { vec![Way::Chart] }
}

async fn install(scene: &Scene, way: Way) {
    match way {
        Way::Kustomize => {
            let folder = scene.kustomization(env!("CARGO_PKG_VERSION"));
            scene.kubectl.ok(&format!("apply --server-side -k {}", folder.display())).await.unwrap();
        }
        Way::Chart => {
            let chart = scene::deploy().join("helm/usher").display().to_string();
            // As docs/node-agent.md has it: agents are root, and see folders of their nodes.
            scene.kubectl.ok("create namespace usher-system").await.unwrap();
            scene
                .kubectl
                .ok("label namespace usher-system pod-security.kubernetes.io/enforce=privileged")
                .await
                .unwrap();
            let agents = "nodeAgent.enabled=true";
            scene
                .run("helm", &["install", "usher", &chart, "--namespace", "usher-system", "--set", agents])
                .await;
        }
    }
    rolled_out(scene, env!("CARGO_PKG_VERSION")).await;
}

/// All pods run this version, on real nodes.
async fn rolled_out(scene: &Scene, tag: &str) {
    for workload in ["deployment/usher-manager", "daemonset/usher-node-agent"] {
        scene.rolled_out(workload).await;
    }
    let only = |it: &Value| {
        let pods = it["items"].as_array().unwrap();
        let of_tag = |pod: &Value| pod["spec"]["containers"][0]["image"] == format!("usher:{tag}");
        pods.len() == 2 && pods.iter().all(|pod| of_tag(pod) && is_ready(pod))
    };
    scene.until(&format!("get pods -n usher-system -l {} -o json", scene::MANAGER), only).await;
}

/// The API server calls them by the address of the Service alone.
async fn webhooks_answer(scene: &Scene) {
    let configuration = scene.get("get validatingwebhookconfiguration usher -o json").await;
    for hook in configuration["webhooks"].as_array().unwrap() {
        assert_eq!(hook["clientConfig"]["service"]["name"], "usher-webhook", "{hook:#}");
    }
    let absent = request("absent", "b6b5e8a4-0000-4000-8000-000000000000");
    let refused = scene.kubectl.run_with("create -f -", &absent.to_string()).await.unwrap();
    assert!(refused.code == 1 && refused.err.contains("admission webhook"), "{refused:?}");

    // Nothing drains the node of the second manager, where it stays.
    let (_, of_leader) = scene.leader().await;
    let interceptor = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    scene.pod("db", &scene.other_than(&of_leader), json!({interceptor: "100"})).await;
    let pod = scene.get("get pod db -n default -o json").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    scene.apply(&request("db", uid)).await;
    let has_turn = |it: &Value| it["status"]["activeInterceptorClass"] == "db.example.com";
    scene.until(&format!("get {REQUESTS} {uid} -n default -o json"), has_turn).await;
}

fn request(pod: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": uid, "namespace": "default",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {"podRef": {"name": pod, "uid": uid}},
    })
}

async fn drain(scene: &Scene, name: &str, node: &str) {
    scene
        .apply(&json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
            "spec": {"stage": "Drain", "reason": "kernel update", "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
            ]}},
        }))
        .await;
}

/// With the account of an agent, whose token lets it make the maintenance of its own node alone.
async fn notice_is_given(scene: &Scene) {
    let (_, node) = scene.leader().await;
    let other = scene.other_than(&node);
    let notice = async |name: &str, of: &str| {
        let container = json!({
            "name": "c", "image": format!("usher:{}", env!("CARGO_PKG_VERSION")), "imagePullPolicy": "Never",
            "command": ["usher", "node-agent", "notify", "--reason=spot", "--deadline=3s", "--node", of],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        });
        let spec = json!({
            "nodeName": &node, "serviceAccountName": "usher-node-agent", "restartPolicy": "Never", "containers": [container],
        });
        let meta = json!({"name": name, "namespace": "usher-system"});
        scene.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})).await;
    };
    notice("refused", &other).await;
    let has_ended = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null();
    let refused = scene.until("get pod refused -n usher-system -o json", has_ended).await;
    let said = refused["status"]["containerStatuses"][0]["state"]["terminated"]["message"].to_string();
    assert!(said.contains("an agent makes and removes the maintenance of its own node"), "{said}");
    // It is asked to leave as all others are.
    notice("given", &node).await;
    let path = format!("get nodemaintenance shutdown-{node} -o json");
    scene.until(&path, |it| it["spec"]["reason"] == "spot").await;
    scene.kubectl.ok("delete pods given refused -n usher-system --force --ignore-not-found").await.unwrap();
    // The shutdown does not come, and the node takes pods again.
    scene.kubectl.ok(&format!("delete nodemaintenance shutdown-{node}")).await.unwrap();
    let is_free = |it: &Value| it["spec"]["unschedulable"].is_null();
    scene.until(&format!("get node {node} -o json"), is_free).await;
    for workload in ["deployment/usher-manager", "daemonset/usher-node-agent"] {
        scene.rolled_out(workload).await;
    }
}

async fn the_node_of_the_leader_is_drained(scene: &Scene) {
    let (leader, node) = scene.leader().await;
    let named = "interceptor.evictionrequest.coordination.k8s.io/priority_kubelet.k8s.io";
    let is_looked_after = |it: &Value| !it["metadata"]["annotations"][named].is_null();
    scene.until(&format!("get pod proxy-{node} -n default -o json"), is_looked_after).await;
    drain(scene, "kernel", &node).await;
    let is_drained = |it: &Value| has_condition(it, "Drained");
    scene.until("get nodemaintenance kernel -o json", is_drained).await;
    // A daemon may come back once, if the API server has not learned yet that the node is held; it is taken off again.
    let is_agent = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "node-agent";
    let has_ended =
        |pod: &Value| ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    let is_empty = |it: &Value| {
        let mut left = it["items"].as_array().cloned().unwrap_or_default();
        left.retain(|pod| !has_ended(pod));
        left.len() == 1 && left.iter().all(is_agent)
    };
    scene.until(&format!("get pods -A --field-selector spec.nodeName={node} -o json"), is_empty).await;
    let (another, elsewhere) = scene.leader().await;
    assert!(another != leader && elsewhere != node, "{another} leads on {elsewhere}");
    scene.until("get deployment web -n default -o json", |it| it["status"]["availableReplicas"] == 2).await;
    scene.kubectl.ok("delete nodemaintenance kernel").await.unwrap();
    let is_free =
        |it: &Value| it["spec"]["unschedulable"].is_null() && it["metadata"]["finalizers"].is_null();
    scene.until(&format!("get node {node} -o json"), is_free).await;
    scene.until(&format!("get pod proxy-{node} -n default -o json"), is_ready).await;
    scene.until("get daemonset logs -n default -o json", |it| it["status"]["numberReady"] == 2).await;
}

/// A budget holds the drain up until the new version is there, which ends it.
async fn it_is_upgraded_while_it_drains(scene: &Scene, way: Way) {
    let (_, of_leader) = scene.leader().await;
    let node = scene.other_than(&of_leader);
    scene.guarded_pod(&node).await;
    drain(scene, "firmware", &node).await;
    let waits =
        |it: &Value| it["items"].as_array().unwrap().iter().any(|it| has_condition(it, "EvictionBlocked"));
    scene.until(&format!("get {REQUESTS} -n default -o json"), waits).await;
    match way {
        Way::Kustomize => {
            let folder = scene.kustomization(image::NEXT);
            scene.kubectl.ok(&format!("apply --server-side -k {}", folder.display())).await.unwrap();
        }
        Way::Chart => {
            let chart = scene::deploy().join("helm/usher").display().to_string();
            let crds = scene::deploy().join("crds").display().to_string();
            scene.kubectl.ok(&format!("apply --server-side --force-conflicts -f {crds}")).await.unwrap();
            let tag = format!("image.tag={}", image::NEXT);
            let namespace = ["--namespace", "usher-system", "--reuse-values", "--set", &tag];
            scene.run("helm", &[&["upgrade", "usher", &chart][..], &namespace].concat()).await;
        }
    }
    rolled_out(scene, image::NEXT).await;
    let held = scene.get("get nodemaintenance firmware -o json").await;
    assert!(!has_condition(&held, "Drained"), "{held:#}");
    assert!(is_ready(&scene.get("get pod guarded -n default -o json").await), "its budget keeps it");
    let is_current = |leader: &str, pods: &Value| {
        pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|pod| leader.starts_with(pod["metadata"]["name"].as_str().unwrap()))
    };
    let pods = scene.get(&format!("get pods -n usher-system -l {} -o json", scene::MANAGER)).await;
    let (leader, _) = scene.leader().await;
    assert!(is_current(&leader, &pods), "{leader} leads");
    scene.kubectl.ok("delete poddisruptionbudget guarded -n default").await.unwrap();
    scene.until("get nodemaintenance firmware -o json", |it| has_condition(it, "Drained")).await;
    assert_eq!(scene.get("get pod guarded -n default -o json").await, Value::Null);
}

/// As deploy/README.md says, while a node is held and a request waits for its interceptor.
async fn uninstall(scene: &Scene, way: Way) {
    let is_held =
        |it: &Value| it["items"].as_array().unwrap().iter().any(|it| it["spec"]["unschedulable"] == true);
    scene.until("get nodes -o json", is_held).await;
    scene.run(scene::deploy().join("uninstall").to_str().unwrap(), &[]).await;
    if way == Way::Chart {
        // Helm was given it, and leaves it.
        scene.kubectl.ok("delete namespace usher-system").await.unwrap();
    }
    assert!(
        is_ready(&scene.get("get pod db -n default -o json").await),
        "whose eviction was requested stays"
    );
}
