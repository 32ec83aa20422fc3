//! patch, label, annotate, scale, taint, cordon, delete.

use super::scene::{DEPLOYMENTS, PODS, Scene, says, workload};
use serde_json::{Value, json};

pub async fn objects_are_patched_labelled_and_scaled(scene: &Scene) {
    scene.node("n1").await;
    scene.pod("web-1", "n1", json!([])).await;
    scene
        .cluster
        .created(DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": workload()}))
        .await
        .unwrap();
    let image = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:9"}]}}}}"#;
    assert_eq!(scene.ok(&format!("patch deployment web -p {image}")).await, "deployment.apps/web patched\n");
    assert_eq!(
        scene.ok(&format!("patch deployment web -p {image}")).await,
        "deployment.apps/web patched (no change)\n"
    );
    assert_eq!(
        scene.ok(r#"patch deployment web --type=merge -p {"spec":{"minReadySeconds":3}}"#).await,
        "deployment.apps/web patched\n"
    );
    let test = r#"[{"op":"test","path":"/spec/minReadySeconds","value":4},{"op":"remove","path":"/spec/minReadySeconds"}]"#;
    let refused = scene.kubectl.fails(&format!("patch deployment web --type=json -p {test}")).await.unwrap();
    says(&refused, &["The request is invalid"]);
    let status = r#"{"status":{"phase":"Failed"}}"#;
    assert_eq!(
        scene.ok(&format!("patch pod web-1 --subresource=status --type=merge -p {status}")).await,
        "pod/web-1 patched\n"
    );

    assert_eq!(scene.ok("label pod web-1 tier=front").await, "pod/web-1 labeled\n");
    says(
        &scene.kubectl.fails("label pod web-1 tier=back").await.unwrap(),
        &["'tier' already has a value (front), and --overwrite is false"],
    );
    assert_eq!(scene.ok("label pod web-1 tier=back --overwrite").await, "pod/web-1 labeled\n");
    assert_eq!(scene.ok("label pod web-1 tier-").await, "pod/web-1 unlabeled\n");
    assert_eq!(scene.ok("annotate pod web-1 note=hello").await, "pod/web-1 annotated\n");
    assert_eq!(scene.ok("annotate pods --all note-").await, "pod/web-1 annotated\n");

    assert_eq!(scene.ok("scale deployment web --replicas=5").await, "deployment.apps/web scaled\n");
    assert_eq!(scene.ok("get deployment web -o jsonpath={.spec.replicas}").await, "5");
    says(
        &scene.kubectl.fails("scale deployment web --current-replicas=2 --replicas=1").await.unwrap(),
        &["Expected replicas to be 2, was 5"],
    );
    assert_eq!(scene.ok("set image deployment/web c=nginx:10").await, "deployment.apps/web image updated\n");

    assert_eq!(scene.ok("cordon n1").await, "node/n1 cordoned\n");
    assert_eq!(scene.ok("cordon n1").await, "node/n1 already cordoned\n");
    says(&scene.ok("get node n1").await, &["n1 Ready,SchedulingDisabled"]);
    assert_eq!(scene.ok("get nodes --field-selector spec.unschedulable=true -o name").await, "node/n1\n");
    assert_eq!(scene.ok("uncordon n1").await, "node/n1 uncordoned\n");
    assert_eq!(scene.ok("get nodes --field-selector spec.unschedulable=true -o name").await, "");
    assert_eq!(scene.ok("taint node n1 upkeep=soon:NoSchedule").await, "node/n1 tainted\n");
    says(&scene.ok("describe node n1").await, &["Taints: upkeep=soon:NoSchedule"]);
    assert_eq!(scene.ok("taint node n1 upkeep:NoSchedule-").await, "node/n1 untainted\n");
    let node = scene.cluster.get("/api/v1/nodes/n1").await.unwrap();
    assert_eq!(
        (&node.body["spec"]["taints"], &node.body["spec"]["unschedulable"]),
        (&Value::Null, &Value::Null)
    );
}

pub async fn delete_waits_cascades_and_forces(scene: &Scene) {
    let owners = scene.replica_set().await;
    scene.pod("web-1", "n1", owners).await;
    scene.pod("alone", "n1", json!([])).await;
    for name in ["a", "b"] {
        scene.map(name, json!({"gone": "soon"})).await;
    }
    scene.map("c", json!({})).await;
    let deleted = scene.ok("delete cm -l gone=soon").await;
    assert_eq!(
        deleted,
        "configmap \"a\" deleted from default namespace\nconfigmap \"b\" deleted from default namespace\n"
    );
    assert_eq!(scene.ok("get cm -o name").await, "configmap/c\n");
    says(
        &scene.kubectl.fails("delete cm a").await.unwrap(),
        &[r#"Error from server (NotFound): configmaps "a" not found"#],
    );
    assert_eq!(scene.ok("delete cm a --ignore-not-found").await, "");
    assert_eq!(
        scene.ok("delete cm c --dry-run=server").await,
        "configmap \"c\" deleted from default namespace (server dry run)\n"
    );
    assert_eq!(scene.ok("get cm -o name").await, "configmap/c\n");

    let orphaned = scene.ok("delete rs web --cascade=orphan").await;
    assert_eq!(orphaned, "replicaset.apps \"web\" deleted from default namespace\n");
    let pod = scene.cluster.get(&format!("{PODS}/web-1")).await.unwrap();
    assert_eq!((pod.status, &pod.body["metadata"]["ownerReferences"]), (200, &Value::Null));

    let forced = scene.kubectl.run("delete pod web-1 --grace-period=0 --force").await.unwrap();
    assert_eq!(forced.out, "pod \"web-1\" force deleted from default namespace\n");
    says(&forced.err, &["Immediate deletion does not wait for confirmation"]);
    assert_eq!(scene.cluster.get(&format!("{PODS}/web-1")).await.unwrap().status, 404);

    let (line, ()) = tokio::join!(scene.ok("delete pod alone --timeout=20s"), scene.finish("alone"));
    assert_eq!(
        line, "pod \"alone\" deleted from default namespace\n",
        "it waits until the kubelet has finished it"
    );

    let owners = scene.replica_set().await;
    scene.pod("web-2", "n1", owners).await;
    let (line, ()) =
        tokio::join!(scene.ok("delete rs web --cascade=foreground --timeout=20s"), scene.finish("web-2"));
    assert_eq!(line, "replicaset.apps \"web\" deleted from default namespace\n");
    assert_eq!(scene.cluster.get(&format!("{PODS}/web-2")).await.unwrap().status, 404);

    scene.cluster.created("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}})).await.unwrap();
    scene
        .cluster
        .created("/api/v1/namespaces/doomed/configmaps", &json!({"metadata": {"name": "m"}}))
        .await
        .unwrap();
    assert_eq!(scene.ok("delete ns doomed --timeout=20s").await, "namespace \"doomed\" deleted\n");
}
