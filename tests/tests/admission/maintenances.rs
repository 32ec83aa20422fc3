//! Node maintenances: the same callers, the same answers on both clusters.

use crate::scene::{ADMIN, EDITOR, NOBODY, Scene, VIEWER, expect};
use http::Method;
use serde_json::{Value, json};

const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn of_pool(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]},
        ]}},
    })
}

/// All testers may write maintenances; the editor may delete all nodes, nobody the one called `m1`, the viewer none.
async fn allow(scene: &Scene) {
    let bind = async |name: &str, rule: Value, kind: &str, who: &str| {
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        scene.cluster.created(&format!("{RBAC}/clusterroles"), &role).await.unwrap();
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": who}],
        });
        scene.cluster.created(&format!("{RBAC}/clusterrolebindings"), &binding).await.unwrap();
    };
    let all =
        json!({"apiGroups": ["nodemaintenance.k8s.io"], "resources": ["nodemaintenances"], "verbs": ["*"]});
    bind("maintenances", all, "Group", "testers").await;
    let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]});
    bind("all-nodes", nodes, "User", EDITOR).await;
    let one =
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": ["m1"]});
    bind("one-node", one, "User", NOBODY).await;
}

pub async fn maintenances(scene: &Scene) {
    allow(scene).await;
    for (name, pool) in [("m1", "one"), ("m2", "two"), ("m3", "two")] {
        let node = json!({"metadata": {"name": name, "labels": {"pool": pool}}});
        scene.cluster.created("/api/v1/nodes", &node).await.unwrap();
    }
    let create =
        async |user: &str, object: &Value| scene.send(user, Method::POST, MAINTENANCES, object).await;

    // Rights are learned in the server's own time.
    let dry = format!("{MAINTENANCES}?dryRun=All");
    let probe = of_pool("probe", "one");
    scene.until(|| scene.send(NOBODY, Method::POST, &dry, &probe), |answer| answer.status == 201).await;

    let answer = create(VIEWER, &of_pool("a", "one")).await;
    expect("no right to the node", &answer, 403, "may not delete m1");
    let answer = create(NOBODY, &of_pool("a", "two")).await;
    expect("a right to another node", &answer, 403, "may not delete m2, m3");
    let answer = create(NOBODY, &of_pool("a", "one")).await;
    expect("a right to this node", &answer, 201, "");
    assert_eq!(answer.body["spec"]["drainPlan"].as_array().map(Vec::len), Some(12), "{}", answer.body);
    assert_eq!(answer.warnings(), [""; 0]);
    let answer = create(EDITOR, &of_pool("none", "three")).await;
    expect("no node", &answer, 201, "");
    assert!(
        answer.warnings().iter().any(|warning| warning.contains("selects no node")),
        "{:?}",
        answer.warnings()
    );
    let mut all = of_pool("all", "one");
    all["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"] =
        json!([{"key": "none", "operator": "DoesNotExist"}]);
    let answer = create(EDITOR, &all).await;
    expect("all nodes", &answer, 201, "");
    assert!(
        answer.warnings().iter().any(|warning| warning.contains("selects all")),
        "{:?}",
        answer.warnings()
    );
    let mut late = of_pool("late", "one");
    late["spec"]["drainPlan"] = json!([
        {"podPriority": 5, "podType": "Default"},
        {"podPriority": 5, "podType": "Default", "podSelector": {"matchLabels": {"app": "x"}}},
    ]);
    expect("a selector too late", &create(EDITOR, &late).await, 422, "comes too late");

    let patch = async |user: &str, name: &str, body: Value| {
        scene.send(user, Method::PATCH, &format!("{MAINTENANCES}/{name}"), &body).await
    };
    expect(
        "a label is nobody's business",
        &patch(VIEWER, "a", json!({"metadata": {"labels": {"x": "y"}}})).await,
        200,
        "",
    );
    let drain = json!({"spec": {"stage": "Drain"}});
    expect("the viewer may not drain", &patch(VIEWER, "a", drain.clone()).await, 403, "may not delete m1");
    expect("who may delete the node may drain it", &patch(NOBODY, "a", drain).await, 200, "");
    expect("never back", &patch(ADMIN, "a", json!({"spec": {"stage": "Idle"}})).await, 422, "");
    let wider = json!({"spec": {"nodeSelector": of_pool("a", "two")["spec"]["nodeSelector"]}});
    expect("to other nodes", &patch(NOBODY, "a", wider).await, 403, "may not delete m2, m3");
    let delete =
        async |user: &str| scene.send(user, Method::DELETE, &format!("{MAINTENANCES}/a"), &Value::Null).await;
    expect("the viewer may not delete", &delete(VIEWER).await, 403, "may not delete m1");
    expect("who may delete the node may delete it", &delete(NOBODY).await, 200, "");
    for name in ["none", "all"] {
        let path = format!("{MAINTENANCES}/{name}");
        expect(name, &scene.send(ADMIN, Method::DELETE, &path, &Value::Null).await, 200, "");
    }
}
