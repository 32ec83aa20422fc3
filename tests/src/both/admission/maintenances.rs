//! Node maintenances: the same callers, the same answers on both clusters.

use super::scene::{ADMIN, EDITOR, NOBODY, Scene, VIEWER, expect};
use crate::Answer;
use http::Method;
use serde_json::{Value, json};

pub const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const FINALIZER: &str = "nodemaintenance.k8s.io/maintenance-completion";
/// So many nodes that are not there nobody may delete by name: one role has room for all.
const MANY: usize = 300;

pub fn of_terms(name: &str, terms: Value) -> Value {
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"nodeSelector": {"nodeSelectorTerms": terms}},
    })
}

fn term(key: &str, operator: &str, values: &[&str]) -> Value {
    let list = if key == "metadata.name" { "matchFields" } else { "matchExpressions" };
    json!({list: [{"key": key, "operator": operator, "values": values}]})
}

pub fn of_pool(name: &str, pool: &str) -> Value {
    of_terms(name, json!([term("pool", "In", &[pool])]))
}

pub fn of_names(name: &str, nodes: &[&str]) -> Value {
    let terms: Vec<Value> = nodes.iter().map(|node| term("metadata.name", "In", &[node])).collect();
    of_terms(name, json!(terms))
}

/// All testers may write maintenances and their status; the editor may delete all nodes, nobody `m1` and many that are not
/// there, the viewer none.
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
    let resources = ["nodemaintenances", "nodemaintenances/status"];
    let all = json!({"apiGroups": ["nodemaintenance.k8s.io"], "resources": resources, "verbs": ["*"]});
    bind("maintenances", all, "Group", "testers").await;
    let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]});
    bind("all-nodes", nodes, "User", EDITOR).await;
    let names: Vec<String> = (0..MANY).map(many).chain(["m1".to_owned()]).collect();
    let some =
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": names});
    bind("some-nodes", some, "User", NOBODY).await;
}

fn many(number: usize) -> String {
    format!("many-{number}")
}

fn warns(answer: &Answer, part: &str) -> bool {
    answer.warnings().iter().any(|warning| warning.contains(part))
}

async fn create(scene: &Scene, user: &str, object: &Value) -> Answer {
    scene.send(user, Method::POST, MAINTENANCES, object).await
}

async fn patch(scene: &Scene, user: &str, name: &str, body: Value) -> Answer {
    scene.send(user, Method::PATCH, &format!("{MAINTENANCES}/{name}"), &body).await
}

async fn delete(scene: &Scene, user: &str, name: &str) -> Answer {
    scene.send(user, Method::DELETE, &format!("{MAINTENANCES}/{name}"), &Value::Null).await
}

pub async fn maintenances(scene: &Scene) {
    allow(scene).await;
    for (name, pool) in [("m1", "one"), ("m2", "two"), ("m3", "two")] {
        let node = json!({"metadata": {"name": name, "labels": {"pool": pool}}});
        scene.cluster.created("/api/v1/nodes", &node).await.unwrap();
    }
    // Rights are learned in the server's own time.
    let dry = format!("{MAINTENANCES}?dryRun=All");
    let probe = of_names("probe", &["m1"]);
    scene.until(|| scene.send(NOBODY, Method::POST, &dry, &probe), |answer| answer.status == 201).await;

    who_may_delete_all_nodes_may_select_as_it_likes(scene).await;
    everybody_else_names_nodes_that_it_may_delete(scene).await;
    every_write_that_decides_on_nodes_needs_the_rights(scene).await;
    hundreds_of_names_are_asked_for(scene).await;
    all_nodes_are_warned_of_at_every_stage(scene).await;
    plans_are_checked(scene).await;
}

async fn who_may_delete_all_nodes_may_select_as_it_likes(scene: &Scene) {
    let answer = create(scene, EDITOR, &of_pool("pool", "two")).await;
    expect("by a label", &answer, 201, "");
    assert_eq!(answer.body["spec"]["drainPlan"].as_array().map(Vec::len), Some(12), "{}", answer.body);
    assert_eq!(answer.warnings(), [""; 0]);
    let answer = create(scene, EDITOR, &of_pool("none", "three")).await;
    expect("no node", &answer, 201, "");
    assert!(warns(&answer, "selects no node"), "{:?}", answer.warnings());
    expect("and delete it", &delete(scene, EDITOR, "none").await, 200, "");
}

async fn everybody_else_names_nodes_that_it_may_delete(scene: &Scene) {
    let by_name = "has to select nodes by name";
    let mut both = term("metadata.name", "NotIn", &["m2"]);
    both["matchExpressions"] = term("pool", "In", &["one"])["matchExpressions"].clone();
    let open = [
        ("all but those of today", json!([term("metadata.name", "NotIn", &["m2"])])),
        ("a label", json!([term("pool", "In", &["one"])])),
        ("another label", json!([term("kubernetes.io/hostname", "NotIn", &["m1", "m2", "m3"])])),
        ("nodes to come", json!([term("pool", "In", &["three"])])),
        ("a label that exists", json!([term("pool", "Exists", &[])])),
        ("a number", json!([term("size", "Gt", &["3"])])),
        ("not by name", json!([both])),
        ("one of two terms", json!([term("metadata.name", "In", &["m1"]), term("pool", "In", &["one"])])),
    ];
    for (what, terms) in &open {
        for user in [VIEWER, NOBODY] {
            expect(what, &create(scene, user, &of_terms("a", terms.clone())).await, 403, by_name);
        }
    }
    let answer = create(scene, VIEWER, &of_names("a", &["m1"])).await;
    expect("no right to the node", &answer, 403, "may not delete m1");
    let answer = create(scene, NOBODY, &of_names("a", &["m1", "m2", "m3"])).await;
    expect("a right to another node", &answer, 403, "may not delete m2, m3");
    let answer = create(scene, NOBODY, &of_names("a", &["m1", "later"])).await;
    expect("a node that may join", &answer, 403, "may not delete later");
    let answer = create(scene, NOBODY, &of_names("a", &["m1"])).await;
    expect("a right to this node", &answer, 201, "");
    assert_eq!(answer.warnings(), [""; 0]);
    for (what, terms) in open {
        let wider = json!({"spec": {"nodeSelector": {"nodeSelectorTerms": terms}}});
        expect(what, &patch(scene, NOBODY, "a", wider).await, 403, by_name);
    }
    let wider = json!({"spec": of_names("a", &["m2"])["spec"]});
    expect("to another node", &patch(scene, NOBODY, "a", wider).await, 403, "may not delete m2");
}

/// Of nobody's maintenance `a` on `m1` and the editor's `pool`.
async fn every_write_that_decides_on_nodes_needs_the_rights(scene: &Scene) {
    let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0a0a0a0a-0000-0000-0000-000000000000"},
    ]}});
    let writes = [
        ("a stage", json!({"spec": {"stage": "Cordon"}})),
        ("a limit", json!({"spec": {"drainLimit": {"maxNodes": 1}}})),
        ("a finalizer", finalizers(&[FINALIZER])),
        ("an owner, with whom it would be deleted", owner),
        ("fewer nodes", json!({"spec": of_names("a", &["m1"])["spec"]})),
    ];
    for (what, body) in &writes {
        for user in [VIEWER, NOBODY] {
            expect(what, &patch(scene, user, "pool", body.clone()).await, 403, "may not delete all nodes");
        }
    }
    for user in [VIEWER, NOBODY] {
        let answer = delete(scene, user, "pool").await;
        expect("a deletion", &answer, 403, "only who may delete all nodes may change or delete it");
    }
    expect("a finalizer", &patch(scene, NOBODY, "a", finalizers(&[FINALIZER])).await, 200, "");
    let taken = finalizers(&[]);
    expect("one taken away", &patch(scene, VIEWER, "a", taken.clone()).await, 403, "may not delete m1");
    let labels = json!({"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}});
    expect("a label is nobody's business", &patch(scene, VIEWER, "a", labels).await, 200, "");
    let other = finalizers(&[FINALIZER, "example.com/other"]);
    expect("nor is another finalizer", &patch(scene, VIEWER, "a", other).await, 200, "");
    let forged = json!({"status": {"nodes": 7}});
    let status = async |user: &str| {
        let path = format!("{MAINTENANCES}/a/status");
        scene.send(user, Method::PATCH, &path, &forged).await
    };
    expect("a status", &status(VIEWER).await, 403, "may not delete m1");
    expect("who may delete the node", &status(NOBODY).await, 200, "");

    let drain = json!({"spec": {"stage": "Drain"}});
    expect(
        "the viewer may not drain",
        &patch(scene, VIEWER, "a", drain.clone()).await,
        403,
        "may not delete m1",
    );
    expect("who may delete the node may drain it", &patch(scene, NOBODY, "a", drain).await, 200, "");
    expect("never back", &patch(scene, ADMIN, "a", json!({"spec": {"stage": "Idle"}})).await, 422, "");
    expect("the viewer may not delete", &delete(scene, VIEWER, "a").await, 403, "may not delete m1");
    expect("who may delete the node may delete it", &delete(scene, NOBODY, "a").await, 200, "");
    expect(
        "nor end what is deleted",
        &patch(scene, VIEWER, "a", taken.clone()).await,
        403,
        "may not delete m1",
    );
    expect("who may delete the node may end it", &patch(scene, NOBODY, "a", taken).await, 200, "");
    expect("the editor deletes its own", &delete(scene, EDITOR, "pool").await, 200, "");
}

async fn hundreds_of_names_are_asked_for(scene: &Scene) {
    let names: Vec<String> = (0..MANY).map(many).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = std::time::Instant::now();
    expect("hundreds", &create(scene, NOBODY, &of_names("many", &names)).await, 201, "");
    println!("{MANY} names on the {} cluster: {:?}", scene.cluster.name(), start.elapsed());
    expect("and their deletion", &delete(scene, NOBODY, "many").await, 200, "");
    names.push("zz-of-others");
    let answer = create(scene, NOBODY, &of_names("many", &names)).await;
    expect("one of them of others", &answer, 403, "may not delete zz-of-others");
    let answer = create(scene, VIEWER, &of_names("many", &names)).await;
    expect(
        "none of them",
        &answer,
        403,
        "may not delete many-0, many-1, many-10, many-100, many-101 and others",
    );
}

async fn all_nodes_are_warned_of_at_every_stage(scene: &Scene) {
    let all = of_terms("all", json!([term("none", "DoesNotExist", &[])]));
    let answer = create(scene, EDITOR, &all).await;
    expect("all nodes", &answer, 201, "");
    assert!(warns(&answer, "selects all 3 nodes"), "{:?}", answer.warnings());
    for (stage, part) in [("Cordon", "no node is left for new pods"), ("Drain", "a drain leaves no place")] {
        let answer = patch(scene, EDITOR, "all", json!({"spec": {"stage": stage}})).await;
        expect(stage, &answer, 200, "");
        assert!(warns(&answer, part), "{stage}: {:?}", answer.warnings());
    }
    let answer = patch(scene, EDITOR, "all", json!({"spec": {"reason": "kernel"}})).await;
    assert_eq!(answer.warnings(), [""; 0], "nothing new about nodes");
    expect("all", &delete(scene, EDITOR, "all").await, 200, "");
}

async fn plans_are_checked(scene: &Scene) {
    let mut late = of_pool("late", "one");
    late["spec"]["drainPlan"] = json!([
        {"podPriority": 5, "podType": "Default"},
        {"podPriority": 5, "podType": "Default", "podSelector": {"matchLabels": {"app": "x"}}},
    ]);
    expect("a selector too late", &create(scene, EDITOR, &late).await, 422, "comes too late");
    let own = |count: i32| {
        let mut long = of_pool("long", "one");
        let entry = |priority: i32| json!({"podPriority": priority});
        long["spec"]["drainPlan"] = (0..count).map(entry).collect();
        long
    };
    let answer = create(scene, EDITOR, &own(95)).await;
    expect("what was written is counted", &answer, 422, "has 95 entries of your own, and may have 88");
    expect("as many as there is room for", &create(scene, EDITOR, &own(88)).await, 201, "");
    expect("long", &delete(scene, EDITOR, "long").await, 200, "");
}
