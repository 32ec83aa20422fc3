//! get, get -w, describe, events, auth, api-resources: what kubectl shows.

use super::scene::{BUDGETS, DEPLOYMENTS, MAPS, PODS, Scene, UID, eviction_request, says, workload};
use serde_json::{Value, json};
use usher_tests::crds;
use usher_tests::typed::cells;

pub async fn get_prints_tables_and_selects(scene: &Scene) {
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

pub async fn get_watches(scene: &Scene) {
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

pub async fn describe_tells_all(scene: &Scene) {
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

pub async fn events_rights_and_resources_are_shown(scene: &Scene) {
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
            r#"Error from server (Forbidden): configmaps "x" is forbidden: User "viewer" cannot delete"#,
            r#"resource "configmaps" in API group "" in the namespace "default""#,
        ],
    );
}
