//! What the embedded cluster does by itself: garbage collection, emptying namespaces, removing the instances of a
//! definition that goes. On a real cluster these are controllers; here they must end in the same state.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use embedded_apiserver::EventKind;
use serde_json::{Value, json};
use usher_tests::{Answer, TestCluster, crds};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

async fn cluster() -> TestCluster {
    TestCluster::embedded_with(true).await.unwrap().0
}

fn deleting(answer: &Answer) -> bool {
    answer.body["metadata"]["deletionTimestamp"].is_string()
}

fn owned_by(owner: &Value, blocking: bool) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": blocking, "blockOwnerDeletion": blocking,
    }])
}

async fn map(cluster: &TestCluster, name: &str, owners: Value) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
    });
    cluster.created(MAPS, &map).await.unwrap()
}

/// Housekeeping takes one thing after the other: once this garbage is gone, all that happened before is seen to.
async fn settle(cluster: &TestCluster) {
    let ghost =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "of-nobody"}});
    map(cluster, "last", owned_by(&ghost, false)).await;
    cluster.until_gone(&format!("{MAPS}/last")).await.unwrap();
}

async fn replica_set(cluster: &TestCluster, name: &str) -> Value {
    let labels = json!({"app": name});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod},
    });
    cluster.created(SETS, &set).await.unwrap()
}

async fn pod(cluster: &TestCluster, name: &str, owners: Value) -> Value {
    let pod = json!({
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    cluster.created(PODS, &pod).await.unwrap()
}

#[tokio::test]
async fn background_deletion_takes_the_whole_chain_with_it() {
    let cluster = cluster().await;
    let top = map(&cluster, "top", json!([])).await;
    let middle = map(&cluster, "middle", owned_by(&top, false)).await;
    map(&cluster, "bottom", owned_by(&middle, false)).await;
    let other = map(&cluster, "other", json!([])).await;
    let both = json!([owned_by(&top, false)[0], owned_by(&other, false)[0]]);
    map(&cluster, "shared", both).await;

    let deleted = cluster
        .delete_with(&format!("{MAPS}/top"), json!({"propagationPolicy": "Background"}))
        .await
        .unwrap();
    assert_eq!((deleted.status, &deleted.body["status"]), (200, &json!("Success")), "the owner goes at once");
    for name in ["middle", "bottom"] {
        cluster.until_gone(&format!("{MAPS}/{name}")).await.unwrap();
    }
    let left = cluster
        .until(&format!("{MAPS}/shared"), |shared| {
            shared.body["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
        })
        .await
        .unwrap();
    assert_eq!(
        left.body["metadata"]["ownerReferences"],
        owned_by(&other, false),
        "one owner is left, and it too"
    );
}

#[tokio::test]
async fn an_owner_that_never_was_is_no_owner() {
    let cluster = cluster().await;
    let ghost =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "of-nobody"}});
    map(&cluster, "orphaned", owned_by(&ghost, false)).await;
    cluster.until_gone(&format!("{MAPS}/orphaned")).await.unwrap();

    let twin = map(&cluster, "twin", json!([])).await;
    let mut earlier = twin.clone();
    earlier["metadata"]["uid"] = "an-earlier-one".into();
    map(&cluster, "of-earlier", owned_by(&earlier, false)).await;
    cluster.until_gone(&format!("{MAPS}/of-earlier")).await.unwrap();
    map(&cluster, "of-this", owned_by(&twin, false)).await;
    settle(&cluster).await;
    assert_eq!(cluster.get(&format!("{MAPS}/of-this")).await.unwrap().status, 200);
}

#[tokio::test]
async fn foreground_deletion_waits_for_the_dependents_that_block() {
    let cluster = cluster().await;
    let set = replica_set(&cluster, "web").await;
    pod(&cluster, "web-1", owned_by(&set, true)).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    let answer = cluster.delete_with(&format!("{SETS}/web"), foreground).await.unwrap();
    assert_eq!(answer.body["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{}", answer.body);
    assert!(deleting(&answer));

    cluster.until(&format!("{PODS}/web-1"), deleting).await.unwrap();
    settle(&cluster).await;
    assert_eq!(
        cluster.get(&format!("{SETS}/web")).await.unwrap().status,
        200,
        "the pod has its grace period"
    );
    cluster.delete_with(&format!("{PODS}/web-1"), json!({"gracePeriodSeconds": 0})).await.unwrap();
    cluster.until_gone(&format!("{SETS}/web")).await.unwrap();
}

#[tokio::test]
async fn orphans_lose_the_reference_and_stay() {
    let cluster = cluster().await;
    let set = replica_set(&cluster, "web").await;
    pod(&cluster, "web-1", owned_by(&set, true)).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    assert_eq!(cluster.delete_with(&format!("{SETS}/web"), orphan).await.unwrap().status, 200);
    cluster.until_gone(&format!("{SETS}/web")).await.unwrap();
    let left = cluster.get(&format!("{PODS}/web-1")).await.unwrap();
    assert_eq!((left.status, deleting(&left)), (200, false));
    assert_eq!(left.body["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn a_dependent_with_a_finalizer_holds_a_foreground_deletion() {
    let cluster = cluster().await;
    let owner = map(&cluster, "owner", json!([])).await;
    map(&cluster, "held", owned_by(&owner, true)).await;
    map(&cluster, "not-held", owned_by(&owner, true)).await;
    let held = format!("{MAPS}/held");
    cluster.merge_patch(&held, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.unwrap();
    cluster.delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await.unwrap();
    cluster.until(&held, deleting).await.unwrap();
    cluster.until_gone(&format!("{MAPS}/not-held")).await.unwrap();
    settle(&cluster).await;
    assert_eq!(cluster.get(&format!("{MAPS}/owner")).await.unwrap().status, 200);
    let release: Vec<Value> = cluster.get(&held).await.unwrap().body["metadata"]["finalizers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|name| **name != "example.com/hold")
        .cloned()
        .collect();
    cluster.merge_patch(&held, &json!({"metadata": {"finalizers": release}})).await.unwrap();
    cluster.until_gone(&held).await.unwrap();
    cluster.until_gone(&format!("{MAPS}/owner")).await.unwrap();
}

#[tokio::test]
async fn a_namespace_goes_when_it_is_empty_and_takes_no_new_objects() {
    let cluster = cluster().await;
    crds::install(&cluster).await.unwrap();
    let space = "/api/v1/namespaces/doomed";
    cluster.created("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}})).await.unwrap();
    let maps = format!("{space}/configmaps");
    cluster.created(&maps, &json!({"metadata": {"name": "a"}})).await.unwrap();
    let pods = format!("{space}/pods");
    let pod = json!({
        "metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    cluster.created(&pods, &pod).await.unwrap();
    let requests = "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/doomed/evictionrequests";
    let uid = "00000000-0000-4000-8000-000000000001";
    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid}, "spec": {"podRef": {"name": "a", "uid": uid}},
    });
    cluster.created(requests, &request).await.unwrap();

    let answer = cluster.delete(space).await.unwrap();
    assert_eq!(answer.body["status"]["phase"], "Terminating", "{}", answer.body);
    cluster.until_gone(&format!("{maps}/a")).await.unwrap();
    cluster.until_gone(&format!("{requests}/{uid}")).await.unwrap();
    cluster.until(&format!("{pods}/a"), deleting).await.unwrap();

    let late = cluster.post(&maps, &json!({"metadata": {"name": "late"}})).await.unwrap();
    assert_eq!(late.status, 403, "{}", late.body);
    assert_eq!(late.body["details"]["causes"][0]["reason"], "NamespaceTerminating");

    settle(&cluster).await;
    assert_eq!(cluster.get(space).await.unwrap().status, 200, "a pod is still there");
    cluster.delete_with(&format!("{pods}/a"), json!({"gracePeriodSeconds": 0})).await.unwrap();
    cluster.until_gone(space).await.unwrap();
}

#[tokio::test]
async fn a_definition_goes_after_its_last_instance() {
    let cluster = cluster().await;
    let installed = crds::install(&cluster).await.unwrap();
    let requests = "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
    for (uid, finalizers) in [
        ("00000000-0000-4000-8000-000000000001", json!([])),
        ("00000000-0000-4000-8000-000000000002", json!(["example.com/hold"])),
    ] {
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": finalizers}, "spec": {"podRef": {"name": "a", "uid": uid}},
        });
        cluster.created(requests, &request).await.unwrap();
    }
    let name = installed[0]["metadata"]["name"].as_str().unwrap();
    let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    assert_eq!(cluster.delete(&definition).await.unwrap().status, 200);
    cluster.until_gone(&format!("{requests}/00000000-0000-4000-8000-000000000001")).await.unwrap();
    let held = format!("{requests}/00000000-0000-4000-8000-000000000002");
    assert!(deleting(&cluster.until(&held, deleting).await.unwrap()));
    settle(&cluster).await;
    let waiting = cluster.get(&definition).await.unwrap();
    let conditions = waiting.body["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|c| c["type"] == "Terminating" && c["status"] == "True"),
        "{}",
        waiting.body
    );

    cluster.merge_patch(&held, &json!({"metadata": {"finalizers": []}})).await.unwrap();
    cluster.until_gone(&definition).await.unwrap();
    assert_eq!(cluster.get(requests).await.unwrap().status, 404, "nothing serves it any more");
    let groups = cluster.get("/apis").await.unwrap();
    let names: Vec<&Value> =
        groups.body["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert!(!names.iter().any(|group| *group == "evictionrequest.coordination.k8s.io"), "{names:?}");

    let again =
        crds::definitions().unwrap().into_iter().find(|other| other["metadata"]["name"] == name).unwrap();
    cluster.created("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &again).await.unwrap();
    let fresh = cluster.until(requests, |answer| answer.status == 200).await.unwrap();
    assert_eq!(fresh.body["items"], json!([]), "and comes back empty");
}

/// Read off kube-apiserver v1.37.1: the end shows the last state that was stored, in which the deletion is in progress.
#[tokio::test]
async fn the_end_of_a_definition_is_told_in_these_steps() {
    let (cluster, embedded) = TestCluster::embedded_with(true).await.unwrap();
    let installed = crds::install(&cluster).await.unwrap();
    let name = installed[0]["metadata"]["name"].as_str().unwrap();
    let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    assert_eq!(cluster.delete(&definition).await.unwrap().status, 200);
    cluster.until_gone(&definition).await.unwrap();
    let store = &embedded.store();
    let definitions = "apiextensions.k8s.io/customresourcedefinitions";
    let (events, _) = store.events_after(definitions, 0, usize::MAX).unwrap();
    let mut told = Vec::new();
    for event in events.iter().filter(|event| &*event.object.key.name == name) {
        let definition = event.object.value();
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        if let Some(condition) = conditions.into_iter().find(|condition| condition["type"] == "Terminating") {
            let held = definition["metadata"]["finalizers"] == json!([CLEANUP]);
            told.push((event.kind, condition["reason"].as_str().unwrap().to_string(), held));
        }
    }
    let step = |kind, reason: &str| (kind, format!("InstanceDeletion{reason}"), true);
    let steps = [
        step(EventKind::Modified, "Pending"),
        step(EventKind::Modified, "InProgress"),
        step(EventKind::Deleted, "InProgress"),
    ];
    assert_eq!(told, steps);
}
