//! Pods that are leaving count for what they are about to be.

use serde_json::{Value, json};

use super::*;
use crate::Cluster;
use crate::policy::Policy;
use crate::testing::{cluster, node, now, plan_of, pod, policy, policy_with, proposed};

fn leaving(pods: &[&str]) -> InProgress {
    let mut in_progress = InProgress::default();
    for name in pods {
        in_progress.set_leaving("default", name, &format!("uid-{name}"), "somebody", asked());
    }
    in_progress
}

/// When pods were asked that are leaving.
fn asked() -> Timestamp {
    now() - jiff::SignedDuration::from_secs(60)
}

fn plan(cluster: &Cluster, policy: &Policy, pods: &[&str]) -> crate::Plan {
    crate::plan(cluster, policy, &leaving(pods), now())
}

fn tainted(name: &str) -> k8s_openapi::api::core::v1::Node {
    node(name, json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}}))
}

fn sized(name: &str, node: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    pod(name, node, json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}))
}

fn taints(evictor: Value) -> Policy {
    policy(evictor, "RemovePodsViolatingNodeTaints", json!({}))
}

#[test]
fn a_pod_whose_replacement_took_the_room_is_still_wanted() {
    let nodes = || vec![tainted("a"), node("b", json!({}))];
    let policy = taints(json!({"nodeFit": true}));
    let before = cluster(nodes(), vec![sized("old", "a", "3")]);
    assert_eq!(proposed(&plan_of(&before, &policy)), ["old"]);
    // Its surge pod runs where it would have fit.
    let surged = cluster(nodes(), vec![sized("old", "a", "3"), sized("new", "b", "3")]);
    assert_eq!(plan(&surged, &policy, &["old"]).still_wanted, ["uid-old"]);
    let mut cools = leaving(&["old"]);
    cools.set_cool_down("default", "old", "uid-old", now() + jiff::SignedDuration::from_secs(60));
    let plan = crate::plan(&surged, &policy, &cools, now());
    assert_eq!(plan.still_wanted, ["uid-old"], "a pause says when it is asked, not whether it is wanted");
}

#[test]
fn room_is_kept_for_pods_that_are_leaving() {
    let pods = (0..3).map(|i| sized(&format!("p{i}"), "a", "1")).collect();
    let cluster =
        cluster(vec![tainted("a"), node("b", json!({"status": {"allocatable": {"cpu": "2"}}}))], pods);
    let policy = taints(json!({"nodeFit": true}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["p0", "p1"]);
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0"])), ["p1"], "not one more in each cycle");
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0", "p1"])), [] as [&str; 0]);
}

#[test]
fn replicas_that_are_leaving_are_not_there() {
    let names = ["a", "b", "c"];
    let pods = names.iter().enumerate().map(|(i, node)| pod(&format!("p{i}"), node, json!({}))).collect();
    let nodes = names.iter().map(|name| tainted(name)).chain([node("d", json!({}))]).collect();
    let cluster = cluster(nodes, pods);
    let policy = taints(json!({"minReplicas": 2}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)).len(), 2);
    let plan = plan(&cluster, &policy, &["p2"]);
    assert_eq!((proposed(&plan).len(), plan.still_wanted), (1, vec!["uid-p2".to_owned()]));
}

#[test]
fn a_pod_that_is_leaving_is_in_nobodys_way() {
    let away = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    let nodes = vec![zone("a", "x"), zone("b", "x"), zone("c", "y")];
    let cluster = cluster(nodes, vec![pod("first", "a", away.clone()), pod("second", "b", away)]);
    let policy = policy(json!({}), "RemovePodsViolatingInterPodAntiAffinity", json!({}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["first"]);
    let plan_ = plan(&cluster, &policy, &["second"]);
    assert_eq!((proposed(&plan_), &plan_.still_wanted[..]), (vec![], &["uid-second".to_owned()][..]));
    let both = plan(&cluster, &policy, &["first", "second"]);
    assert_eq!(both.still_wanted, ["uid-first"], "one of them may stay");
}

#[test]
fn who_is_still_wanted_is_known_also_where_a_limit_is_reached() {
    let pods = vec![pod("free", "a", json!({})), pod("p", "b", json!({})), pod("q", "b", json!({}))];
    let cluster = cluster(vec![node("a", json!({})), tainted("b"), node("c", json!({}))], pods);
    let plugins = [("RemovePodsViolatingNodeTaints", json!({}))];
    let policy = policy_with(json!({"maxNoOfPodsToEvictTotal": 2}), json!({}), &plugins);
    // The limit is full with one that nobody wants any more and one that is wanted, and the latter comes last.
    let plan = plan(&cluster, &policy, &["free", "q"]);
    assert_eq!((proposed(&plan), plan.still_wanted.len()), (vec![], 1), "{plan:?}");
    assert_eq!(plan.still_wanted, ["uid-q"]);
}

#[test]
fn of_pods_on_nodes_that_are_not_ready_nobody_knows() {
    let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
    let silent = node("s", json!({"status": {"conditions": conditions}}));
    let nodes = vec![node("a", json!({})), node("b", json!({})), silent];
    let cluster = cluster(nodes, vec![pod("p", "s", json!({})), pod("q", "a", json!({}))]);
    assert_eq!(plan(&cluster, &taints(json!({})), &["p", "q"]).still_wanted, ["uid-p"]);
}

/// A pod that came after others were asked.
fn young(mut pod: k8s_openapi::api::core::v1::Pod) -> k8s_openapi::api::core::v1::Pod {
    pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    pod
}

/// The cluster of these pods, once more with a replacement on node b for each that is leaving.
fn plans_with_replacements(
    nodes: &[k8s_openapi::api::core::v1::Node],
    pods: &[k8s_openapi::api::core::v1::Pod],
    policy: &Policy,
) {
    let first = plan_of(&cluster(nodes.to_vec(), pods.to_vec()), policy);
    let leaving = proposed(&first);
    assert!(!leaving.is_empty(), "{first:?}");
    let mut wanted: Vec<String> = leaving.iter().map(|name| format!("uid-{name}")).collect();
    wanted.sort();
    let mut pods = pods.to_vec();
    for number in 0..=leaving.len() {
        let plan = plan(&cluster(nodes.to_vec(), pods.clone()), policy, &leaving);
        let mut still_wanted = plan.still_wanted.clone();
        still_wanted.sort();
        assert_eq!(still_wanted, wanted, "with {number} replacements");
        assert_eq!(proposed(&plan), [] as [&str; 0], "with {number} replacements");
        let mut replacement = young(pods[0].clone());
        replacement.metadata.name = Some(format!("new-{number}"));
        replacement.metadata.uid = Some(format!("uid-new-{number}"));
        replacement.spec.as_mut().unwrap().node_name = Some("b".to_owned());
        pods.push(replacement);
    }
}

fn two_nodes() -> Vec<k8s_openapi::api::core::v1::Node> {
    vec![node("a", json!({})), node("b", json!({}))]
}

#[test]
fn pods_whose_replacements_balance_the_cluster_are_still_wanted() {
    let on_a = |count: usize, cpu: &str| -> Vec<_> {
        (0..count).map(|i| sized(&format!("p{i}"), "a", cpu)).collect()
    };
    for count in [2, 4, 5] {
        plans_with_replacements(
            &two_nodes(),
            &on_a(count, "100m"),
            &policy(json!({}), "RemoveDuplicates", json!({})),
        );
    }
    let constraint = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let spread: Vec<_> = (0..4)
        .map(|i| pod(&format!("p{i}"), "a", json!({"spec": {"topologySpreadConstraints": constraint}})))
        .collect();
    let by_spread = policy(json!({}), "RemovePodsViolatingTopologySpreadConstraint", json!({}));
    plans_with_replacements(&two_nodes(), &spread, &by_spread);
    let low = json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}});
    plans_with_replacements(&two_nodes(), &on_a(4, "800m"), &policy(json!({}), "LowNodeUtilization", low));
    let mut hardly_used = vec![sized("p0", "a", "100m"), sized("p1", "a", "100m")];
    hardly_used.extend((0..4).map(|i| sized(&format!("q{i}"), "b", "500m")));
    let high = policy(json!({}), "HighNodeUtilization", json!({"thresholds": {"cpu": 20}}));
    plans_with_replacements(&two_nodes(), &hardly_used, &high);
}

#[test]
fn pods_whose_replacements_are_measured_are_still_wanted() {
    let usage = |cpu: &str| {
        let quantity = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        let of = [("cpu", cpu), ("memory", "1Mi")].map(|(name, text)| (name.to_owned(), quantity(text)));
        crate::Usage::Resources(of.into())
    };
    let args = |source: Value| json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metricsUtilization": source});
    let top = json!({"metricsProviders": [{"source": "KubernetesMetrics"}]});
    let plugins = [("LowNodeUtilization", args(json!({"source": "KubernetesMetrics"})))];
    let measured = policy_with(top, json!({}), &plugins);
    let pods = vec![sized("p0", "a", "1m"), sized("p1", "a", "1m"), young(sized("new", "b", "1m"))];
    let mut cluster = cluster(two_nodes(), pods);
    cluster.set_usage_of_node("a", &usage("3"));
    cluster.set_usage_of_node("b", &usage("1600m"));
    for name in ["p0", "p1", "new"] {
        cluster.set_usage_of_pod("default", name, &usage("1500m"));
    }
    assert_eq!(plan(&cluster, &measured, &["p0"]).still_wanted, ["uid-p0"]);
    // A query tells nothing of single pods.
    let top = json!({"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "https://p.example.com"}}]});
    let queried = json!({"thresholds": {"MetricResource": 20}, "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "q"}}});
    let queried = policy_with(top, json!({}), &[("LowNodeUtilization", queried)]);
    for (name, fraction) in [("a", 0.9), ("b", 0.4)] {
        cluster.set_usage_of_node(name, &crate::Usage::Fraction { query: "q".to_owned(), fraction });
    }
    assert_eq!(plan(&cluster, &queried, &["p0"]).still_wanted, ["uid-p0"]);
}

#[test]
fn only_as_many_as_are_leaving_and_only_what_came_later_are_replacements() {
    let policy = policy(json!({}), "RemoveDuplicates", json!({}));
    let wanted =
        |pods: Vec<_>, leaving: &[&str]| plan(&cluster(two_nodes(), pods), &policy, leaving).still_wanted;
    let two = || vec![pod("p0", "a", json!({})), pod("p1", "a", json!({}))];
    let with = |more: Vec<_>| two().into_iter().chain(more).collect::<Vec<_>>();
    // It was there before: one on each node would do, and there are two nodes for three.
    assert_eq!(wanted(with(vec![pod("old", "b", json!({}))]), &["p1"]), [] as [&str; 0]);
    let scaled = vec![young(pod("new", "b", json!({}))), young(pod("newer", "b", json!({})))];
    assert_eq!(wanted(with(scaled), &["p1"]), [] as [&str; 0], "one of them is more than a replacement");
    let other =
        json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "other", "uid": "other"}]}});
    assert_eq!(
        wanted(with(vec![young(pod("new", "b", other))]), &["p1"]),
        ["uid-p1"],
        "and it counts for others only"
    );
}

#[test]
fn another_pod_of_the_same_name_leaves_the_first_one_leaving() {
    let cluster = cluster(vec![tainted("a"), node("b", json!({}))], vec![pod("db-0", "a", json!({}))]);
    let mut in_progress = leaving(&["db-0"]);
    in_progress.set_leaving("default", "db-0", "uid-zzz", "somebody", asked());
    in_progress.set_cool_down("default", "db-0", "uid-zzz", now());
    let plan = crate::plan(&cluster, &taints(json!({})), &in_progress, now());
    assert_eq!(proposed(&plan), [] as [&str; 0]);
    assert_eq!(plan.still_wanted, ["uid-db-0"]);
}

#[test]
fn where_nobody_has_room_any_more_those_who_are_leaving_are_still_wanted() {
    // Room for one on b, and its replacement has taken it.
    let nodes = || {
        let small = json!({"metadata": {"labels": {"disk": "ssd"}}, "status": {"allocatable": {"cpu": "3"}}});
        vec![node("a", json!({"spec": {"unschedulable": true}})), node("b", small)]
    };
    let check = |more: Value, policy: &Policy, name: &str| {
        let mut more = more;
        let resources = json!({"requests": {"cpu": "2", "memory": "1Mi"}});
        crate::testing::merge(
            &mut more,
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}),
        );
        let pods = vec![pod("p0", "a", more.clone()), pod("p1", "a", more.clone())];
        let first = plan_of(&cluster(nodes(), pods.clone()), policy);
        assert_eq!(proposed(&first), [name]);
        let alone = plan(&cluster(nodes(), pods.clone()), policy, &[name]);
        assert_eq!(alone.still_wanted, [format!("uid-{name}")], "before its replacement comes");
        let pods = pods.into_iter().chain([young(pod("new", "b", more))]).collect();
        let surged = plan(&cluster(nodes(), pods), policy, &[name]);
        assert_eq!(surged.still_wanted, [format!("uid-{name}")]);
        assert_eq!(proposed(&surged), [] as [&str; 0], "{surged:?}");
    };
    let fits = json!({"nodeFit": true});
    check(json!({}), &policy(fits.clone(), "RemoveDuplicates", json!({})), "p1");
    let spread = json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    check(spread, &policy(fits.clone(), "RemovePodsViolatingTopologySpreadConstraint", json!({})), "p1");
    for kind in
        ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"]
    {
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
        let terms = match kind.starts_with("required") {
            true => json!({"nodeSelectorTerms": [term]}),
            false => json!([{"weight": 1, "preference": term}]),
        };
        let by_affinity =
            policy(fits.clone(), "RemovePodsViolatingNodeAffinity", json!({"nodeAffinityType": [kind]}));
        check(json!({"spec": {"affinity": {"nodeAffinity": {kind: terms}}}}), &by_affinity, "p0");
    }
}
