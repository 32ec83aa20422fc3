//! The eviction code of Karpenter and Cluster API, which know nothing of Usher, empties nodes of a real control plane on which the gateway is
//! on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that fails here has failed"
)]

use super::gateway_kubectl::{deployment, deployments_available, node};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use usher_tests::TestCluster;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::Controllers;
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

/// So often client-go sends what is answered with Retry-After, before it shows the answer.
const TRIES_OF_CLIENT_GO: usize = 11;
const EVICT_POLICY: &str = "evictionrequest.coordination.k8s.io/evict-policy";

/// A node with a Deployment of one replica and a pod that its workload takes over, which nobody does; and another that takes pods.
async fn fill(plane: &TestCluster) {
    plane.created("/api/v1/nodes", &node("from")).await.unwrap();
    let object = deployment("web", "from");
    plane.created("/apis/apps/v1/namespaces/default/deployments", &object).await.unwrap();
    let taken = json!({
        "metadata": {"name": "taken", "annotations": {EVICT_POLICY: "ControllerTakeOver"}},
        "spec": {"nodeName": "from", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]},
    });
    plane.created("/api/v1/namespaces/default/pods", &taken).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while deployments_available(plane).await < 1 {
        assert!(Instant::now() < deadline, "the Deployment never starts");
        sleep(Duration::from_millis(200)).await;
    }
    plane.created("/api/v1/nodes", &node("to")).await.unwrap();
    let kubectl = Kubectl::new(plane).await.unwrap();
    kubectl.ok("wait --for=condition=Ready node --all --timeout=60s").await.unwrap();
    kubectl.ok("wait --for=condition=Ready pod/taken --timeout=60s").await.unwrap();
}

/// Empties the node as the drainer does it, and returns what it told. Nothing may be missing meanwhile.
async fn drained(plane: &TestCluster, program: &Path, drainer: &str) -> String {
    let ended = AtomicBool::new(false);
    let watched = async {
        let mut fewest = 1;
        while !ended.load(Ordering::SeqCst) {
            fewest = fewest.min(deployments_available(plane).await);
            sleep(Duration::from_millis(100)).await;
        }
        fewest
    };
    let drain = async {
        let mut command = Command::new(program);
        command.args([drainer, "from"]).env("KUBECONFIG", plane.kubeconfig()).kill_on_drop(true);
        let output = timeout(Duration::from_secs(180), command.output()).await;
        ended.store(true, Ordering::SeqCst);
        output.expect("the drain ends by itself").unwrap()
    };
    let (fewest, output) = tokio::join!(watched, drain);
    let (told, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{drainer}:\n{told}{complaints}");
    assert!(output.status.success(), "{drainer}: {told}{complaints}");
    assert!(told.ends_with("drained from\n"), "{drainer}: {told}");
    assert_eq!(fewest, 1, "{drainer}: the Deployment is never without its pod");
    let pods = plane.get("/api/v1/namespaces/default/pods").await.unwrap();
    let pods = pods.body["items"].as_array().unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!(pods[0]["spec"]["nodeName"], "to");
    told.into_owned()
}

/// The event by which Karpenter tells that a drain waits: once client-go gives up repeating an eviction.
async fn told_by_karpenter(plane: &TestCluster) -> Value {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let events = plane.get("/api/v1/namespaces/default/events").await.unwrap();
        let mut events = events.body["items"].as_array().unwrap().iter();
        if let Some(failed) = events.find(|it| it["reason"] == "FailedDraining") {
            return failed.clone();
        }
        assert!(Instant::now() < deadline, "Karpenter does not tell that the drain waits");
        sleep(Duration::from_millis(200)).await;
    }
}

/// How often the drainer was told to come back with the pods whose names begin so.
fn refusals(told: &str, pod: &str) -> usize {
    told.lines().filter(|line| line.contains(&format!("evicts {pod}")) && line.contains(": 429")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn karpenters_eviction_queue_drains_through_the_gateway_on_the_real_cluster_without_an_outage() {
    let program = usher_testbed::drainers_path().await.unwrap();
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let _usher =
        usher_tests_real::usher::start(Controllers::PatientEvictPolicy, &plane, &reached).await.unwrap();
    fill(&plane).await;
    let waits = async {
        let failed = told_by_karpenter(&plane).await;
        // Nobody takes the pod over any more, and its next eviction passes.
        let no_policy = json!({"metadata": {"annotations": {EVICT_POLICY: null}}});
        plane
            .merge_patch("/api/v1/namespaces/default/pods/taken", &no_policy)
            .await
            .unwrap()
            .accepted()
            .unwrap();
        failed
    };
    let (told, failed) = tokio::join!(drained(&plane, &program, "karpenter"), waits);
    assert!(refusals(&told, "web") >= 1, "{told}");
    assert!(refusals(&told, "taken") >= TRIES_OF_CLIENT_GO, "{told}");
    assert_eq!(failed["involvedObject"]["name"], "from");
    assert_eq!(failed["message"], "Failed to drain node, evicting pod violates a PDB (Pod=default/taken)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_apis_drain_goes_through_the_gateway_on_the_real_cluster_without_an_outage() {
    let program = usher_testbed::drainers_path().await.unwrap();
    let plane = TestCluster::real_living().await.unwrap();
    let reached = ClusterUnderTest::of(&plane).unwrap();
    let _usher = usher_tests_real::usher::start(Controllers::EvictPolicy, &plane, &reached).await.unwrap();
    fill(&plane).await;
    let told = drained(&plane, &program, "cluster-api").await;
    assert!(refusals(&told, "web") >= 1, "{told}");
    // Its ten seconds for all pods go by while client-go tries the first one again, and the others are not asked meanwhile.
    let waits = "* Pod default/web-";
    let first = told.lines().find(|line| line.starts_with(waits)).expect("the condition names the other pod");
    assert!(
        first.ends_with("failed to evict Pod, eviction timeout of 10s reached, eviction will be retried"),
        "{told}"
    );
    assert!(!told.contains("Eviction triggered evacuation"), "{told}");
}
