//! The real kubectl on both clusters: what it prints and how it ends. The tests play the kubelet and the controllers
//! where one is needed; on the embedded cluster housekeeping is on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use usher_tests::kubectl::{Kubectl, cells};
use usher_tests::{Answer, TestCluster, crds};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

struct Scene {
    cluster: TestCluster,
    kubectl: Kubectl,
}

impl Scene {
    async fn on(cluster: TestCluster) -> Self {
        let kubectl = Kubectl::new(&cluster).await.unwrap();
        Self { cluster, kubectl }
    }

    /// Removes what a scenario leaves behind, for the next one on the same cluster.
    async fn clear(&self) {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let events = "/api/v1/namespaces/default/events";
        for path in [PODS, MAPS, BUDGETS, DEPLOYMENTS, SETS, events, "/api/v1/nodes"] {
            let cleared = self.cluster.delete_with(path, json!({"gracePeriodSeconds": 0})).await.unwrap();
            assert_eq!(cleared.status, 200, "{}", cleared.body);
        }
        // One by one: only so do their instances go with them.
        for definition in self.cluster.get(definitions).await.unwrap().body["items"].as_array().unwrap() {
            let path = format!("{definitions}/{}", definition["metadata"]["name"].as_str().unwrap());
            self.cluster.delete(&path).await.unwrap();
            self.cluster.until_gone(&path).await.unwrap();
        }
    }

    /// A ready node; the taint of new nodes is gone, as the node controller would see to.
    async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        self.cluster.created("/api/v1/nodes", &node).await.unwrap();
        let path = format!("/api/v1/nodes/{name}");
        self.cluster.merge_patch(&path, &json!({"spec": {"taints": null}})).await.unwrap();
        let status = json!({
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {
                "kubeletVersion": "v1.37.1", "osImage": "Test OS", "kernelVersion": "6.1", "architecture": "amd64",
                "containerRuntimeVersion": "fake://1", "operatingSystem": "linux", "machineID": "", "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "",
            },
        });
        self.status(&path, status).await;
    }

    /// A running pod of an application.
    async fn pod(&self, name: &str, node: &str, owners: Value) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "nginx:1"}]},
        });
        self.cluster.created(PODS, &pod).await.unwrap();
        self.status(&format!("{PODS}/{name}"), running()).await;
    }

    async fn status(&self, path: &str, status: Value) {
        let patched =
            self.cluster.merge_patch(&format!("{path}/status"), &json!({"status": status})).await.unwrap();
        assert_eq!(patched.status, 200, "{}", patched.body);
    }

    /// The ReplicaSet of the application, as owner references of its pods.
    async fn replica_set(&self) -> Value {
        let set = json!({"metadata": {"name": "web"}, "spec": workload()});
        let set = self.cluster.created(SETS, &set).await.unwrap();
        json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }])
    }

    async fn map(&self, name: &str, labels: Value) {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}});
        self.cluster.created(MAPS, &map).await.unwrap();
    }

    /// What a kubelet does with a pod that is to end.
    async fn finish(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        self.cluster.until(&path, deleting).await.unwrap();
        self.cluster.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.unwrap();
    }

    async fn ok(&self, line: &str) -> String {
        self.kubectl.ok(line).await.unwrap()
    }

    async fn apply(&self, object: &Value, options: &str) -> String {
        self.kubectl.ok_with(&format!("apply -f - {options}"), &object.to_string()).await.unwrap()
    }
}

fn workload() -> Value {
    json!({
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        },
    })
}

fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "c", "image": "nginx:1", "imageID": "", "ready": true, "restartCount": 3,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    })
}

fn deleting(answer: &Answer) -> bool {
    answer.body["metadata"]["deletionTimestamp"].is_string()
}

fn eviction_request(uid: &str) -> Value {
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid, "namespace": "default"}, "spec": {"podRef": {"name": "web-1", "uid": uid}},
    })
}

const UID: &str = "00000000-0000-4000-8000-000000000001";

/// Every fragment is in the text, spaces counted once.
fn says(text: &str, fragments: &[&str]) {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for fragment in fragments {
        assert!(squeezed.contains(fragment), "no {fragment:?} in:\n{text}");
    }
}

async fn get_prints_tables_and_selects(scene: &Scene) {
    scene.node("n1").await;
    scene.node("n2").await;
    scene.pod("web-1", "n2", json!([])).await;
    scene.pod("web-2", "n1", json!([])).await;
    crds::install(&scene.cluster).await.unwrap();
    scene.apply(&eviction_request(UID), "").await;
    let (nodes, pods, wide, everywhere, requests) = tokio::join!(
        scene.ok("get nodes"),
        scene.ok("get pods"),
        scene.ok("get pods -o wide"),
        scene.ok("get pods -A --show-labels"),
        scene.ok("get er"),
    );
    assert_eq!(cells(&nodes)[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
    let first = &cells(&nodes)[1];
    assert_eq!((first[0], first[1], first[2], first[4]), ("n1", "Ready", "<none>", "v1.37.1"));
    assert_eq!(cells(&pods)[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(cells(&pods)[1][..4], ["web-1", "1/1", "Running", "3"]);
    assert_eq!(cells(&wide)[0][5..], ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]);
    assert_eq!(cells(&wide)[1][5..], ["10.0.0.1", "n2", "<none>", "<none>"]);
    assert_eq!(cells(&everywhere)[1][0], "default");
    assert_eq!(cells(&everywhere)[1].last(), Some(&"app=web"));
    says(&requests, &["NAME", UID, "web-1"]);

    let (names, selected, other, on_node, sorted, path) = tokio::join!(
        scene.ok("get pods -o name"),
        scene.ok("get pods -l app=web,!stage -o name"),
        scene.ok("get pods -l app!=web"),
        scene.ok("get pods --field-selector spec.nodeName=n1,status.phase=Running -o name"),
        scene.ok("get pods --sort-by=.spec.nodeName -o name"),
        scene.ok("get pods -o jsonpath={.items[*].metadata.name}"),
    );
    assert_eq!(names, "pod/web-1\npod/web-2\n");
    assert_eq!(selected, names);
    assert_eq!(other, "");
    assert_eq!(on_node, "pod/web-2\n");
    assert_eq!(sorted, "pod/web-2\npod/web-1\n");
    assert_eq!(path, "web-1 web-2");

    let (yaml, sorted_table, several, columns, chunked, raw) = tokio::join!(
        scene.ok("get pod web-1 -o yaml"),
        scene.ok("get pods --sort-by=.spec.nodeName"),
        scene.ok("get pod/web-1 node/n1 -o name"),
        scene.ok("get nodes -o custom-columns=N:.metadata.name,V:.status.nodeInfo.kubeletVersion"),
        scene.ok("get pods --chunk-size=1 -o name"),
        scene.ok("get --raw /version"),
    );
    let pod: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!((&pod["kind"], &pod["metadata"]["name"]), (&json!("Pod"), &json!("web-1")));
    assert_eq!(pod["metadata"]["managedFields"], Value::Null, "kubectl hides them");
    assert_eq!(cells(&sorted_table)[1][0], "web-2");
    assert_eq!(several, "pod/web-1\nnode/n1\n");
    assert_eq!(cells(&columns)[1], ["n1", "v1.37.1"]);
    assert_eq!(chunked, names);
    assert!(raw.contains("\"gitVersion\""), "{raw}");

    let (missing, unknown, bad, none) = tokio::join!(
        scene.kubectl.fails("get pod missing"),
        scene.kubectl.fails("get nonsense"),
        scene.kubectl.fails("get pods --field-selector spec.nonsense=1"),
        scene.kubectl.run("get cm -n kube-public"),
    );
    assert_eq!(missing.unwrap(), r#"Error from server (NotFound): pods "missing" not found"#);
    assert_eq!(unknown.unwrap(), r#"error: the server doesn't have a resource type "nonsense""#);
    says(&bad.unwrap(), &["Error from server (BadRequest)", "field label not supported: spec.nonsense"]);
    let none = none.unwrap();
    assert_eq!((none.code, none.err.as_str()), (0, "No resources found in kube-public namespace.\n"));
}

async fn get_watches(scene: &Scene) {
    scene.map("a", json!({"w": "1"})).await;
    let mut watch = scene.kubectl.follow("get cm -l w=1 -w --output-watch-events").unwrap();
    assert_eq!(cells(&watch.line().await.unwrap())[0], ["EVENT", "NAME", "DATA", "AGE"]);
    assert_eq!(cells(&watch.line().await.unwrap())[0][..3], ["ADDED", "a", "1"]);
    scene.map("b", json!({"w": "1"})).await;
    assert_eq!(cells(&watch.line().await.unwrap())[0][..3], ["ADDED", "b", "1"]);
    scene.cluster.merge_patch(&format!("{MAPS}/b"), &json!({"data": {"b": "2"}})).await.unwrap();
    assert_eq!(cells(&watch.line().await.unwrap())[0][..3], ["MODIFIED", "b", "2"]);
    scene.cluster.merge_patch(&format!("{MAPS}/b"), &json!({"metadata": {"labels": null}})).await.unwrap();
    assert_eq!(cells(&watch.line().await.unwrap())[0][..3], ["DELETED", "b", "2"], "it left the selector");
    scene.cluster.delete(&format!("{MAPS}/a")).await.unwrap();
    assert_eq!(cells(&watch.line().await.unwrap())[0][..2], ["DELETED", "a"]);
    let ended = scene.kubectl.run("get cm -w --request-timeout=1s").await.unwrap();
    assert!(ended.out.contains("b "), "{ended:?}");
}

async fn describe_tells_all(scene: &Scene) {
    scene.node("n1").await;
    let owners = scene.replica_set().await;
    scene.pod("web-1", "n1", owners).await;
    let pod = scene.cluster.get(&format!("{PODS}/web-1")).await.unwrap().body;
    scene
        .cluster
        .created(DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": workload()}))
        .await
        .unwrap();
    let budget = json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    scene.cluster.created(BUDGETS, &budget).await.unwrap();
    scene
        .status(
            &format!("{BUDGETS}/web"),
            json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}),
        )
        .await;
    crds::install(&scene.cluster).await.unwrap();
    scene.apply(&eviction_request(UID), "").await;
    let event = json!({
        "metadata": {"name": "e1"}, "reason": "Pulled", "message": "image is here", "type": "Normal", "count": 2,
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web-1", "uid": pod["metadata"]["uid"]},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "kubelet"},
    });
    scene.cluster.created("/api/v1/namespaces/default/events", &event).await.unwrap();
    let (node, pod, deployment, budget, request) = tokio::join!(
        scene.ok("describe node n1"),
        scene.ok("describe pod web-1"),
        scene.ok("describe deployment web"),
        scene.ok("describe pdb web"),
        scene.ok("describe er"),
    );
    says(
        &node,
        &[
            "Name: n1",
            "Unschedulable: false",
            "Taints: <none>",
            "Ready True",
            "Non-terminated Pods: (1 in total)",
            "default web-1",
            "Kubelet Version: v1.37.1",
        ],
    );
    says(
        &pod,
        &[
            "Name: web-1",
            "Node: n1/",
            "Status: Running",
            "Controlled By: ReplicaSet/web",
            "Image: nginx:1",
            "QoS Class: BestEffort",
            "Normal Pulled",
            "(x2 over",
            "kubelet image is here",
        ],
    );
    says(
        &deployment,
        &[
            "Name: web",
            "Selector: app=web",
            "Replicas: 2 desired",
            "StrategyType: RollingUpdate",
            "Events: <none>",
        ],
    );
    says(
        &budget,
        &["Name: web", "Min available: 1", "Allowed disruptions: 1", "Current: 2", "Desired: 1", "Total: 2"],
    );
    says(
        &request,
        &[
            &format!("Name: {UID}"),
            "Kind: EvictionRequest",
            "Pod Ref:",
            "Name: web-1",
            "Progress Deadline Seconds: 1800",
        ],
    );
}

async fn apply_on_the_client_merges_three_ways(scene: &Scene) {
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

async fn apply_on_the_server_finds_conflicts(scene: &Scene) {
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

async fn apply_takes_the_definitions_and_their_objects(scene: &Scene) {
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

async fn objects_are_patched_labelled_and_scaled(scene: &Scene) {
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

async fn delete_waits_cascades_and_forces(scene: &Scene) {
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

async fn drain_evicts_within_the_budget(scene: &Scene) {
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
            "error when evicting pods/\"{left}\" -n \"default\" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget."
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

async fn wait_and_rollout_follow_the_status(scene: &Scene) {
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
        let status = |updated: u32, available: u32| json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": updated, "readyReplicas": available, "availableReplicas": available});
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

async fn events_rights_and_resources_are_shown(scene: &Scene) {
    let event = |name: &str, pod: &str, kind: &str| {
        json!({
            "metadata": {"name": name}, "reason": "Drain", "message": "moving on", "type": kind, "count": 1,
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": pod},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        })
    };
    for (name, pod, kind) in [("e1", "a", "Normal"), ("e2", "b", "Warning")] {
        scene.cluster.created("/api/v1/namespaces/default/events", &event(name, pod, kind)).await.unwrap();
    }
    crds::install(&scene.cluster).await.unwrap();
    let (events, of_one, got, warnings, whoami, viewer) = tokio::join!(
        scene.ok("events"),
        scene.ok("events --for pod/a"),
        scene.ok("get events"),
        scene.ok("get events --field-selector type=Warning -o name"),
        scene.ok("auth whoami"),
        scene.ok("auth whoami --as viewer --as-group team"),
    );
    assert_eq!(cells(&events)[0], ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    assert_eq!(cells(&events)[1][1..], ["Normal", "Drain", "Pod/a", "moving on"]);
    assert_eq!(cells(&events).len(), 3);
    assert_eq!(cells(&of_one).len(), 2);
    assert_eq!(cells(&got)[1][1..], ["Normal", "Drain", "pod/a", "moving on"]);
    assert_eq!(warnings, "event/e2\n");
    says(&whoami, &["Username admin", "Groups [system:masters system:authenticated]"]);
    says(&viewer, &["Username viewer", "Groups [team system:authenticated]"]);

    let (admin, view, no, list, resources, short, versions) = tokio::join!(
        scene.ok("auth can-i delete nodes"),
        scene.ok("auth can-i get pods --as viewer"),
        scene.kubectl.run("auth can-i delete pods --as viewer"),
        scene.ok("auth can-i --list --as viewer"),
        scene.ok("api-resources"),
        scene.ok("api-resources --api-group=evictionrequest.coordination.k8s.io --no-headers"),
        scene.ok("api-versions"),
    );
    assert_eq!((admin.as_str(), view.as_str()), ("yes\n", "yes\n"));
    let no = no.unwrap();
    assert_eq!((no.code, no.out.trim()), (1, "no"));
    says(&list, &["Resources Non-Resource URLs Resource Names Verbs", "pods [] [] [get list watch]"]);
    says(
        &resources,
        &["pods po v1 true Pod", "nodemaintenances nm nodemaintenance.k8s.io/v1alpha1 false NodeMaintenance"],
    );
    says(&short, &["evictionrequests er evictionrequest.coordination.k8s.io/v1alpha1 true EvictionRequest"]);
    assert!(versions.lines().any(|line| line == "policy/v1"), "{versions}");
    let token = scene.cluster.token("viewer").unwrap().to_owned();
    let forbidden = scene.kubectl.fails(&format!("delete cm x --token={token}")).await.unwrap();
    says(
        &forbidden,
        &[
            r#"Error from server (Forbidden): configmaps "x" is forbidden: User "viewer" cannot delete resource "configmaps" in API group "" in the namespace "default""#,
        ],
    );
}

/// Each scenario on an embedded cluster of its own, and one after the other on a real API server.
macro_rules! scenarios {
    (on both { $($both:ident,)* } on the embedded one { $($embedded:ident,)* }) => {
        mod embedded {
            use super::{Scene, TestCluster};
            $(scenarios!(embedded $both);)*
            $(scenarios!(embedded $embedded);)*
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_real_api_server_makes_kubectl_print_the_same() {
            if usher_testbed::skip_real("kubectl: the same commands on the real API server") {
                return;
            }
            let scene = Scene::on(TestCluster::real().await.unwrap()).await;
            $(
                eprintln!("{}", stringify!($both));
                $both(&scene).await;
                scene.clear().await;
            )*
        }
    };
    (embedded $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if usher_testbed::skip_real(concat!("kubectl: ", stringify!($name), " (kubectl comes from the testbed)")) {
                return;
            }
            let (cluster, _) = TestCluster::embedded_with(true).await.unwrap();
            super::$name(&Scene::on(cluster).await).await;
        }
    };
}

scenarios! {
    on both {
    get_prints_tables_and_selects,
    get_watches,
    describe_tells_all,
    apply_on_the_client_merges_three_ways,
    apply_on_the_server_finds_conflicts,
    apply_takes_the_definitions_and_their_objects,
    objects_are_patched_labelled_and_scaled,
    drain_evicts_within_the_budget,
    wait_and_rollout_follow_the_status,
    events_rights_and_resources_are_shown,
    }
    on the embedded one {
    delete_waits_cascades_and_forces,
    }
}
