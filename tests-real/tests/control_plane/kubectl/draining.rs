//! drain, wait and rollout status: commands that take their time.

use super::scene::{BUDGETS, DEPLOYMENTS, MAPS, PODS, Scene, deleting, running, says, workload};
use serde_json::json;

pub async fn drain_evicts_within_the_budget(scene: &Scene) {
    scene.node("n1").await;
    scene.node("n2").await;
    let owners = scene.replica_set().await;
    for (pod, node) in [("web-1", "n1"), ("web-2", "n1"), ("web-3", "n2")] {
        scene.pod(pod, node, owners.clone()).await;
    }
    let budget = json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    scene.cluster.created(BUDGETS, &budget).await.unwrap();
    let allow = |count: u32| {
        json!({
            "observedGeneration": 1, "disruptionsAllowed": count, "currentHealthy": 2 + count, "desiredHealthy": 2,
            "expectedPods": 3, "disruptedPods": null,
        })
    };
    let budget = format!("{BUDGETS}/web");
    scene.status(&budget, allow(1)).await;

    // The kubelet ends the first one; only then the budget, as its controller would say, allows another.
    let by_hand = async {
        let spent = scene
            .cluster
            .until(&budget, |budget| budget.body["status"]["disruptionsAllowed"] == 0)
            .await
            .unwrap();
        let gone = spent.body["status"]["disruptedPods"].as_object().unwrap().keys().next().unwrap().clone();
        let left = if gone == "web-1" { "web-2" } else { "web-1" };
        scene.finish(&gone).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let blocked = scene.cluster.get(&format!("{PODS}/{left}")).await.unwrap();
        assert!(!deleting(&blocked), "the budget is spent: {}", blocked.body);
        scene.status(&budget, allow(1)).await;
        scene.finish(left).await;
        left
    };
    let (drained, left) = tokio::join!(scene.kubectl.run("drain n1 --timeout=60s"), by_hand);
    let drained = drained.unwrap();
    assert_eq!(drained.code, 0, "{drained:?}");
    says(
        &drained.out,
        &[
            "node/n1 cordoned",
            "evicting pod default/web-1",
            "evicting pod default/web-2",
            "pod/web-1 evicted",
            "pod/web-2 evicted",
            "node/n1 drained",
        ],
    );
    says(
        &drained.err,
        &[&format!(
            "error when evicting pods/\"{left}\" -n \"default\" (will retry after 5s): \
             Cannot evict pod as it would violate the pod's disruption budget."
        )],
    );
    assert_eq!(scene.ok("get pods -o name").await, "pod/web-3\n");

    scene.status(&budget, allow(0)).await;
    let stuck = scene.kubectl.run("drain n2 --timeout=1s").await.unwrap();
    assert_eq!(stuck.code, 1);
    says(&stuck.err, &["error when evicting pods/\"web-3\"", "global timeout reached: 1s"]);
    let (deleted, ()) =
        tokio::join!(scene.ok("drain n2 --disable-eviction --timeout=30s"), scene.finish("web-3"));
    says(&deleted, &["node/n2 already cordoned", "pod/web-3 deleted", "node/n2 drained"]);

    scene.pod("alone", "n1", json!([])).await;
    let refused = scene.kubectl.fails("drain n1").await.unwrap();
    says(
        &refused,
        &["cannot delete Pods that declare no controller (use --force to override): default/alone"],
    );
    scene.cluster.delete(&budget).await.unwrap();
    let (forced, ()) = tokio::join!(scene.ok("drain n1 --force --grace-period=1"), scene.finish("alone"));
    says(&forced, &["pod/alone evicted", "node/n1 drained"]);
}

pub async fn wait_and_rollout_follow_the_status(scene: &Scene) {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    scene.cluster.created(PODS, &pod).await.unwrap();
    scene.map("m", json!({})).await;
    scene
        .cluster
        .created(DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": workload()}))
        .await
        .unwrap();
    let pod = format!("{PODS}/p");
    let timed_out = scene.kubectl.fails("wait --for=condition=Ready pod/p --timeout=200ms").await.unwrap();
    assert_eq!(timed_out, "error: timed out waiting for the condition on pods/p");

    let mut rollout = scene.kubectl.follow("rollout status deployment/web --timeout=30s").unwrap();
    let progress = async {
        assert_eq!(rollout.line().await.unwrap(), "Waiting for deployment spec update to be observed...");
        let status = |updated: u32, available: u32| {
            json!({
                "observedGeneration": 1, "replicas": 2, "updatedReplicas": updated,
                "readyReplicas": available, "availableReplicas": available,
            })
        };
        let web = format!("{DEPLOYMENTS}/web");
        scene.status(&web, status(1, 0)).await;
        let waiting = r#"Waiting for deployment "web" rollout to finish: "#;
        assert_eq!(
            rollout.line().await.unwrap(),
            format!("{waiting}1 out of 2 new replicas have been updated...")
        );
        scene.status(&web, status(2, 1)).await;
        assert_eq!(
            rollout.line().await.unwrap(),
            format!("{waiting}1 of 2 updated replicas are available...")
        );
        scene.status(&web, status(2, 2)).await;
        assert_eq!(rollout.line().await.unwrap(), r#"deployment "web" successfully rolled out"#);
    };
    let act = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        scene.status(&pod, running()).await;
        scene.cluster.delete(&format!("{MAPS}/m")).await.unwrap();
        scene.map("late", json!({})).await;
    };
    let (ready, phase, gone, made, (), ()) = tokio::join!(
        scene.ok("wait --for=condition=Ready pod/p --timeout=30s"),
        scene.ok("wait --for=jsonpath={.status.phase}=Running pod/p --timeout=30s"),
        scene.ok("wait --for=delete cm/m --timeout=30s"),
        scene.ok("wait --for=create cm/late --timeout=30s"),
        act,
        progress,
    );
    assert_eq!((ready.as_str(), phase.as_str()), ("pod/p condition met\n", "pod/p condition met\n"));
    assert_eq!(
        (gone.as_str(), made.as_str()),
        ("configmap/m condition met\n", "configmap/late condition met\n")
    );
}
