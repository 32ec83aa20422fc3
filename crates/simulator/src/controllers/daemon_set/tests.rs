use super::*;
use crate::controllers::revisions::testing::revision_of;
use crate::controllers::testing::{at, changed_node, created, deleted, node, owned_pod, set_status, view};
use serde_json::Value;

fn set() -> Value {
    json!({
        "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default", "uid": "set", "generation": 1},
        "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": []}}},
    })
}

fn pod(name: &str, node: &str) -> Value {
    let mut pod = owned_pod(name, "DaemonSet", "agent", "set");
    pod["spec"]["nodeName"] = node.into();
    pod["metadata"]["labels"][LABEL] = revision_of("DaemonSet", &set(), 1).1.hash.into();
    pod
}

fn old(name: &str, node: &str) -> Value {
    let mut pod = pod(name, node);
    pod["metadata"]["labels"][LABEL] = "old".into();
    pod
}

fn starting(mut pod: Value) -> Value {
    pod["status"]["conditions"][0]["status"] = "False".into();
    pod
}

fn plan(objects: &[Value]) -> Plan {
    let all: Vec<Value> =
        [revision_of("DaemonSet", &set(), 1).0].into_iter().chain(objects.iter().cloned()).collect();
    decide(&view(&all), &Key::new("default", "agent"), at(100))
}

/// The nodes that pods are made for.
fn made_for(plan: &Plan) -> Vec<&str> {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let name = |pod: &&Value| -> &'static str {
        let value = pod.pointer(&format!("{terms}/0/matchFields/0/values/0")).unwrap();
        Box::leak(value.as_str().unwrap().to_string().into_boxed_str())
    };
    created(plan).iter().filter(|object| object["kind"] == "Pod").map(name).collect()
}

#[test]
fn every_node_that_may_have_one_gets_one_cordoned_or_not() {
    let cordoned = changed_node("b", |node| {
        node["spec"] = json!({"unschedulable": true, "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]});
    });
    let closed =
        changed_node("c", |node| node["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]));
    assert_eq!(made_for(&plan(&[set(), node("a"), cordoned.clone(), closed.clone()])), ["a", "b"]);
    let mut tolerant = set();
    tolerant["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(made_for(&plan(&[tolerant, node("a"), cordoned, closed])), ["a", "b", "c"]);
}

#[test]
fn a_taint_drives_pods_off_only_if_it_says_no_execute() {
    let with = |effect: &str| {
        changed_node("a", |node| node["spec"]["taints"] = json!([{"key": "mine", "effect": effect}]))
    };
    assert_eq!(deleted(&plan(&[set(), with("NoSchedule"), pod("p", "a")])).len(), 0);
    assert_eq!(deleted(&plan(&[set(), with("NoExecute"), pod("p", "a")])), ["p"]);
}

#[test]
fn failed_doubled_and_stray_pods_go() {
    let mut failed = pod("failed", "a");
    failed["status"]["phase"] = "Failed".into();
    assert_eq!(deleted(&plan(&[set(), node("a"), failed])), ["failed"]);
    let mut second = pod("second", "a");
    second["metadata"]["creationTimestamp"] = "1970-01-01T00:00:05Z".into();
    assert_eq!(deleted(&plan(&[set(), node("a"), pod("first", "a"), second])), ["second"]);
    assert_eq!(deleted(&plan(&[set(), pod("p", "gone")])), ["p"]);
}

#[test]
fn an_update_begins_with_what_does_not_serve() {
    let mut broken = old("b", "b");
    broken["status"]["conditions"][0]["status"] = "False".into();
    let pods = [old("a", "a"), broken, old("c", "c")];
    let objects: Vec<Value> = [set(), node("a"), node("b"), node("c")].into_iter().chain(pods).collect();
    assert_eq!(deleted(&plan(&objects)), ["b"]);
}

#[test]
fn with_surge_the_new_one_serves_before_the_old_one_goes() {
    let mut surging = set();
    surging["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let with = |pods: &[Value]| {
        let objects: Vec<Value> =
            [surging.clone(), node("a"), node("b")].into_iter().chain(pods.iter().cloned()).collect();
        let plan = plan(&objects);
        (made_for(&plan).join(" "), deleted(&plan).join(" "))
    };
    let says = |made: &str, gone: &str| (made.to_string(), gone.to_string());
    assert_eq!(with(&[old("a", "a"), old("b", "b")]), says("a", ""), "one comes beside the old one");
    let coming = [old("a", "a"), starting(pod("a2", "a")), old("b", "b")];
    assert_eq!(with(&coming), says("", ""), "and is waited for");
    let there = [old("a", "a"), pod("a2", "a"), old("b", "b")];
    assert_eq!(with(&there), says("", "a"), "then the old one goes");
    assert_eq!(with(&[pod("a2", "a"), old("b", "b")]), says("b", ""), "and the next node follows");
}

#[test]
fn pods_on_nodes_that_should_have_none_are_counted() {
    let closed =
        changed_node("a", |node| node["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]));
    let status = set_status(&plan(&[set(), closed, pod("p", "a")]));
    assert_eq!((&status["numberMisscheduled"], &status["desiredNumberScheduled"]), (&json!(1), &Value::Null));
}

#[test]
fn pods_that_fail_again_and_again_are_replaced_less_and_less_often() {
    let failed = || {
        let mut pod = pod("p", "a");
        pod["status"]["phase"] = "Failed".into();
        pod
    };
    let mut view = view(&[revision_of("DaemonSet", &set(), 1).0, set(), node("a"), failed()]);
    let key = Key::new("default", "agent");
    assert_eq!(deleted(&decide(&view, &key, at(0))), ["p"], "the first goes at once");
    let mut again = failed();
    again["metadata"]["uid"] = "another".into();
    again["metadata"]["resourceVersion"] = "99".into();
    let change = view.written(Resource::Pods, &again.to_string(), crate::view::Source::Watch).unwrap();
    view.remember(&change.unwrap(), at(0));
    let waits = decide(&view, &key, at(0));
    assert_eq!((deleted(&waits).len(), waits.recheck_at), (0, Some(at(1))));
}
