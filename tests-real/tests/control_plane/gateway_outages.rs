//! The gateway on a real control plane while its manager is killed, hangs and comes back, in the middle of a drain by the real kubectl.
use super::gateway_kubectl::{deployment, node};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests::{Answer, Request, TestCluster};
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn eviction(pod: &str, dry: bool) -> Value {
    let options = dry.then(|| json!({"dryRun": ["All"]}));
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, "deleteOptions": options})
}

async fn evict(plane: &TestCluster, pod: &str, dry: bool) -> (Answer, Duration) {
    let (path, started) = (format!("{PODS}/{pod}/eviction"), Instant::now());
    let answer =
        plane.send("admin", Request::with_json(Method::POST, &path, &eviction(pod, dry))).await.unwrap();
    (answer, started.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_hangs_and_comes_back_on_the_real_cluster_holds_up_nobody() {
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let usher = usher_tests_real::usher::start(Controllers::EvictPolicy, &plane, &reached).await.unwrap();
    plane.created("/api/v1/nodes", &node("n1")).await.unwrap();
    let pod = |name: &str, annotation: &str, value: &str| {
        json!({
            "metadata": {"name": name, "annotations": {annotation: value}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let interceptor = "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com";
    plane.created(PODS, &pod("asked", interceptor, "1")).await.unwrap();
    let policy = "evictionrequest.coordination.k8s.io/evict-policy";
    plane.created(PODS, &pod("taken", policy, "ControllerTakeOver")).await.unwrap();
    let kubectl = Kubectl::new(&plane).await.unwrap();
    kubectl.ok("wait --for=condition=Ready pod --all --timeout=60s").await.unwrap();

    let refused = async |what: &str| {
        for name in ["asked", "taken"] {
            until(what, async || evict(&plane, name, true).await.0.status == 429).await;
        }
    };
    refused("it is on").await;
    usher.kill();
    for name in ["asked", "taken"] {
        until("evictions are as without Usher", async || evict(&plane, name, true).await.0.status == 201)
            .await;
        let (_, took) = evict(&plane, name, true).await;
        assert!(took < Duration::from_secs(2), "a dead webhook costs {took:?}");
    }
    usher.hang().await.unwrap();
    let (answer, took) = evict(&plane, "asked", true).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert!(took < Duration::from_secs(9), "one that hangs costs its timeout, and no more: {took:?}");
    usher.revive().await.unwrap();
    refused("it is back").await;
    // What was asked before is known, and asked once.
    for name in ["asked", "taken"] {
        let (answer, _) = evict(&plane, name, false).await;
        assert_eq!(answer.status, 429, "{}", answer.body);
    }
    usher.kill();
    usher.revive().await.unwrap();
    refused("it is back again").await;
    until("there is one request, with its turn", async || {
        let requests =
            plane.get(REQUESTS).await.unwrap().body["items"].as_array().cloned().unwrap_or_default();
        // The other pod has no interceptors, and so no request.
        requests.len() == 1 && requests[0]["status"]["activeInterceptorClass"] == "a.example.com"
    })
    .await;
    let marks = async |name: &str| {
        let found = plane.get(&format!("{PODS}/{name}")).await.unwrap().body;
        found["metadata"]["annotations"]["kubernetes.io/pod-evict-wanted"] == "true"
    };
    assert!(marks("taken").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_is_killed_in_the_middle_of_a_drain_on_the_real_cluster_leaves_no_outage() {
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let usher = usher_tests_real::usher::start(Controllers::Gateway, &plane, &reached).await.unwrap();
    plane.created("/api/v1/nodes", &node("n1")).await.unwrap();
    // What nobody answers for is held by its budget, as without Usher.
    let budget = json!({
        "metadata": {"name": "web"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    });
    plane.created("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await.unwrap();
    let mut object = deployment("web", "n1");
    object["spec"]["template"]["metadata"]["annotations"] =
        json!({"cluster-simulator.dev/start-delay": "6s"});
    plane.created(DEPLOYMENTS, &object).await.unwrap();
    let available = async || {
        let found = plane.get(&format!("{DEPLOYMENTS}/web")).await.unwrap().body;
        found["status"]["availableReplicas"].as_i64().unwrap_or(0)
    };
    until("it is available", async || available().await == 1).await;
    plane.created("/api/v1/nodes", &node("n2")).await.unwrap();
    let kubectl = Kubectl::new(&plane).await.unwrap();
    kubectl.ok("wait --for=condition=Ready node --all --timeout=60s").await.unwrap();

    let drained = async { kubectl.run("drain n1 --ignore-daemonsets --timeout=120s").await.unwrap() };
    let interfered = async {
        until("the surge has begun", async || {
            plane.get(&format!("{DEPLOYMENTS}/web")).await.unwrap().body["spec"]["replicas"] == 2
        })
        .await;
        usher.kill();
        // Now the new pod could take over, and nobody answers for the old one.
        until("the new pod is available", async || available().await == 2).await;
        usher.revive().await.unwrap();
    };
    let ended = std::sync::atomic::AtomicBool::new(false);
    let watched = async {
        let mut fewest = i64::MAX;
        while !ended.load(std::sync::atomic::Ordering::SeqCst) {
            fewest = fewest.min(available().await);
            sleep(Duration::from_millis(100)).await;
        }
        fewest
    };
    let drain = async {
        let (printed, ()) = tokio::join!(drained, interfered);
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        printed
    };
    let (fewest, printed) = tokio::join!(watched, drain);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(fewest >= 1, "the Deployment was never without its pod");
    until("the surge is taken back, and nothing is left", async || {
        let found = plane.get(&format!("{DEPLOYMENTS}/web")).await.unwrap().body;
        let requests = plane.get(REQUESTS).await.unwrap().body["items"].as_array().map_or(1, Vec::len);
        found["spec"]["replicas"] == 1 && requests == 0
    })
    .await;
}
