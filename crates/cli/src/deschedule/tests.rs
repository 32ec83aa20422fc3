use serde_json::{Value, json};
use usher_api::names::{DESCHEDULER_INSTANCE_ANNOTATION, DESCHEDULER_REQUESTER, REQUESTER_FINALIZER_PREFIX};
use usher_descheduler::requester::{Memory, PodId, Requested};
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
        "Pods are asked by EvictionRequests in the name descheduler.sigs.k8s.io",
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
    let explained = |name: &str| {
        let found = explain(&read.cluster, &policy(), &read.in_progress(now), now, "shop", name);
        text::explanation("shop", name, &found, &read)
    };
    assert!(
        explained("web-a").starts_with("The pod shop/web-a would be asked to leave.\n"),
        "{}",
        explained("web-a")
    );
    assert!(explained("web-a").contains("it would fit on n-2"));
    assert!(
        explained("web-b").contains("the limit of 1 pods of node n-1 is reached"),
        "{}",
        explained("web-b")
    );
    assert!(explained("agent").contains("it is kept: it belongs to a DaemonSet"), "{}", explained("agent"));
    assert_eq!(explained("nobody"), "There is no pod shop/nobody.\n");
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

/// Requests for both pods, by the descheduler of this name since that time; the plan, and what is said of the first one.
fn told_of_requests(by: &str, since: &str, remembers_more: bool) -> (usize, String) {
    let requests = ["web-a", "web-b"].map(|pod| {
        json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": format!("u-{pod}"), "namespace": "shop", "uid": "r", "creationTimestamp": since,
                "annotations": {DESCHEDULER_INSTANCE_ANNOTATION: by},
                "finalizers": [format!("{REQUESTER_FINALIZER_PREFIX}{DESCHEDULER_REQUESTER}")],
            },
            "spec": {"podRef": {"name": pod, "uid": format!("u-{pod}")}},
        })
    });
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let mut items = vec![node("n-1", taints), node("n-2", Value::Null)];
    items.extend(["web-a", "web-b", "web-c"].map(|name| pod(name, "ReplicaSet")));
    items.extend(requests);
    let mut read = dumped(&items).unwrap();
    read.descheduler = "usher-system/usher-descheduler".to_owned();
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let asked = |name: &str| {
        let pod = PodId::new("shop", name, &format!("u-{name}"));
        (pod, Requested { since: since.parse().unwrap(), by: None })
    };
    let more = ["web-c"].into_iter().filter(|_| remembers_more);
    read.memory = Memory { asked: more.chain(["web-b"]).map(asked).collect(), ..Memory::default() };
    let limits = POLICY.replace("PerNode: 1", "PerNode: 3");
    let (policy, in_progress) = (Policy::read(&limits).unwrap(), read.in_progress(now));
    let plan = plan(&read.cluster, &policy, &in_progress, now);
    let name = if remembers_more { "web-c" } else { "web-a" };
    let found = explain(&read.cluster, &policy, &in_progress, now, "shop", name);
    (plan.proposals.len(), text::explanation("shop", name, &found, &read))
}

#[test]
fn the_plan_is_that_of_a_descheduler_that_begins_now() {
    let ours = "usher-system/usher-descheduler";
    // Its end depends on when that one begins, so that no time is said.
    let begins = "a cool-down that begins with the descheduler's next cycle";
    let (proposals, told) = told_of_requests(ours, "2026-01-01T23:50:00Z", false);
    assert_eq!(proposals, 1, "only web-c is not asked yet: {told}");
    assert!(!told.contains(begins), "{told}");
    // What took too long is given up, and has its cool-down.
    let (_, told) = told_of_requests(ours, "2026-01-01T22:00:00Z", false);
    assert!(told.contains(begins), "{told}");
    let (_, told) = told_of_requests("other/descheduler", "2026-01-01T22:00:00Z", false);
    assert!(!told.contains(begins), "it is for another to give it up: {told}");
    // Somebody has withdrawn the request for web-c while no descheduler ran.
    let (proposals, told) = told_of_requests(ours, "2026-01-01T23:50:00Z", true);
    assert_eq!(proposals, 0, "{told}");
    assert!(told.contains(begins), "{told}");
}

#[test]
fn what_is_wrong_with_a_policy_or_a_dump_is_told_with_what_to_do() {
    let wrong = understood("kind: Deployment\n", "p.yaml").unwrap_err().to_string();
    assert!(wrong.starts_with("the policy p.yaml is refused: "), "{wrong}");
    let empty = dumped(&[]).err().unwrap().to_string();
    assert!(empty.contains("has no nodes: make one with kubectl get nodes,pods"), "{empty}");
    // Kubernetes 1.37 has a kind of its own by that name.
    assert!(empty.contains(",evictionrequests.evictionrequest.coordination.k8s.io,"), "{empty}");
}

/// What is said of pods by a policy with these lines at the top, of two plugins that want all of node n-1.
fn explained(top: &str, items: &[Value], name: &str) -> String {
    let policy = format!(
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{top}\nprofiles:\n- name: default\n  \
         pluginConfig: [{{name: RemovePodsViolatingNodeTaints}}, {{name: PodLifeTime, args: {{maxPodLifeTimeSeconds: 60}}}}, \
         {{name: RemoveDuplicates}}]\n  \
         plugins: {{deschedule: {{enabled: [RemovePodsViolatingNodeTaints, PodLifeTime]}}, balance: {{enabled: [RemoveDuplicates]}}}}\n"
    );
    let read = dumped(items).unwrap();
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let policy = Policy::read(&policy).unwrap();
    let found = explain(&read.cluster, &policy, &read.in_progress(now), now, "shop", name);
    text::explanation("shop", name, &found, &read)
}

#[test]
fn what_plugins_want_is_said_also_past_a_limit_beside_each_other_and_of_a_pod_without_uid() {
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let mut without_uid = pod("web-u", "ReplicaSet");
    without_uid["metadata"].as_object_mut().unwrap().remove("uid");
    let pods = ["web-a", "web-b", "web-c", "web-d"].map(|name| pod(name, "ReplicaSet"));
    let items =
        [vec![node("n-1", taints), node("n-2", Value::Null)], pods.to_vec(), vec![without_uid]].concat();
    let wants = [
        "RemovePodsViolatingNodeTaints of profile \"default\" wants it to leave",
        "PodLifeTime of profile \"default\" wants it to leave",
    ];
    for limit in ["maxNoOfPodsToEvictTotal: 1", "maxNoOfPodsToEvictPerNode: 1"] {
        let told = explained(limit, &items, "web-d");
        assert!(told.starts_with("The pod shop/web-d stays.\n"), "{told}");
        assert!(wants.iter().all(|part| told.contains(part)), "{limit}\n{told}");
        assert_eq!(told.matches("the limit of 1 pods").count(), 2, "{limit}\n{told}");
    }
    let told = explained("", &items, "web-a");
    assert!(told.starts_with("The pod shop/web-a would be asked to leave.\n"), "{told}");
    assert!(wants.iter().all(|part| told.contains(part)), "{told}");
    assert!(told.contains("does not look at it: a plugin before it wants it to leave"), "{told}");
    let told = explained("", &items, "web-u");
    assert!(told.contains("and it is kept: it has no uid"), "{told}");
}

#[test]
fn a_node_that_is_not_ready_is_named_as_that() {
    let mut lost = node("n-1", Value::Null);
    lost["status"]["conditions"][0]["status"] = "Unknown".into();
    let items = [lost, node("n-2", Value::Null), node("n-3", Value::Null), pod("web-a", "ReplicaSet")];
    let told = explained("", &items, "web-a");
    assert!(told.contains("on node n-1, which is not ready"), "{told}");
    let items = [
        node("n-1", Value::Null),
        node("n-2", json!(null)),
        node("n-3", Value::Null),
        pod("web-a", "ReplicaSet"),
    ];
    let told = explained("nodeSelector: kubernetes.io/hostname notin (n-1)", &items, "web-a");
    assert!(told.contains("which the policy does not look at (nodeSelector)"), "{told}");
}

#[test]
fn who_may_not_read_everything_is_told_so_and_nothing_false() {
    let mut read = cluster();
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let policy = |threshold: &str| {
        let args = format!("args: {{nodeFit: true{threshold}}}");
        Policy::read(&POLICY.replace("args: {nodeFit: true}", &args)).unwrap()
    };
    let explained = |read: &ClusterRead, threshold: &str| {
        let found = explain(&read.cluster, &policy(threshold), &read.in_progress(now), now, "shop", "web-a");
        text::explanation("shop", "web-a", &found, read)
    };
    assert!(
        explained(&read, ", priorityThreshold: {name: late}").contains("there is no priority class late")
    );
    read.hidden = vec!["priorityclasses", "the descheduler's cool-downs"];
    // Every cluster has it, with the same value.
    let known = explained(&read, ", priorityThreshold: {name: system-cluster-critical}");
    assert!(known.starts_with("The pod shop/web-a would be asked to leave.\n"), "{known}");
    let unknown = explained(&read, ", priorityThreshold: {name: late}");
    for (part, is_said) in [
        ("you may not list priority classes, and its priorityThreshold names late", true),
        ("Not considered, as you may not read them: priorityclasses, the descheduler's cool-downs.", true),
        ("there is no priority class", false),
        ("no plugin of the policy is enabled", false),
    ] {
        assert_eq!(unknown.contains(part), is_said, "{part}\n{unknown}");
    }
    let plan = plan(&read.cluster, &policy(", priorityThreshold: {name: late}"), &read.in_progress(now), now);
    let structured = serde_json::to_value(text::structured(&plan, &[], &read)).unwrap();
    assert_eq!(structured["notConsidered"], json!(["priorityclasses", "the descheduler's cool-downs"]));
}
