//! The real kubectl, which knows nothing of Usher, drains nodes of a real control plane on which the gateway is on.
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use usher_tests::TestCluster;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

/// So many nodes are drained, each with a Deployment of one replica, and so many take its pods.
const DRAINED: usize = 20;
const OTHERS: usize = 4;

pub(crate) fn node(name: &str) -> Value {
    let size = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": size, "allocatable": size},
    })
}

/// Its first pod goes to the node; later ones go wherever there is room.
pub(crate) fn deployment(name: &str, node: &str) -> Value {
    let labels = json!({"app": name});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
    }]}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"affinity": affinity, "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

pub(crate) async fn deployments_available(cluster: &TestCluster) -> usize {
    let list = cluster.get("/apis/apps/v1/namespaces/default/deployments").await.unwrap();
    let all = list.body["items"].as_array().unwrap();
    all.iter().filter(|it| it["status"]["availableReplicas"].as_i64().unwrap_or(0) >= 1).count()
}

/// On one control plane, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_meets_the_gateway_on_the_real_cluster() {
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let _usher = usher_tests_real::usher::start(Controllers::Gateway, &plane, &reached).await.unwrap();
    kubectl_shows_whose_turn_it_is_on_the_real_cluster(&plane).await;
    a_plain_kubectl_drain_of_twenty_nodes_on_the_real_cluster_ends_by_itself_without_an_outage(&plane).await;
}

async fn a_plain_kubectl_drain_of_twenty_nodes_on_the_real_cluster_ends_by_itself_without_an_outage(
    plane: &TestCluster,
) {
    let names: Vec<String> = (0..DRAINED).map(|number| format!("drained-{number}")).collect();
    for name in &names {
        plane.created("/api/v1/nodes", &node(name)).await.unwrap();
    }
    for name in &names {
        let object = deployment(&name.replace("drained", "web"), name);
        plane.created("/apis/apps/v1/namespaces/default/deployments", &object).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while deployments_available(plane).await < DRAINED {
        assert!(Instant::now() < deadline, "the Deployments never start");
        sleep(Duration::from_millis(200)).await;
    }
    for number in 0..OTHERS {
        plane.created("/api/v1/nodes", &node(&format!("other-{number}"))).await.unwrap();
    }
    let kubectl = Kubectl::new(plane).await.unwrap();
    kubectl.ok("wait --for=condition=Ready node --all --timeout=60s").await.unwrap();

    let (ended, fewest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(DRAINED)));
    let watched = async {
        while !ended.load(Ordering::SeqCst) {
            fewest.fetch_min(deployments_available(plane).await, Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
        }
    };
    let started = Instant::now();
    let drained = async {
        // All at once, as kubectl has it by a selector: it drains one node after the other.
        let line = format!("drain {} --ignore-daemonsets --timeout=300s", names.join(" "));
        let printed = kubectl.run(&line).await.unwrap();
        ended.store(true, Ordering::SeqCst);
        printed
    };
    let ((), printed) = tokio::join!(watched, drained);
    eprintln!("kubectl drained {DRAINED} nodes in {:.0?}", started.elapsed());
    eprintln!("{}", printed.err.lines().take(8).collect::<Vec<_>>().join("\n"));
    assert_eq!(printed.code, 0, "{printed:?}");
    for name in &names {
        assert!(printed.out.contains(&format!("node/{name} drained")), "{printed:?}");
    }
    assert_eq!(fewest.load(Ordering::SeqCst), DRAINED, "no Deployment is ever without its pod");
    let pods = plane.get("/api/v1/namespaces/default/pods").await.unwrap();
    for pod in pods.body["items"].as_array().unwrap() {
        assert!(pod["spec"]["nodeName"].as_str().unwrap().starts_with("other-"), "{pod}");
    }
}

async fn kubectl_shows_whose_turn_it_is_on_the_real_cluster(plane: &TestCluster) {
    plane.created("/api/v1/nodes", &node("n1")).await.unwrap();
    let pod = json!({
        "metadata": {"name": "p", "annotations": {"interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com": "1"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    plane.created("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let kubectl = Kubectl::new(plane).await.unwrap();
    kubectl.ok("wait --for=condition=Ready pod/p --timeout=60s").await.unwrap();
    let started = Instant::now();
    let printed = kubectl.run("drain n1 --force --timeout=25s").await.unwrap();
    eprintln!("after {:.1?}: {}", started.elapsed(), printed.err);
    assert_eq!(printed.code, 1, "nobody answers for the interceptor: {printed:?}");
    assert!(printed.err.contains("(will retry after 5s)"), "{printed:?}");
    let said =
        "Eviction triggered evacuation of pod default/p: interceptor a.example.com has its turn, asked since";
    assert!(printed.err.contains(said), "{printed:?}");
    assert_eq!(plane.get("/api/v1/namespaces/default/pods/p").await.unwrap().body["metadata"]["name"], "p");
    kubectl.ok("delete pod p --force").await.unwrap();
    kubectl.ok("delete node n1").await.unwrap();
}

/// Versions that are two and four releases older, each on a node of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes long: make test-long"]
async fn older_versions_of_kubectl_drain_through_the_gateway_on_the_real_cluster_without_an_outage() {
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let _usher = usher_tests_real::usher::start(Controllers::EvictPolicy, &plane, &reached).await.unwrap();
    let older = usher_testbed::older_kubectl_paths().await.unwrap();
    assert_eq!(older.len(), 2);
    for (number, (version, path)) in older.into_iter().enumerate() {
        let (from, app) = (format!("from-{number}"), format!("web-{number}"));
        plane.created("/api/v1/nodes", &node(&from)).await.unwrap();
        let object = deployment(&app, &from);
        plane.created("/apis/apps/v1/namespaces/default/deployments", &object).await.unwrap();
        // Its workload is nobody that takes over: the policy falls back.
        let taken = json!({
            "metadata": {"name": format!("taken-{number}"), "annotations": {"evictionrequest.coordination.k8s.io/evict-policy": "ControllerTakeOver"}},
            "spec": {"nodeName": from, "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]},
        });
        plane.created("/api/v1/namespaces/default/pods", &taken).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while deployments_available(&plane).await < number + 1 {
            assert!(Instant::now() < deadline, "the Deployment never starts");
            sleep(Duration::from_millis(200)).await;
        }
        plane.created("/api/v1/nodes", &node(&format!("to-{number}"))).await.unwrap();
        let kubectl = Kubectl::of(&plane, version, path).await.unwrap();
        let said = kubectl.ok("version --client").await.unwrap();
        kubectl.ok("wait --for=condition=Ready node --all --timeout=60s").await.unwrap();
        let ended = AtomicBool::new(false);
        let watched = async {
            let mut fewest = number + 1;
            while !ended.load(Ordering::SeqCst) {
                fewest = fewest.min(deployments_available(&plane).await);
                sleep(Duration::from_millis(100)).await;
            }
            fewest
        };
        let started = Instant::now();
        let drained = async {
            let printed = kubectl
                .run(&format!("drain {from} --ignore-daemonsets --force --timeout=120s"))
                .await
                .unwrap();
            ended.store(true, Ordering::SeqCst);
            printed
        };
        let (fewest, printed) = tokio::join!(watched, drained);
        eprintln!(
            "{version} ({}) drained in {:.0?}: {}",
            said.trim().replace('\n', ", "),
            started.elapsed(),
            printed.err
        );
        assert_eq!(printed.code, 0, "{version}: {printed:?}");
        assert!(printed.out.contains(&format!("node/{from} drained")), "{printed:?}");
        assert_eq!(fewest, number + 1, "{version}: the Deployment is never without its pod");
        assert!(printed.err.contains("Eviction triggered evacuation"), "{printed:?}");
    }
}
