use serde_json::{Value, json};
use usher_descheduler::{Policy, explain, plan};

use super::read::{self, ClusterRead};
use super::{text, understood};
use crate::{Environment, Error};

const POLICY: &str = "
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsEvacuationsPerNode: 1
profiles:
- name: default
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: true}}
  - {name: RemovePodsViolatingNodeTaints}
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeTaints]}
";

fn node(name: &str, taints: Value) -> Value {
    let size = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("u-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "w", "controller": true}],
        },
        "spec": {"nodeName": "n-1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn dumped(items: &[Value]) -> Result<ClusterRead, Error> {
    read::dump(&json!({"kind": "List", "items": items}).to_string(), "all.json")
}

fn cluster() -> ClusterRead {
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2},
    });
    let nodes = [node("n-1", taints), node("n-2", Value::Null)];
    let pods = [pod("web-a", "ReplicaSet"), pod("web-b", "ReplicaSet"), pod("agent", "DaemonSet")];
    dumped(&[nodes.to_vec(), pods.to_vec(), vec![budget]].concat()).unwrap()
}

fn policy() -> Policy {
    Policy::read(POLICY).unwrap()
}

#[test]
fn the_plan_tells_who_why_where_to_what_stopped_it_and_what_is_in_the_way() {
    let (read, environment) = (cluster(), Environment::plain());
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let plan = plan(&read.cluster, &policy(), &read.in_progress(now), now);
    let findings = read.findings(&plan, now);
    let told = text::plan(&plan, &findings, &read, &environment);
    for part in [
        "Dry run: 1 pod of 3 would be asked to leave.",
        "web-a   n-1    RemovePodsViolatingNodeTaints   does not tolerate the taint broken",
        "n-2",
        "Stopped\n- RemovePodsViolatingNodeTaints of profile default: the limit of 1 pods of node n-1 is reached",
        "Findings, most severe first\n",
        "budget",
        "Nothing was changed.",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let structured = serde_json::to_value(text::structured(&plan, &findings, &read)).unwrap();
    assert_eq!(structured["proposals"][0]["pod"], "web-a");
    assert_eq!(structured["proposals"][0]["fitsOn"], "n-2");
    assert_eq!(structured["findings"].as_array().map(Vec::len), Some(findings.len()));
}

#[test]
fn a_pod_is_explained_by_the_plugin_that_wants_it_or_the_filter_that_keeps_it() {
    let read = cluster();
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let told = |name: &str| {
        let found = explain(&read.cluster, &policy(), &read.in_progress(now), now, "shop", name);
        text::explanation("shop", name, &found, &read)
    };
    assert!(told("web-a").starts_with("The pod shop/web-a would be asked to leave.\n"), "{}", told("web-a"));
    assert!(told("web-a").contains("it would fit on n-2"));
    assert!(told("web-b").contains("the limit of 1 pods of node n-1 is reached"), "{}", told("web-b"));
    assert!(told("agent").contains("it is kept: it belongs to a DaemonSet"), "{}", told("agent"));
    assert_eq!(told("nobody"), "There is no pod shop/nobody.\n");
    let mut without_usage = cluster();
    without_usage.unknown_usage.push("a dump has no real usage".to_owned());
    let found = explain(&read.cluster, &policy(), &read.in_progress(now), now, "shop", "web-a");
    let told = text::explanation("shop", "web-a", &found, &without_usage);
    assert!(told.ends_with("- a dump has no real usage; plugins that go by it do nothing\n"), "{told}");
}

#[test]
fn requests_that_are_there_count() {
    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": "u-web-a", "namespace": "shop", "uid": "r", "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {"podRef": {"name": "web-a", "uid": "u-web-a"}},
    });
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let items = [
        node("n-1", taints),
        node("n-2", Value::Null),
        pod("web-a", "ReplicaSet"),
        pod("web-b", "ReplicaSet"),
        request,
    ];
    let read = dumped(&items).unwrap();
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let plan = plan(&read.cluster, &policy(), &read.in_progress(now), now);
    let told = text::plan(&plan, &[], &read, &Environment::plain());
    assert!(
        told.starts_with(
            "Dry run: none of 2 pods would be asked to leave. 1 more are wanted, and are leaving already.\n"
        ),
        "{told}"
    );
}

#[test]
fn what_is_wrong_with_a_policy_or_a_dump_is_told_with_what_to_do() {
    let wrong = understood("kind: Deployment\n", "p.yaml").unwrap_err().to_string();
    assert!(wrong.starts_with("the policy p.yaml is refused: "), "{wrong}");
    let empty = dumped(&[]).err().unwrap().to_string();
    assert!(empty.contains("has no nodes: make one with kubectl get nodes,pods"), "{empty}");
}
