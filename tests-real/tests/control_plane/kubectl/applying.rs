//! apply, on the client and on the server, of built-in objects, definitions and custom objects.

use super::scene::{MAPS, Scene, UID, eviction_request, says, workload};
use serde_json::{Value, json};
use usher_tests::crds;

pub async fn apply_on_the_client_merges_three_ways(scene: &Scene) {
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    assert_eq!(
        scene.apply(&map(json!({"a": "1", "b": "1"})), "--dry-run=server").await,
        "configmap/m created (server dry run)\n"
    );
    assert_eq!(scene.apply(&map(json!({"a": "1", "b": "1"})), "").await, "configmap/m created\n");
    assert_eq!(scene.apply(&map(json!({"a": "1", "b": "1"})), "").await, "configmap/m unchanged\n");
    scene.cluster.merge_patch(&format!("{MAPS}/m"), &json!({"data": {"by-another": "x"}})).await.unwrap();
    assert_eq!(scene.apply(&map(json!({"a": "2"})), "").await, "configmap/m configured\n");
    let stored = scene.cluster.get(&format!("{MAPS}/m")).await.unwrap();
    assert_eq!(
        stored.body["data"],
        json!({"a": "2", "by-another": "x"}),
        "b was applied before and is pruned"
    );
    let last = scene.ok("apply view-last-applied cm/m -o json").await;
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["data"], json!({"a": "2"}));

    let deployment = |image: &str, replicas: Value| {
        let mut spec = workload();
        spec["replicas"] = replicas;
        spec["template"]["spec"]["containers"][0]["image"] = image.into();
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    };
    assert_eq!(scene.apply(&deployment("nginx:1", json!(2)), "").await, "deployment.apps/web created\n");
    assert_eq!(scene.apply(&deployment("nginx:1", json!(2)), "").await, "deployment.apps/web unchanged\n");
    let sidecar = json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "side", "image": "s:1"}}]);
    scene.ok(&format!("patch deployment web --type=json -p {sidecar}")).await;
    assert_eq!(scene.apply(&deployment("nginx:2", json!(2)), "").await, "deployment.apps/web configured\n");
    let images = scene.ok("get deployment web -o jsonpath={.spec.template.spec.containers[*].image}").await;
    assert_eq!(images, "nginx:2 s:1", "containers merge by name");

    let wrong = scene
        .kubectl
        .run_with("apply -f -", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"UPPER"}}"#)
        .await
        .unwrap();
    assert_eq!(wrong.code, 1);
    says(&wrong.err, &[r#"The ConfigMap "UPPER" is invalid: metadata.name: Invalid value: "UPPER""#]);
}

pub async fn apply_on_the_server_finds_conflicts(scene: &Scene) {
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    let one = "--server-side --field-manager=one";
    assert_eq!(scene.apply(&map(json!({"a": "1"})), one).await, "configmap/m serverside-applied\n");
    let two = map(json!({"a": "2", "b": "2"})).to_string();
    let line = "apply -f - --server-side --field-manager=two";
    let conflict = scene.kubectl.run_with(line, &two).await.unwrap();
    assert_eq!(conflict.code, 1);
    says(
        &conflict.err,
        &[r#"Apply failed with 1 conflict: conflict with "one": .data.a"#, "--force-conflicts"],
    );
    let forced = scene.kubectl.ok_with(&format!("{line} --force-conflicts"), &two).await.unwrap();
    assert_eq!(forced, "configmap/m serverside-applied\n");
    scene.apply(&map(json!({})), "--server-side --field-manager=two").await;
    let stored = scene.cluster.get(&format!("{MAPS}/m")).await.unwrap();
    assert_eq!(stored.body["data"], Value::Null, "two had taken a over, and gives up both: {}", stored.body);
}

pub async fn apply_takes_the_definitions_and_their_objects(scene: &Scene) {
    let folder = crds::folder().display().to_string();
    let created = scene.ok(&format!("apply -f {folder}")).await;
    let lines: Vec<&str> = created.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines.iter().all(|line| line.starts_with("customresourcedefinition.apiextensions.k8s.io/")
            && line.ends_with(" created")),
        "{created}"
    );
    let again = scene.ok(&format!("apply -f {folder}")).await;
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let established = scene.ok("wait --for=condition=Established crd --all --timeout=20s").await;
    assert_eq!(established.lines().count(), 2);

    let name = format!("evictionrequest.evictionrequest.coordination.k8s.io/{UID}");
    assert_eq!(scene.apply(&eviction_request(UID), "").await, format!("{name} created\n"));
    assert_eq!(scene.apply(&eviction_request(UID), "").await, format!("{name} unchanged\n"));
    let mut changed = eviction_request(UID);
    changed["metadata"]["labels"] = json!({"urgent": "yes"});
    assert_eq!(scene.apply(&changed, "").await, format!("{name} configured\n"));
    let mut wrong = eviction_request(UID);
    wrong["metadata"]["name"] = "another".into();
    let refused = scene.kubectl.run_with("apply -f -", &wrong.to_string()).await.unwrap();
    assert_eq!(refused.code, 1);
    says(
        &refused.err,
        &[r#"The EvictionRequest "another" is invalid"#, "metadata.name must be the UID of the pod"],
    );
    let mut unknown = eviction_request(UID);
    unknown["spec"]["nonsense"] = "x".into();
    let refused = scene.kubectl.run_with("apply -f -", &unknown.to_string()).await.unwrap();
    assert_eq!(refused.code, 1);
    says(&refused.err, &[r#"strict decoding error: unknown field "spec.nonsense""#]);
    assert_eq!(
        scene.ok(&format!("delete er {UID}")).await,
        format!(
            "evictionrequest.evictionrequest.coordination.k8s.io \"{UID}\" deleted from default namespace\n"
        )
    );
}
