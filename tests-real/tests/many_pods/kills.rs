//! `usher manager` is killed again and again in the middle of 500 evictions: all finish, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::Scene;
use crate::common::calls::{client_of, create_all, left, list, start_manager, until_left};

const REQUESTED: usize = 500;
/// Pods that nobody asks to leave.
const BYSTANDERS: usize = 20;
const KILLS: usize = 8;
const SEED: u64 = 5;
const NODES: usize = 8;
/// For anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const PODS: &str = "/api/v1/namespaces/default/pods";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes long: make test-long"]
async fn killed_at_random_it_finishes_all_evictions_and_leaks_nothing() {
    // Without deploy/webhooks.yaml: it leads to a Service, and nobody routes Services here.
    let installed: [&[&str]; 2] = [&["-f", "deploy/crds"], &["-k", "deploy/base"]];
    let scene = Scene::alone(NODES, &installed).await;
    let client = client_of(&scene).await;
    let pods = create_all(&client, PODS, (0..REQUESTED).map(|at| pod("leaves", at))).await;
    create_all(&client, PODS, (0..BYSTANDERS).map(|at| pod("stays", at))).await;
    let bystanders = format!("{PODS}?labelSelector=app%3Dstays");
    let before = list(&client, &bystanders).await;

    // Each kill strikes when so many requests are left, and a moment later.
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut moments: Vec<usize> = (0..KILLS).map(|_| random.usize(REQUESTED / 20..REQUESTED)).collect();
    moments.sort_unstable_by(|a, b| b.cmp(a));

    let begun = Instant::now();
    let mut manager = start_manager(&scene);
    create_all(&client, REQUESTS, pods.iter().map(request)).await;
    let mut struck = Vec::new();
    for moment in moments {
        until_left(&client, REQUESTS, moment, PATIENCE).await;
        sleep(Duration::from_millis(random.u64(0..30))).await;
        manager.kill().await.unwrap();
        struck.push(left(&client, REQUESTS).await);
        manager = start_manager(&scene);
    }
    until_left(&client, REQUESTS, 0, PATIENCE).await;
    println!("killed with {struck:?} of {REQUESTED} requests left; all done after {:.1?}", begun.elapsed());
    assert!(struck.iter().filter(|left| **left > 0).count() >= KILLS / 2, "too late to matter: {struck:?}");

    // A request that is gone has no finalizer left. It may go before its pod, when all containers have ended.
    let leaving = format!("{PODS}?labelSelector=app%3Dleaves");
    let is_going = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let forgotten: Vec<Value> =
        list(&client, &leaving).await.into_iter().filter(|pod| !is_going(&pod)).collect();
    assert!(forgotten.is_empty(), "{} pods are forgotten: {:#}", forgotten.len(), forgotten[0]);
    until_left(&client, &leaving, 0, PATIENCE).await;
    let after = list(&client, &bystanders).await;
    assert_eq!(uids(&after), uids(&before), "nobody asked these to leave");
    assert_eq!(after.iter().filter(is_going).count(), 0);
    assert!(manager.try_wait().unwrap().is_none(), "the last one still runs");
    manager.kill().await.unwrap();
    scene.plane.stop().await.unwrap();
}

/// On a node from the beginning: the scheduler is not what is tested.
fn pod(app: &str, at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{app}-{at:03}"), "labels": {"app": app}},
        "spec": {
            "nodeName": format!("node-{:04}", at % NODES + 1),
            "containers": [{"name": "c", "image": "i:1"}],
        },
    })
}

fn request(pod: &Value) -> Value {
    let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": uid,
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {"podRef": {"name": name, "uid": uid}, "interceptors": []},
    })
}

fn uids(pods: &[Value]) -> Vec<&Value> {
    pods.iter().map(|pod| &pod["metadata"]["uid"]).collect()
}
