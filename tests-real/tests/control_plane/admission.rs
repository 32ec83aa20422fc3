//! Admission on a real API server, and kubectl with it on both clusters.

use serde_json::{Value, json};
use usher_tests::TestCluster;
use usher_tests::both::admission::cordons::{HELD_BY, mark, patch};
use usher_tests::both::admission::plans::{STAGES, delete, manifest, plans};
use usher_tests::both::admission::scene::Scene;
use usher_tests::both::admission::{admission_decides, gateway, requests};
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_on_the_real_control_plane() {
    let cluster = TestCluster::real().await.unwrap();
    admission_decides(cluster, async |scene: &Scene| {
        requests::cleaning_up(scene).await;
        kubectl_applies_the_same_file_again_and_again(scene).await;
        kubectl_shows_the_warnings(scene).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_meets_the_same_admission_on_the_embedded_cluster() {
    let cluster = TestCluster::embedded().await.unwrap();
    admission_decides(cluster, async |scene: &Scene| {
        kubectl_applies_the_same_file_again_and_again(scene).await;
        kubectl_shows_the_warnings(scene).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_evictions_become_requests_on_the_real_control_plane() {
    gateway::the_gateway_decides(TestCluster::real().await.unwrap()).await;
}

/// The same by kubectl, which computes the patches, with all plans in one file.
async fn kubectl_applies_the_same_file_again_and_again(scene: &Scene) {
    let kubectl = Kubectl::new(&scene.cluster).await.unwrap();
    let objects = |stage: &str| -> Vec<Value> {
        let named = |(what, plan): &(&str, Value)| {
            let mut object = manifest(plan, stage);
            object["metadata"]["name"] = (*what).into();
            object
        };
        plans().iter().map(named).collect()
    };
    // What is in a list is checked by kubectl itself, by the schema alone: what has a default need not be there.
    let mut bare = objects("Idle");
    for object in &mut bare {
        object["spec"].as_object_mut().unwrap().remove("stage");
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": bare}).to_string();
    let created = kubectl.run_with("create -f -", &list).await.unwrap();
    assert_eq!((created.code, created.err.as_str()), (0, ""), "{}", created.out);
    for (name, _) in plans() {
        delete(scene, name).await;
    }
    let file = |stage: &str| objects(stage).iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    for way in ["", " --server-side"] {
        let run = async |verb: &str, stage: &str| {
            kubectl.run_with(&format!("{verb} -f -{way}"), &file(stage)).await.unwrap()
        };
        let what = format!("plans{way} on the {} cluster", scene.cluster.name());
        for stage in STAGES {
            let applied = run("apply", stage).await;
            assert_eq!((applied.code, applied.err.as_str()), (0, ""), "{what} {stage}: {}", applied.out);
            assert_eq!(applied.out.lines().count(), plans().len(), "{what} {stage}: {}", applied.out);
            let diff = run("diff", stage).await;
            assert_eq!((diff.code, diff.out.as_str()), (0, ""), "{what} {stage}: {}", diff.err);
        }
        for (name, _) in plans() {
            delete(scene, name).await;
        }
    }
}

/// On a node that is cordoned already `kubectl cordon` and the cordon of `kubectl drain` send nothing, so nobody can be warned.
async fn kubectl_shows_the_warnings(scene: &Scene) {
    let kubectl = Kubectl::new(&scene.cluster).await.unwrap();
    mark(scene, Some("kernel"), None).await;
    for (line, part) in [
        ("cordon m1", "this cordon ends with the maintenance"),
        ("uncordon m1", "will be cordoned again"),
        ("drain m1 --disable-eviction", "this cordon ends with the maintenance"),
    ] {
        let printed = kubectl.run(line).await.unwrap();
        assert_eq!(printed.code, 0, "{line}: {printed:?}");
        assert!(printed.err.contains("Warning: node m1 is under maintenance kernel"), "{line}: {printed:?}");
        assert!(printed.err.contains(part), "{line}: {printed:?}");
    }
    let printed = kubectl.run("cordon m1").await.unwrap();
    assert_eq!(printed.out, "node/m1 already cordoned\n");
    patch(scene, json!({"metadata": {"annotations": {HELD_BY: null}}, "spec": {"unschedulable": null}}))
        .await;
}
